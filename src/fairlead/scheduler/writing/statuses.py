"""Statuses and conditions: of each thing the latest, never two writes about one thing at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from fairlead.api.reasons import Reason
from fairlead.cluster.port import Cluster, GroupReport, QueueReport
from fairlead.cluster.transport import Unreachable
from fairlead.core.model.transactions import PodRef
from fairlead.scheduler.outputs import GroupStatus, PairSpeeds, QueueStatus, ReservationStatus, Verdict
from fairlead.scheduler.writing.counters import WriteCounters
from fairlead.scheduler.writing.lines import STATUS, Lines

_LONGEST_WAIT = 60.0  # seconds between two attempts to write a status

Status = TypeVar("Status")
Condition = tuple[PodRef | str, str, str, str]
"""On a pod or a PodGroup: its type, its reason and its message."""
Refusal = tuple[PodRef, Reason, bool]
"""Why a pod waits, and whether no node is nominated for it any more."""


class Statuses:
    """One line of latest statuses for each kind. refusals: why pods wait; conditions: others of pods and PodGroups."""

    def __init__(self, cluster: Cluster, lines: Lines, counters: WriteCounters) -> None:
        self._cluster = cluster
        self._counters = counters
        self._groups = Latest(lines, self._group)
        self._queues = Latest(lines, self._queue)
        self._reservations = Latest(lines, self._reservation)
        self._verdicts = Latest(lines, self._verdict)
        self._speeds = Latest(lines, self._speeds_kept)
        self.refusals = Latest(lines, self._refusal, _still_withdraws)
        self.conditions = Latest(lines, self._condition)

    def group(self, status: GroupStatus) -> None:
        """Write where a PodGroup stands."""
        self._groups.put(status.group, status)

    def queue(self, status: QueueStatus) -> None:
        """Write what a queue holds."""
        self._queues.put(status.queue, status)

    def reservation(self, status: ReservationStatus) -> None:
        """Write where a reservation stands."""
        self._reservations.put(status.reservation, status)

    def verdict(self, verdict: Verdict) -> None:
        """Write whether an object is in force as it is."""
        self._verdicts.put(f"{verdict.kind}/{verdict.name}", verdict)

    def speeds(self, learned: PairSpeeds) -> None:
        """Write what is learned of speeds."""
        self._speeds.put("", learned)

    async def _group(self, status: GroupStatus) -> None:
        report = GroupReport(
            status.phase,
            status.scheduled,
            status.reason,
            status.expected_start,
            status.completed,
            status.failed_starts,
            status.earliest_start,
            status.latest_start,
            status.chosen,
            status.spares,
        )
        await self._cluster.group_status(status.group, report)

    async def _queue(self, status: QueueStatus) -> None:
        amounts = dict(status.allocated), status.pending, dict(status.fair_share)
        report = QueueReport(*amounts, status.usage, status.reason, status.run_times, dict(status.foreign), status.forecasts)
        await self._cluster.queue_status(status.queue, report)

    async def _reservation(self, status: ReservationStatus) -> None:
        await self._cluster.reservation_status(status.reservation, status.phase, status.nodes)

    async def _verdict(self, verdict: Verdict) -> None:
        await self._cluster.verdict(
            verdict.kind, verdict.name, accepted=verdict.accepted, reason=verdict.reason, message=verdict.message
        )

    async def _speeds_kept(self, learned: PairSpeeds) -> None:
        await self._cluster.keep_speeds(learned.speeds)

    async def _refusal(self, refusal: Refusal) -> None:
        self._counters.conditions += 1
        pod, reason, withdraw = refusal
        await self._cluster.refuse(pod, reason, withdraw=withdraw)

    async def _condition(self, condition: Condition) -> None:
        await self._cluster.condition(*condition)


def _still_withdraws(older: Refusal, newer: Refusal) -> Refusal:
    """A nomination that was to be withdrawn still is: what came later does not repeat that."""
    return newer[0], newer[1], newer[2] or older[2]


class Latest(Generic[Status]):
    """The latest that is to be written about each of many things; several changes in one moment are one write.

    Never two at a time about one thing: they might arrive in the other order, and what is overtaken would stay. What the API
    server does not take for now is written again after a pause that doubles, unless something newer came meanwhile.
    merge: what is written instead of something older that was not written, and something newer.
    """

    __slots__ = ("busy", "dropped", "failures", "late", "lines", "merge", "waiting", "write")

    def __init__(
        self,
        lines: Lines,
        write: Callable[[Status], Awaitable[None]],
        merge: Callable[[Status, Status], Status] = lambda _, newer: newer,
    ) -> None:
        self.lines = lines
        self.write = write
        self.merge = merge
        self.waiting: dict[str, Status] = {}
        self.busy: set[str] = set()
        self.dropped: set[str] = set()  # of those that are busy
        self.late: dict[str, Status] = {}  # could not be written
        self.failures: dict[str, int] = {}  # in a row

    def put(self, key: str, status: Status) -> None:
        """Write this about `key`, instead of whatever waits to be written about it."""
        older = self.waiting.get(key, self.late.pop(key, None))
        entered = key in self.waiting or key in self.busy
        self.waiting[key] = status if older is None else self.merge(older, status)
        if not entered:
            self.lines.enter(STATUS, partial(self._write, key))

    def drop(self, key: str) -> None:
        """What waits to be written about `key` is true no more."""
        self.waiting.pop(key, None)
        self.late.pop(key, None)
        self.failures.pop(key, None)
        if key in self.busy:
            self.dropped.add(key)

    def _again(self, key: str) -> None:
        if key in self.late:
            self.put(key, self.late[key])

    async def _write(self, key: str) -> None:
        if key not in self.waiting or key in self.busy:
            return  # it was dropped, or the write that is on its way comes back for it
        self.busy.add(key)
        status = self.waiting.pop(key)
        try:
            await self.write(status)
            self.failures.pop(key, None)
        except Unreachable:
            if key in self.waiting and key not in self.dropped:
                self.waiting[key] = self.merge(status, self.waiting[key])
            elif key not in self.dropped:
                self.late[key] = status
                failures = self.failures[key] = self.failures.get(key, 0) + 1
                asyncio.get_running_loop().call_later(min(2.0 ** (failures - 1), _LONGEST_WAIT), self._again, key)
        finally:
            self.busy.discard(key)
            self.dropped.discard(key)
            if key in self.waiting:
                self.lines.enter(STATUS, partial(self._write, key))
