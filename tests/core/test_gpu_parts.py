"""Partitions and replicas of device plugins as parts of a GPU: what queues are charged, what nodes offer, limits by row.

The judge of the random worlds adds up objects: it knows pods, nodes and two short tables, and nothing of how the core counts.
"""

import random
from fractions import Fraction

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import allocation, invariants
from fairlead.core.model.nodes import Node, NodePool
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Place
from fairlead.core.pods.tasks import TaskState
from fairlead.scheduler.overview import nodes as overview
from fairlead.scheduler.overview import quotas
from tests.builders import GIB, GPU, cluster, confirm, group, placed, pod, queue, refused, run, settle

A100, A80, H100 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"
SMALL, MIDDLE, HALF = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.20gb"
SHARED = "nvidia.com/gpu.shared"


def offers(name, product="", labels=None, **resources):
    """A node; resources by their last part, such as `gpu` or `mig_1g_5gb`."""
    amounts = {f"nvidia.com/{key.replace('mig_', 'mig-').replace('_', '.')}": value for key, value in resources.items()}
    own = ({"nvidia.com/gpu.product": product} if product else {}) | (labels or {})
    return Node(name, {"cpu": 64_000, "memory": 512 * GIB, "pods": 110, **amounts}, labels=own)


def single(name, count, profile="1g.5gb", product=A100, **labels):
    return offers(name, f"{product}-MIG-{profile}", labels, gpu=count)


def sliced(name, count, replicas, strategy="time-slicing", product="NVIDIA-L40S"):
    labels = {"nvidia.com/gpu.replicas": str(replicas), "nvidia.com/gpu.sharing-strategy": strategy}
    return offers(name, f"{product}-SHARED", labels, gpu=count)


def asks(name, resource=SMALL, count=1, **more):
    if resource == GPU:
        return pod(name, gpus=count, **more)
    return pod(name, gpus=0, extra={resource: count}, **more)


def used(state, name="q", key=GPU):
    return state.queues.queues[name].used.get(key, 0)


# -- what is charged ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "resource", "count", "milli"),
    [
        (offers("n", A100, mig_1g_5gb=56), SMALL, 1, 142),
        (offers("n", A100, mig_1g_10gb=4), MIDDLE, 1, 250),
        (offers("n", A80, mig_1g_10gb=7), MIDDLE, 3, 426),
        (offers("n", "", mig_1g_10gb=7), MIDDLE, 1, 142),
        (offers("n", A100, mig_3g_20gb=2), HALF, 2, 1000),
        (offers("n", "NVIDIA-GB200", mig_2g_47gb=3), "nvidia.com/mig-2g.47gb", 1, 285),
        (single("n", 56), GPU, 2, 284),
        (single("n", 4, "3g.20gb"), GPU, 1, 500),
        (sliced("n", 16, 4), GPU, 3, 750),
        (sliced("n", 30, 3, "mps"), GPU, 1, 333),
        (sliced("n", 30, 3, "none"), GPU, 1, 1000),
        (offers("n", A100, {"nvidia.com/gpu.replicas": "10"}, **{"gpu.shared": 80}), SHARED, 3, 300),
        (offers("n", A100, **{"gpu.shared": 80}), SHARED, 1, 1000),
        (
            offers("n", A100, {"nvidia.com/mig-1g.5gb.replicas": "2"}, **{"mig-1g.5gb.shared": 14}),
            "nvidia.com/mig-1g.5gb.shared",
            1,
            71,
        ),
        (offers("n", A100, {"nvidia.com/gpu.replicas": "x" * 63}, gpu=8), GPU, 1, 1000),
    ],
)
def test_a_queue_is_charged_for_the_part(node, resource, count, milli):
    state = cluster([node], [queue("q")])
    state.upsert_pod(asks("p", resource, count, queue="q"))
    assert placed(settle(state)) == {"p": "n"}
    assert used(state) == milli
    if resource != GPU:
        assert used(state, key=resource) == count
    line = overview.lines(state)[0]
    assert round(line.gpus_used * 1000) == milli
    assert [(each.resource, each.used) for each in line.gpu_parts] in ([(resource, count)], [])
    invariants.check(state)


