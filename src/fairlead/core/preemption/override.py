"""Override: a unit that only disruption budgets keep out gets that as its reason; within its quota it overrides those of what
others borrow.

A budget protects a service while pods are moved about. It is no title to capacity: work beyond its own quota gives way to work
within its own, after a time in which its owner is warned (`budget_override`). All other evictions keep to budgets.
"""

from __future__ import annotations

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.causes import named
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.instants import at_time
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.policy import Budgets
from fairlead.core.preemption.search import Plan, by_upstream, preempt
from fairlead.core.state.cluster import ClusterState


def override(
    state: ClusterState, unit: Unit, now: float, blocking: Blocking, *, enforce_quota: bool
) -> tuple[Plan | Reason, float] | None:
    """The plan that overrides budgets once it is time, or why the unit waits, with when it is tried again (0: no time).

    None: budgets are not what it waits for. The state changes only with a plan.
    """
    if not state.budgets.may_block or not state.policy.preempt or by_upstream(unit) or unit.tasks[0].pod.never_preempts:
        return None
    queue = unit.tasks[0].queue
    if state.policy.budget_override:
        mark = state.log.mark()
        plan = preempt(state, unit, enforce_quota=enforce_quota, budgets=Budgets.OVERRIDE, blocking=blocking)
        if plan is not None:
            protected, budgets = _protected(state, plan.victims)
            due = max(state.overrides.due(queue, now), state.overrides.noticed(protected, now))
            if now >= due:
                state.log.commit()
                why = plan.why.overriding(_keys(budgets))
                return plan._replace(overrides=tuple(task.pod.uid for task in protected), why=why), 0.0
            _take_back(state, plan, mark)
            state.overrides.warn(
                protected,
                f"queue {queue} is within its quota and waits for capacity that this pod holds beyond the quota of its queue: "
                f"from {at_time(due)} on the pod may be evicted although {named(_keys(budgets))} forbids it",
                now,
            )
            message = f"{_in_its_way(protected, budgets)}; the job is within quota, so the budget is overridden at {at_time(due)}"
            return Reason(ReasonCode.DISRUPTION_BUDGET, message, _numbers(protected, budgets)), due
        state.log.rollback(mark)
    mark = state.log.mark()
    plan = preempt(state, unit, enforce_quota=enforce_quota, budgets=Budgets.IGNORE, blocking=blocking)
    if plan is None:
        state.log.rollback(mark)
        return None
    protected, budgets = _protected(state, plan.victims)
    _take_back(state, plan, mark)
    if not protected:
        return None
    message = f"{_in_its_way(protected, budgets)}; not overridden: the job exceeds its guarantee, or overrides are disabled"
    return Reason(ReasonCode.DISRUPTION_BUDGET, message, _numbers(protected, budgets)), state.overrides.next_asked(now) or 0.0


def _take_back(state: ClusterState, plan: Plan, mark: int) -> None:
    state.log.rollback(mark)
    for task in plan.placed:
        task.become(TaskState.WAITING)


def _protected(state: ClusterState, victims: list[Task]) -> tuple[list[Task], list[DisruptionBudget]]:
    """Which of these their budgets keep, and those budgets by name."""
    guard = state.budgets.guard()
    protected = [task for task in victims if not guard.admits((task,))]
    budgets = {each.key: each for task in protected for each in guard.keeping(task)}
    return protected, [budgets[key] for key in sorted(budgets)]


def _keys(budgets: list[DisruptionBudget]) -> list[str]:
    return [each.key for each in budgets]


def _in_its_way(protected: list[Task], budgets: list[DisruptionBudget]) -> str:
    allowed = sum(max(0, each.allowed) for each in budgets)
    blocked = f"the eviction of {len(protected)} pod(s) is blocked by {named(_keys(budgets))}"
    return f"{blocked}, which allows {allowed} more disruption(s)"


def _numbers(protected: list[Task], budgets: list[DisruptionBudget]) -> dict[str, int]:
    return {"pods": len(protected), "allowed": sum(max(0, each.allowed) for each in budgets)}
