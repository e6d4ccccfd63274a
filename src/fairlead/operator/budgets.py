"""Budgets of queues: what each spent within its period, from the ledger: metrics, a condition and an event. Nothing is stopped.

A queue pays for itself and for the queues below it. What was spent is computed every few minutes, in another thread. Condition
`WithinBudget` of the queue is written when it changes, with the amounts, so that users need no access to the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec
import structlog

from fairlead.api import names, spans
from fairlead.api.kinds.common import Condition
from fairlead.api.kinds.queue import QueueSpec
from fairlead.api.kinds.rules import strict
from fairlead.api.quantity import QuantityError
from fairlead.cluster import views
from fairlead.cluster.kubernetes import conditions, events
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.times import timestamp
from fairlead.cluster.translate import Change
from fairlead.observability.history import HistoryError
from fairlead.observability.ledger import ledger_with_days
from fairlead.observability.store import History
from fairlead.operator.faults import About, Faults, Report, reraised
from fairlead.operator.releases import Serves, everything

log = structlog.get_logger("budgets")

_ABOUT = About(names.API_VERSION, "Queue")

_QUEUES = f"/apis/{names.API_VERSION}/queues"
_EVERY = 300.0  # seconds between two reckonings
_MANAGER = "fairlead-budgets"
WITHIN_BUDGET = "WithinBudget"

Amounts = dict[tuple[str, ...], float]
"""(queue, currency) -> amount."""


class _Status(msgspec.Struct):
    conditions: list[Condition] = []


class _Queue(msgspec.Struct):
    metadata: views.Metadata
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: _Status = msgspec.field(default_factory=_Status)


class BudgetState(msgspec.Struct, frozen=True):
    """Condition WithinBudget of a queue. message: with round numbers, so that it changes as seldom as the reason."""

    holds: bool
    reason: str  # WithinBudget, BudgetNear, OverBudget
    message: str


class Budgets:
    """Computes what was spent while it runs. spent, given, warned: by queue with a budget: spent, allowed, warning threshold.

    serves: whether this release does so for a queue.
    """

    def __init__(
        self,
        client: Client,
        history: History,
        *,
        speed: float = 1.0,
        faults: Faults | None = None,
        serves: Serves = everything,
    ) -> None:
        self.client = client
        self._serves = serves
        self.history = history
        self.speed = speed
        self.spent: Amounts = {}
        self.given: Amounts = {}
        self.warned: Amounts = {}
        self._queues: dict[str, QueueSpec] = {}
        self._written: dict[str, tuple[str, str]] = {}  # queue -> reason and message of its condition, as it was read
        self._due = asyncio.Event()
        self.faults = faults or Faults(client, speed=speed)
        take = self.faults.each("budgets.observed", self._changed, _ABOUT)
        self.informer = Informer(client, _QUEUES, strict(_Queue), take, self._due.set, key=lambda metadata: metadata.name)

    async def run(self) -> None:
        """Compute until cancelled: every few minutes, and soon after a budget changed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.faults.kept("budgets.watch", self.informer.run))
            await self._due.wait()  # all queues are listed
            while True:
                self._due.clear()
                await self._reckon()
                await asyncio.sleep(1.0 / self.speed)  # not at each of many changes
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY / self.speed):
                        await self._due.wait()

    async def _reckon(self) -> None:
        """Compute once, and write the conditions; a queue that cannot be computed is left out."""
        faults: list[tuple[str, str, Exception]] = []

        def report(site: str, subject: str, error: Exception) -> None:
            faults.append((site, subject, error))  # from the other thread

        queues = {name: spec for name, spec in self._queues.items() if self._serves("", name)}
        try:
            found = await asyncio.to_thread(reckon, self.history, queues, self.client.clock(), report)
        except HistoryError as error:
            log.error("costs of budgets not computed", error=str(error))
            return
        for site, subject, fault in faults:
            self.faults.note(site, subject, fault, _ABOUT)
        self.spent, self.given, self.warned = found
        for queue in sorted(queues.keys() & self._queues.keys()):
            try:
                await self._report(queue)
            except (ApiError, Unreachable) as error:
                log.warning("condition not written", queue=queue, error=str(error)[:300])
            except Exception as error:  # noqa: BLE001 - one queue's fault stops no other queue
                self.faults.note("budgets.condition", queue, error, _ABOUT)

    def hands_changed(self) -> None:
        """It is known which queues are served, or others are."""
        self._due.set()

    def _changed(self, change: Change[_Queue]) -> None:
        known = self._queues.get(change.key)
        self._written.pop(change.key, None)
        if change.view is None or change.error:
            self._queues.pop(change.key, None)
        else:
            self._queues[change.key] = change.view.spec
            for each in change.view.status.conditions:
                if each.type == WITHIN_BUDGET:
                    self._written[change.key] = (each.reason, each.message)
        now = self._queues.get(change.key)
        if (known and known.budget) != (now and now.budget):
            self._due.set()

    async def _report(self, queue: str) -> None:
        """Write the condition of a queue if it changed, with an event where its reason changed."""
        now = budget_state(queue, self._queues[queue], self.spent)
        before = self._written.get(queue)
        if before == (None if now is None else (now.reason, now.message)):
            return
        since = timestamp(self.client.clock())
        written = []
        if now is not None:
            written = [conditions.condition(WITHIN_BUDGET, holds=now.holds, reason=now.reason, message=now.message, since=since)]
        await conditions.apply(self.client, "queues", queue, written, _MANAGER)
        if now is None:
            self._written.pop(queue, None)
            return
        self._written[queue] = (now.reason, now.message)
        if now.reason != (before[0] if before else WITHIN_BUDGET):
            about = {"apiVersion": names.API_VERSION, "kind": "Queue", "name": queue}
            who = {"controller": _MANAGER, "instance": _MANAGER}
            warning = now.reason != WITHIN_BUDGET
            await events.write(self.client, about, now.reason, now.message, action="Reckoning", warning=warning, **who)


