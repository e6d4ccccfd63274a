"""Disruption budgets in the profile `ai`: who is protected does not fall, and stands in nobody's way."""

import msgspec

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model import DisruptionBudget
from fairlead.core.selectors import Requirement
from tests.builders import cluster, group, node, placed, pod, preempted, queue, refused, run, settle


def budget(allowed, app="web", disrupted=()):
    return DisruptionBudget("ns", f"of-{app}", (Requirement("app", "In", (app,)),), allowed, disrupted)


def of(app, *pods):
    return [msgspec.structs.replace(each, labels=(("app", app),)) for each in pods]


def test_the_cheapest_victim_that_may_go_falls():
    web = of("web", pod("web", at="n", created=9))  # would fall first: the latest
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
    assert refused(done)["g0"].code is ReasonCode.RESOURCES, "it says that it waits"
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
    state.upsert_budget(budget(0, disrupted=(leaving,)))  # the server has heard of it
    assert preempted(settle(state, now=60.0)) == []
    state.remove_pod(f"uid-{leaving}")
    state.upsert_budget(budget(1))  # and a replacement is up elsewhere
    assert [len(each) for each in preempted(settle(state, now=120.0))] == [1]
    invariants.check(state)


def test_a_gang_falls_only_if_all_its_members_may():
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
    state.upsert_budget(msgspec.structs.replace(budget(0), name="all", selector=()))
    state.upsert_pod(pod("urgent", priority=9))
    assert preempted(run(state)) == [["web"]]
    assert placed(run(state)) == {}
