"""Disruption budgets in the profile `ai`: protected pods are not preempted, and block no other plan."""

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Preempt, Warn
from tests.builders import cluster, group, node, placed, pod, preempted, queue, refused, run, settle


def budget(allowed, app="web", disrupted=()):
    return DisruptionBudget("ns", f"of-{app}", (Requirement("app", "In", (app,)),), allowed, disrupted)


def of(app, *pods):
    return [msgspec.structs.replace(each, labels=(("app", app),)) for each in pods]


def test_the_cheapest_victim_that_may_be_evicted_is_chosen():
    web = of("web", pod("web", at="n", created=9))  # would be the first victim: the latest
    state = cluster([node("n", gpus=2)], pods=[*web, pod("other", at="n", created=1)])
    state.upsert_budget(budget(0))
    state.upsert_pod(pod("urgent", priority=9))
    assert preempted(run(state)) == [["other"]]
    invariants.check(state)


def test_a_plan_takes_no_more_than_a_budget_allows():
    web = of("web", *(pod(f"web{i}", at=f"n{i}", gpus=2) for i in range(4)))
    state = cluster([node(f"n{i}", gpus=2) for i in range(4)], pods=web, groups=[group("g", 2)])
    state.upsert_budget(budget(1))
    for i in range(2):
        state.upsert_pod(pod(f"g{i}", gpus=2, group="g", priority=9))
    done = run(state)
    assert preempted(done) == []
    assert refused(done)["g0"].code is ReasonCode.DISRUPTION_BUDGET, "it says what it waits for"
    state.upsert_budget(budget(2))
    assert [len(each) for each in preempted(run(state, now=60.0))] == [2], "and is looked at again"
    invariants.check(state)


def test_plans_of_one_pass_share_what_is_allowed():
    web = of("web", *(pod(f"web{i}", at="n") for i in range(4)))
    state = cluster([node("n", gpus=4)], pods=web)
    state.upsert_budget(budget(1))
    for i in range(2):
        state.upsert_pod(pod(f"urgent{i}", priority=9, created=i))
    done = settle(state)
    assert [len(each) for each in preempted(done)] == [1]
    assert set(refused(done)) == {"urgent1"}
    (leaving,) = preempted(done)[0]
    state.upsert_budget(budget(0, disrupted=(leaving,)))  # the server has observed it
    assert preempted(settle(state, now=60.0)) == []
    state.remove_pod(f"uid-{leaving}")
    state.upsert_budget(budget(1))  # and a replacement is up elsewhere
    assert [len(each) for each in preempted(settle(state, now=120.0))] == [1]
    invariants.check(state)


def test_a_gang_is_preempted_only_if_all_its_members_may_be():
    members = of("web", *(pod(f"m{i}", group="old", at="n") for i in range(2)))
    state = cluster([node("n", gpus=2)], groups=[group("old", 2)], pods=members)
    state.upsert_budget(budget(1))
    state.upsert_pod(pod("urgent", priority=9))
    assert preempted(run(state)) == []
    state.remove_budget("ns/of-web")
    assert preempted(run(state, now=60.0)) == [["m0", "m1"]]


def test_reclaim_heeds_budgets_too():
    web = of("web", *(pod(f"web{i}", queue="a", at="n") for i in range(4)))
    state = cluster([node("n", gpus=4)], queues=[queue("a", quota=2), queue("b", quota=2)], pods=web)
    state.upsert_budget(budget(1))
    state.upsert_pod(pod("b0", queue="b"))
    assert [len(each) for each in preempted(settle(state))] == [1]
    state = cluster([node("n", gpus=4)], queues=[queue("a", quota=2), queue("b", quota=2)], pods=web)
    state.upsert_budget(budget(0))
    state.upsert_pod(pod("b0", queue="b"))
    assert preempted(settle(state)) == []


def test_budgets_of_others_do_not_matter():
    state = cluster([node("n", gpus=1)], pods=of("web", pod("web", at="n")))
    state.upsert_budget(budget(0, app="db"))
    state.upsert_budget(msgspec.structs.replace(budget(0), namespace="elsewhere"))
    state.upsert_budget(msgspec.structs.replace(budget(0), name="none", selector=None))
    state.upsert_pod(pod("urgent", priority=9))
    assert preempted(run(state)) == [["web"]]
    assert placed(run(state)) == {}


def everything(allowed=0, name="all", disrupted=()):
    """As a tenant writes it: selector {} selects every pod of the namespace."""
    return DisruptionBudget("ns", name, (), allowed, disrupted)


def borrowed(*budgets, **policy):
    state = cluster(
        [node(f"n{number}") for number in range(4)],
        [queue("vision", quota=16), queue("borrow", quota=0)],
        [pod(f"b{number}", "borrow", at=f"n{number}", gpus=8, created=number) for number in range(4)],
        **policy,
    )
    for each in budgets:
        state.upsert_budget(each)
    run(state)
    return state


def warned(transactions):
    return [sorted(each.name for each in one.pods) for one in transactions if isinstance(one, Warn)]


