"""Writes of a simulated run, counted for each object and hour: a loop that writes on and on is reported by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fairlead.cluster.simulated.store import Change, Store

MOST = 200
"""Writes of one object within one hour of the clock."""
_HEARTBEATS = ("coordination.k8s.io/leases",)
"""Kinds whose objects are written to show that a process lives; of all others a write means that something changed."""
_HOUR = 3600.0


class Writes:
    """Counts changes of objects. `busiest` is the most that one object has had in an hour."""

    def __init__(self, store: Store, now: Callable[[], float], wrong: Callable[[str], None]) -> None:
        self.busiest = 0
        self._now = now
        self._wrong = wrong
        self._hour = -1
        self._counts: Counter[tuple[str, tuple[str, str]]] = Counter()
        store.listen_all(self._changed)

    def _changed(self, change: Change) -> None:
        if change.table in _HEARTBEATS:
            return
        hour = int(self._now() // _HOUR)
        if hour != self._hour:
            self._hour = hour
            self._counts.clear()
        key = (change.table, change.key)
        self._counts[key] += 1
        self.busiest = max(self.busiest, self._counts[key])
        if self._counts[key] == MOST:
            namespace, name = change.key
            self._wrong(f"{change.table} {namespace}/{name} was written {MOST} times within an hour")
