"""What the nodes of a pool share: counted over the pool, for single pods and gangs, for victims, reservations and pools that change."""

import random
from collections import Counter

import msgspec
import pytest

from fairlead.api.names import SHARED_PREFIX
from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.forecast import forecast
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.pods import HostPort, PodSpec
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.pods.tasks import TaskState
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, preempted, queue, refused, run, settle, spec, start

STORAGE = "storage-bandwidth"


def pool(name, label=None, **shared):
    """A pool of the nodes with the label `pool: NAME`; amounts by names, `_` for `-`."""
    amounts = tuple(sorted((each.replace("_", "-"), amount) for each, amount in shared.items()))
    return NodePool(name, (Requirement("pool", "In", (label or name,)),), shared=amounts)


def nodes(name, count, gpus=8):
    return [node(f"{name}{number}", gpus=gpus, labels={"pool": name}) for number in range(count)]


def taking(name, storage=0, gpus=1, **more):
    selector = more.pop("selector", None)
    made = spec(gpus=gpus, selector=selector)
    shared = tuple(sorted({STORAGE: storage, **more.pop("besides", {})}.items())) if storage else ()
    return pod(name, spec_=msgspec.structs.replace(made, shared=shared), **more)


def world(*pods, pools=None, **more):
    made = more.pop("nodes", [*nodes("a", 2), *nodes("b", 2)])
    state = cluster(made, **more)
    for each in pools if pools is not None else [pool("a", storage_bandwidth=40)]:
        state.upsert_pool(each)
    for each in pods:
        state.upsert_pod(each)
    return state


def used(state, name="a"):
    return state.nodes.shared.used.get((name, STORAGE), 0)


# -- places ----------------------------------------------------------------------------------------


def test_where_pools_overlap_no_pod_gets_what_one_of_them_has_none_of():
    state = world(taking("p", 1), pools=[pool("a", storage_bandwidth=40), pool("none", label="a", storage_bandwidth=0)])
    assert placed(run(state, 1.0)) == {}
    state.upsert_pool(pool("none", label="a", storage_bandwidth=2))
    assert set(placed(run(state, 2.0))) == {"p"}


def test_pods_of_a_pool_together_take_no_more_than_it_has():
    state = world(*(taking(f"p{number}", 15) for number in range(3)))
    decided = settle(state, 1.0)
    assert set(placed(decided)) == {"p0", "p1"}
    assert refused(decided)["p2"].code is ReasonCode.SHARED_RESOURCES
    assert refused(decided)["p2"].message == (
        "0/4 nodes are available: 4 node(s) of no pool with the shared resource storage-bandwidth (2), "
        "of pool a (10 of 40 storage-bandwidth free, 15 needed) (2)."
    )
    assert used(state) == 30
    invariants.check(state)


def test_one_that_waits_starts_once_a_pod_of_another_node_of_the_pool_ends():
    state = world(*(taking(f"p{number}", 20, gpus=8) for number in range(3)), nodes=nodes("a", 3))
    assert len(start(state, 1.0)) == 2
    state.remove_pod("uid-p0")
    assert set(start(state, 2.0)) == {"p2"}


def test_what_takes_nothing_runs_beside_it_and_anywhere():
    state = world(taking("p", 40), *(taking(f"q{number}", gpus=8) for number in range(3)))
    assert set(start(state, 1.0)) == {"p", "q0", "q1", "q2"}


def test_a_name_that_no_pool_has_and_an_amount_that_none_has_are_named():
    state = world(taking("p", 1, besides={"scratch": 1}), taking("q", 41))
    found = refused(settle(state, 1.0))
    assert found["p"].code is found["q"].code is ReasonCode.SHARED_RESOURCES
    assert "no NodePool has the shared resource 'scratch'" in found["p"].message
    assert "a pod needs 41 storage-bandwidth, the largest NodePool has 40" in found["q"].message
    state.upsert_pool(pool("a", storage_bandwidth=50, scratch=1))
    assert set(start(state, 2.0)) == {"p", "q"}


