"""Disruption budgets: whom a plan may evict without breaking one, counted as the plan grows.

What a budget allows is what its status held last. The API server asks it again before each eviction, so a count that is out of
date costs a plan, never a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.pods import Pod
from fairlead.core.model.selectors import matches
from fairlead.core.pods.pairs import Handle, asks_for
from fairlead.core.pods.tasks import Task
from fairlead.core.state.departures import Departures
from fairlead.core.state.overrides import Overrides
from fairlead.core.state.tables import Tables


def protects(budget: DisruptionBudget, pod: Pod, labels: dict[str, str]) -> bool:
    """Whether the Eviction API asks a budget about a pod. An empty selector selects every pod of the namespace there."""
    return (
        budget.namespace == pod.namespace
        and budget.selector is not None
        and matches(budget.selector, labels)
        and pod.name not in budget.disrupted
    )


_MOST_KEPT = 10_000


class BudgetIndex:
    """Finds the budgets that may select a pod without asking all of them: by namespace, and by a label that it must have.

    Pods of a job have the same labels, so what was found for some is kept, until budgets change.
    """

    def __init__(self) -> None:
        self._under: dict[tuple[str, Handle], dict[str, DisruptionBudget]] = {}
        self._selecting: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[DisruptionBudget, ...]] = {}
        self.namespaces: dict[str, int] = {}  # how many budgets each has

    def add(self, budget: DisruptionBudget) -> None:
        """A budget is known now."""
        self._selecting.clear()
        self.namespaces[budget.namespace] = self.namespaces.get(budget.namespace, 0) + 1
        for handle in asks_for(budget.selector):
            self._under.setdefault((budget.namespace, handle), {})[budget.key] = budget

    def remove(self, budget: DisruptionBudget) -> None:
        """A budget is gone, or is to be added as it is now."""
        self._selecting.clear()
        self.namespaces[budget.namespace] -= 1
        if not self.namespaces[budget.namespace]:
            del self.namespaces[budget.namespace]
        for handle in asks_for(budget.selector):
            under = self._under[budget.namespace, handle]
            del under[budget.key]
            if not under:
                del self._under[budget.namespace, handle]

    def selecting(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        """The budgets of its namespace that select a pod by its labels."""
        if pod.namespace not in self.namespaces:
            return ()
        key = pod.namespace, pod.labels
        found = self._selecting.get(key)
        if found is None:
            if len(self._selecting) >= _MOST_KEPT:
                self._selecting.clear()
            labels, under, handles = dict(pod.labels), self._under, (None, *pod.labels)
            near: dict[str, DisruptionBudget] = {}
            for handle in handles:
                near.update(under.get((pod.namespace, handle), {}))
            found = self._selecting[key] = tuple(each for each in near.values() if matches(each.selector, labels))
        return found

    def protecting(self, pod: Pod) -> list[DisruptionBudget]:
        """The budgets that the Eviction API asks about a pod."""
        return [each for each in self.selecting(pod) if pod.name not in each.disrupted]


class Guard:
    """What may still be evicted while a plan is made. leaving: whom earlier plans evict, of whom a budget may not know yet.

    refused: pods whose eviction the API server refused a short time ago, whatever budgets allow by their status.
    """

    def __init__(
        self, index: BudgetIndex, leaving: Iterable[Task] = (), refused: Callable[[Task], bool] = lambda _: False
    ) -> None:
        self._refused = refused
        self._index = index
        self._left: dict[str, int] = {}  # of budgets that were asked
        self._count(self._needed(leaving))

    def copy(self) -> Guard:
        """The same, to go on with separately."""
        other = Guard(self._index, (), self._refused)
        other._left.update(self._left)
        return other

    def admits(self, tasks: Sequence[Task]) -> bool:
        """Whether all of these may go besides those that were admitted before; they are counted then.

        A pod that was deleted already may be deleted again: no budget is asked. Nor is one of a pod that is on no node yet: in a
        trial it was just placed, and not to start it disrupts nothing.
        """
        tasks = [task for task in tasks if task.pod.node and not task.pod.terminating]
        needed = self._needed(tasks)
        if any(self._left.get(key, budget.allowed) < count for key, (budget, count) in needed.items()):
            return False
        if any(self._never(task) for task in tasks):
            return False
        self._count(needed)
        return True

    def keeping(self, task: Task) -> list[DisruptionBudget]:
        """The budgets that concern a pod."""
        return self._index.protecting(task.pod)

    def _never(self, task: Task) -> bool:
        """Whether the server evicts a pod under no circumstances: with two budgets it answers an error."""
        return self._refused(task) or (self._index.namespaces.get(task.pod.namespace, 0) > 1 and len(self.keeping(task)) > 1)

    def _needed(self, tasks: Iterable[Task]) -> dict[str, tuple[DisruptionBudget, int]]:
        """The budgets that concern any of these, and how many each must allow."""
        needed: dict[str, tuple[DisruptionBudget, int]] = {}
        for task in tasks:
            for budget in self._index.protecting(task.pod):
                needed[budget.key] = budget, needed.get(budget.key, (budget, 0))[1] + 1
        return needed

    def _count(self, needed: dict[str, tuple[DisruptionBudget, int]]) -> None:
        for key, (budget, count) in needed.items():
            self._left[key] = self._left.get(key, budget.allowed) - count


class Budgets:
    """The disruption budgets that are known, by `namespace/name`. version: counts their changes. index: finds them by pods."""

    def __init__(self, tables: Tables, departures: Departures, overrides: Overrides, victims: Mapping[str, object]) -> None:
        self._tables = tables
        self._departures = departures
        self._overrides = overrides
        self._victims = victims
        self.known: dict[str, DisruptionBudget] = {}
        self.version = 0
        self.index = BudgetIndex()

    def upsert(self, budget: DisruptionBudget) -> None:
        """A disruption budget came or changed."""
        known = self.known.get(budget.key)
        if known != budget:
            self.known[budget.key] = budget
            self.version += 1
            self._tables.labelled.watch(budget.namespace, budget.selector)
            if known is not None:
                self.index.remove(known)
            self.index.add(budget)
            if known is not None:
                self._unguard(known)

    def remove(self, key: str) -> None:
        """A disruption budget is gone."""
        known = self.known.pop(key, None)
        self.version += 1
        if known is not None:
            self.index.remove(known)
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
        return Guard(self.index, leaving, lambda task: self._overrides.is_refused(task, now))

    def _unguard(self, budget: DisruptionBudget) -> None:
        """Pods that a budget kept from preemption may be preempted now: what waits for their places is tried again."""
        tables = self._tables
        if not tables.queues.waiting.unschedulable:
            return
        for task in tables.labelled.candidates(budget.namespace, budget.selector):
            if task.row >= 0 and protects(budget, task.pod, dict(task.pod.labels)):
                tables.nodes.gained.add(task.row)
