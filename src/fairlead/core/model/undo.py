"""The undo log: every change of the state can be taken back, without copying anything.

A mark is a position. Between `mark` and `commit` or `rollback`, each write remembers the value it
replaced; rolling back replays these backwards. Outside any mark nothing is recorded, so plain
events cost no more than the write itself. Marks nest. What is derived from the state while a mark is open would keep what was
then tried: `when_settled` derives it anew once nothing is tried any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

MISSING: Final = object()
_VERSIONS = count(1)


def new_version() -> int:
    """A number that was never returned before."""
    return next(_VERSIONS)


class OpenTrialsError(Exception):
    """Trials that were not ended when a pass was over: from then on everything is recorded, and what is freed is not noted."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} trial(s) of the last pass were not ended; what they did is kept")


class UndoLog:
    """Remembers replaced values as (container, key, old value)."""

    __slots__ = ("_settled", "depth", "entries")

    def __init__(self) -> None:
        self.entries: list[tuple[Any, Any, Any]] = []
        self.depth = 0
        self._settled: list[Callable[[], None]] = []

    def mark(self) -> int:
        """Begin to record; returns what `rollback` needs."""
        self.depth += 1
        return len(self.entries)

    def commit(self) -> None:
        """Keep what was done since the innermost mark."""
        self.depth -= 1
        if self.depth == 0:
            self.entries.clear()
            self._settle()

    def rollback(self, mark: int) -> None:
        """Take back everything since `mark`, newest first."""
        entries = self.entries
        container = key = old = None
        try:
            while len(entries) > mark:
                container, key, old = entries.pop()
                if key is MISSING:
                    container(old)
                elif old is MISSING:
                    del container[key]
                else:
                    container[key] = old
        except Exception:
            entries.append((container, key, old))  # not taken back yet: `unwind` does
            raise
        self.depth -= 1
        if not self.depth:
            self._settle()

    def end_all(self) -> int:
        """Keep everything, whatever the depth; returns how many marks were left open."""
        left, self.depth = self.depth, 0
        self.entries.clear()
        self._settle()
        return left

    def unwind(self) -> list[Exception]:
        """Take back everything, whatever the depth, after an exception, and derive what waited. Returns what that raised.

        An entry that cannot be taken back does not keep the older ones from being so.
        """
        errors: list[Exception] = []
        entries, self.entries, self.depth = self.entries, [], 0
        for container, key, old in reversed(entries):
            try:
                if key is MISSING:
                    container(old)
                elif old is MISSING:
                    del container[key]
                else:
                    container[key] = old
            except Exception as error:  # noqa: BLE001 - the others must be taken back all the same
                errors.append(error)
        waiting, self._settled = self._settled, []
        for derive in waiting:
            try:
                derive()
            except Exception as error:  # noqa: BLE001 - as above
                errors.append(error)
        return errors

    def when_settled(self, derive: Callable[[], None]) -> None:
        """Have something called when the outermost mark is committed or rolled back; not at all outside of any."""
        if self.depth:
            self._settled.append(derive)

    def _settle(self) -> None:
        if self._settled:
            waiting, self._settled = self._settled, []
            for derive in waiting:
                derive()

    def put(self, container: Any, key: Any, value: Any) -> None:
        """`container[key] = value` for lists and arrays."""
        if self.depth:
            self.entries.append((container, key, container[key]))
        container[key] = value

    def insert(self, container: dict[Any, Any], key: Any, value: Any) -> None:
        """`container[key] = value` for a mapping in which the key may be new."""
        if self.depth:
            self.entries.append((container, key, container.get(key, MISSING)))
        container[key] = value

    def add(self, container: dict[Any, Any], key: Any, amount: int) -> None:
        """`container[key] += amount` for a mapping in which a key that is missing counts 0."""
        known = container.get(key)
        if self.depth:
            self.entries.append((container, key, MISSING if known is None else known))
        container[key] = (known or 0) + amount

    def add_all(self, container: dict[Any, int], amounts: Iterable[tuple[Any, int]], sign: int) -> None:
        """`container[key] += sign * amount` for each; see `add`."""
        if self.depth:
            entries = self.entries
            for key, amount in amounts:
                known = container.get(key)
                entries.append((container, key, MISSING if known is None else known))
                container[key] = (known or 0) + sign * amount
        else:
            for key, amount in amounts:
                container[key] = container.get(key, 0) + sign * amount

    def add_at(self, lines: Sequence[Any], index: int, amounts: Iterable[tuple[int, int]], sign: int) -> None:
        """`lines[number][index] += sign * amount` for arrays and each (number, amount)."""
        if self.depth:
            entries = self.entries
            for number, amount in amounts:
                line = lines[number]
                known = line.item(index)
                entries.append((line, index, known))
                line[index] = known + sign * amount
        else:
            for number, amount in amounts:
                line = lines[number]
                line[index] = line.item(index) + sign * amount

    def remove(self, container: dict[Any, Any], key: Any) -> None:
        """`del container[key]`; a mapping forgets where the key was, so order must not matter."""
        if self.depth:
            self.entries.append((container, key, container[key]))
        del container[key]

    def renew(self, thing: Any, version: str = "version") -> None:
        """Give `thing` a version that it never had; what is rolled back has the version that it had before.

        So what was derived from a version holds whenever that version is back, and trials leave no trace: they cause no requeue.
        """
        if self.depth:
            self.entries.append((partial(setattr, thing, version), MISSING, getattr(thing, version)))
        setattr(thing, version, new_version())

    def set(self, thing: Any, name: str, value: Any) -> None:
        """`thing.name = value`."""
        if self.depth:
            self.entries.append((partial(setattr, thing, name), MISSING, getattr(thing, name)))
        setattr(thing, name, value)

    def call(self, undo: Callable[[Any], None], argument: Any) -> None:
        """Have `undo(argument)` called on rollback, for changes that are not one item."""
        if self.depth:
            self.entries.append((undo, MISSING, argument))
