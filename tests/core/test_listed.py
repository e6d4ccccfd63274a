"""What is kept so that an event need not read all pods: pods by label, what pools hold, what users hold; against all pods."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.charges import split
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.selectors import Requirement, matches
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.state.budgets import protects
from tests.builders import GPU, cluster, confirm, node, pod, run

OPERATORS = (("In", ("a",)), ("In", ("a", "b")), ("In", ()), ("NotIn", ("a",)), ("Exists", ()), ("DoesNotExist", ()))


def drawn_labels(draw):
    return tuple(sorted((key, draw.choice("abc")) for key in ("app", "tier") if draw.random() < 0.7))


def drawn_selector(draw):
    if draw.random() < 0.1:
        return None
    return tuple(Requirement(draw.choice(("app", "tier")), *draw.choice(OPERATORS)) for _ in range(draw.randrange(3)))


@pytest.mark.parametrize("seed", range(30))
def test_pods_are_found_by_the_labels_that_budgets_select(seed):
    draw = random.Random(seed)
    state = cluster([node("n", gpus=200, pods=300)], [Queue("q")])
    for step in range(120):
        uids = sorted(state.tasks)
        what = draw.random()
        if what < 0.4 or not uids:
            made = pod(f"p{step}", queue="q", at=draw.choice(("", "n", "gone")), labels=drawn_labels(draw))
            state.upsert_pod(msgspec.structs.replace(made, namespace=draw.choice(("ns", "other"))))
        elif what < 0.55:
            state.remove_pod(draw.choice(uids))
        elif what < 0.8:
            known = state.tasks[draw.choice(uids)].pod
            state.upsert_pod(msgspec.structs.replace(known, labels=drawn_labels(draw)))
        elif what < 0.85:
            state.isolation.half_applied(draw.choice(uids))
        budget = DisruptionBudget(draw.choice(("ns", "other", "none")), f"b{draw.randrange(5)}", drawn_selector(draw))
        state.upsert_budget(budget)
        listed = state.tables.labelled
        plain = [each for each in state.tasks.values() if protects(budget, each.pod, dict(each.pod.labels))]
        found = list(listed.candidates(budget.namespace, budget.selector)) if budget.selector is not None else []
        assert len({each.pod.uid for each in found}) == len(found)
        chosen = [each for each in found if matches(budget.selector, dict(each.pod.labels))]
        assert sorted(each.pod.uid for each in chosen) == sorted(each.pod.uid for each in plain)
        assert {each.pod.uid for each in listed.of("ns")} == {u for u, each in state.tasks.items() if each.pod.namespace == "ns"}
    invariants.check(state)


def held_in_pools(state):
    return {
        (name, what, key): amount
        for name, each in state.queues.queues.items()
        for what in ("used", "leaving", "foreign")
        for key, amount in getattr(each, what).items()
        if split(key)[1] and amount
    }


@pytest.mark.parametrize("seed", range(30))
def test_what_pools_hold_follows_nodes(seed):
    draw = random.Random(seed)
    queues = [
        Queue("top", resources=(QueueResource(GPU, 8000, pool="h100"),)),
        Queue("q", "top", resources=(QueueResource(GPU, 2000, pool="a100"), QueueResource(GPU, 4000, pool="mine"))),
        Queue("other", per_user=UserLimits(resources=((GPU, 6000),))),
    ]
    state = cluster([], queues)
    state.upsert_pool(NodePool("mine", (Requirement("team", "In", ("ours",)),)))
    for step in range(60):
        name = f"n{draw.randrange(6)}"
        what = draw.random()
        if what < 0.3:
            labels = {"nvidia.com/gpu.product": draw.choice(("h100", "a100", "t4")), "team": draw.choice(("ours", "theirs"))}
            state.upsert_node(node(name, gpus=4, labels=labels))
        elif what < 0.45:
            state.remove_node(name)
        elif what < 0.8 or not state.tasks:
            queue, at = draw.choice(("q", "other")), draw.choice(("", "", name))
            state.upsert_pod(pod(f"p{step}", queue=queue, at=at, user=draw.choice(("ann", "eve")), priority=draw.choice((0, 5))))
        elif what < 0.9:
            state.remove_pod(draw.choice(sorted(state.tasks)))
        else:
            state.upsert_pool(NodePool("mine", (Requirement("team", "In", (draw.choice(("ours", "theirs")),)),)))
        found = [each for each in run(state, float(step)) if isinstance(each, Place | Preempt)]
        confirm(state, found)
        for each in found:
            for victim in each.victims if isinstance(each, Preempt) else ():
                state.remove_pod(victim.pod.uid)
        pools = state.queues.tree.pools
        masks = {pool: pools.mask(pool).tolist() for pool in pools.named}
        held = held_in_pools(state)
        state.queues._sort_pools("mine")
        assert held_in_pools(state) == held
        assert {pool: pools.mask(pool).tolist() for pool in pools.named} == masks
        invariants.check(state)


@pytest.mark.parametrize("seed", range(30))
def test_what_users_hold_follows_queues(seed):
    draw = random.Random(seed)
    limits = (None, UserLimits(running=2), UserLimits(running=5), UserLimits(resources=((GPU, 3000),)))
    names = ("a", "b", "c", "d")
    state = cluster([node("n", gpus=8), node("m", gpus=4)], [Queue(name) for name in names])
    for step in range(80):
        what = draw.random()
        if what < 0.4 or not state.tasks:
            state.upsert_pod(
                pod(f"p{step}", queue=draw.choice(names), user=draw.choice(("ann", "eve")), priority=draw.choice((0, 5)))
            )
        elif what < 0.55:
            state.remove_pod(draw.choice(sorted(state.tasks)))
        elif what < 0.9:
            parent = draw.choice(("", "", *names, "fresh"))
            state.upsert_queue(Queue(draw.choice(names), parent, per_user=draw.choice(limits), jobs=draw.choice(limits)))
        elif what < 0.95:
            state.upsert_queue(Queue(f"fresh-{step}", draw.choice(names), per_user=draw.choice(limits)))
        else:
            state.remove_queue(draw.choice(names))
        found = [each for each in run(state, float(step)) if isinstance(each, Place | Preempt)]
        confirm(state, [each for each in found if isinstance(each, Place)])
        for each in found:
            for victim in each.victims if isinstance(each, Preempt) and draw.random() < 0.5 else ():
                state.remove_pod(victim.pod.uid)  # the others are still leaving while queues change
        invariants.check(state)
        for each in state.queues.queues.values():
            assert each.meter is None or each.meter.policy == each.policy
