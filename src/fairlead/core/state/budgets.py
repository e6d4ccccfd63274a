"""Disruption budgets: whom a plan may evict without breaking one, counted as the plan grows.

What a budget allows is what its status held last. The API server asks it again before each eviction, so a count that is out of
date costs a plan, never a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.pods import Pod
from fairlead.core.model.selectors import matches
from fairlead.core.pods.tasks import Task
from fairlead.core.state.departures import Departures
from fairlead.core.state.overrides import Overrides
from fairlead.core.state.tables import Tables


def concerns(budget: DisruptionBudget, pod: Pod, labels: dict[str, str]) -> bool:
    """Whether evicting a pod counts against a budget. A selector that selects everything is passed over, as upstream."""
    return (
        budget.namespace == pod.namespace
        and bool(budget.selector)
        and matches(budget.selector, labels)
        and pod.name not in budget.disrupted
    )


def protects(budget: DisruptionBudget, pod: Pod, labels: dict[str, str]) -> bool:
    """Whether the Eviction API asks a budget about a pod. An empty selector selects every pod of the namespace there."""
    return (
        budget.namespace == pod.namespace
        and budget.selector is not None
        and matches(budget.selector, labels)
        and pod.name not in budget.disrupted
    )


class Guard:
    """What may still be evicted while a plan is made. leaving: whom earlier plans evict, of whom a budget may not know yet.

    refused: pods whose eviction the API server refused a short time ago, whatever budgets allow by their status.
    """

    def __init__(
        self, budgets: Sequence[DisruptionBudget], leaving: Iterable[Task] = (), refused: Callable[[Task], bool] = lambda _: False
    ) -> None:
        self._refused = refused
        self._left = {budget.key: budget.allowed for budget in budgets}
        self._of: dict[str, list[DisruptionBudget]] = {}
        for budget in budgets:
            self._of.setdefault(budget.namespace, []).append(budget)
        for key, count in self._needed(leaving).items():
            self._left[key] -= count

    def copy(self) -> Guard:
        """The same, to go on with separately."""
        other = Guard.__new__(Guard)
        other._left, other._of, other._refused = dict(self._left), self._of, self._refused  # noqa: SLF001 - a guard, too
        return other

    def admits(self, tasks: Sequence[Task]) -> bool:
        """Whether all of these may go besides those that were admitted before; they are counted then.

        A pod that was deleted already may be deleted again: no budget is asked. Nor is one of a pod that is on no node yet: in a
        trial it was just placed, and not to start it disrupts nothing.
        """
        tasks = [task for task in tasks if task.pod.node and not task.pod.terminating]
        needed = self._needed(tasks)
        if any(self._left[key] < count for key, count in needed.items()) or any(self._never(task) for task in tasks):
            return False
        for key, count in needed.items():
            self._left[key] -= count
        return True

    def keeping(self, task: Task) -> list[DisruptionBudget]:
        """The budgets that concern a pod."""
        labels = dict(task.pod.labels)
        return [each for each in self._of.get(task.pod.namespace, ()) if protects(each, task.pod, labels)]

    def _never(self, task: Task) -> bool:
        """Whether the server evicts a pod under no circumstances: with two budgets it answers an error."""
        return self._refused(task) or (len(self._of.get(task.pod.namespace, ())) > 1 and len(self.keeping(task)) > 1)

    def _needed(self, tasks: Iterable[Task]) -> dict[str, int]:
        """How many of these each budget that concerns any must allow."""
        needed: dict[str, int] = {}
        for task in tasks:
            budgets = self._of.get(task.pod.namespace)
            if not budgets:
                continue
            labels = dict(task.pod.labels)
            for budget in budgets:
                if protects(budget, task.pod, labels):
                    needed[budget.key] = needed.get(budget.key, 0) + 1
        return needed


class Budgets:
    """The disruption budgets that are known, by `namespace/name`. version: counts their changes."""

    def __init__(self, tables: Tables, departures: Departures, overrides: Overrides, victims: Mapping[str, object]) -> None:
        self._tables = tables
        self._departures = departures
        self._overrides = overrides
        self._victims = victims
        self.known: dict[str, DisruptionBudget] = {}
        self.version = 0

    def upsert(self, budget: DisruptionBudget) -> None:
        """A disruption budget came or changed."""
        known = self.known.get(budget.key)
        if known != budget:
            self.known[budget.key] = budget
            self.version += 1
            if known is not None:
                self._unguard(known)

    def remove(self, key: str) -> None:
        """A disruption budget is gone."""
        known = self.known.pop(key, None)
        self.version += 1
        if known is not None:
            self._unguard(known)

    @property
    def may_block(self) -> bool:
        """Whether any pod may be kept from eviction."""
        return bool(self.known) or self._overrides.any_refused

    def guard(self) -> Guard:
        """What disruption budgets allow besides what is leaving already."""
        tasks = self._tables.tasks
        leaving = (tasks[uid] for uid in self._victims if uid in tasks and not self._departures.was_deleted(uid))
        now = self._tables.services.now
        return Guard(list(self.known.values()), leaving, lambda task: self._overrides.is_refused(task, now))

    def _unguard(self, budget: DisruptionBudget) -> None:
        """Pods that a budget kept from preemption may be preempted now: what waits for their places is tried again."""
        tables = self._tables
        if not tables.queues.waiting.unschedulable:
            return
        for task in tables.tasks.values():
            if task.row >= 0 and task.pod.namespace == budget.namespace and protects(budget, task.pod, dict(task.pod.labels)):
                tables.nodes.gained.add(task.row)
