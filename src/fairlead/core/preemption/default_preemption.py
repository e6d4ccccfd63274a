"""DefaultPreemption: free capacity on one node by evicting pods of lower priority, whatever their queue, as kube-scheduler does.

Per node: take every pod of lower priority off, see whether the newcomer fits, and put back those that need not be evicted,
those first whose eviction would violate a disruption budget, then the more important. Among nodes: fewest violations,
lowest top priority of victims, smallest sum of their priorities, fewest victims, latest start of the top ones; then
the name, where upstream takes any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fairlead.core.pods.holdings import Trial
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption.removal import Removal, upstream_cost
from fairlead.core.state.budgets import BudgetIndex

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState


class _AsUpstream(Removal):
    """Counts as upstream does: its spreading never counted a terminating pod and yet counts it out."""

    def take(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            row = task.row
            super().take((task,))
            self._count(task, row, -1)

    def put_back(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            super().put_back((task,))
            self._count(task, task.row, 1)

    def _count(self, task: Task, row: int, sign: int) -> None:
        if task.pod.terminating:
            self.state.pairs.count_leaving(task.shape, row, sign)
        if self.state.holdings.trial is not None:
            self.state.holdings.trial.add(task.shape.spec, sign)


class Choice(NamedTuple):
    """Whom to evict on which row, most important first. violations: how many of them break a budget."""

    row: int
    victims: list[Task]
    violations: int


def choose(state: ClusterState, priority: int, rows: Iterable[int], fits: Callable[[int], bool]) -> Choice | None:
    """The best node to free for a pod of a priority. fits: whether it fits a row in the present state."""
    best: tuple[tuple[object, ...], Choice] | None = None
    for row in rows:
        choice = on_row(state, priority, row, fits)
        if choice is not None:
            price = (*cost(choice), state.nodes.names[row])
            if best is None or price < best[0]:
                best = price, choice
    return best[1] if best else None


def on_row(
    state: ClusterState,
    priority: int,
    row: int,
    fits: Callable[[int], bool],
    preemptible: Callable[[Task], bool] | None = None,
) -> Choice | None:
    """The victims on one row; None if even all of them are not enough. Leaves the state as it was.

    preemptible: which may be preempted; None: judge as upstream, with every pod of lower priority and its view of ports and
    claims.
    """
    pods = state.nodes.pods[row].values()
    removed = [task for task in pods if (task.pod.priority < priority if preemptible is None else preemptible(task))]
    if not removed:
        return None
    removed = by_importance(removed)
    state.holdings.trial = Trial(task.shape.spec for task in pods) if preemptible is None else None
    mark = state.log.mark()
    removal = _AsUpstream(state)
    removal.take(removed)
    victims: list[Task] = []
    violations = 0
    if fits(row):
        violating, others = _violating(removed, state.budgets.index)
        for group, counts in ((violating, True), (others, False)):
            for task in group:
                if not removal.spares((task,), lambda: fits(row)):
                    victims.append(task)
                    violations += counts
    state.log.rollback(mark)
    state.holdings.trial = None
    return Choice(row, by_importance(victims), violations) if victims else None


def by_importance(tasks: list[Task]) -> list[Task]:
    """Higher priority first, then those that have run longer; those not started yet count as starting just now.

    Among equals by UID: in which order a node lists its pods differs after each trial, and `Candidates.best` would ask for ever.
    """
    return sorted(tasks, key=lambda task: (-task.pod.priority, start(task), task.pod.uid))


def start(task: Task) -> float:
    """When a pod began to run; those that did not yet, last of all."""
    return math.inf if task.pod.started is None else task.pod.started


def _violating(tasks: list[Task], budgets: BudgetIndex) -> tuple[list[Task], list[Task]]:
    """(those whose eviction, in this order, would break a budget, the others). An empty selector selects nothing here."""
    left: dict[str, int] = {}
    violating: list[Task] = []
    others: list[Task] = []
    for task in tasks:
        breaks = False
        for budget in budgets.protecting(task.pod) if task.pod.labels else ():
            if budget.selector:
                left[budget.key] = left.get(budget.key, budget.allowed) - 1
                breaks |= left[budget.key] < 0
        (violating if breaks else others).append(task)
    return violating, others


def cost(choice: Choice) -> tuple[object, ...]:
    """What a choice costs, in upstream's order; smaller is better."""
    return (choice.violations, *upstream_cost(choice.victims, start))
