"""Random worlds of leaders with followers: racks, limits, nodes that fail, pressure, jobs that end or never get their followers.

The judge knows pods, nodes and statuses alone. No leader starts in a rack without room for its followers, and one that waits has
no rack with room; followers start where their leader is, in the next pass once all are there; nothing is given or charged twice;
nothing is kept for what has ended, or for followers that run.
"""

import random
from collections import Counter

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.groups import Followers, Group
from fairlead.core.model.nodes import NetworkLevel, NodePool
from fairlead.core.model.pods import AffinityTerm, Closeness
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.starts import START_TIMEOUT
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.pods.tasks import Placeholder, TaskState
from tests.builders import GPU, cluster, node, pod, queue, run, spec

INDEX, KEY = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-key"
LIMITS = {"a": 16, "b": 10}
BLOCKS = {"r": "x", "s": "x", "t": "y", "u": "y"}
BLOCK = Closeness(("block",))


class Job(msgspec.Struct):
    """A JobSet of some Jobs, each of a leader and followers. gpus: of a leader, and of a follower.

    known: whether its template is. exclusive: each Job has its rack to itself. made: whether its followers have been created.
    block: whether all are to be in one block, by the PodGroup (`group`) or by annotations of the pods (`pods`); empty: they are not.
    """

    name: str
    queue: str
    jobs: int
    count: int
    gpus: tuple[int, int]
    known: bool
    exclusive: bool
    made: bool = False
    block: str = ""

    @property
    def annotated(self):
        return BLOCK if self.block == "pods" else None

    def groups(self):
        like = pod("like", spec_=spec(gpus=self.gpus[1], cpu=0, memory=0), closeness=self.annotated) if self.known else None
        like = msgspec.structs.replace(like, queue="") if like else None
        led = (Followers(f"ns/f{self.name}", ((INDEX, "0"),), "net/rack", self.count, like),)
        asked = BLOCK if self.block == "group" else None
        leaders = Group("ns", f"l{self.name}", self.jobs, self.queue, followers=led, closeness=asked)
        return leaders, Group("ns", f"f{self.name}", self.jobs * self.count, self.queue, closeness=asked)


