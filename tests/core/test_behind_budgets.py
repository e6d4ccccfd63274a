"""A budget that protects the victims which would relieve a limit hides no limit: once that is relieved, or another user comes, jobs start."""

from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.queues import Queue, UserLimits
from tests.builders import cluster, node, placed, pod, refused, run, settle


def test_a_limit_behind_a_budget_that_is_relieved_lets_the_job_start():
    state = cluster(
        [node("n0", gpus=4), node("n1")],
        [Queue("b", jobs=UserLimits(running=2))],
        [pod(f"r{number}", "b", at="n0", gpus=1, created=number) for number in range(2)],
    )
    state.upsert_budget(DisruptionBudget("ns", "all", ()))
    settle(state, 0.0)
    state.upsert_pod(pod("p", "b", gpus=8, priority=10, created=1.0))
    assert refused(run(state, 1.0))["p"].code.value == "DisruptionBudget"
    state.remove_pod("uid-r0")
    assert placed(run(state, 20.0)) == {"p": "n1"}


def test_one_users_limit_behind_a_budget_keeps_no_other_user_waiting():
    state = cluster(
        [node("n0"), node("n1")],
        [Queue("b", per_user=UserLimits(running=1))],
        [pod("r", "b", at="n0", gpus=1, user="u1")],
    )
    state.upsert_budget(DisruptionBudget("ns", "all", ()))
    settle(state, 0.0)
    state.upsert_pod(pod("p", "b", gpus=2, priority=10, created=1.0, user="u1"))
    state.upsert_pod(pod("q", "b", gpus=2, priority=10, created=2.0, user="u2"))
    decided = run(state, 2.0)
    assert placed(decided).keys() == {"q"}
    assert refused(decided)["p"].code.value == "UserLimit"