def test_what_no_pool_has_is_named_without_a_number_where_nodes_are_full_besides():
    state = world(taking("p", 41, gpus=9))
    message = refused(settle(state, 1.0))["p"].message
    assert "0 node(s)" not in message
    assert message.endswith("a pod needs 41 storage-bandwidth, the largest NodePool has 40.")


def test_a_node_in_two_pools_takes_from_both():
    everything = NodePool("all", (), shared=((STORAGE, 25),))
    state = world(*(taking(f"p{number}", 10) for number in range(4)), pools=[pool("a", storage_bandwidth=10), everything])
    found = start(state, 1.0)
    assert len(found) == 2
    assert sorted(each[0] for each in found.values()) == ["a", "b"] or set(found.values()) <= {"b0", "b1"}
    assert used(state, "all") == 20


# -- gangs -----------------------------------------------------------------------------------------


def test_a_gang_gets_all_of_what_it_takes_over_pools_or_waits_with_the_numbers():
    pools = [pool("a", storage_bandwidth=20), pool("b", storage_bandwidth=20)]
    state = world(*(taking(f"g{n}", 8, group="g") for n in range(4)), groups=[group("g", 4)], pools=pools)
    found = start(state, 1.0)
    assert sorted(each[0] for each in found.values()) == ["a", "a", "b", "b"]
    state.upsert_group(group("h", 2))
    for number in range(2):
        state.upsert_pod(taking(f"h{number}", 5, group="h"))
    reason = refused(settle(state, 2.0))["h0"]
    assert reason.code is ReasonCode.SHARED_RESOURCES
    assert reason.message == (
        "gang ns/h needs 2 pods at once, and 10 storage-bandwidth for them; "
        "pool a has 4 of 20 storage-bandwidth free, pool b has 4 of 20 storage-bandwidth free"
    )
    assert used(state, "a") == used(state, "b") == 16


def test_members_that_take_something_choose_before_those_that_do_not():
    state = world(
        taking("g0", gpus=8, group="g", created=0.0),
        taking("g1", 10, gpus=8, group="g", created=1.0),
        groups=[group("g", 2)],
        nodes=[*nodes("a", 1), *nodes("b", 1)],
    )
    assert start(state, 1.0) == {"g0": "b0", "g1": "a0"}


def test_an_elastic_gang_grows_as_far_as_its_pool_allows():
    state = world(*(taking(f"g{n}", 10, group="g") for n in range(6)), groups=[group("g", 2)])
    assert len(start(state, 1.0)) == 4


# -- victims ---------------------------------------------------------------------------------------


def test_a_pod_preempts_on_another_node_of_the_pool_and_no_more_than_it_must():
    state = world(*(taking(f"p{number}", 10, at=f"a{number % 2}") for number in range(4)), taking("free", at="b0"))
    state.upsert_pod(taking("urgent", 12, priority=10))
    decided = run(state, 1.0)
    (victims,) = preempted(decided)
    assert len(victims) == 2
    assert all(each.startswith("p") for each in victims)
    invariants.check(state)


def test_what_a_victim_takes_beyond_its_beneficiary_is_not_given_away_before_it_is_gone():
    state = world(taking("big", 40, at="a0"), taking("urgent", 10, gpus=8, priority=10), taking("other", 20))
    decided = run(state, 1.0)
    assert preempted(decided) == [["big"]]
    assert "other" not in placed(confirm(state, run(state, 2.0)))
    invariants.check(state)
    state.remove_pod("uid-big")
    assert set(start(state, 3.0)) == {"urgent", "other"}
    assert used(state) == 30


def test_a_gang_preempts_for_what_its_members_take_together():
    state = world(*(taking(f"p{number}", 10, at=f"a{number % 2}") for number in range(4)), groups=[group("g", 2)])
    for number in range(2):
        state.upsert_pod(taking(f"g{number}", 10, group="g", priority=5))
    (victims,) = preempted(run(state, 1.0))
    assert len(victims) == 2
    invariants.check(state)


