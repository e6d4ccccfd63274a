"""What is learned of speeds of jobs that share GPUs, not too often, for the scheduler that leads next."""

from __future__ import annotations

from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.faults import Faults
from fairlead.scheduler.outputs import PairSpeeds

_REST = 60.0  # seconds between two writes


class PairReports:
    """Reports while more is known than was reported."""

    def __init__(self, state: ClusterState, faults: Faults) -> None:
        self._speeds = state.nodes.partners.speeds
        self._faults = faults
        self._due = 0.0  # when it may be written again

    @property
    def next_due(self) -> float | None:
        """When something is to be written; None: nothing is news."""
        return self._due if self._speeds.changed else None

    def due(self, now: float) -> list[PairSpeeds]:
        """What is to be written now."""
        if not self._speeds.changed or now < self._due:
            return []
        self._due, self._speeds.changed = now + _REST, False
        try:
            return [PairSpeeds(self._speeds.written())]
        except Exception as error:  # noqa: BLE001 - what is learned stops no other report
            self._faults.note("status", "speeds of jobs that share GPUs", error)
            return []
