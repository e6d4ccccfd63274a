"""Decision logs by which a rebuilt core is compared with the one before: together they hold every kind of decision.

A recording is a stream of events and passes of a `CoreLoop`: days of a lab, days full of faults, days of AIJobs with their
operator, random objects over the whole schema, and small random clusters of which each has one subject (trees, time slicing,
moves ...). All are made from seeds, so the same code writes the same bytes. Each says what it is there for, and a recording
that does not hold that is refused.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from fairlead.api.names import AI_PROFILE, KUBERNETES_PROFILE
from fairlead.api.reasons import ReasonCode
from fairlead.cluster.port import BindFailed, Bound, ClusterEvent, EvictFailed, Gone, Synced, Upsert
from fairlead.core.model.objects import (
    WHOLE,
    DisruptionBudget,
    Group,
    Node,
    Pod,
    PodSpec,
    Policy,
    Queue,
    QueueResource,
    Reservation,
    ServiceClass,
    UserLimits,
)
from fairlead.core.model.transactions import Evict, Fault, Place, Preempt
from fairlead.scheduler.core_loop import CoreLoop, Output, Recorder, Trouble
from fairlead.scheduler.decision_log import LogError, LogWriter, Player, Replay
from fairlead.simulation import chaos, lab
from fairlead.simulation.events import EventQueue
from fairlead.simulation.fuzzing import world as fuzzing
from fairlead.simulation.traces import TraceJob

_GPU = "nvidia.com/gpu"
_GIB = 1 << 30
_START = 1_000_000.0
_HOUR = 3600.0


SUMMARY = "summary.json"
KINDS = frozenset(each.__name__ for each in get_args(Output)) - {Fault.__name__, Trouble.__name__}
"""Kinds of decision that all recordings hold between them. A `Fault` needs a bug of ours, and no `Trouble` is compared."""


class Refused(ValueError):
    """A recording lacks what it is there for, or all together lack a kind of decision."""


class Contents(msgspec.Struct):
    """What a log holds. decisions: by kind; reasons: codes of refusals; moves, suspensions: pods moved, jobs suspended."""

    name: str
    subject: str
    passes: int
    events: int
    bytes: int
    digest: str
    decisions: dict[str, int]
    reasons: dict[str, int]
    moves: int
    suspensions: int


class Summary(msgspec.Struct):
    """What was recorded. left_out: recordings that need what was not given. lacking: kinds and reason codes that none holds."""

    logs: list[Contents]
    passes: int
    events: int
    bytes: int
    decisions: dict[str, int]
    reasons: dict[str, int]
    left_out: list[str]
    lacking_decisions: list[str]
    lacking_reasons: list[str]


class Recording(NamedTuple):
    """One log. write: plays it; least: what it must hold, by kind of decision, reason code, `moves` or `suspensions`."""

    name: str
    subject: str
    write: Callable[[Path], None]
    least: Mapping[str, int]


# -- small random clusters --------------------------------------------------------------------


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """What a small random cluster is about.

    gpus: of each node; racks: how many racks nodes lie in; queues: (name, parent, quota, weight, limit), GPUs. classes: of which
    each job has one. sizes: (GPUs, members) of jobs, drawn alike; fractions: parts of a device in thousandths. spare: chance that
    a gang has members beyond its minimum. priorities: drawn alike. users: how many. load: how much of the cluster is asked for.
    faults: chance that a write fails. nodes_fail: seconds between failures of nodes, 0: none. edits: whether queues are edited.
    """

    gpus: Sequence[int] = (8, 8, 8, 8)
    racks: int = 0
    queues: Sequence[tuple[str, str, int | None, int | None, int | None]] = ()
    classes: Sequence[ServiceClass] = ()
    sizes: Sequence[tuple[int, int]] = ((1, 1), (2, 1), (4, 1), (8, 1))
    fractions: Sequence[int] = ()
    spare: float = 0.0
    priorities: Sequence[int] = (0,)
    users: int = 3
    per_user: UserLimits | None = None
    users_reclaim: bool = False
    load: float = 2.5
    hours: float = 24.0
    mean_hours: float = 1.0
    faults: float = 0.0
    nodes_fail: float = 0.0
    edits: bool = False
    budgets: int = 0
    reservations: Sequence[Reservation] = ()
    profile: str = AI_PROFILE
    policy: Policy = Policy()


class _Job(NamedTuple):
    name: str
    queue: str
    user: str
    service_class: str
    spec: PodSpec
    members: int
    least: int
    priority: int
    seconds: float
    labels: tuple[tuple[str, str], ...]


class _Cluster:
    """A cluster in memory whose pods run for as long as their jobs say and come back when they are evicted."""

    def __init__(self, theme: Theme, seed: int, recorder: Recorder, jobs: Sequence[tuple[float, _Job]] | None = None) -> None:
        self.theme = theme
        self.rnd = random.Random(f"decisions/{seed}")
        self.core = CoreLoop(theme.policy, self._take, recorder)
        self.queue: EventQueue[Callable[[], None]] = EventQueue()
        self.heard: list[ClusterEvent] = []
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, _Job] = {}  # by pod UID
        self.left: dict[str, float] = {}  # job -> seconds of work that are left
        self.began: dict[str, float] = {}  # pod UID -> when it began
        self.number = 0
        self.due = float("inf")
        self._set_up()
        for at, job in self._drawn() if jobs is None else jobs:
            self.queue.push(_START + at, lambda job=job: self._submit(job))  # type: ignore[misc]
        if theme.nodes_fail:
            self.queue.push(_START + theme.nodes_fail, self._node_fails)
        if theme.edits:
            self.queue.push(_START + 2 * _HOUR, self._edit_queue)

    def _set_up(self) -> None:
        theme = self.theme
        self.nodes = {
            f"node-{number:03d}": Node(
                f"node-{number:03d}",
                {_GPU: gpus, "cpu": 64_000, "memory": 256 * _GIB, "pods": 110},
                {"kubernetes.io/hostname": f"node-{number:03d}"}
                | ({"topology.kubernetes.io/rack": f"rack-{number % theme.racks}"} if theme.racks else {}),
                shares_gpus=bool(theme.fractions),
            )
            for number, gpus in enumerate(theme.gpus)
        }
        self._say(*map(Upsert, self.nodes.values()), *map(Upsert, theme.classes))
        for name, parent, quota, weight, limit in theme.queues:
            self._say(Upsert(self._queue(name, parent, quota, weight, limit)))
        self._say(*map(Upsert, theme.reservations))
        for number in range(theme.budgets):
            self._say(Upsert(DisruptionBudget("ns", f"budget-{number}", (), 1)))
        self._say(Synced())

    def _queue(self, name: str, parent: str, quota: int | None, weight: int | None, limit: int | None) -> Queue:
        theme = self.theme
        amounts = [None if each is None else each * WHOLE for each in (quota, limit)]
        leaf = not any(each[1] == name for each in theme.queues)
        return Queue(
            name,
            parent,
            resources=(QueueResource(_GPU, amounts[0], amounts[1], weight=weight),),
            per_user=theme.per_user if leaf else None,
            users_reclaim=theme.users_reclaim and leaf,
        )

    def _drawn(self) -> Iterable[tuple[float, _Job]]:
        theme, rnd = self.theme, self.rnd
        above = {each[1] for each in theme.queues}
        leaves = [each[0] for each in theme.queues if each[0] not in above] or ["default"]
        wanted = sum(theme.gpus) * theme.hours * _HOUR * theme.load
        number = 0
        while wanted > 0:
            gpus, members = rnd.choice(theme.sizes)
            milli = rnd.choice(theme.fractions) if theme.fractions and gpus == 1 and rnd.random() < 0.6 else WHOLE
            least = members
            if members > 1 and rnd.random() < theme.spare:
                members += rnd.randint(1, 3)
            seconds = min(rnd.expovariate(1 / (theme.mean_hours * _HOUR)) + 60.0, 12 * _HOUR)
            requests = {"cpu": 1000, "pods": 1} | ({_GPU: gpus} if milli == WHOLE else {})
            spec = PodSpec(tuple(sorted(requests.items())), gpus=gpus, gpu_milli=milli)
            labels = (("app", f"app-{number % 5}"),)
            user, queue = f"user-{rnd.randrange(theme.users)}", rnd.choice(leaves)
            service = rnd.choice(theme.classes).name if theme.classes else ""
            job = _Job(f"job-{number}", queue, user, service, spec, members, least, rnd.choice(theme.priorities), seconds, labels)
            yield rnd.uniform(0.0, theme.hours * 0.8 * _HOUR), job
            wanted -= gpus * milli / WHOLE * members * seconds
            number += 1

    # -- what happens --------------------------------------------------------------------------

    def run(self) -> None:
        """Until nothing happens any more, or time is up."""
        until = _START + self.theme.hours * _HOUR
        self._decide(_START)
        while (now := self.queue.next_time) is not None and now <= until:
            while len(self.queue) and self.queue.next_time == now:
                self.queue.pop()()
            self._decide(now)

    def _decide(self, now: float) -> None:
        if self.heard:
            heard, self.heard = self.heard, []
            self.core.apply(heard, now)
        self.core.decide(now)
        due = self.core.next_due
        if due is not None and (due := max(due, now + 0.001)) < self.due:
            self.due = due
            self.queue.push(due, self._look)

    def _look(self) -> None:
        self.due = float("inf")

    def _say(self, *events: ClusterEvent) -> None:
        self.heard += events

    @property
    def now(self) -> float:
        return max(_START, self.queue.now)

    def _submit(self, job: _Job) -> None:
        self.left.setdefault(job.name, job.seconds)
        if job.members > 1:
            group = Group("ns", job.name, job.least, job.queue, self.now, job.service_class, expected=job.seconds)
            self._say(Upsert(group))
        for index in range(job.members):
            self._make(job, index)

    def _make(self, job: _Job, index: int) -> None:
        self.number += 1
        uid = f"uid-{self.number:06d}"
        pod = Pod(
            uid,
            "ns",
            f"{job.name}-{index}",
            job.spec,
            queue=job.queue,
            group=job.name if job.members > 1 else "",
            priority=job.priority,
            created=float(int(self.now)),
            labels=job.labels,
            owner=f"owner-{job.name}",
            user=job.user,
            service_class=job.service_class,
            expected=job.seconds,
            profile=self.theme.profile,
            surplus=index >= job.least,
        )
        self.pods[uid], self.jobs[uid] = pod, job
        self._say(Upsert(pod))

    def _take(self, outputs: list[Output]) -> None:
        for each in outputs:
            if isinstance(each, Place):
                for binding in each.bindings:
                    self.queue.push(self.now + 1.0, lambda binding=binding: self._bind(binding.pod.uid, binding.node))  # type: ignore[misc]
            elif isinstance(each, Preempt | Evict):
                for victim in each.victims:
                    self.queue.push(self.now + 1.0, lambda uid=victim.pod.uid: self._evict(uid))  # type: ignore[misc]

    def _bind(self, uid: str, node: str) -> None:
        pod = self.pods.get(uid)
        if pod is None or node not in self.nodes or self.rnd.random() < self.theme.faults:
            if pod is not None:
                self._say(BindFailed(uid, "the server does not answer"))
            return
        self.pods[uid] = pod = msgspec.structs.replace(pod, node=node, started=self.now)
        self._say(Bound(uid), Upsert(pod))
        self.began[uid] = self.now
        self.queue.push(self.now + self.left[self.jobs[uid].name], lambda: self._end(uid))

    def _evict(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is None or pod.terminating:
            return
        if self.rnd.random() < self.theme.faults:
            self._say(EvictFailed(uid, "the server does not answer"))
            return
        self.pods[uid] = msgspec.structs.replace(pod, terminating=True, leaves=self.now + 30.0)
        self._say(Upsert(self.pods[uid]))
        self.queue.push(self.now + self.rnd.uniform(1.0, 30.0), lambda: self._gone(uid, back=True))

    def _end(self, uid: str) -> None:
        if uid in self.pods and not self.pods[uid].terminating:
            self._gone(uid, back=False)

    def _gone(self, uid: str, *, back: bool) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        job = self.jobs.pop(uid)
        self._say(Gone("pod", uid))
        if back:
            begun = self.began.get(uid)
            if begun is not None and job.members == 1:
                self.left[job.name] = max(60.0, self.left[job.name] - (self.now - begun))
            self._make(job, int(pod.name.rpartition("-")[2]))
        elif job.members > 1 and not any(other.group == job.name for other in self.pods.values()):
            self._say(Gone("group", f"ns/{job.name}"))

    def _node_fails(self) -> None:
        name = self.rnd.choice(sorted(self.nodes))
        node = self.nodes[name]
        if self.rnd.random() < 0.5:
            self._say(Upsert(msgspec.structs.replace(node, unschedulable=True)))
        else:
            self._say(Gone("node", name))
            for uid in sorted(uid for uid, pod in self.pods.items() if pod.node == name):
                self._gone(uid, back=True)
        self.queue.push(self.now + 0.2 * self.theme.nodes_fail, lambda: self._say(Upsert(node)))
        self.queue.push(self.now + self.rnd.uniform(0.5, 1.5) * self.theme.nodes_fail, self._node_fails)

    def _edit_queue(self) -> None:
        name, parent, quota, weight, limit = self.rnd.choice(list(self.theme.queues))
        quota = None if quota is None else self.rnd.randint(0, 2 * quota)
        self._say(Upsert(self._queue(name, parent, quota, self.rnd.randint(1, 4) if weight else None, limit)))
        self.queue.push(self.now + self.rnd.uniform(1.0, 3.0) * _HOUR, self._edit_queue)


# -- what is recorded -------------------------------------------------------------------------

_FLAT = (("red", "", 8, 1, None), ("green", "", 16, 1, None), ("blue", "", 8, 2, None))
_TREE = (
    ("lab", "", 16, 1, None),
    ("shop", "", 16, 2, None),
    ("lab-a", "lab", 4, 1, None),
    ("lab-b", "lab", 12, 1, None),
    ("shop-a", "shop", 8, 3, 20),
    ("shop-b", "shop", None, 1, None),
)
_DEEP = (
    ("top", "", 24, 1, None),
    ("side", "", 8, 1, None),
    ("mid-a", "top", 12, 1, None),
    ("mid-b", "top", 12, 2, None),
    ("leaf-a", "mid-a", 8, 1, None),
    ("leaf-b", "mid-a", None, 1, None),
    ("leaf-c", "mid-b", 6, 2, 16),
    ("leaf-d", "mid-b", 6, 1, None),
)
_LEVELS = tuple(hours * _HOUR for hours in (0.25, 1, 4, 16, 64))
_SLICED = ServiceClass("sliced", checkpoint_interval=1800.0, levels=_LEVELS, express=2)
_SAVED = ServiceClass("saved", checkpoint_interval=1800.0, levels=_LEVELS, express=2, max_loss=60.0)
_WHOLE = ServiceClass("whole", checkpoint_interval=600.0, moves_whole=True)
_FIRM = ServiceClass("firm", mode="Never", borrows=False)
_WIDE = ServiceClass("wide", scope="Cluster", min_runtime=600.0)
_HURRY = ServiceClass("hurry", max_wait=1800.0, time_limit=4 * _HOUR)
_PLAIN = ServiceClass("plain", checkpoint_interval=1800.0)
_GANGS = ((1, 1), (2, 1), (8, 1), (4, 2), (8, 2), (8, 3), (2, 4))

_THEMES: dict[str, tuple[str, Theme, dict[str, int]]] = {
    "flat": ("three queues of one level", Theme(queues=_FLAT), {"Place": 50, "Preempt": 5}),
    "tree": ("reclaim in a tree of two levels", Theme(queues=_TREE, sizes=_GANGS), {"Place": 40, "Preempt": 5}),
    "deep": ("reclaim in a tree of three levels", Theme(queues=_DEEP, sizes=_GANGS), {"Place": 40, "Preempt": 5}),
    "share-wait": (
        "waits for a share end",
        Theme(queues=_FLAT, sizes=((6, 1), (8, 1), (1, 1)), policy=Policy(share_wait=900.0)),
        {"Place": 20, "Preempt": 3},
    ),
    "elastic": ("members beyond the minimum", Theme(queues=_FLAT, sizes=_GANGS, spare=0.9), {"Place": 40, "Preempt": 5}),
    "time-slicing": ("turns, whatever they cost", Theme(queues=_FLAT, classes=(_SLICED,)), {"Preempt": 20}),
    "checkpoints": ("turns that wait for checkpoints", Theme(queues=_TREE, classes=(_SAVED,)), {"Preempt": 10}),
    "priorities": ("preemption inside a queue", Theme(priorities=(0, 10, 100), sizes=_GANGS, mean_hours=0.5), {"Preempt": 10}),
    "moves": (
        "pods are moved",
        Theme(queues=_FLAT, classes=(_PLAIN,), load=1.0, policy=Policy(reservations=0, move_patience=60.0)),
        {"moves": 3},
    ),
    "moves-whole": (
        "whole gangs are moved",
        Theme(
            classes=(_WHOLE,),
            sizes=((2, 2), (2, 3), (1, 3), (8, 1)),
            load=0.9,
            mean_hours=3.0,
            hours=48.0,
            policy=Policy(reservations=0, move_patience=60.0),
        ),
        {"moves": 3},
    ),
    "reservations": ("nodes are kept for large jobs", Theme(sizes=((1, 1), (8, 2), (8, 3)), load=1.2), {"Place": 30}),
    "maintenance": (
        "nodes that an administrator keeps for a while",
        Theme(
            queues=_FLAT,
            reservations=(
                Reservation("inspection", _START + 3 * _HOUR, _START + 6 * _HOUR, resources=((_GPU, 16),)),
                Reservation("course", _START + 8 * _HOUR, _START + 12 * _HOUR, queue="red", resources=((_GPU, 8),)),
            ),
        ),
        {"ReservationStatus": 4, "Reservation": 5},
    ),
    "fractions": (
        "parts of devices",
        Theme(queues=_FLAT, fractions=(250, 300, 500, 700), sizes=((1, 1), (1, 1), (2, 1), (8, 1))),
        {"Place": 50},
    ),
    "users": (
        "limits by user, and users that take from each other",
        Theme(queues=_FLAT, per_user=UserLimits(running=6, resources=((_GPU, 10 * WHOLE),)), users_reclaim=True, users=5),
        {"Place": 30, "UserLimit": 5},
    ),
    "budgets": ("disruption budgets", Theme(queues=_FLAT, budgets=1), {"DisruptionBudget": 1}),
    "firm": ("work that is not preempted", Theme(queues=_TREE, classes=(_FIRM, _PLAIN)), {"QuotaExceeded": 3}),
    "wide": (
        "a class that takes from all queues",
        Theme(queues=_FLAT, classes=(_WIDE, _PLAIN), priorities=(0, 50)),
        {"Preempt": 5},
    ),
    "limits-of-time": (
        "waits that end, time limits",
        Theme(classes=(_HURRY, _PLAIN), mean_hours=3.0),
        {"Overdue": 3, "Evict": 1},
    ),
    "failures": (
        "writes that fail, nodes that come and go",
        Theme(queues=_TREE, sizes=_GANGS, spare=0.5, faults=0.1, nodes_fail=_HOUR),
        {"Place": 40, "Evict": 1},
    ),
    "edits": ("quotas and weights that are edited", Theme(queues=_TREE, edits=True), {"Place": 40, "Preempt": 5}),
    "kubernetes": (
        "upstream's rules",
        Theme(profile=KUBERNETES_PROFILE, priorities=(0, 10, 100), sizes=((1, 1), (2, 1), (4, 1), (8, 1))),
        {"Place": 50, "Preempt": 5},
    ),
    "binpack": ("strategy binpack", Theme(queues=_FLAT, sizes=_GANGS, policy=Policy(strategy="binpack")), {"Place": 40}),
    "spread": ("strategy spread", Theme(queues=_FLAT, sizes=_GANGS, policy=Policy(strategy="spread")), {"Place": 40}),
    "fgd": (
        "strategy fgd, with fractions",
        Theme(fractions=(250, 500, 700), sizes=((1, 1), (1, 1), (4, 1)), hours=8.0, policy=Policy(strategy="fgd")),
        {"Place": 50},
    ),
    "mixed": (
        "everything at once",
        Theme(
            gpus=(8, 8, 4, 4, 2, 2),
            queues=_TREE,
            classes=(_SAVED, _PLAIN, _FIRM, _WHOLE),
            sizes=_GANGS,
            spare=0.4,
            priorities=(0, 0, 10),
            fractions=(500,),
            faults=0.03,
            nodes_fail=3 * _HOUR,
            edits=True,
        ),
        {"Place": 40, "Preempt": 5},
    ),
}


_SCHEMA: dict[int, dict[str, int]] = {
    1: {"UnknownQueue": 10, "NotAllowed": 3},
    2: {"Topology": 1, "TooLarge": 10},
    3: {"Volumes": 5, "TimeLimit": 1},
    4: {"InvalidSpec": 8, "UnknownServiceClass": 3},
    5: {"Devices": 5, "Kept": 1},
    6: {"Unread": 5, "Gated": 5},
}


def recordings(trace: Sequence[TraceJob] = ()) -> list[Recording]:
    """All of them. trace: jobs of which the first are replayed as one more; without them that one is left out."""
    found = [Recording(name, subject, _small(theme), least) for name, (subject, theme, least) in _THEMES.items()]
    found += [Recording(f"lab-{seed}", "half a day of a lab", _lab(seed), {"Place": 100}) for seed in (1, 2, 3)]
    for workload, seeds, least in (("pods", range(1, 7), {"Place": 5}), ("aijobs", range(1, 7), {"Place": 5})):
        for seed in seeds:
            settings = chaos.Settings(nodes=16, jobs=80, hours=8.0, workload=workload)
            found.append(Recording(f"faults-{workload}-{seed}", "a day full of faults", _day(seed, settings), least))
    for seed in (1, 2, 3):
        settings = chaos.Settings(nodes=14, jobs=60, hours=8.0, workload="aijobs", faults=False)
        least = {"Place": 30, "suspensions": 3, "Resume": 3}
        found.append(Recording(f"aijobs-{seed}", "AIJobs that are suspended and resumed", _day(seed, settings), least))
    for seed, least in _SCHEMA.items():
        found.append(Recording(f"schema-{seed}", "random objects over the whole schema", _schema(seed), least))
    if trace:
        theme = Theme(gpus=(8,) * 24, queues=(), classes=(_SAVED,), hours=48.0, policy=Policy(strategy="binpack", reservations=0))
        jobs = list(_of_trace(trace, theme.hours * 0.8 * _HOUR))
        found.append(Recording("trace", "the first jobs of a trace", _small(theme, jobs), {"Place": 100}))
    return found


def _small(theme: Theme, jobs: Sequence[tuple[float, _Job]] | None = None) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            _Cluster(theme, 1, LogWriter(file, theme.policy), jobs).run()

    return write


def _lab(seed: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        lab.record(path, nodes=24, jobs=400, seed=seed, hours=12.0)

    return write


def _day(seed: int, settings: chaos.Settings) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        chaos.run(seed, settings, path)

    return write


def _schema(seed: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            fuzzing.World(seed, 80, lambda policy: LogWriter(file, policy)).run()

    return write


def _of_trace(trace: Sequence[TraceJob], until: float) -> Iterable[tuple[float, _Job]]:
    first = min(job.submitted for job in trace)
    for number, job in enumerate(trace):
        if job.submitted - first > until:
            continue
        members, gpus = (max(1, job.gpus // 8), 8) if job.gpus > 8 else (1, job.gpus)
        spec = PodSpec((("cpu", 1000), (_GPU, gpus), ("pods", 1)), gpus=gpus)
        made = _Job(f"job-{number}", "default", f"user-{number % 7}", "saved", spec, members, members, 0, job.duration, ())
        yield job.submitted - first, made


# -- recording and replaying ------------------------------------------------------------------


def record(
    folder: Path,
    found: Sequence[Recording],
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    *,
    complete: bool = False,
    left_out: Sequence[str] = (),
) -> Summary:
    """Write each recording to `folder/NAME.jsonl`, and the summary last: a folder without one is not complete.

    complete: these are all, so that they hold every kind of decision. Raises `Refused` if they do not, or if one lacks what it
    is there for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).unlink(missing_ok=True)
    contents = []
    for number, each in enumerate(found):
        path = folder / f"{each.name}.jsonl"
        each.write(path)
        contents.append(look(path, each))
        progress(number + 1, len(found))
    summary = _summary(contents, left_out)
    if complete and summary.lacking_decisions:
        raise Refused(f"no recording holds a decision of kind {', '.join(summary.lacking_decisions)}")
    (folder / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2))
    return summary