def test_eight_gpus_of_quota_hold_56_of_the_smallest_partitions():
    state = cluster([offers("n", A100, mig_1g_5gb=70)], [queue("q", limit=8)])
    for number in range(57):
        state.upsert_pod(asks(f"p{number}", queue="q", created=float(number), cpu=1))
    decided = settle(state)
    assert len(placed(decided)) == 56
    reason = refused(decided)["p56"]
    assert reason.code is ReasonCode.LIMIT_EXCEEDED
    assert reason.message == "queue 'q' holds 7.952 of at most 8 nvidia.com/gpu; 0.142 more would exceed its limit"


def test_guarantees_and_percentages_are_of_all_parts():
    half = QueueResource(GPU, quota_percent=50_000, limit_percent=50_000)
    nodes = [offers("a", A100, mig_1g_5gb=7), single("b", 7), sliced("c", 8, 4), offers("d", "NVIDIA-L40S", gpu=2)]
    state = cluster(nodes, [Queue("q", resources=(half,))])
    state.queues.settle(0.0)
    assert state.queues.tree.total(GPU) == 7 * 142 + 7 * 142 + 8 * 250 + 2000
    assert state.queues.queues["q"].limits == {GPU: (7 * 142 + 7 * 142 + 8 * 250 + 2000) // 2}


def test_a_share_is_taken_back_in_parts():
    """Two queues with half of eight partitions each: the one that took all gives back four."""
    state = cluster([single("n", 8, "1g.5gb")], [queue("a"), queue("b")])
    for name in "ab":
        half = QueueResource(GPU, quota_percent=50_000)
        state.upsert_queue(Queue(name, resources=(half,)))
    for number in range(8):
        state.upsert_pod(asks(f"a{number}", GPU, queue="a", created=float(number)))
    settle(state)
    assert used(state, "a") == 8 * 142
    for number in range(8):
        state.upsert_pod(asks(f"b{number}", GPU, queue="b", created=100.0 + number))
    for now in range(200, 260, 10):
        settle(state, float(now))
        for task in [task for task in state.tasks.values() if task.state is TaskState.EVICTING]:
            state.remove_pod(task.pod.uid)
    assert (used(state, "a"), used(state, "b")) == (4 * 142, 4 * 142)
    invariants.check(state)


# -- limits that depend on the row -------------------------------------------------------------


def test_a_pod_goes_where_its_part_is_within_the_limit():
    """Half a GPU of limit: no whole one, but three partitions or replicas."""
    state = cluster([offers("whole", A100, gpu=8), single("parts", 7)], [])
    state.upsert_queue(Queue("q", resources=(QueueResource(GPU, limit=500),)))
    for number in range(4):
        state.upsert_pod(asks(f"p{number}", GPU, queue="q", created=float(number)))
    decided = settle(state)
    assert placed(decided) == dict.fromkeys(("p0", "p1", "p2"), "parts")
    assert refused(decided)["p3"].code is ReasonCode.LIMIT_EXCEEDED
    assert "0.142 more would exceed its limit" in refused(decided)["p3"].message
    invariants.check(state)


def test_a_limit_names_the_part_of_the_nodes_that_are_left():
    """The partitions are full: what is free are whole GPUs, which the queue may not hold."""
    state = cluster([offers("whole", A100, gpu=8), single("parts", 2)], [])
    state.upsert_queue(Queue("q", resources=(QueueResource(GPU, limit=500),)))
    for number in range(3):
        state.upsert_pod(asks(f"p{number}", GPU, queue="q", created=float(number)))
    decided = settle(state)
    assert placed(decided) == dict.fromkeys(("p0", "p1"), "parts")
    reason = refused(decided)["p2"]
    assert (reason.code, reason.numbers) == (
        ReasonCode.LIMIT_EXCEEDED,
        {"used": 284, "limit": 500, "requested": 1000},
    )


def test_a_gang_is_laid_over_rows_as_its_limit_allows():
    state = cluster([offers("whole", A100, gpu=8), single("parts", 4)], [])
    state.upsert_queue(Queue("q", resources=(QueueResource(GPU, limit=1500),)))
    state.upsert_group(group("g", 4, "q"))
    for number in range(4):
        state.upsert_pod(asks(f"m{number}", GPU, queue="q", group="g", created=float(number)))
    assert len(placed(settle(state))) == 4
    assert used(state) in (4 * 142, 1000 + 3 * 142)
    invariants.check(state)


def test_users_are_limited_in_parts():
    may = UserLimits(resources=((GPU, 300),))
    state = cluster([sliced("n", 8, 4)], [Queue("q", per_user=may)])
    for number, user in enumerate("aabb"):
        state.upsert_pod(asks(f"p{number}", GPU, queue="q", user=user, created=float(number)))
    assert sorted(placed(settle(state))) == ["p0", "p2"]
    found = {each.user: each.used[GPU] for each in quotas.quotas(state)[0].users}
    assert found == {"a": 0.25, "b": 0.25}
    invariants.check(state)


def test_pools_are_charged_in_parts():
    given = Queue("q", resources=(QueueResource(GPU, limit=500, pool="slices"),))
    state = cluster([single("n", 7, **{"fairlead.dev/pool": "slices"})], [given])
    for number in range(4):
        state.upsert_pod(asks(f"p{number}", GPU, queue="q", created=float(number)))
    state.upsert_node(single("n", 7, **{"fairlead.dev/pool": "slices"}))
    state.upsert_pool(NodePool("slices", (Requirement("fairlead.dev/pool", "In", ("slices",)),)))
    assert len(placed(settle(state))) == 3
    assert used(state, key=f"{GPU}@slices") == 3 * 142 == used(state)
    assert state.queues.tree.total(f"{GPU}@slices") == 7 * 142
    invariants.check(state)


# -- nodes that change -------------------------------------------------------------------------


def test_accounts_follow_a_node_whose_labels_come_late():
    state = cluster([offers("n", "", gpu=8)], [queue("q")])
    state.upsert_pod(asks("p", GPU, 2, queue="q"))
    settle(state)
    assert used(state) == 2000
    state.upsert_node(sliced("n", 8, 8))
    assert used(state) == 250
    invariants.check(state)
    state.upsert_node(offers("n", "", gpu=8))
    assert used(state) == 2000
    state.upsert_node(single("n", 8))
    state.remove_node("n")
    assert used(state) == 2000, "of a pod whose node is gone only the name is known"
    state.upsert_node(single("n", 8))
    assert used(state) == 284
    invariants.check(state)


def test_what_waits_asks_for_less_once_there_are_partitions():
    state = cluster([offers("whole", A100, gpu=1)], [])
    state.upsert_queue(Queue("q", resources=(QueueResource(GPU, limit=300),)))
    state.upsert_pod(asks("p", GPU, queue="q"))
    assert refused(settle(state))["p"].code is ReasonCode.LIMIT_EXCEEDED
    state.upsert_node(single("parts", 7))
    assert placed(settle(state, 10.0)) == {"p": "parts"}
    invariants.check(state)


def test_an_administrators_parts_go_before_what_names_say():
    table = ((SMALL, "", 200), ("nvidia.com/vgpu", "", 125), (GPU, "NVIDIA-L4", 500))
    nodes = [offers("a", A100, mig_1g_5gb=7), offers("b", vgpu=8), offers("c", "NVIDIA-L4", gpu=4)]
    state = cluster(nodes, [queue("q")], gpu_parts=table)
    state.upsert_pod(asks("x", SMALL, 2, queue="q"))
    state.upsert_pod(asks("y", "nvidia.com/vgpu", 3, queue="q"))
    state.upsert_pod(asks("z", GPU, queue="q"))
    assert placed(settle(state)) == {"x": "a", "y": "b", "z": "c"}
    assert used(state) == 2 * 200 + 3 * 125 + 500
    assert state.queues.tree.total(GPU) == 7 * 200 + 8 * 125 + 4 * 500
    invariants.check(state)


# -- random worlds -----------------------------------------------------------------------------

SLICES = {
    (A100, "1g.5gb"): (1, 1),
    (A100, "1g.10gb"): (1, 2),
    (A100, "3g.20gb"): (3, 4),
    (A80, "1g.10gb"): (1, 1),
    (A80, "3g.40gb"): (3, 4),
}
"""Compute slices of seven and memory slices of eight, as NVIDIA's table has them."""


def milli_by(labels, resource):
    """Thousandths of a GPU that one of a resource is, by a node's labels."""
    product = labels.get("nvidia.com/gpu.product", "")
    bare, _, of_node = product.removesuffix("-SHARED").partition("-MIG-")
    name = resource.removesuffix(".shared").removeprefix("nvidia.com/")
    many = int(labels.get(f"nvidia.com/{name}.replicas", "1"))
    profile = of_node if name == "gpu" else name.removeprefix("mig-")
    if not profile:
        return int(Fraction(1000, many))
    fits = (
        [SLICES[bare, profile]] if (bare, profile) in SLICES else [each for (_, name), each in SLICES.items() if name == profile]
    )
    return min(max(int(Fraction(1000 * one, 7 * many)), int(Fraction(1000 * other, 8 * many))) for one, other in fits)


def milli_on(node, resource):
    """The same on a node: labels count where they say otherwise than names of something that the node offers."""
    if node is None:
        return milli_by({}, resource)
    unlike = any(milli_by(node.labels, each) != milli_by({}, each) for each in (GPU, *node.allocatable) if "nvidia" in each)
    return milli_by(node.labels if unlike else {}, resource)


def milli_of(node, made):
    if made.spec.gpu_milli < 1000:
        return made.spec.gpu_milli * milli_on(node, GPU) // 1000
    return sum(milli_on(node, name) * amount for name, amount in made.spec.requests if name.startswith("nvidia.com/"))


class World:
    """Nodes that are partitioned again, pods that come and go; `judge` adds up objects. others: bind pods, too."""

    others = True

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.now, self.made = 0.0, 0
        self.nodes, self.pods, self.groups = {}, {}, {}
        self.queues = [Queue("root", resources=self._amounts())]
        self.queues += [Queue(name, "root", 0, self._amounts()) for name in "ab"]
        self.queues.append(Queue("c", resources=self._amounts(), per_user=UserLimits(resources=((GPU, 1500),))))
        self.state = self.rebuilt()
        for _ in range(self.rnd.randint(2, 5)):
            self.change_node()

    def _amounts(self):
        rnd, found = self.rnd, []
        if rnd.random() < 0.6:
            found.append(QueueResource(GPU, rnd.choice((None, 700, 2000)), rnd.choice((None, 400, 1500, 4000))))
        if rnd.random() < 0.3:
            found.append(
                QueueResource(GPU, rnd.choice((None, 300)), rnd.choice((None, 900)), pool=rnd.choice((A80, f"{A100}-MIG-1g.5gb")))
            )
        if rnd.random() < 0.2:
            found.append(QueueResource(SMALL, None, 5))
        return tuple(found)

    def rebuilt(self):
        return cluster(self.nodes.values(), self.queues, self.pods.values(), self.groups.values())

    def draw_node(self, name):
        rnd, many = self.rnd, self.rnd.choice((2, 3, 7))
        replicas = {"nvidia.com/gpu.replicas": str(many)}
        made = rnd.choice(
            (
                lambda: offers(name, rnd.choice((A100, "NVIDIA-L40S", "")), gpu=rnd.randint(1, 4)),
                lambda: offers(name, A100, mig_1g_5gb=rnd.randint(1, 7), mig_1g_10gb=rnd.randint(0, 2), mig_3g_20gb=1),
                lambda: offers(name, A80, mig_1g_10gb=rnd.randint(1, 7), gpu=rnd.randint(0, 2)),
                lambda: single(name, rnd.randint(1, 7)),
                lambda: single(name, rnd.randint(1, 4), "3g.40gb", A80),
                lambda: sliced(name, many * rnd.randint(1, 2), many, rnd.choice(("time-slicing", "mps"))),
                lambda: offers(name, A100, replicas, **{"gpu.shared": many}),
                lambda: offers(name, f"{A100}-MIG-1g.5gb-SHARED", replicas, gpu=7 * many),
            )
        )
        return made()

    def change_node(self):
        name = f"n{self.rnd.randrange(6)}"
        if name in self.nodes and self.rnd.random() < 0.2:
            del self.nodes[name]
            self.state.remove_node(name)
        else:
            self.nodes[name] = self.draw_node(name)
            self.state.upsert_node(self.nodes[name])

    def submit(self):
        rnd, name = self.rnd, f"p{self.made}"
        self.made += 1
        resource = rnd.choice((GPU, GPU, SMALL, MIDDLE, HALF, SHARED, "nvidia.com/mig-3g.40gb", "", "fraction"))
        common = {
            "queue": rnd.choice("abc"),
            "user": rnd.choice("uvw"),
            "created": self.now,
            "priority": rnd.choice((0, 0, 5)),
            "cpu": 10,
        }
        if resource == "fraction":
            made = pod(name, milli=rnd.choice((250, 500)), **common)
        elif not resource:
            made = pod(name, gpus=0, **common)
        else:
            made = asks(name, resource, rnd.choice((1, 1, 2, 3)), **common)
        members = [made]
        if self.others and rnd.random() < 0.2:
            at = rnd.choice([*self.nodes, "gone"])
            members = [msgspec.structs.replace(made, node=at, started=self.now)]
        elif self.others and rnd.random() < 0.2:
            self.groups[name] = group(name, rnd.randint(2, 3), made.queue)
            self.state.upsert_group(self.groups[name])
            changed = ({"uid": f"{made.uid}-{index}", "name": f"{name}-{index}", "group": name} for index in range(3))
            members = [msgspec.structs.replace(made, **each) for each in changed]
        for each in members:
            self.pods[each.uid] = each
            self.state.upsert_pod(each)

    def end(self):
        if self.pods:
            ends = self.pods[self.rnd.choice(sorted(self.pods))]
            for each in list(self.pods.values()):
                if each is ends or (ends.group and each.group == ends.group):
                    del self.pods[each.uid]
                    self.state.remove_pod(each.uid)

    def schedule(self):
        self.now += self.rnd.choice((1.0, 30.0, 700.0))
        decided = run(self.state, self.now)
        for transaction in decided:
            if isinstance(transaction, Place):
                for binding in transaction.bindings:
                    self.pods[binding.pod.uid] = msgspec.structs.replace(
                        self.pods[binding.pod.uid], node=binding.node, started=self.now
                    )
        confirm(self.state, decided)
        for task in [task for task in self.state.tasks.values() if task.state is TaskState.EVICTING]:
            self.pods.pop(task.pod.uid, None)
            self.state.remove_pod(task.pod.uid)

    def step(self):
        self.rnd.choices((self.submit, self.schedule, self.end, self.change_node), (6, 4, 2, 1))[0]()

    def judge(self, state=None):
        """Queues hold what their pods are of a GPU by their nodes; nodes say the same in total."""
        state = state or self.state
        held = {each.name: 0 for each in self.queues}
        on_nodes = 0
        kept = [each for there in state.nodes.pods for uid, each in there.items() if uid not in state.tasks]  # of moved pods
        for task in [*state.tasks.values(), *kept]:
            if task.row < 0 and task.state is not TaskState.BOUND:
                continue
            node = self.nodes.get(state.nodes.names[task.row]) if task.row >= 0 else None
            milli = milli_of(node, task.pod)
            for name in {task.queue} | ({"root"} if task.queue in "ab" else set()):
                held[name] += milli
            on_nodes += milli if task.row >= 0 else 0
        assert {name: used(state, name) for name in held} == held
        assert sum(round(line.gpus_used * 1000) for line in overview.lines(state)) == on_nodes
        total = sum(
            milli_on(node, name) * amount
            for node in self.nodes.values()
            for name, amount in node.allocatable.items()
            if "nvidia" in name
        )
        assert state.queues.tree.total(GPU) == total
        assert sum(round(line.gpus * 1000) for line in overview.lines(state)) == total
        invariants.check(state)


@pytest.mark.parametrize("seed", range(60))
def test_what_queues_are_charged_is_what_nodes_hold(seed):
    world = World(seed)
    for number in range(60):
        world.step()
        world.judge()
        if number % 20 == 19:
            for unit in [task.unit for task in world.state.tasks.values() if task.unit is not None][:3]:
                allocation.fits(world.state, unit)
            world.judge()
    restarted = world.rebuilt()
    world.judge(restarted)


class Small(World):
    """Nothing is preempted, nothing is bound by others, nodes stay."""

    others = False

    def rebuilt(self):
        return cluster(self.nodes.values(), self.queues, self.pods.values(), preempt=False, reclaim=False, moves_per_minute=0.0)

    def step(self):
        self.rnd.choices((self.submit, self.schedule, self.end), (6, 3, 2))[0]()

    def limits_left(self, made, node):
        """Whether queues and users on the path may hold one more pod on a node, by objects."""
        held = [each for each in self.pods.values() if each.node]
        for name in (made.queue, "root") if made.queue in "ab" else (made.queue,):
            policy = next(each for each in self.queues if each.name == name)
            inside = [each for each in held if each.queue == name or (name == "root" and each.queue in "ab")]
            if not self.within(policy, [*inside, made], {**{each.uid: each.node for each in inside}, made.uid: node}):
                return False
        return True

    def within(self, policy, pods, where):
        """Whether pods are within the limits of a queue: (resource, pool) by (resource, pool), and the GPUs of each user."""
        for each in policy.resources:
            there = [
                one
                for one in pods
                if not each.pool or self.nodes[where[one.uid]].labels.get("nvidia.com/gpu.product") == each.pool
            ]
            if each.name == GPU:
                amount = sum(milli_of(self.nodes[where[one.uid]], one) for one in there)
            else:
                amount = sum(dict(one.spec.requests).get(each.name, 0) for one in there)
            if each.limit is not None and amount > each.limit:
                return False
        may = dict(policy.per_user.resources).get(GPU) if policy.per_user is not None else None
        users = {one.user for one in pods}
        return may is None or all(
            sum(milli_of(self.nodes[where[one.uid]], one) for one in pods if one.user == user) <= may for user in users
        )

    def fits(self, made, node):
        """Whether a node has enough left, by objects."""
        held = [each for each in self.pods.values() if each.node == node.name]
        return all(
            sum(dict(each.spec.requests).get(name, 0) for each in (*held, made)) <= node.allocatable.get(name, 0)
            for name, _ in made.spec.requests
        )


@pytest.mark.parametrize("seed", range(80))
def test_what_waits_has_no_place_within_limits(seed):
    world = Small(seed + 1000)
    for _ in range(25):
        world.step()
    world.pods = {uid: made for uid, made in world.pods.items() if made.spec.gpu_milli == 1000}
    for uid in [uid for uid in world.state.tasks if uid not in world.pods]:
        world.state.remove_pod(uid)
    for _ in range(4):
        world.schedule()
    world.judge()
    for queue_ in world.queues:
        inside = [each for each in world.pods.values() if each.node]
        inside = [each for each in inside if each.queue == queue_.name or (queue_.name == "root" and each.queue in "ab")]
        assert world.within(queue_, inside, {each.uid: each.node for each in inside})
    for made in world.pods.values():
        if not made.node:
            could = [node.name for node in world.nodes.values() if world.fits(made, node) and world.limits_left(made, node.name)]
            assert not could, (made.name, made.queue, world.state.tasks[made.uid].unit.pending_class.unschedulable)
