"""What the core puts out: transactions, and what is to be written of groups, queues, reservations and their validity."""

from __future__ import annotations

import msgspec

from fairlead.api.reasons import Reason
from fairlead.core.model.groups import Chosen, Completed, SparePlaces
from fairlead.core.model.queues import ForecastRecord, RunTimeRecord, UsageRecord
from fairlead.core.model.starts import FailedStarts
from fairlead.core.model.transactions import PodRef, Transaction
from fairlead.core.pairs.learned import LearnedSpeeds


class GroupStatus(msgspec.Struct, frozen=True, tag=True):
    """Where a pod group stands, to be written to its status."""

    group: str
    phase: str
    scheduled: int
    reason: Reason | None
    expected_start: float | None = None
    completed: Completed | None = None
    failed_starts: FailedStarts | None = None
    earliest_start: float | None = None
    latest_start: float | None = None
    chosen: Chosen | None = None
    spares: SparePlaces | None = None

    def foretells(self) -> tuple[float | None, ...]:
        """When it is expected to start."""
        return self.expected_start, self.earliest_start, self.latest_start

    def urgent(self) -> tuple[object, ...]:
        """What is written at once when it changes."""
        code = self.reason and self.reason.code
        return self.phase, self.scheduled, self.completed, self.failed_starts, code, self.chosen, self.spares

    def counts_only(self, reported: GroupStatus | None) -> bool:
        """Whether it differs from what was reported only in how many are scheduled."""
        return reported is not None and reported != self and msgspec.structs.replace(reported, scheduled=self.scheduled) == self


class Trouble(msgspec.Struct, frozen=True, tag=True):
    """An object that could not be taken in."""

    pod: PodRef | None
    message: str


class QueueStatus(msgspec.Struct, frozen=True, tag=True):
    """The status of a queue: what it and its descendants hold, its pending pods, its share; as (resource, base units).

    reason: why the first job that waits in it does. foreign: the part of what is allocated that pods of other schedulers hold.
    """

    queue: str
    allocated: tuple[tuple[str, int], ...]
    pending: int
    fair_share: tuple[tuple[str, int], ...]
    usage: UsageRecord | None = None
    reason: Reason | None = None
    run_times: tuple[RunTimeRecord, ...] = ()
    foreign: tuple[tuple[str, int], ...] = ()
    forecasts: tuple[ForecastRecord, ...] = ()


class ReservationStatus(msgspec.Struct, frozen=True, tag=True):
    """Where a reservation stands: its phase, and the names of its nodes."""

    reservation: str
    phase: str
    nodes: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True, tag=True):
    """Whether a queue, a class, a reservation or a node pool is in force as it is. kind: its plural."""

    kind: str
    name: str
    accepted: bool
    reason: str
    message: str


class PairSpeeds(msgspec.Struct, frozen=True, tag=True):
    """What is learned of speeds of jobs that share GPUs, written for the scheduler that leads next."""

    speeds: LearnedSpeeds


Output = Transaction | GroupStatus | QueueStatus | ReservationStatus | Verdict | PairSpeeds | Trouble
