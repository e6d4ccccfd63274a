"""All that is reported after a pass, in its order: groups, queues, reservations, verdicts, speeds."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.faults import Faults
from fairlead.scheduler.outputs import GroupStatus, PairSpeeds, QueueStatus, ReservationStatus, Verdict
from fairlead.scheduler.reports.expected_starts import ExpectedStarts
from fairlead.scheduler.reports.groups import GroupReports
from fairlead.scheduler.reports.pairs import PairReports
from fairlead.scheduler.reports.queues import QueueReports
from fairlead.scheduler.reports.reservations import ReservationReports
from fairlead.scheduler.reports.verdicts import Verdicts


class Reporter:
    """Reads the state between passes. faults: takes exceptions; one object that cannot be reported does not keep the others."""

    def __init__(self, state: ClusterState, faults: Faults) -> None:
        self.starts = ExpectedStarts(state)
        self.groups = GroupReports(state, self.starts, faults)
        self.queues = QueueReports(state, faults)
        self.reservations = ReservationReports(state, faults)
        self.verdicts = Verdicts(state, faults)
        self.pairs = PairReports(state, faults)

    def foresee(self, now: float) -> None:
        """Make a forecast of starts, if one is due."""
        for key in self.starts.renew(now):
            self.groups.mark(key)

    def due(self, now: float) -> Iterator[GroupStatus | QueueStatus | ReservationStatus | Verdict | PairSpeeds]:
        """What is to be written now."""
        yield from self.groups.due(now)
        statuses = self.queues.due(now)
        yield from statuses
        if statuses:
            self.verdicts.amounts_changed()
        yield from self.reservations.due(now)
        yield from self.verdicts.due()
        yield from self.pairs.due(now)

    @property
    def next_due(self) -> float | None:
        """When something is to be reported although nothing happens."""
        times = (self.starts.next_due, self.groups.next_due, self.queues.next_due, self.pairs.next_due)
        return min((time for time in times if time is not None), default=None)
