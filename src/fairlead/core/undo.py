"""The undo log: every change of the state can be taken back, without copying anything.

A mark is a position. Between `mark` and `commit` or `rollback`, each write remembers the value it
replaced; rolling back replays these backwards. Outside any mark nothing is recorded, so plain
events cost no more than the write itself. Marks nest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

MISSING: Final = object()


class UndoLog:
    """Remembers replaced values as (container, key, old value)."""

    __slots__ = ("depth", "entries")

    def __init__(self) -> None:
        self.entries: list[tuple[Any, Any, Any]] = []
        self.depth = 0

    def mark(self) -> int:
        """Begin to record; returns what `rollback` needs."""
        self.depth += 1
        return len(self.entries)

    def commit(self) -> None:
        """Keep what was done since the innermost mark."""
        self.depth -= 1
        if self.depth == 0:
            self.entries.clear()

    def rollback(self, mark: int) -> None:
        """Take back everything since `mark`, newest first."""
        entries = self.entries
        while len(entries) > mark:
            container, key, old = entries.pop()
            if key is MISSING:
                container(old)
            elif old is MISSING:
                del container[key]
            else:
                container[key] = old
        self.depth -= 1

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

    def remove(self, container: dict[Any, Any], key: Any) -> None:
        """`del container[key]`; a mapping forgets where the key stood, so order must not matter."""
        if self.depth:
            self.entries.append((container, key, container[key]))
        del container[key]

    def call(self, undo: Callable[[Any], None], argument: Any) -> None:
        """Have `undo(argument)` called on rollback, for changes that are not one item."""
        if self.depth:
            self.entries.append((undo, MISSING, argument))
