"""Random clusters, random events: what must hold always."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fairlead.api.names import AI_PROFILE, KUBERNETES_PROFILE
from fairlead.core import invariants
from fairlead.core.model.nodes import NodePool, Taint
from fairlead.core.model.pods import AffinityTerm, HostPort, SpreadConstraint
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.pods.layout import lay_out
from fairlead.core.pods.scores import STRATEGIES
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.snapshot import snapshot
from tests.builders import GIB, GPU, cluster, group, node, pod, queue, run, settle

nodes_ = st.lists(
    st.builds(
        lambda gpus, cpu, zone, taint, shares: {
            "gpus": gpus,
            "cpu": cpu * 1000,
            "labels": {"zone": zone},
            "taints": (Taint("t"),) if taint else (),
            "shares": shares,
        },
        st.sampled_from([0, 1, 2, 4, 8]),
        st.integers(1, 64),
        st.sampled_from("xyz"),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)
pods_ = st.lists(
    st.builds(
        lambda gpus, milli, cpu, memory, zone, team, priority, gang: {
            "gpus": gpus,
            "milli": milli if gpus == 1 else 1000,
            "cpu": cpu * 500,
            "memory": memory * GIB,
            "selector": {"zone": zone} if zone else None,
            "queue": team,
            "priority": priority,
            "group": gang,
        },
        st.sampled_from([0, 1, 1, 2, 8]),
        st.sampled_from([1000, 1000, 250, 470, 810]),
        st.integers(0, 40),
        st.integers(0, 64),
        st.sampled_from(["", "", "x", "y"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.sampled_from(["", "", "", "g", "h"]),
    ),
    max_size=40,
)
strategies_ = st.sampled_from(sorted(STRATEGIES))


def build(nodes, pods, strategy, order=None):
    names = [f"node-{index:02d}" for index in range(len(nodes))]
    pairs = list(zip(names, nodes, strict=True))
    if order is not None:
        pairs = [pairs[index] for index in order]
    made = [pod(f"p{index:02d}", created=float(index), **each) for index, each in enumerate(pods)]
    return cluster(
        [node(name, **each) for name, each in pairs],
        [queue("a", quota=8, limit=24), queue("b", quota=4)],
        made,
        [group("g", 3), group("h", 6)],
        strategy=strategy,
    )


@given(nodes_, pods_, strategies_)
def test_no_resource_or_device_is_given_out_twice_and_gangs_are_whole(nodes, pods, strategy):
    state = build(nodes, pods, strategy)
    settle(state)
    invariants.check(state)
    assert not invariants.over_allocated(state)


@given(nodes_, pods_, strategies_, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(nodes, pods, strategy, rng):
    order = list(range(len(nodes)))
    rng.shuffle(order)
    assert run(build(nodes, pods, strategy)) == run(build(nodes, pods, strategy, order))


@given(nodes_, pods_, strategies_)
def test_the_same_input_gives_the_same_transactions(nodes, pods, strategy):
    assert run(build(nodes, pods, strategy)) == run(build(nodes, pods, strategy))


@given(nodes_, pods_, pods_, strategies_, st.randoms(use_true_random=False))
def test_rollback_equals_a_deep_copy(nodes, pods, more, strategy, rng):
    state = build(nodes, pods, strategy)
    settle(state)
    for index, each in enumerate(more):
        state.upsert_pod(pod(f"m{index:02d}", **each))
    before, standings = snapshot(state), {t.shape.number: t.ranking.keys().copy() for t in state.tasks.values()}
    outer = state.log.mark()
    for depth in range(2):
        inner = state.log.mark()
        for task in rng.sample(sorted(state.tasks.values(), key=lambda each: each.pod.uid), len(state.tasks) // 2):
            if task.row >= 0:
                state.placement.unassign(task)
            elif task.state is TaskState.WAITING and (row := task.ranking.best()) >= 0:
                state.placement.assign(task, row, state.shapes.strategy.pick(task.shape, row))
        if depth:
            state.log.rollback(inner)
        else:
            state.log.commit()
    state.log.rollback(outer)
    assert snapshot(state) == before
    invariants.check(state)
    for task in state.tasks.values():
        assert np.array_equal(task.ranking.keys(), standings[task.shape.number])


@given(nodes_, pods_, strategies_)
def test_one_row_and_many_rows_are_scored_alike(nodes, pods, strategy):
    state = build(nodes, pods, strategy)
    settle(state)
    count = state.nodes.count
    for ranking in {task.ranking for task in state.tasks.values()}:
        shape, states = ranking.shape, state.nodes.device[:count]
        costs = shape.fit.costs(states) if shape.gpus else None
        many = state.shapes.strategy.rows(shape, slice(0, count), states, costs).tolist()
        keys = ranking.keys()
        for row in range(count):
            assert ranking.fits_row(row) == (keys.item(row) >= 0)
            if keys.item(row) >= 0:
                assert 0 <= many[row] < 1 << 32
                assert state.shapes.strategy.row(shape, row) == many[row]


@given(nodes_, pods_, strategies_)
def test_repaired_rankings_equal_rebuilt_ones(nodes, pods, strategy):
    state = build(nodes, pods, strategy)
    for ranking in {task.ranking for task in state.tasks.values()}:
        ranking.keys()
    settle(state)
    for ranking in {task.ranking for task in state.tasks.values()}:
        repaired, best = ranking.keys().copy(), ranking.best()
        ranking.forget()
        assert np.array_equal(repaired, ranking.keys())
        assert ranking.best() == best


@given(nodes_, pods_, st.sampled_from(["pack", "spread"]), st.integers(1, 40))
def test_a_layout_is_what_placing_one_by_one_allows(nodes, pods, fill, wanted):
    state = build(nodes, pods, "ai")
    for ranking in {task.ranking for task in state.tasks.values()}:
        laid, counts = lay_out(ranking, wanted, fill), ranking.counts()
        assert len(laid) == min(wanted, int(counts.sum()))
        assert all(laid.count(row) <= counts.item(row) for row in set(laid))
        mark = state.log.mark()
        for number, row in enumerate(laid):
            assert ranking.fits_row(row)
            state.placement.assign(
                Task(pod(f"member{number}", spec_=ranking.shape.spec, ours=False), ranking),
                row,
                state.shapes.strategy.pick(ranking.shape, row),
            )
        state.log.rollback(mark)


@given(nodes_, pods_)
def test_every_victim_freed_capacity_for_a_preemptor(nodes, pods):
    state = build(nodes, pods, "ai")
    settle(state)
    for index in range(6):
        state.upsert_pod(pod(f"late{index}", priority=9, queue="a", gpus=1 + index % 2))
    for each in run(state):
        if isinstance(each, Preempt):
            assert each.victims
            assert each.beneficiaries
            freed = {victim.node for victim in each.victims}
            assert {binding.node for binding in each.beneficiaries} & freed
    invariants.check(state)


def about_others(kind):
    """What a pod asks of others that carry the same label; nothing for an empty kind."""
    term = AffinityTerm("zone", (Requirement("app", "In", (kind,)),), ("ns",))
    return {
        "near": {"pod_affinity": (term,)},
        "apart": {"pod_anti_affinity": (term,)},
        "even": {"spread": (SpreadConstraint("zone", 1, (Requirement("app", "In", ("even",)),)),)},
        "port": {"ports": (HostPort("0.0.0.0", "TCP", 80),)},  # noqa: S104
    }.get(kind, {})


class Churn(RuleBasedStateMachine):
    """Nodes, pods, queues and faults in any order; every write succeeds or fails by the rules."""

    def __init__(self):
        super().__init__()
        self.state = ClusterState(Policy())
        for each in (queue("a", quota=4, limit=12), queue("b", quota=2)):
            self.state.upsert_queue(each)
        self.state.upsert_group(group("g", 3))
        self.now = 0.0
        self.count = 0
        self.live: list[str] = []

    @rule(name=st.integers(0, 5), gpus=st.sampled_from([0, 1, 4, 8]), cordoned=st.booleans())
    def upsert_node(self, name, gpus, cordoned):
        self.state.upsert_node(node(f"n{name}", gpus=gpus, unschedulable=cordoned, labels={"zone": f"z{name % 3}"}))

    @rule(name=st.integers(0, 5))
    def remove_node(self, name):
        self.state.remove_node(f"n{name}")

    @rule(
        gpus=st.sampled_from([0, 1, 2]),
        milli=st.sampled_from([1000, 300]),
        team=st.sampled_from(["a", "b", "ghost"]),
        priority=st.integers(0, 2),
        gang=st.sampled_from(["", "g"]),
        kind=st.sampled_from(["", "", "near", "apart", "even", "port"]),
        profile=st.sampled_from([AI_PROFILE, AI_PROFILE, KUBERNETES_PROFILE]),
    )
    def add_pod(self, gpus, milli, team, priority, gang, kind, profile):
        self.count += 1
        name = f"p{self.count}"
        self.live.append(name)
        fraction = milli if gpus == 1 else 1000
        made = pod(name, team, priority, gang, float(self.count), gpus=gpus, milli=fraction)
        made_of = msgspec.structs.replace(made.spec, **about_others(kind))
        self.state.upsert_pod(msgspec.structs.replace(made, spec=made_of, labels=(("app", kind),), profile=profile))

    @rule(data=st.data())
    def remove_pod(self, data):
        if self.live:
            name = data.draw(st.sampled_from(self.live))
            self.live.remove(name)
            self.state.remove_pod(f"uid-{name}")

    @rule(data=st.data())
    def begin_to_leave(self, data):
        placed = sorted(task.pod.uid for task in self.state.tasks.values() if task.state in (TaskState.BOUND, TaskState.EVICTING))
        if placed:
            leaving = self.state.tasks[data.draw(st.sampled_from(placed))].pod
            self.state.upsert_pod(msgspec.structs.replace(leaving, terminating=True))

    @rule(fails=st.lists(st.booleans(), min_size=8, max_size=8), passing=st.sampled_from([0.0, 1.0, 70.0]))
    def decide(self, fails, passing):
        """Some writes fail; of the evicted some leave at once and some take their time."""
        self.now += passing
        for each in run(self.state, self.now):
            if isinstance(each, Place):
                for place, binding in enumerate(each.bindings):
                    if fails[place % 8]:
                        self.state.bind_failed(binding.pod.uid, self.now)
                    else:
                        self.state.pods.bound(binding.pod.uid)
            elif isinstance(each, Preempt | Evict):
                for place, victim in enumerate(each.victims):
                    if fails[place % 8]:
                        self.state.evictions.failed(victim.pod.uid, self.now)
                    elif fails[(place + 1) % 8]:
                        leaving = self.state.tasks[victim.pod.uid].pod
                        self.state.upsert_pod(msgspec.structs.replace(leaving, terminating=True))
                    else:
                        self.state.remove_pod(victim.pod.uid)
                        if victim.pod.name in self.live:
                            self.live.remove(victim.pod.name)

    @rule(limit=st.integers(0, 6), pool=st.sampled_from(["odd", "z1"]))
    def limit_pool(self, limit, pool):
        of_pool = QueueResource(GPU, limit=limit * 1000, pool=pool)
        self.state.upsert_queue(Queue("b", resources=(QueueResource(GPU, quota=2000), of_pool)))

    @rule(zones=st.lists(st.sampled_from(["z0", "z1", "z2"]), max_size=2))
    def change_pool(self, zones):
        if zones:
            self.state.upsert_pool(NodePool("odd", (Requirement("zone", "In", tuple(zones)),)))
        else:
            self.state.remove_pool("odd")

    @rule(limit=st.integers(0, 12))
    def change_limit(self, limit):
        self.state.upsert_queue(queue("a", quota=4, limit=limit))

    @invariant()
    def holds(self):
        # A gang under repair may be partial for its grace; everything else holds at every step.
        wrong = [each for each in invariants.violations(self.state) if not each.startswith("gang ")]
        assert not wrong


TestChurn = Churn.TestCase
TestChurn.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