def test_a_queue_reclaims_what_its_pods_need_of_a_pool():
    state = world(
        *(taking(f"p{number}", 20, gpus=8, queue="over", at=f"a{number}") for number in range(2)),
        queues=[queue("over", quota=0), queue("own", quota=8)],
        nodes=nodes("a", 3),
    )
    state.upsert_pod(taking("q", 20, gpus=8, queue="own"))
    decided = settle(state, 1.0)
    assert preempted(decided) in ([["p0"]], [["p1"]], [])
    invariants.check(state)


def test_a_terminating_pod_counts_until_it_is_gone():
    state = world(taking("old", 40, at="a0", terminating=True), taking("new", 10, selector={"pool": "a"}))
    assert start(state, 1.0) == {}
    state.remove_pod("uid-old")
    assert set(start(state, 2.0)) == {"new"}


def test_where_its_row_is_full_too_those_there_and_elsewhere_in_the_pool_leave():
    state = world(
        taking("here", gpus=8, at="a0"),
        *(taking(f"there{number}", 20, gpus=8, at=f"a{number}") for number in (1, 2)),
        nodes=nodes("a", 3),
    )
    state.upsert_pod(taking("urgent", 15, gpus=8, priority=10))
    assert len(preempted(run(state, 1.0))[0]) == 1
    state.upsert_pod(taking("larger", 30, gpus=8, priority=20))
    decided = run(state, 2.0)
    invariants.check(state)
    assert preempted(decided) or refused(decided)


def test_only_those_that_take_of_it_leave_where_nothing_else_is_short():
    idle = [taking(f"idle{number}", gpus=1, at=f"a{number % 2}", created=100.0) for number in range(6)]
    state = world(*idle, *(taking(f"p{number}", 10, at=f"a{number % 2}") for number in range(4)), groups=[group("g", 3)])
    for number in range(3):
        state.upsert_pod(taking(f"g{number}", 8, group="g", priority=5))
    (victims,) = preempted(run(state, 1.0))
    assert len(victims) == 3
    assert all(each.startswith("p") for each in victims)
    state.upsert_pod(taking("one", 10, priority=9))
    assert not any(each.startswith("idle") for victims in preempted(run(state, 2.0)) for each in victims)


@pytest.mark.parametrize(("declared", "beside"), [(20, False), (39, False), (40, True)])
def test_a_pod_that_moves_is_replaced_once_it_is_gone_where_its_pool_has_not_enough_for_both(declared, beside):
    state = world(
        taking("mover", 20, gpus=4, at="a0"),
        taking("stays", gpus=4, at="a1", stays=True),
        nodes=nodes("a", 2),
        pools=[pool("a", storage_bandwidth=declared)],
        move_patience=0.0,
    )
    state.upsert_pod(taking("big", gpus=8))
    (decided,) = [each for each in run(state, 500.0) if isinstance(each, Preempt)]
    assert decided.moved == ("uid-mover",)
    assert used(state) == (40 if beside else 20)
    invariants.check(state)
    state.upsert_pod(taking("again", 20, gpus=4))
    assert start(state, 501.0) == ({"again": "a1"} if beside else {})
    state.remove_pod("uid-mover")
    assert start(state, 502.0) == ({"big": "a0"} if beside else {"big": "a0", "again": "a1"})
    assert used(state) == 20


@pytest.mark.parametrize("amounts", [{"limit": 10}, {"limit_percent": 25_000}, {"limit": 10, "pool": "a"}])
def test_a_queue_holds_no_more_than_its_limit_of_what_pools_share(amounts):
    bounded = Queue("bounded", resources=(QueueResource(f"{SHARED_PREFIX}{STORAGE}", **amounts),))
    pods = (taking(f"p{number}", 8, gpus=0, queue="bounded", created=number) for number in range(2))
    state = world(*pods, queues=[bounded, queue("free")])
    decided = settle(state, 1.0)
    assert set(placed(decided)) == {"p0"}
    assert refused(decided)["p1"].code is ReasonCode.LIMIT_EXCEEDED
    where = " of pool 'a'" if "pool" in amounts else ""
    assert refused(decided)["p1"].message == (
        f"queue 'bounded' holds 8 of at most 10 shared.fairlead.dev/storage-bandwidth{where}; 8 more would exceed its limit"
    )
    state.upsert_pod(taking("other", 8, queue="free"))
    assert set(start(state, 2.0)) == {"other"}
    state.upsert_pool(pool("a", storage_bandwidth=80))
    assert start(state, 3.0) == ({} if "limit" in amounts else {"p1": "a0"})


