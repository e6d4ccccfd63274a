"""When gangs that wait are expected to start: foreseen from time to time, reported when it moved by a tenth of the wait."""

from __future__ import annotations

from fairlead.core.forecast import forecast
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.foretold import Expected

_REST = 300.0  # seconds between two forecasts
_MOST_ENDS = 20_000
_MOVED = 0.1


class ExpectedStarts:
    """Starts of jobs as they were foreseen last."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._foreseen: dict[str, Expected] = {}
        self._due = 0.0

    @property
    def next_due(self) -> float | None:
        """When the next forecast is made; None: no gang waits."""
        return self._due or None

    def of(self, job: str) -> float | None:
        """When a job that waits is expected to start; seconds since the epoch."""
        foreseen = self._foreseen.get(job)
        return foreseen.start if foreseen is not None else None

    def interval(self, job: str) -> Expected | None:
        """The same with the interval in which it starts in eight cases of ten."""
        return self._foreseen.get(job)

    def renew(self, now: float) -> list[str]:
        """Make a forecast if one is due; of which gangs the start moved."""
        waits = self._gang_waits()
        if not waits:
            self._due = 0.0
        if not waits or now < self._due:
            return []
        self._due = now + _REST
        before = self._foreseen
        self._foreseen = self._state.foretold.intervals(self._state, forecast(self._state, now, _MOST_ENDS), now)
        moved: list[str] = []
        for key, gang in self._state.gangs.items():
            start, old = self._foreseen.get(key), before.get(key)
            if gang.group is None or start is None:
                continue
            if old is not None and not _moved(old, start, now):
                self._foreseen[key] = old
            else:
                moved.append(key)
        return moved

    def _gang_waits(self) -> bool:
        """Whether a gang with an object of its own has been refused."""
        first = (pending_class.first() for pending_class in self._state.queues.waiting.gangs)
        return any(unit is not None and unit.gang is not None and unit.gang.group is not None for unit in first)


def _moved(old: Expected, new: Expected, now: float) -> bool:
    """Whether a start, or an end of its interval, moved by more than a tenth of the wait."""
    return any(abs(one - other) > (max(other, now) - now) * _MOVED for one, other in zip(new, old, strict=True))
