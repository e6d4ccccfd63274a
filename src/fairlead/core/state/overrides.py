"""Overrides: since when disruption budgets keep a queue's guarantee from it, and what the API server refused of late.

Time is counted for the queue that waits, not for a budget or a pod: new budgets and new pods in their place begin nothing anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairlead.core.model.backoff import backoff
from fairlead.core.model.transactions import Warn

if TYPE_CHECKING:
    from fairlead.core.model.policy import Policy
    from fairlead.core.pods.tasks import Task

_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 300.0
_MARGIN = 60.0
_NOTICE = 60.0  # seconds between the warning of a pod and the override of its budget, at least


class Overrides:
    """What is remembered of budgets that kept queues from their guarantees."""

    def __init__(self, policy: Policy, tasks: dict[str, Task]) -> None:
        self._policy = policy
        self._tasks = tasks
        self._since: dict[str, tuple[float, float]] = {}  # queue -> blocked since, and found so last
        self._refused: dict[str, tuple[int, float]] = {}  # pod uid -> how often in a row, not asked again before
        self._warned: dict[str, float] = {}  # pod uid -> warned since
        self._warnings: list[Warn] = []

    # -- what the API server refuses -----------------------------------------------------------

    def refuse(self, uid: str, now: float) -> None:
        """A pod's eviction was refused for its budget's sake: it is not asked for again before a pause that doubles."""
        times = self._refused.get(uid, (0, 0.0))[0] + 1
        self._refused[uid] = times, now + backoff(_FIRST_PAUSE, times, _LONGEST_PAUSE)

    @property
    def any_refused(self) -> bool:
        """Whether there is a pod whose eviction was refused of late."""
        return bool(self._refused)

    def is_refused(self, task: Task, now: float) -> bool:
        """Whether a pod's eviction was refused too short a time ago to be asked for again."""
        return self._refused.get(task.pod.uid, (0, 0.0))[1] > now

    # -- whose guarantee is kept from it -------------------------------------------------------

    def due(self, queue: str, now: float) -> float:
        """When budgets that keep a queue's guarantee from it are overridden. It was found now that they do."""
        since, last = self._since.get(queue, (now, now))
        if self._is_another_time(last, now):
            since = now
        self._since[queue] = since, now
        return since + self._policy.budget_override

    def _is_another_time(self, last: float, now: float) -> bool:
        return now - last > 2 * self._policy.budget_override + _MARGIN

    def noticed(self, tasks: Iterable[Task], now: float) -> float:
        """When the last of these pods has had its notice; one that is not warned yet has it from now on."""
        notice = min(_NOTICE, self._policy.budget_override)
        return max((self._warned.get(task.pod.uid, now) + notice for task in tasks), default=now)

    def warn(self, tasks: Iterable[Task], message: str, now: float) -> None:
        """These pods are warned, each once, before their budgets are overridden."""
        new = [task for task in tasks if task.pod.uid not in self._warned]
        self._warned |= {task.pod.uid: now for task in new}
        if new:
            self._warnings.append(Warn(tuple(task.ref for task in new), "BudgetOverride", message))

    def warnings(self) -> list[Warn]:
        """What pods are to be warned of, once."""
        found, self._warnings = self._warnings, []
        return found

    def tidy(self, now: float) -> None:
        """A pass begins: pods that are gone are forgotten, and queues of which nothing was found for long: they begin anew."""
        for queue in [queue for queue, (_, last) in self._since.items() if self._is_another_time(last, now)]:
            del self._since[queue]
        tasks = self._tasks
        for uid in [uid for uid in self._warned if uid not in tasks]:
            del self._warned[uid]
        for uid in [uid for uid in self._refused if uid not in tasks]:
            del self._refused[uid]

    def next_asked(self, now: float) -> float | None:
        """When an eviction that was refused may be asked for again."""
        return min((until for _, until in self._refused.values() if until > now), default=None)