def test_a_queue_reclaims_its_quota_of_what_pools_share():
    own = Queue("own", resources=(QueueResource(f"{SHARED_PREFIX}{STORAGE}", quota=20),))
    state = world(*(taking(f"p{number}", 20, at=f"a{number}", queue="over") for number in range(2)), queues=[own, queue("over")])
    state.upsert_pod(taking("q", 20, queue="own"))
    assert len(preempted(settle(state, 1.0))[0]) == 1
    invariants.check(state)


# -- pools and nodes that change -------------------------------------------------------------------


def test_lowering_below_use_evicts_nothing_and_starts_nothing():
    state = world(taking("p", 30))
    start(state, 1.0)
    state.upsert_pool(pool("a", storage_bandwidth=20))
    state.upsert_pod(taking("q", 1))
    decided = run(state, 2.0)
    assert not [each for each in decided if isinstance(each, Place | Preempt | Evict)]
    assert "0 of 20 storage-bandwidth free" in refused(decided)["q"].message
    state.remove_pod("uid-p")
    assert set(start(state, 3.0)) == {"q"}


def test_a_node_that_changes_pools_takes_its_pods_amounts_along():
    state = world(taking("p", 30), pools=[pool("a", storage_bandwidth=40), pool("b", storage_bandwidth=40)])
    (where,) = start(state, 1.0).values()
    there, other = where[0], "b" if where[0] == "a" else "a"
    state.upsert_node(node(where, labels={"pool": other}))
    assert (used(state, there), used(state, other)) == (0, 30)
    invariants.check(state)
    state.remove_pool(other)
    state.remove_node(where)
    state.upsert_pool(pool(other, storage_bandwidth=40))
    invariants.check(state)
    assert (used(state, there), used(state, other)) == (0, 0)


def test_a_victim_whose_node_comes_to_another_pool_counts_there_until_it_is_gone():
    pools = [pool("a", storage_bandwidth=20), pool("b", storage_bandwidth=20)]
    state = world(taking("victim", 20, at="a0"), nodes=[*nodes("a", 2), *nodes("b", 1)], pools=pools)
    state.upsert_pod(taking("urgent", 20, gpus=8, priority=10, selector={"pool": "a"}))
    assert preempted(run(state, 1.0)) == [["victim"]]
    state.upsert_node(node("a0", labels={"pool": "b"}))
    state.upsert_pod(taking("other", 20, selector={"pool": "b"}))
    assert set(start(state, 2.0)) == {"urgent"}
    assert (used(state, "a"), used(state, "b")) == (20, 20)
    state.remove_pod("uid-victim")
    assert set(start(state, 3.0)) == {"other"}


def test_a_restart_counts_the_same():
    state = world(taking("theirs", 30, at="a0"), taking("p", 10), taking("q", 10))
    assert len(start(state, 1.0)) == 1
    anew = world(*(task.pod for task in state.tasks.values()))
    assert used(anew) == used(state) == 40


def test_after_a_fault_it_is_counted_anew():
    state = world(taking("p", 30))
    start(state, 1.0)
    state.nodes.shared.used.clear()
    assert "shared resources" in " ".join(invariants.violations(state))
    state.isolation.recovery.recount()
    invariants.check(state)
    assert used(state) == 30


# -- reservations ----------------------------------------------------------------------------------