def _summary(logs: list[Contents], left_out: Sequence[str]) -> Summary:
    decisions: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for log in logs:
        decisions.update(log.decisions)
        reasons.update(log.reasons)
    return Summary(
        logs=logs,
        passes=sum(log.passes for log in logs),
        events=sum(log.events for log in logs),
        bytes=sum(log.bytes for log in logs),
        decisions=dict(sorted(decisions.items())),
        reasons=dict(sorted(reasons.items())),
        left_out=list(left_out),
        lacking_decisions=sorted(KINDS - set(decisions)),
        lacking_reasons=sorted(str(code) for code in ReasonCode if str(code) not in reasons),
    )


def check(folder: Path) -> None:
    """Raises `LogError` where a log that the folder's summary names is missing, or is not what was recorded.

    A log that was cut off is identical as far as it goes. Without a summary the logs are whatever was put there.
    """
    if not (folder / SUMMARY).exists():
        return
    try:
        logs = msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Summary).logs
    except msgspec.DecodeError as error:
        raise LogError(f"{folder / SUMMARY} cannot be read: {error}") from error
    for log in logs:
        path = folder / f"{log.name}.jsonl"
        if not path.exists():
            raise LogError(f"{path} is missing: record it anew")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != log.digest:
                raise LogError(f"{path} is not what was recorded: record it anew")


