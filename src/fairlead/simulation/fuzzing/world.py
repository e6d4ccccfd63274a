"""One cluster with the scheduler's loop behind it: objects in JSON, read as a watch brings them, decisions played back.

Nothing is decided beside the loop: what it delivers is carried out here, refused, delayed or lost, by chance. The clock is
virtual. A seed determines everything.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

import msgspec
import structlog

from fairlead.cluster import targets, views
from fairlead.cluster.kinds import KINDS, POD, Kind
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.port import BindFailed, Bound, ClusterEvent, EvictFailed, StorageKnown, Synced
from fairlead.cluster.times import timestamp
from fairlead.cluster.translate import Change, Translator
from fairlead.core import invariants
from fairlead.core.feasibility import judge as feasible
from fairlead.core.model.policy import Defragment, Policy
from fairlead.core.model.transactions import Binding, Evict, Place, Preempt, Refuse, Resume
from fairlead.core.pods.tasks import TaskState
from fairlead.scheduler import explanations
from fairlead.scheduler.core_loop import CoreLoop, Recorder
from fairlead.scheduler.outputs import Output, Trouble
from fairlead.simulation.fuzzing import judge
from fairlead.simulation.fuzzing.pods import GROUPS, NODES, Object, PodWriter
from fairlead.simulation.fuzzing.surroundings import Surroundings

_START = 1_800_000_000.0
_SETTLES = 12
_MOST_PASSES = 40
_CANARIES = 3


class Fault(msgspec.Struct, frozen=True):
    """Something that went wrong. seed: of its world; where: the innermost frames of ours; what: the error."""

    seed: int
    step: int
    kind: str
    where: str
    what: str


class World:
    """One random cluster. pods: how many are written besides the canaries; faults: takes what goes wrong.

    recorder: makes one for the policy that is drawn, where the decisions are to be written down.
    """

    def __init__(self, seed: int, pods: int, recorder: Callable[[Policy], Recorder] | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = _START
        self.faults: list[Fault] = []
        self.starved: list[str] = []
        self.untold = 0
        self.written = 0
        self.step = 0
        self._wanted = pods
        self._objects: dict[str, dict[str, Object]] = {}  # kind -> key -> object
        self._versions = 0
        self._outputs: list[Output] = []
        self._stuck: set[str] = set()  # victims that do not go before the end
        self._refused: set[str] = set()  # pods with a reported reason for waiting
        self._writer = PodWriter(self.random)
        self._surroundings = Surroundings(self.random, self._writer)
        self.translator = Translator()
        policy = self._policy()
        self.loop = CoreLoop(policy, self._outputs.extend, recorder(policy) if recorder else None)
        self.loop.snapshots.rest = 30.0
        self._informers = {kind.name: self._informer(kind) for kind in KINDS}

    def _policy(self) -> Policy:
        random = self.random
        return Policy(
            strategy=random.choice(("ai", "ai", "ai", "binpack", "spread", "fgd")),
            preempt=random.random() < 0.9,
            reclaim=random.random() < 0.9,
            usage_half_life=random.choice((0.0, 3600.0)),
            reservations=random.choice((0, 1, 2)),
            patience=random.choice((0.0, 30.0, 300.0)),
            move_patience=random.choice((1.0, 60.0)),
            defragment=random.choice((None, None, Defragment(every=120.0, threshold=0.1))),
            recheck=random.choice((0.0, 30.0, 300.0)),
        )

    def _informer(self, kind: Kind[Any]) -> Informer[Any]:
        def report(changes: list[Change[Any]]) -> None:
            self.loop.apply(self.translator.translate(kind, changes), self.now)

        def key(metadata: views.Metadata) -> str:
            return metadata.uid if kind is POD else metadata.key if metadata.namespace else metadata.name

        unused = cast(Client, None)  # no request is made: lines come from here
        return Informer(unused, kind.name, kind.view, report, lambda: None, key=key)

    # -- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """Live it from the first object to the judgement."""
        with _errors_logged(self._error_logged), warnings.catch_warnings():
            warnings.simplefilter("error")  # of numbers that overflow
            try:
                self._live()
            except Exception as error:  # noqa: BLE001 - any that gets out of a pass is a finding
                self._note("pass", error)

    def _live(self) -> None:
        random = self.random
        first = [*self._surroundings.everything(self.now), *judge.surroundings()]
        for kind, made in first:
            self._write(kind, made)
        self.loop.apply([StorageKnown(), Synced()] if random.random() < 0.9 else [Synced()], self.now)
        canaries = [judge.canary(number, self.now) for number in range(_CANARIES)]
        while self.written < self._wanted:
            self.step += 1
            for _ in range(random.choice((1, 1, 2, 4))):
                self._change()
            if canaries and random.random() < 0.1:
                self._write("pod", canaries.pop())
            self.now += random.choice((0.0, 0.0, 0.05, 1.0, 5.0, 61.0, 400.0))
            self._decide()
            if random.random() < 0.1:
                self._ask()
            if random.random() < 0.02:
                self._check()
        for canary in canaries:
            self._write("pod", canary)
        self._settle()
        self._check()
        self.starved = judge.starved(self._objects, self.loop.state.services.now)
        waiting = [task for task in self.loop.state.tasks.values() if task.state is TaskState.WAITING and task.pod.ours]
        self.untold = sum(task.pod.uid not in self._refused and task.pod.uid in self._objects["pod"] for task in waiting)

    def _settle(self) -> None:
        """All victims go, every write succeeds, and time passes, until nothing happens any more."""
        for uid in sorted(self._stuck):
            self._delete("pod", uid)
        self._stuck.clear()
        for task in list(self.loop.state.tasks.values()):
            if task.state is TaskState.ASSUMED:
                self._carry(lambda uid=task.pod.uid: BindFailed(uid, "never observed again"))  # type: ignore[misc]
        for _ in range(_SETTLES):
            self.now += 150.0
            self._decide(surely=True)

    def _decide(self, *, surely: bool = False) -> None:
        for _ in range(_MOST_PASSES):
            del self._outputs[:]
            self.loop.decide(self.now)
            outputs, self._outputs[:] = list(self._outputs), []
            for output in outputs:
                self._play(output, surely=surely)
            if not self.loop.stale and not self.loop.has_work:
                return

    def _ask(self) -> None:
        """What people ask of a running scheduler; questions change nothing, and always have an answer."""
        state = self.loop.state
        tasks = sorted(state.tasks.values(), key=lambda task: task.pod.uid)
        if not tasks:
            return
        task = self.random.choice(tasks)
        explanations.live(self.loop, "pod", task.pod.namespace, task.pod.name, self.now)
        explanations.pending(self.loop, task.pod.namespace)
        if task.state is TaskState.WAITING and task.row < 0:
            feasible(state, task, {name: list(others.values()) for name, others in state.pods.nominated.items()})

    def _check(self) -> None:
        for wrong in (invariants.violations(self.loop.state) + self._misplaced())[:3]:
            self.faults.append(Fault(self.seed, self.step, "invariant", wrong.partition(":")[0][:60], wrong[:400]))

    def _misplaced(self) -> list[str]:
        """Pods that the scheduler thinks elsewhere than they are, of those that it can read."""
        tasks, wrong = self.loop.state.tasks, []
        for uid, pod in self._objects.get("pod", {}).items():
            spec, task = pod.get("spec"), tasks.get(uid)
            node = spec.get("nodeName") if isinstance(spec, dict) else None
            if not node or not isinstance(node, str) or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue
            if task is None or (task.pod.node != node and task.pod.error is None):
                wrong.append(f"a pod is misplaced: {uid} runs on {node}, not on {task and task.pod.node!r}")
        return wrong

    def _note(self, kind: str, error: BaseException) -> None:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if "/fairlead/" in each.filename]
        where = " < ".join(f"{each.filename.rpartition('/fairlead/')[2]}:{each.lineno} {each.name}" for each in frames[:-4:-1])
        self.faults.append(Fault(self.seed, self.step, kind, where, repr(error)[:400]))

    def _error_logged(self, event: str, error: BaseException) -> None:
        """Something was logged with a traceback: an exception that was contained, and spoiled something."""
        self._note("pass" if event == "pass failed" else "set aside", error)

    @property
    def set_aside(self) -> int:
        """Exceptions that the scheduler contained, by its own count or by its log, whichever is more."""
        logged = sum(fault.kind == "set aside" for fault in self.faults)
        return max(logged, sum(self.loop.counters.faults.values()))

    # -- the cluster ---------------------------------------------------------------------------

    def _write(self, kind: str, made: Object) -> None:
        """Create an object, or replace it, as its watch brings it."""
        self._versions += 1
        made["metadata"]["resourceVersion"] = str(self._versions)
        self._objects.setdefault(kind, {})[self._key(kind, made)] = made
        self._line(kind, "MODIFIED", made)

    def _delete(self, kind: str, key: str) -> None:
        gone = self._objects.get(kind, {}).pop(key, None)
        if gone is not None:
            self._line(kind, "DELETED", gone)

    def _line(self, kind: str, what: str, made: Object) -> None:
        changes: list[Change[Any]] = []
        informer = self._informers[kind]
        informer.take(msgspec.json.encode({"type": what, "object": made}), changes)
        if changes:
            informer.report(changes)

    @staticmethod
    def _key(kind: str, made: Object) -> str:
        metadata = made["metadata"]
        if kind == "pod":
            return str(metadata["uid"])
        return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])

    def _change(self) -> None:
        """Something happens."""
        random = self.random
        pods = self._objects.get("pod", {})
        fuzzed = [uid for uid in pods if not judge.is_canary(uid)]
        what = random.random()
        if what < 0.5 or not fuzzed:
            self._arrive()
        elif what < 0.7:
            self._write("pod", self._writer.changed(pods[random.choice(fuzzed)], self.now))
        elif what < 0.79:
            self._delete("pod", random.choice(fuzzed))
        elif what < 0.84:
            ended = pods[random.choice(fuzzed)]
            self._write(
                "pod", {**ended, "metadata": {**ended["metadata"]}, "status": {"phase": random.choice(("Succeeded", "Failed"))}}
            )
        elif what < 0.96:
            self._write(*self._surroundings.another(self.now))
        else:
            kind = random.choice(
                (
                    "node",
                    "queue",
                    "group",
                    "class",
                    "budget",
                    "claim",
                    "volume",
                    "pool",
                    "namespace",
                    "services",
                    "reservation",
                    "priority",
                )
            )
            keys = [key for key in self._objects.get(kind, {}) if not judge.is_canary(key)]
            if keys:
                self._delete(kind, random.choice(keys))

    def _arrive(self) -> None:
        """A pod, or several of one template."""
        random = self.random
        group = random.choice(GROUPS) if random.random() < 0.15 else ""
        made = self._writer.pod(self.written, self.now, group=group)
        self.written += 1
        namespace = made["metadata"]["namespace"]
        if group and f"{namespace}/{group}" not in self._objects.get("group", {}) and random.random() < 0.8:
            self._write("group", self._surroundings.group(namespace, group))
        self._write("pod", made)
        for _ in range(random.choice((0, 0, 0, 1, 3, 9)) if not group else random.choice((1, 2, 3, 3))):
            name, self.written = f"{self.written}", self.written + 1
            metadata = {**made["metadata"], "name": f"p{name}", "uid": f"uid-{name}"}
            self._write("pod", {**made, "metadata": metadata})

    # -- decisions -----------------------------------------------------------------------------

    def _carry(self, outcome: Callable[[], ClusterEvent]) -> None:
        self.loop.apply([outcome()], self.now)

    def _play(self, output: Output, *, surely: bool) -> None:
        """Carry a decision out."""
        if isinstance(output, Place):
            for binding in output.bindings:
                self._bind(binding, surely=surely)
        elif isinstance(output, Preempt):
            for job in output.suspends:
                self._set_target(job.group, targets.suspended(job), targets.group_for(job) if job.made else None)
            for victim in output.victims:
                self._evict(victim, surely=surely)
        elif isinstance(output, Evict):
            for victim in output.victims:
                self._evict(victim, surely=surely)
        elif isinstance(output, Resume):
            self._set_target(output.group, targets.running(output), None)
        elif isinstance(output, Refuse):
            self._refused.update(pod.uid for pod in output.pods)
        elif isinstance(output, Trouble):
            pass  # it was logged with its traceback

    def _bind(self, binding: Binding, *, surely: bool) -> None:
        uid, chance = binding.pod.uid, 0.0 if surely else self.random.random()
        pod = self._objects["pod"].get(uid)
        if pod is None or chance > 0.95:
            self._carry(lambda: BindFailed(uid, "it is gone"))
            return
        if chance > 0.92:
            return  # there is no answer yet: later
        self._bind_volumes(binding)
        if self.random.random() < 0.5:
            self._carry(lambda: Bound(uid))
        status = {**(pod.get("status") or {}), "phase": "Running", "startTime": timestamp(self.now)}
        metadata = {**pod["metadata"]}
        self._write("pod", {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": binding.node}, "status": status})
        self._carry(lambda: Bound(uid))

    def _bind_volumes(self, binding: Binding) -> None:
        for choice in binding.volumes:
            claim = self._objects.get("claim", {}).get(choice.claim)
            if claim is None:
                continue
            volume = choice.volume or f"made-for-{claim['metadata']['name']}"
            metadata = {**claim["metadata"], "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
            self._write("claim", {**claim, "metadata": metadata, "spec": {**claim["spec"], "volumeName": volume}})

    def _evict(self, victim: Binding, *, surely: bool) -> None:
        uid, chance = victim.pod.uid, 0.0 if surely else self.random.random()
        pod = self._objects["pod"].get(uid)
        if pod is None or chance < 0.6:
            self._delete("pod", uid)
        elif chance < 0.75:
            self._carry(lambda: EvictFailed(uid, "its budget forbids it"))
        else:
            self._write("pod", {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": timestamp(self.now)}})
            if chance < 0.9:
                self._delete("pod", uid)
            else:
                self._stuck.add(uid)

    def _set_target(self, key: str, target: Object, made: Object | None) -> None:
        group = self._objects.get("group", {}).get(key) or made
        if group is not None:
            metadata = {**group["metadata"]}
            metadata.setdefault("uid", f"uid-{key}")
            self._write("group", {**group, "metadata": metadata, "status": {"target": target}})


@contextlib.contextmanager
def _errors_logged(take: Callable[[str, BaseException], None]) -> Iterator[None]:
    """Nothing is logged meanwhile; what carries an exception is handed over."""

    def listen(_: object, __: str, event: dict[str, Any]) -> dict[str, Any]:
        given = event.get("exc_info")
        error = given if isinstance(given, BaseException) else sys.exc_info()[1] if given else None
        if error is not None:
            take(str(event.get("event")), error)
        raise structlog.DropEvent

    config = structlog.get_config()
    processors, wrapper = config["processors"], config["wrapper_class"]
    before = list(processors)
    processors[:] = [listen]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))  # whatever was silenced before is logged
    try:
        yield
    finally:
        processors[:] = before
        structlog.configure(wrapper_class=wrapper)


__all__ = ["NODES", "Fault", "World"]
