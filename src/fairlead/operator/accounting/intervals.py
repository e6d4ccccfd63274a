"""What is so from one moment to another: rows that go on, and such as are to be written. A change ends one, begins the next."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Generic, TypeVar

import msgspec

from fairlead.observability.history import Run, Scaler, Stay

Row = TypeVar("Row", Stay, Scaler, Run)


class Intervals(Generic[Row]):
    """key: of what a row speaks. Not for several threads at once."""

    def __init__(self, key: Callable[[Row], str]) -> None:
        self.open: dict[str, Row] = {}
        self._key: Callable[[Row], str] = key
        self._changed: dict[str, Row] = {}
        self._numbers: dict[str, int] = {}  # whose -> rows that it has had

    def load(self, rows: list[Row]) -> None:
        """What was written as going on when the last writer ended."""
        self.open = {self._key(row): row for row in rows}

    def put(self, fresh: Row, whose: str, now: float) -> None:
        """It is so now; nothing happens where it was. fresh: without uid and times; whose: uid of what it speaks of."""
        key = self._key(fresh)
        known = self.open.get(key)
        if known is not None:
            if msgspec.structs.replace(fresh, uid=known.uid, started_at=known.started_at) == known:
                return
            self.end(key, now)
        number = self._numbers.get(whose, 0)
        self._numbers[whose] = number + 1
        fresh.uid, fresh.started_at = f"{whose}/{now:.3f}/{number}", now
        self.open[key] = self._changed[fresh.uid] = fresh

    def end(self, key: str, at: float) -> None:
        """It is so no more."""
        row = self.open.pop(key, None)
        if row is not None:
            row.ended_at = max(at, row.started_at)
            self._changed[row.uid] = row

    def close_others(self, present: Container[str], alive_at: float | None) -> None:
        """Everything is listed: other rows ended while no recorder ran, no later than the last observation."""
        for key, row in list(self.open.items()):
            if key not in present:
                self.end(key, max(row.started_at, alive_at or row.started_at))

    def take_changed(self) -> list[Row]:
        """What is to be written since this was asked last."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def give_back(self, rows: list[Row]) -> None:
        """They could not be written: they are to be, still."""
        self._changed = {row.uid: row for row in rows} | self._changed