@pytest.mark.parametrize("budgets", [[everything()], [everything(9, "one"), everything(9, "two")]])
def test_a_budget_keeps_a_guarantee_from_its_owner_only_for_so_long(budgets):
    state = borrowed(*budgets)
    state.upsert_pod(pod("v", "vision", gpus=8, created=10.0))
    done = run(state, 10.0)
    assert preempted(done) == []
    why = refused(done)["v"]
    assert why.code is ReasonCode.DISRUPTION_BUDGET
    assert f"PodDisruptionBudget ns/{budgets[0].name}" in why.message
    assert "1970-01-01T00:10:10Z" in why.message
    assert len(warned(done)) == 1
    for now in (11.0, 300.0, 609.0):
        again = run(state, now)
        assert not preempted(again)
        assert not refused(again), "once"
        assert not warned(again)
    assert state.next_due <= 610.0
    (plan,) = [each for each in run(state, 610.0) if isinstance(each, Preempt)]
    assert plan.overrides == tuple(each.pod.uid for each in plan.victims)
    assert len(plan.victims) == 1
    invariants.check(state)
    state.remove_pod(plan.overrides[0])
    assert placed(run(state, 611.0)).keys() == {"v"}


def test_new_budgets_and_new_pods_begin_no_time_anew():
    state = borrowed(everything(name="first"))
    state.upsert_pod(pod("v", "vision", gpus=8, created=10.0))
    run(state, 10.0)
    state.remove_budget("ns/first")
    state.upsert_budget(everything(name="second"))
    for number in range(4):
        state.remove_pod(f"uid-b{number}")
        state.upsert_pod(pod(f"c{number}", "borrow", at=f"n{number}", gpus=8, created=20.0))
    assert not preempted(run(state, 400.0))
    assert len(preempted(run(state, 610.0))) == 1


def test_no_pod_is_evicted_over_its_budget_unwarned():
    state = borrowed(everything())
    state.upsert_pod(pod("v", "vision", gpus=8, created=10.0))
    run(state, 10.0)
    (first,) = preempted(run(state, 610.0))
    state.remove_pod(f"uid-{first[0]}")
    run(state, 611.0)
    state.remove_pod("uid-v")
    state.upsert_pod(pod("late", at="n3" if first == ["b3"] else "n0", queue="borrow", gpus=8, created=700.0))
    state.upsert_pod(pod("next", "vision", gpus=8, created=1500.0))
    done = run(state, 1500.0)
    assert not preempted(done)
    warned = {ref.uid for each in done if isinstance(each, Warn) for ref in each.pods}
    assert len(warned) == 1
    (victims,) = preempted(run(state, 1560.0))
    assert {f"uid-{name}" for name in victims} <= warned


def test_budgets_are_never_overridden_where_that_is_turned_off_nor_for_work_beyond_its_quota():
    state = borrowed(everything(), budget_override=0.0)
    state.upsert_pod(pod("v", "vision", gpus=8, created=10.0))
    assert refused(run(state, 10.0))["v"].code is ReasonCode.DISRUPTION_BUDGET
    assert not preempted(run(state, 10_000.0))
    state = borrowed(everything())
    state.upsert_pod(pod("urgent", "borrow", gpus=8, created=10.0, priority=9))
    why = refused(run(state, 10.0))["urgent"]
    assert (why.code, why.numbers) == (ReasonCode.DISRUPTION_BUDGET, {"pods": 1, "allowed": 0})
    assert not preempted(run(state, 10_000.0))


def test_work_within_its_quota_keeps_its_budget():
    state = cluster(
        [node("n")],
        [queue("vision", quota=4), queue("lent", quota=4)],
        [pod(f"b{number}", "lent", at="n", gpus=2, created=number) for number in range(4)],
    )
    state.upsert_budget(everything())
    state.upsert_pod(pod("v", "vision", gpus=4, created=10.0))
    run(state, 10.0)
    (plan,) = [each for each in run(state, 700.0) if isinstance(each, Preempt)]
    assert len(plan.victims) == 2, "what it holds beyond its quota, and no more"
    state.upsert_pod(pod("more", "vision", gpus=2, created=701.0))
    assert not [each for each in run(state, 5_000.0) if isinstance(each, Preempt)]


def test_what_the_api_server_refuses_is_behind_a_budget_too():
    state = borrowed()
    state.upsert_pod(pod("v", "vision", gpus=8, created=10.0))
    ((first,),) = preempted(run(state, 10.0))
    tried = [first]
    now = 10.0
    while now < 600.0:
        state.evictions.failed(f"uid-{tried[-1]}", now, by_budget=True)
        now += 5.0
        plans = preempted(run(state, now))
        if not plans:
            break
        tried.append(plans[0][0])
    assert sorted(tried) == ["b0", "b1", "b2", "b3"], "each once, then it waits"
    run(state, 38.0)  # its own rest after the fourth refusal is over
    first = state.queues.queues["vision"].first_refused()
    why = first[1] if first is not None else None
    assert why is not None
    assert why.code is ReasonCode.DISRUPTION_BUDGET
    plans, now = [], 38.0
    while not any(plan.overrides for plan in plans) and now < 1300.0:
        now = max(now + 1.0, state.next_due or 0.0)
        plans = [each for each in run(state, now) if isinstance(each, Preempt)]
        for plan in plans:
            if not plan.overrides:
                state.evictions.failed(plan.victims[0].pod.uid, now, by_budget=True)
    assert any(plan.overrides for plan in plans)
    assert now < 1300.0
