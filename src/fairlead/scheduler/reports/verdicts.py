"""Whether queues, classes, reservations and node pools are in force as they are, where that changed."""

from __future__ import annotations

from fairlead.api.reasons import Reason
from fairlead.cluster.port import JUDGED
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.faults import Faults
from fairlead.scheduler.outputs import Verdict


class Verdicts:
    """What could not be used of which object, and what was written of it."""

    def __init__(self, state: ClusterState, faults: Faults) -> None:
        self._state = state
        self._faults = faults
        self._complaints: dict[tuple[str, str], str] = {}  # (plural, name) -> what could not be used of it
        self._refused: dict[str, Reason | None] = {}  # queue -> why its latest change was refused
        self._reported: dict[tuple[str, str], Verdict] = {}
        self._changed = False

    def judged(self, kind: str, name: str, complaint: str) -> None:
        """An object was read. kind: its plural; complaint: what of it cannot be used, empty: nothing."""
        self._complaints[kind, name] = complaint
        self._changed = True

    def queue_changed(self, name: str, refused: Reason | None) -> None:
        """A queue's object was taken in, or why not."""
        self._refused[name] = refused
        self._changed = True

    def node_changed(self) -> None:
        """A node came, changed or went: pools that queues name may have nodes now, or none any more."""
        self._changed = self._changed or bool(self._state.queues.tree.pools.named)

    def forget(self, kind: str, name: str) -> None:
        """An object is gone. kind: as in `Gone`."""
        if kind not in JUDGED:
            return
        self._complaints.pop((JUDGED[kind], name), None)
        self._reported.pop((JUDGED[kind], name), None)
        if kind == "queue":
            self._refused.pop(name, None)
        self._changed = True

    def due(self) -> list[Verdict]:
        """What is to be written now."""
        verdicts: list[Verdict] = []
        if not self._changed:
            return verdicts
        self._changed = False
        for (kind, name), complaint in sorted(self._complaints.items()):
            try:
                verdict = self._verdict(kind, name, complaint)
            except Exception as error:  # noqa: BLE001 - one status stops no other status
                self._faults.note("status", f"{kind}/{name}", error)
                continue
            if self._reported.get((kind, name)) != verdict:
                self._reported[kind, name] = verdict
                verdicts.append(verdict)
        return verdicts

    def _verdict(self, kind: str, name: str, complaint: str) -> Verdict:
        refused = self._refused.get(name) if kind == "queues" else None
        if refused is not None:
            message = f"{refused.message}; the previous policy stays in effect"
            return Verdict(kind, name, accepted=False, reason=str(refused.code), message=message)
        if complaint:
            return Verdict(kind, name, accepted=False, reason="Unsupported", message=complaint)
        doubt = self._state.queues.limits.doubt(name) if kind == "queues" else None
        accepted, reason, message = doubt if doubt is not None else (True, "Accepted", "")
        return Verdict(kind, name, accepted, reason, message)