def test_what_is_reserved_of_a_pool_is_kept_from_others_on_all_its_nodes():
    running = [taking(f"p{n}", 20, at="a0", time_limit=600.0, started=0.0) for n in range(2)]
    state = world(*running, taking("big", 40, gpus=8, created=1.0), reservations=1, patience=0.0, preempt=False)
    run(state, 10.0)
    (hold,) = state.reserved.of_units()
    assert hold.start >= 600.0
    state.remove_pod("uid-p0")
    state.upsert_pod(taking("late", 10, created=2.0))
    state.upsert_pod(taking("soon", 9, created=3.0, time_limit=100.0))
    found = start(state, 20.0)
    assert set(found) == {"soon"}


def test_a_start_is_expected_once_enough_is_free_of_what_a_pool_shares():
    running = [taking(f"p{n}", 20, at="a0", time_limit=(n + 1) * 600.0, started=0.0) for n in range(2)]
    state = world(
        *running, taking("small", 10, time_limit=60.0), taking("big", 30), taking("never", 50), taking("plain"), preempt=False
    )
    run(state, 10.0)
    found = forecast(state, 10.0)
    assert found == {"uid-small": 600.0, "uid-big": 1200.0}


# -- random worlds ---------------------------------------------------------------------------------


class Cluster:
    """What really runs where, kept apart from the core: a pod is there from its binding until it is gone."""

    def __init__(self, chance):
        self.chance = chance
        self.labels = {f"n{number}": chance.choice("ab") for number in range(5)}
        self.declared = {name: chance.choice([10, 20, 30]) for name in "ab"}
        self.overlapping = chance.random() < 0.3
        self.limit = chance.choice([None, 15])  # of what pods of queue `one` may take
        self.policy = {"reservations": chance.choice([0, 1]), "move_patience": chance.choice([0.0, 0.0, 300.0])}
        self.state = self.begun()
        self.there = {}  # name -> (node, amount), of pods that are bound and not gone
        self.leaving = set()
        self.moving = set()  # of these; their controllers make others
        self.grandfathered = set()  # pools that have more in use than they declare, since they changed
        for name in "ab":
            self.declare(name)
        if self.overlapping:
            self.declared["all"] = 35
            self.declare("all")
        self.made = 0
        self.changed = False
        self.needs = {}  # gang that starts as a whole -> how many members that is

    def begun(self):
        """A scheduler that knows nodes and queues."""
        made = [node(name, gpus=4, labels={"pool": label}) for name, label in self.labels.items()]
        bounded = Queue("one", resources=(QueueResource(GPU, 6000), QueueResource(f"{SHARED_PREFIX}{STORAGE}", limit=self.limit)))
        return cluster(made, [bounded, queue("two", quota=6)], **self.policy)

    def restart(self, now):
        """Another scheduler begins with what the cluster's objects are."""
        before, self.state = self.state, self.begun()
        for name in self.declared:
            self.declare(name)
        for gang in before.gangs.values():
            if gang.group is not None:
                self.state.upsert_group(gang.group)
        for uid, task in before.tasks.items():
            more = {"node": self.there.get(uid, ("",))[0]}
            if uid in self.leaving:
                more |= {"terminating": True, "leaves": now + 30.0, "preempted": True}
            if uid in before.in_flight.kept:
                more["moves_to"] = before.nodes.names[before.in_flight.kept[uid].placeholder.row]
            if task.state is TaskState.HELD:
                more["nominated"] = before.nodes.names[task.row]
            self.state.upsert_pod(msgspec.structs.replace(task.pod, **more))

    def declare(self, name):
        selector = () if name == "all" else (Requirement("pool", "In", (name,)),)
        self.state.upsert_pool(NodePool(name, selector, shared=((STORAGE, self.declared[name]),)))

    def pools_of(self, where):
        return [self.labels[where], *(["all"] if self.overlapping else [])]

    def in_use(self, name):
        return sum(amount for where, amount in self.there.values() if name in self.pools_of(where))

    def taken_by(self, queue_name):
        return sum(amount for uid, (_, amount) in self.there.items() if self.state.tasks[uid].queue == queue_name)

    def arrive(self):
        chance, self.made = self.chance, self.made + 1
        name, size = f"j{self.made}", chance.choice([1, 1, 1, 2, 3])
        amount, gpus = chance.choice([0, 2, 5, 8, 12]), chance.choice([1, 2, 4])
        more = {"queue": chance.choice(["one", "two"]), "priority": chance.choice([0, 0, 0, 5]), "created": float(self.made)}
        if size == 1:
            self.state.upsert_pod(taking(name, amount, gpus=gpus, **more))
            return
        least = chance.choice([size, max(1, size - 1)])
        if least == size:
            self.needs[name] = size
        self.state.upsert_group(group(name, least))
        for number in range(size):
            self.state.upsert_pod(taking(f"{name}-{number}", amount, gpus=gpus, group=name, **more))

    def observe(self, decided):
        before = {self.gang_of(uid) for uid in self.there}
        bound = Counter(self.gang_of(binding.pod.uid) for each in decided if isinstance(each, Place) for binding in each.bindings)
        for name, count in bound.items():
            assert name in before or count >= self.needs.get(name, 1), (name, count)
        for each in decided:
            for binding in each.bindings if isinstance(each, Place) else ():
                amount = dict(self.state.tasks[binding.pod.uid].pod.spec.shared).get(STORAGE, 0)
                self.there[binding.pod.uid] = binding.node, amount
            if isinstance(each, Preempt | Evict):
                self.leaving |= {victim.pod.uid for victim in each.victims}
            if isinstance(each, Preempt):
                self.moving |= set(each.moved)
                self.check_needed(each)
        assert self.limit is None or self.taken_by("one") <= self.limit
        for name, declared in self.declared.items():
            before = name in self.grandfathered  # it began so
            assert before or self.in_use(name) <= declared, (name, self.in_use(name), declared)
            if before and self.in_use(name) <= declared:
                self.grandfathered.discard(name)

    def check_needed(self, plan):
        """For a pod by itself only those leave that are on its node, or take of what it takes where it does, with their gangs."""
        if len(plan.beneficiaries) > 1 or plan.moved:
            return
        (binding,) = plan.beneficiaries
        task, useful = self.state.tasks[binding.pod.uid], {}
        takes, pools = dict(task.pod.spec.shared).get(STORAGE, 0), set(self.pools_of(binding.node))
        for victim in plan.victims:
            uid = victim.pod.uid
            _, taken = self.there[uid]
            near = bool(takes and taken) and (
                not pools.isdisjoint(self.pools_of(victim.node))
                or (self.limit is not None and task.queue == self.state.tasks[uid].queue == "one")
            )
            useful[self.gang_of(uid)] = useful.get(self.gang_of(uid), False) or near or victim.node == binding.node
        assert all(useful.values()), (binding, useful)

    @staticmethod
    def gang_of(uid):
        return uid.removeprefix("uid-").partition("-")[0].rstrip("+")

    def leave(self, uid):
        old = self.state.tasks[uid].pod
        self.leaving.discard(uid)
        self.there.pop(uid, None)
        self.state.remove_pod(uid)
        if uid in self.moving:
            self.state.upsert_pod(msgspec.structs.replace(old, uid=f"{uid}+", name=f"{old.name}+", node="", terminating=False))

    def change(self):
        chance, self.changed = self.chance, True
        if chance.random() < 0.5:
            name = chance.choice(sorted(self.declared))
            self.declared[name] = chance.choice([5, 10, 20, 30])
            self.declare(name)
        else:
            where = chance.choice(sorted(self.labels))
            self.labels[where] = chance.choice("ab")
            self.state.upsert_node(node(where, gpus=4, labels={"pool": self.labels[where]}))
        self.grandfathered |= {name for name in self.declared if self.in_use(name) > self.declared[name]}


