"""Objects, versions and history: what etcd and the watch cache are to a real API server.

Stored objects are never changed in place: a write stores a new object, so a holder of one (a
watch, a list, a cached encoding) may keep it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from heapq import merge
from operator import itemgetter
from typing import Any

import msgspec

Object = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped objects."""
_FEW = 16
"""Where more than one of so many keys of a table came or went, all are sorted anew; fewer are put in and taken out one by one."""


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


class _Table:
    """The records of one resource, and their keys in order: those of a namespace are side by side."""

    __slots__ = ("_keys", "_unsorted", "rows")

    def __init__(self) -> None:
        self.rows: dict[Key, Record] = {}
        self._keys: list[Key] = []
        self._unsorted: dict[Key, None] = {}  # keys that came or went since `_keys` was asked for

    @property
    def keys(self) -> list[Key]:
        """The keys in order. Between two lists there are many writes as a rule: they are sorted in when they are asked for."""
        changed = self._unsorted
        if changed:
            if len(changed) * _FEW > len(self.rows):
                self._keys = sorted(self.rows)
            else:
                for key in changed:
                    at = bisect_left(self._keys, key)
                    listed = at < len(self._keys) and self._keys[at] == key
                    if key not in self.rows:
                        if listed:
                            del self._keys[at]
                    elif not listed:
                        self._keys.insert(at, key)
            changed.clear()
        return self._keys

    def put(self, key: Key, record: Record) -> Record | None:
        """Create or replace; returns the record that was there."""
        before = self.rows.get(key)
        if before is None:
            self._changed(key)
        self.rows[key] = record
        return before

    def pop(self, key: Key) -> Record:
        """Delete."""
        record = self.rows.pop(key)
        self._changed(key)
        return record

    def _changed(self, key: Key) -> None:
        if len(self._unsorted) <= len(self.rows):  # beyond that all are sorted anew, whichever they are
            self._unsorted[key] = None

    def span(self, namespace: str | None) -> tuple[int, int]:
        """Where the keys of a namespace are, or of all."""
        if namespace is None:
            return 0, len(self.rows)
        keys = self.keys
        return bisect_left(keys, (namespace, "")), bisect_left(keys, (namespace + "\0", ""))


class View:
    """A table, or one namespace of it, at a version, in the order of keys. Good until the next write.

    It costs what was written since that version, and what is read of it. undone: what changed keys were then.
    """

    def __init__(self, table: _Table, namespace: str | None, undone: dict[Key, Record | None]) -> None:
        self._table = table
        self._span = table.span(namespace)
        self._undone = {key: record for key, record in undone.items() if namespace is None or key[0] == namespace}
        gone = [(key, record) for key, record in self._undone.items() if record is not None and key not in table.rows]
        self._gone = sorted(gone, key=itemgetter(0))

    def after(self, key: Key | None) -> Iterator[tuple[Key, Record]]:
        """What comes after a key, or everything."""
        gone = self._gone[self._gone_until(key) :]
        present = self._present(self._until(key))
        return merge(present, gone, key=itemgetter(0)) if gone else present

    def _present(self, start: int) -> Iterator[tuple[Key, Record]]:
        """What is in the table still, as it was."""
        keys, rows, undone = self._table.keys, self._table.rows, self._undone
        for index in range(start, self._span[1]):
            key = keys[index]
            record = undone[key] if key in undone else rows[key]
            if record is not None:
                yield key, record

    def count_after(self, key: Key) -> int:
        """How many come after a key."""
        made = sum(record is None and each > key and each in self._table.rows for each, record in self._undone.items())
        return self._span[1] - self._until(key) + len(self._gone) - self._gone_until(key) - made

    def _until(self, key: Key | None) -> int:
        start, end = self._span
        return start if key is None else bisect_right(self._table.keys, key, start, end)

    def _gone_until(self, key: Key | None) -> int:
        return 0 if key is None else bisect_right(self._gone, key, key=itemgetter(0))


class Store:
    """Tables (one per resource) of records under one version counter."""

    def __init__(self, history: int) -> None:
        self.version = 1
        self.compacted = 0  # changes up to this version are forgotten
        self.history: deque[Change] = deque()
        self.writes = 0
        self._limit = history
        self._tables: defaultdict[str, _Table] = defaultdict(_Table)
        self._for_all: tuple[Listener, ...] = ()
        self._listeners: dict[
            str, tuple[Listener, ...]
        ] = {}  # replaced, never changed: a listener may be added during a delivery

    def get(self, table: str, key: Key) -> Record | None:
        """The present version."""
        return self._tables[table].rows.get(key)

    def records(self, table: str) -> Iterator[tuple[Key, Record]]:
        """Everything in a table, in no order."""
        return iter(self._tables[table].rows.items())

    def sorted(self, table: str, namespace: str | None = None) -> list[tuple[Key, Record]]:
        """A table, or one namespace of it, in the order of its keys."""
        found = self._tables[table]
        start, end = found.span(namespace)
        return [(key, found.rows[key]) for key in found.keys[start:end]]

    def at(self, table: str, version: int, namespace: str | None = None) -> View | None:
        """What `sorted` gave when a version was the latest; None if the history no longer reaches that far."""
        changes = self.since(table, version)
        if changes is None:
            return None
        return View(self._tables[table], namespace, {change.key: change.before for change in reversed(changes)})

    def count(self, table: str, namespace: str | None = None) -> int:
        """Objects in a table, or in one namespace of it."""
        start, end = self._tables[table].span(namespace)
        return end - start

    def put(self, table: str, key: Key, obj: Object) -> Record:
        """Create or replace; stamps the object's resourceVersion."""
        self.version += 1
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(self.version)
        record = Record(obj, self.version)
        before = self._tables[table].put(key, record)
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