class World:
    """What exists. places: of pods, UID -> node."""

    def __init__(self, seed):
        self.rnd, self.choose_block = random.Random(seed), random.Random(~seed)
        self.now, self.number = 1000.0, 0
        self.nodes, self.pods, self.jobs, self.unwritten = {}, {}, {}, []
        self.counts = Counter()
        self.begin()
        for _ in range(self.rnd.randint(6, 12)):
            self.add_node()

    def begin(self):
        self.state = cluster(queues=[queue(name, quota=100, limit=most) for name, most in LIMITS.items()], gang_grace=1e9)
        self.state.upsert_pool(NodePool("p", levels=(NetworkLevel("block", "net/block"),)))

    # -- what the judge knows ------------------------------------------------------------------

    def rack(self, name):
        return self.nodes[name].labels["net/rack"] if name in self.nodes else None

    def kept(self, name):
        """What is kept for followers: (leader, node) of each place."""
        gang = self.state.gangs.get(f"ns/l{name}")
        tasks = self.state.spares.kept(gang) if gang is not None else []
        return [(task.pod.leader, self.state.nodes.names[task.row]) for task in tasks]

    def places(self):
        known = {each.pod.uid: each.node for each in self.unwritten if each.pod.uid in self.pods}
        return {**{uid: each.node for uid, each in self.pods.items() if each.node}, **known, **self.held()}

    def held(self):
        """Pods whose places wait for victims."""
        tasks, names = self.state.tasks.values(), self.state.nodes.names
        return {t.pod.uid: names[t.row] for t in tasks if t.state is TaskState.HELD and t.row >= 0 and t.pod.uid in self.pods}

    def waiting_spares(self):
        tasks, names = self.state.tasks.values(), self.state.nodes.names
        return [(t, names[t.row]) for t in tasks if t.pod.spare and t.state is TaskState.HELD and t.row >= 0]

    def moving(self):
        """Places reserved for pods that are moved, and are made again there."""
        names = self.state.nodes.names
        tables = enumerate(self.state.nodes.pods)
        return [(t, names[row]) for row, here in tables for t in here.values() if isinstance(t, Placeholder) and t.moved]

    def size(self, name):
        job = self.jobs[name]
        return job.gpus[1] if job.known else job.gpus[0]

    def free(self):
        free = {name: each.allocatable[GPU] for name, each in self.nodes.items()}
        for uid, where in self.places().items():
            if where in free:
                free[where] -= self.pods[uid].spec.gpus
        for name in self.jobs:
            for _, where in self.kept(name):
                free[where] -= self.size(name)
        for task, where in (*self.waiting_spares(), *self.moving()):
            free[where] -= task.pod.spec.gpus
        return free

    def members(self, group):
        places = self.places()
        return {uid: places.get(uid, "") for uid, each in self.pods.items() if each.group == group and not each.terminating}

    # -- what may happen -----------------------------------------------------------------------

    def add_node(self):
        self.number += 1
        rack = self.rnd.choice("rstu")
        made = node(f"n{self.number}", gpus=self.rnd.choice((1, 2, 2, 4)), labels={"net/rack": rack, "net/block": BLOCKS[rack]})
        self.nodes[made.name] = made
        self.state.upsert_node(made)

    def fail_node(self):
        if len(self.nodes) > 4:
            name = self.rnd.choice(sorted(self.nodes))
            for job in {
                self.pods[uid].group[1:] for uid, where in self.places().items() if where == name and self.pods[uid].group
            }:
                self.end_job(job)  # as its failure policy has it
            for uid in [uid for uid, where in self.places().items() if where == name]:
                self.end(uid)
            del self.nodes[name]
            self.state.remove_node(name)

    def submit(self):
        rnd = self.rnd
        self.number += 1
        follower = rnd.choice((1, 1, 2))
        gpus, known = ((0, follower), True) if rnd.random() < 0.4 else ((follower, follower), rnd.random() < 0.5)
        job = Job(
            f"{self.number}", rnd.choice("ab"), rnd.choice((1, 1, 1, 2)), rnd.choice((1, 2, 3)), gpus, known, rnd.random() < 0.3
        )
        job.block = self.choose_block.choice(("", "", "group", "pods"))
        self.jobs[job.name] = job
        leaders = [self.leader(job, number) for number in range(job.jobs)]
        events = [*((self.state.upsert_group, each) for each in job.groups()), *((self.add_pod, each) for each in leaders)]
        rnd.shuffle(events)
        for event, thing in events:
            event(thing)

    def leader(self, job, number):
        own = f"{job.name}-{number}"
        asked = spec(gpus=job.gpus[0], cpu=0, memory=0)
        if job.exclusive:
            beside = AffinityTerm("net/rack", (Requirement(KEY, "In", (own,)),), ("ns",))
            apart = AffinityTerm("net/rack", (Requirement(KEY, "Exists"), Requirement(KEY, "NotIn", (own,))), ("ns",))
            asked = msgspec.structs.replace(asked, pod_affinity=(beside,), pod_anti_affinity=(apart,))
        labels = ((INDEX, "0"), (KEY, own)) if job.exclusive else ((INDEX, "0"),)
        self.number += 1
        more = {"queue": job.queue, "created": self.now, "labels": labels, "closeness": job.annotated}
        return pod(f"l{own}.{self.number}", spec_=asked, group=f"l{job.name}", **more)

    def add_pod(self, made):
        self.pods[made.uid] = made
        self.state.upsert_pod(made)

    def follow(self):
        """A controller makes the followers of leaders that have nodes."""
        able = [
            job
            for job in self.jobs.values()
            if not job.made
            and len(leaders := [each for each in self.pods.values() if each.group == f"l{job.name}"]) == job.jobs
            and all(each.node in self.nodes for each in leaders)
        ]
        if able:
            job = self.rnd.choice(able)
            job.made = True
            for leading in [each for each in self.pods.values() if each.group == f"l{job.name}"]:
                for _ in range(job.count):
                    self.number += 1
                    asked = spec(gpus=job.gpus[1], cpu=0, memory=0, selector={"net/rack": self.rack(leading.node)})
                    labels = ((INDEX, "1"), *(each for each in leading.labels if each[0] == KEY))
                    more = {"queue": job.queue, "created": self.now, "labels": labels, "closeness": job.annotated}
                    self.add_pod(pod(f"f{job.name}.{self.number}", spec_=asked, group=f"f{job.name}", **more))

    def press(self):
        self.number += 1
        priority = self.rnd.choice((0, 0, 5))
        asked = spec(gpus=1, cpu=0, memory=0)
        self.add_pod(pod(f"p{self.number}", queue=self.rnd.choice("ab"), spec_=asked, created=self.now, priority=priority))

    def end(self, uid):
        if self.pods.pop(uid, None) is not None:
            self.state.remove_pod(uid)

    def end_other(self):
        others = sorted(uid for uid, each in self.pods.items() if not each.group)
        for uid in self.rnd.sample(others, min(2, len(others))):
            self.end(uid)

    def end_job(self, name=None):
        if self.jobs:
            name = name or self.rnd.choice(sorted(self.jobs))
            if name not in self.jobs:
                return
            events = [(self.end, uid) for uid, each in self.pods.items() if each.group[1:] == name]
            events += [(self.state.remove_group, f"ns/{kind}{name}") for kind in "lf"]
            del self.jobs[name]
            self.rnd.shuffle(events)
            for event, thing in events:
                event(thing)
            self.counts["ended"] += 1

    def renew_leader(self):
        """A leader whose followers have not come is deleted, and made again."""
        able = [uid for uid, each in self.pods.items() if each.group.startswith("l") and not self.jobs[each.group[1:]].made]
        if able:
            uid = self.rnd.choice(sorted(able))
            old = self.pods[uid]
            self.end(uid)
            self.number += 1
            self.add_pod(msgspec.structs.replace(old, uid=f"u{self.number}", name=f"{old.name}+", node=""))

    def write(self, *, sure=False):
        self.rnd.shuffle(self.unwritten)
        while self.unwritten and (sure or self.rnd.random() < 0.9):
            binding = self.unwritten.pop()
            uid = binding.pod.uid
            if uid in self.pods and binding.node in self.nodes:
                self.pods[uid] = msgspec.structs.replace(self.pods[uid], node=binding.node, bound=self.now)
                self.state.pods.bound(uid)
                self.state.upsert_pod(self.pods[uid])

    def restart(self):
        self.write(sure=True)
        kept = {name: [where for _, where in self.kept(name)] for name in self.jobs}
        self.begin()
        events = [*((self.state.upsert_node, each) for each in self.nodes.values())]
        events += [(self.state.upsert_pod, each) for each in self.pods.values()]
        for name, job in self.jobs.items():
            leaders, following = job.groups()
            written = msgspec.structs.replace(leaders, spares=tuple(kept[name]))
            events += [(self.state.upsert_group, written), (self.state.upsert_group, following)]
        self.rnd.shuffle(events)
        for event, thing in events:
            event(thing)
        self.state.begin(self.now)
        for name, nodes in kept.items():
            if all(self.members(f"l{name}").values()):
                found = Counter(where for _, where in self.kept(name))
                assert found == Counter(nodes), f"{name} keeps {found} after a restart, not {nodes}"
                self.counts["found again"] += bool(nodes)
        self.judge()

    def decide(self):
        self.now += self.rnd.choice((0.0, 1.0, 30.0, 200.0))
        before = {name: (self.members(f"l{name}"), self.members(f"f{name}"), Counter(self.kept(name))) for name in self.jobs}
        evicted = set()
        for each in run(self.state, self.now):
            if isinstance(each, Place):
                self.unwritten += each.bindings
            elif isinstance(each, Preempt | Evict):
                assert not any(victim.pod.uid.startswith("spare/") for victim in each.victims)
                gone = [self.pods[victim.pod.uid] for victim in each.victims if victim.pod.uid in self.pods]
                evicted |= {old.group[1:] for old in gone if old.group}
                for old in gone:
                    self.end(old.uid)
        for name in sorted(evicted):
            self.end_job(name)  # as its failure policy has it
        self.judge()
        for name in self.jobs.keys() & before.keys():
            self.judge_job(name, *before[name])

    # -- the judge -----------------------------------------------------------------------------

    def judge_job(self, name, leaders, following, kept):
        """What a pass did to one job that it did not evict. leaders, following, kept: before it."""
        job, now = self.jobs[name], self.members(f"l{name}")
        racks = {uid: self.rack(where) for uid, where in now.items() if where}
        awaited = Counter((task.pod.leader, self.rack(where)) for task, where in self.waiting_spares())
        places = Counter((leader, self.rack(where)) for leader, where in self.kept(name)) + awaited
        for uid, where in now.items():
            if where and not leaders.get(uid):
                assert places[uid, self.rack(where)] == job.count, f"leader {uid} starts in {self.rack(where)}, beside {places}"
                self.counts["leaders"] += 1
        if job.exclusive:
            assert len(set(racks.values())) == len(racks)
        if job.block:
            used = {*racks.values(), *(rack for leader, rack in places if leader in now)} - {None}
            blocks = {BLOCKS[each] for each in used}
            assert len(blocks) <= 1, f"leaders of {name} and what is kept for them are in {sorted(used)}"
            self.counts["blocks"] += len(used) > 1
        placed = self.members(f"f{name}")
        whole = len(placed) == job.jobs * job.count
        if whole and not any(following.values()) and sum(kept.values()) == job.jobs * job.count:
            assert all(placed.values()), f"followers of {name} wait although their places are kept"
            self.counts["handed over"] += 1

    def judge(self):
        wrong = [each for each in invariants.violations(self.state) if "members placed" not in each]
        assert not wrong, wrong
        over = {name: left for name, left in self.free().items() if left < 0}
        assert not over, f"given away twice: {over}"
        for name, most in LIMITS.items():
            own = sum(self.pods[uid].spec.gpus for uid in self.places() if self.pods[uid].queue == name)
            own += sum(self.size(each) * len(self.kept(each)) for each, job in self.jobs.items() if job.queue == name)
            own += sum(task.pod.spec.gpus for task, _ in (*self.waiting_spares(), *self.moving()) if task.queue == name)
            used = self.state.queues.queues[name].used.get(GPU, 0) // 1000
            assert used == own <= most, f"queue {name} is charged {used} for {own} of {most}"
        known = {f"ns/l{name}" for name in self.jobs}
        spares = [task for task in self.state.tasks.values() if task.pod.spare]
        assert all(task.gang.key in known for task in spares)
        lost = [task for task in spares if task.row < 0 and task.state is not TaskState.WAITING]
        assert not lost, f"{lost} have no places"

    def judge_rest(self):
        """Nothing is kept beside followers that run, each place is with its leader, and no leader waits that could start."""
        free = self.free()
        for name, job in sorted(self.jobs.items()):
            leaders, kept = self.members(f"l{name}"), self.kept(name)
            for leader, where in kept:
                assert self.rack(where) == self.rack(leaders[leader])
                all_here = len(self.members(f"f{name}")) >= job.jobs * job.count
                in_time = self.now < self.pods[leader].bound + START_TIMEOUT
                assert in_time or all_here, f"{name} keeps {kept}, and followers have not come"
            if any(self.members(f"f{name}").values()):
                assert not kept, f"{name} keeps {kept} beside its followers"
            if job.jobs == 1 and not any(leaders.values()) and not job.exclusive and self.could_start(job, free):
                raise AssertionError(f"leader of {name} waits, and a rack has room: {free}")

    def could_start(self, job, free):
        """Whether a rack takes a leader and its followers, laid by trying each node for the leader."""
        queued = job.gpus[0] + self.size(job.name) * job.count
        used = self.state.queues.queues[job.queue].used.get(GPU, 0) // 1000
        if used + queued > LIMITS[job.queue]:
            return False
        for rack in "rstu":
            rows = [left for where, left in free.items() if self.rack(where) == rack]
            for at, left in enumerate(rows):
                after = [each - job.gpus[0] * (at == number) for number, each in enumerate(rows)]
                if left >= job.gpus[0] and sum(each // self.size(job.name) for each in after) >= job.count:
                    return True
        return False


STEPS = (
    *["submit"] * 3,
    *["decide"] * 6,
    *["write"] * 5,
    *["follow"] * 3,
    *["press"] * 4,
    *["end_other"] * 3,
    *["end_job"] * 1,
    *("fail_node", "add_node", "add_node", "renew_leader", "restart"),
)


def live(seed, steps):
    world = World(seed)
    for _ in range(steps):
        getattr(world, world.rnd.choice(STEPS))()
        world.judge()
    for _ in range(8):
        world.now += 600.0
        world.write(sure=True)
        world.follow()
        world.decide()
    world.write(sure=True)
    world.decide()
    world.write(sure=True)
    world.judge_rest()
    while world.jobs:
        world.end_job()
    world.decide()
    world.judge()
    assert not world.state.spares.keys
    return world


@pytest.mark.parametrize("seed", range(24))
def test_leaders_start_where_their_followers_do(seed):
    live(seed, 80)


def test_the_worlds_contain_what_is_judged():
    counts = sum((live(seed, 80).counts for seed in range(100, 106)), Counter())
    assert min(counts[each] for each in ("leaders", "handed over", "found again", "ended", "blocks")) >= 3, counts