def is_held_back(task):
    """Whether it would be reclaimed at once: shares of queues are not judged here."""
    why = task.unit.pending_class.unschedulable if task.unit is not None else None
    return why is not None and why.code is ReasonCode.FAIR_SHARE


def single_places(judged):
    """Single pods that wait, and for which a node has all that they ask for by what really runs. Nothing leaves, or is reserved."""
    state = judged.state
    gpus = dict.fromkeys(judged.labels, 4)
    for uid, (where, _) in judged.there.items():
        gpus[where] -= state.tasks[uid].pod.spec.gpus
    found = []
    for uid, task in state.tasks.items():
        if uid in judged.there or task.gang is not None or is_held_back(task):
            continue
        amount = dict(task.pod.spec.shared).get(STORAGE, 0)
        if judged.limit is not None and task.queue == "one" and judged.taken_by("one") + amount > judged.limit:
            continue
        for where in judged.labels:
            room = all(judged.in_use(name) + amount <= judged.declared[name] for name in judged.pools_of(where)) or not amount
            if room and gpus[where] >= task.pod.spec.gpus:
                found.append((uid, where))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_random_worlds(seed):
    judged = Cluster(random.Random(seed))
    chance, now, walk = judged.chance, 0.0, invariants.Walk()
    for _ in range(40):
        now += chance.choice([1.0, 20.0, 200.0])
        for _ in range(chance.randrange(4)):
            judged.arrive()
        for uid in sorted(judged.leaving):
            if chance.random() < 0.5:
                judged.leave(uid)
        for uid in sorted(judged.there.keys() - judged.leaving):
            if chance.random() < 0.12:
                judged.leave(uid)
        if chance.random() < 0.15:
            judged.change()
        if chance.random() < 0.05:
            judged.restart(now)
            walk = invariants.Walk()
        decided = run(judged.state, now)
        judged.observe(decided)
        confirm(judged.state, decided)
        assert not walk.violations(judged.state)
        for name, declared in judged.declared.items():
            # Later a place may be held that is too large by now; where pools overlap more may be kept closed than victims fill.
            assert judged.changed or judged.overlapping or used(judged.state, name) <= declared, name
    for uid in sorted(judged.leaving):
        judged.leave(uid)
    for _ in range(30):
        now += 400.0
        decided = run(judged.state, now)
        judged.observe(decided)
        confirm(judged.state, decided)
        for uid in sorted(judged.leaving):
            judged.leave(uid)
        if not decided:
            break
    held = {row for hold in judged.state.reserved.holds.values() for row in hold.rows}
    assert held or single_places(judged) == []


