"""Statuses of reservations that changed."""

from __future__ import annotations

from fairlead.core.model.nodes import Reservation
from fairlead.core.queues.reservations import key_of_reservation
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.faults import Faults
from fairlead.scheduler.outputs import ReservationStatus

_MOST_NODES = 1000  # named in a status


class ReservationReports:
    """What was written of each reservation."""

    def __init__(self, state: ClusterState, faults: Faults) -> None:
        self._state = state
        self._faults = faults
        self._reported: dict[str, ReservationStatus] = {}

    def due(self, now: float) -> list[ReservationStatus]:
        """What is to be written now."""
        statuses: list[ReservationStatus] = []
        given = {name: each for name, each in self._state.reserved.given.items() if each.ours}
        for name, reservation in sorted(given.items()):
            try:
                status = self._status(reservation, now)
            except Exception as error:  # noqa: BLE001 - one status stops no other status
                self._faults.note("status", f"reservation {name}", error)
                continue
            if self._reported.get(name) != status:
                self._reported[name] = status
                statuses.append(status)
        for name in set(self._reported) - set(given):
            del self._reported[name]
        return statuses

    def _status(self, reservation: Reservation, now: float) -> ReservationStatus:
        phase = "Pending" if now < reservation.start else "Active" if now < reservation.end else "Over"
        hold = self._state.reserved.holds.get(key_of_reservation(reservation.name))
        nodes = tuple(sorted(self._state.nodes.names[row] for row in hold.rows)) if hold is not None else ()
        return ReservationStatus(reservation.name, phase, nodes[:_MOST_NODES])
