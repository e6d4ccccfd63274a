"""What the core did, counted on its own thread and read by the metrics."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.transactions import Evict, Overdue, Place, Preempt, Refuse, Transaction
from fairlead.core.pods.tasks import Task
from fairlead.observability.metrics import Distribution

_PASS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_WAIT_BOUNDS = (0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0, 72 * 3600.0)

_ENDINGS = {ReasonCode.TIME_LIMIT: "ended", ReasonCode.PAIR_PARTED: "parted"}


class Counters(msgspec.Struct):
    """Events, passes, decisions, and faults that were contained."""

    events: int = 0
    passes: int = 0
    placed: int = 0
    refused: int = 0
    preempted: int = 0
    overdue: int = 0
    errors: int = 0
    failed: int = 0  # passes that failed outside every guard
    failing: int = 0  # of them, in a row until now
    faults: dict[str, int] = {}  # step -> exceptions that were contained there
    pass_seconds: float = 0.0
    last_pass: float = 0.0  # when, seconds since the epoch
    durations: Distribution = msgspec.field(default_factory=lambda: Distribution(_PASS_BOUNDS))
    waits: Distribution = msgspec.field(default_factory=lambda: Distribution(_WAIT_BOUNDS))
    actions: dict[str, float] = {}  # action -> seconds
    gangs: dict[str, int] = {}  # what became of gangs -> how many
    victims: dict[str, int] = {}  # why pods were to go -> how many

    def fault(self, site: str) -> None:
        """An exception was contained."""
        _add(self.faults, site, 1)

    def spent(self, action: str, seconds: float) -> None:
        """Time went into an action."""
        self.actions[action] = self.actions.get(action, 0.0) + seconds

    def passed(self, now: float, seconds: float) -> None:
        """A pass is over, whether it failed or not."""
        self.passes += 1
        self.pass_seconds += seconds
        self.durations.observe(seconds)
        self.last_pass = now

    def decided(self, transaction: Transaction, tasks: Mapping[str, Task], now: float) -> None:
        """A pass decided something. tasks: pods by UID."""
        self._gangs_and_victims(transaction)
        if isinstance(transaction, Place):
            self.placed += len(transaction.bindings)
            for binding in transaction.bindings:
                task = tasks.get(binding.pod.uid)
                if task is not None:
                    self.waits.observe(max(0.0, now - task.pod.created))
        elif isinstance(transaction, Refuse):
            self.refused += len(transaction.pods)
        elif isinstance(transaction, Preempt):
            self.preempted += len(transaction.victims)
        elif isinstance(transaction, Overdue):
            self.overdue += 1

    def _gangs_and_victims(self, transaction: Transaction) -> None:
        """Why pods are to go, and what becomes of gangs."""
        if isinstance(transaction, Place) and transaction.group:
            _add(self.gangs, "placed", 1)
        elif isinstance(transaction, Preempt):
            why, moved = transaction.why.main.label, len(transaction.moved)
            for reason, count in ((why, len(transaction.victims) - moved), ("Consolidation", moved)):
                if count:
                    _add(self.victims, reason, count)
            _add(self.gangs, "preempted", len(transaction.groups))
        elif isinstance(transaction, Evict):
            _add(self.victims, str(transaction.reason.code), len(transaction.victims))
            if transaction.group:
                _add(self.gangs, _ENDINGS.get(transaction.reason.code, "dismantled"), 1)


def _add(counts: dict[str, int], key: str, count: int) -> None:
    counts[key] = counts.get(key, 0) + count