class _Line(msgspec.Struct):
    events: list[msgspec.Raw] | None = None
    outputs: list[dict[str, object]] | None = None


def look(path: Path, recording: Recording) -> Contents:
    """What a log holds. Raises `Refused` if that is not enough."""
    decode = msgspec.json.Decoder(_Line).decode
    passes = events = moves = suspensions = 0
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.readline())
        for content in file:
            digest.update(content)
            line = decode(content)
            events += len(line.events or ())
            passes += line.outputs is not None
            for each in line.outputs or ():
                kinds[str(each["type"])] += 1
                reason = each.get("reason")
                if isinstance(reason, dict):
                    reasons[str(reason.get("code"))] += 1
                moves += len(_listed(each.get("moved")))
                suspensions += len(_listed(each.get("suspends")))
    found = Contents(
        recording.name,
        recording.subject,
        passes,
        events,
        path.stat().st_size,
        digest.hexdigest(),
        dict(sorted(kinds.items())),
        dict(sorted(reasons.items())),
        moves,
        suspensions,
    )
    held = {**found.reasons, **found.decisions, "moves": moves, "suspensions": suspensions}
    for what, least in recording.least.items():
        if held.get(what, 0) < least:
            raise Refused(f"recording {recording.name!r} ({recording.subject}) holds {held.get(what, 0)} x {what}, not {least}")
    return found


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def replay(paths: Sequence[Path], progress: Callable[[int, int], None] = lambda _done, _of: None) -> dict[str, Replay]:
    """Each log through a fresh core, by name. Raises `LogError` for what is no log."""
    found: dict[str, Replay] = {}
    for number, path in enumerate(paths):
        found[path.stem] = Player(path).play()
        progress(number + 1, len(paths))
    return found