def budget_state(queue: str, spec: QueueSpec, spent: Amounts) -> BudgetState | None:
    """The condition of a queue by what it spent; None: it has no budget."""
    budget = spec.budget
    if budget is None:
        return None
    amount = spent.get((queue, budget.currency), 0.0)
    whole = f"{budget.amount:g} {budget.currency} for {budget.period}"
    if amount > budget.amount:
        return BudgetState(holds=False, reason="OverBudget", message=f"spent more than the budget of {whole}")
    if amount >= budget.amount * budget.warn_percent / 100:
        return BudgetState(holds=True, reason="BudgetNear", message=f"spent more than {budget.warn_percent:g} % of {whole}")
    return BudgetState(holds=True, reason=WITHIN_BUDGET, message=f"spent less than {budget.warn_percent:g} % of {whole}")


def reckon(
    history: History, queues: Mapping[str, QueueSpec], now: float, report: Report = reraised
) -> tuple[Amounts, Amounts, Amounts]:
    """(spent, given, from when on to warn) of the queues that have a budget. Raises `HistoryError`."""
    spent: Amounts = {}
    given: Amounts = {}
    warned: Amounts = {}
    costs: dict[str, dict[str, dict[str, float]]] = {}  # period -> queue -> currency -> amount
    for queue in sorted(queues):
        for name in _path(queue, queues):
            budget = queues[name].budget if name in queues else None
            if budget is None:
                continue
            try:
                if budget.period not in costs:
                    costs[budget.period] = _costs(history, budget.period, now)
            except HistoryError:
                raise
            except Exception as error:  # noqa: BLE001 - one budget stops no other budget
                report("budgets", name, error)
                continue
            key = (name, budget.currency)
            spent[key] = spent.get(key, 0.0) + costs[budget.period].get(queue, {}).get(budget.currency, 0.0)
            given[key] = budget.amount
            warned[key] = budget.amount * budget.warn_percent / 100
    return spent, given, warned


def _costs(history: History, period: str, now: float) -> dict[str, dict[str, float]]:
    try:
        since = now - spans.seconds(period)
    except QuantityError:
        return {}  # the definition does not let it through
    found = ledger_with_days(*history.held_by_days(since, now), since, now, lambda each: each.queue, now)
    return {line.name: line.cost for line in found.lines}


def _path(queue: str, queues: Mapping[str, QueueSpec]) -> list[str]:
    """A queue and those above it; a cycle ends where it closes."""
    path: list[str] = []
    at: str | None = queue
    while at and at not in path:
        path.append(at)
        at = queues[at].parent if at in queues else None
    return path
