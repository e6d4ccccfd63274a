"""Objects, versions and history: what etcd and the watch cache are to a real API server.

Stored objects are never changed in place: a write stores a new object, so a holder of one (a
watch, a list, a cached encoding) may keep it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Object = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped objects."""


class Record:
    """One version of one object. `encoded` is made at most once."""

    __slots__ = ("_encoded", "object", "version")

    def __init__(self, obj: Object, version: int) -> None:
        self.object = obj
        self.version = version
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """JSON."""
        if self._encoded is None:
            self._encoded = msgspec.json.encode(self.object)
        return self._encoded


class Change(msgspec.Struct, frozen=True, gc=False):
    """One write. kind: ADDED, MODIFIED or DELETED; before: the version that it replaced."""

    version: int
    kind: str
    table: str
    key: Key
    record: Record
    before: Record | None


Listener = Callable[[Change], None]


class Store:
    """Tables (one per resource) of records under one version counter."""

    def __init__(self, history: int) -> None:
        self.version = 1
        self.compacted = 0  # changes up to this version are forgotten
        self.history: deque[Change] = deque()
        self.writes = 0
        self._limit = history
        self._tables: dict[str, dict[Key, Record]] = {}
        self._for_all: tuple[Listener, ...] = ()
        self._listeners: dict[
            str, tuple[Listener, ...]
        ] = {}  # replaced, never changed: a listener may be added during a delivery

    def get(self, table: str, key: Key) -> Record | None:
        """The present version."""
        return self._tables.get(table, {}).get(key)

    def records(self, table: str) -> Iterator[tuple[Key, Record]]:
        """Everything in a table, in no order."""
        return iter(self._tables.get(table, {}).items())

    def sorted(self, table: str, namespace: str | None = None) -> list[tuple[Key, Record]]:
        """A table, or one namespace of it, in the order of its keys."""
        chosen = self._tables.get(table, {}).items()
        return sorted((item for item in chosen if namespace is None or item[0][0] == namespace), key=lambda item: item[0])

    def at(self, table: str, version: int, namespace: str | None = None) -> list[tuple[Key, Record]] | None:
        """What `sorted` gave when a version was the latest; None if the history no longer reaches that far."""
        changes = self.since(table, version)
        if changes is None:
            return None
        present = self.sorted(table, namespace)
        if not changes:
            return present
        records = dict(present)
        for change in reversed(changes):
            if namespace is None or change.key[0] == namespace:
                records.pop(change.key, None)
                if change.before is not None:
                    records[change.key] = change.before
        return sorted(records.items(), key=lambda item: item[0])

    def count(self, table: str) -> int:
        """Objects in a table."""
        return len(self._tables.get(table, {}))

    def put(self, table: str, key: Key, obj: Object) -> Record:
        """Create or replace; stamps the object's resourceVersion."""
        self.version += 1
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(self.version)
        rows = self._tables.setdefault(table, {})
        before = rows.get(key)
        record = rows[key] = Record(obj, self.version)
        self._publish(Change(self.version, "MODIFIED" if before else "ADDED", table, key, record, before))
        return record

    def remove(self, table: str, key: Key) -> Record:
        """Delete; the last version carries the version of its deletion, as in a watch event."""
        self.version += 1
        before = self._tables[table].pop(key)
        last = {**before.object, "metadata": {**before.object["metadata"], "resourceVersion": str(self.version)}}
        record = Record(last, self.version)
        self._publish(Change(self.version, "DELETED", table, key, record, before))
        return record

    def _publish(self, change: Change) -> None:
        self.writes += 1
        history = self.history
        history.append(change)
        if len(history) > self._limit:
            self.compacted = history.popleft().version
        for listener in (*self._listeners.get(change.table, ()), *self._for_all):
            listener(change)

    def listen(self, table: str, listener: Listener) -> None:
        """Call it with every change of a table from now on."""
        self._listeners[table] = (*self._listeners.get(table, ()), listener)

    def listen_all(self, listener: Listener) -> None:
        """Call it with every change of every table from now on."""
        self._for_all = (*self._for_all, listener)

    def deafen(self, table: str, listener: Listener) -> None:
        """No longer."""
        self._listeners[table] = tuple(each for each in self._listeners[table] if each != listener)

    def since(self, table: str, version: int) -> list[Change] | None:
        """Changes of a table after a version; None if the history no longer reaches that far."""
        if version < self.compacted:
            return None
        found = []
        for change in reversed(self.history):
            if change.version <= version:
                break
            if change.table == table:
                found.append(change)
        found.reverse()
        return found

    def compact(self) -> None:
        """Forget all history, as etcd does every few minutes."""
        self.compacted = self.version
        self.history.clear()