def test_a_spec_without_it_is_the_same_shape_as_before():
    assert PodSpec(((GPU, 1),)) == PodSpec(((GPU, 1),), shared=())


@pytest.mark.parametrize("amount", [0, 1])
def test_a_gang_that_ports_keep_apart_is_not_told_that_it_lacks_what_its_pool_shares(amount):
    state = world(groups=[group("g", 2)], nodes=nodes("a", 1), pools=[pool("a", storage_bandwidth=40)])
    for number in range(2):
        made = taking(f"g{number}", amount, gpus=1, group="g")
        ports = (HostPort("0.0.0.0", "TCP", 80),)  # noqa: S104 - a host port of a pod
        state.upsert_pod(msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, ports=ports)))
    reason = refused(settle(state, 1.0))["g0"]
    assert reason.code is ReasonCode.RESOURCES
    assert "other constraints" in reason.message


def test_what_a_reservation_can_spare_of_it_is_taken_by_pods_that_move():
    running = [taking(f"p{number}", 20, at="a0", time_limit=600.0, started=0.0) for number in range(2)]
    state = world(*running, taking("big", 30, gpus=8, created=1.0), reservations=1, patience=0.0, preempt=False)
    run(state, 10.0)
    row = state.nodes.rows["a1"]
    closed = []
    for number in range(2):
        state.upsert_pod(taking(f"m{number}", 8, gpus=1, at="b0"))
        task = state.tasks[f"uid-m{number}"]
        closed.append(bool(state.reserved.closed_to_moved(task)[row]))
        state.reserved.take_moved(task, row)
    assert closed == [False, True]
