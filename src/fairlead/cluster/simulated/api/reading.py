"""Reading: one object, pages of lists that are of one moment, and watches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from fairlead.cluster.label_queries import Test
from fairlead.cluster.simulated import errors
from fairlead.cluster.simulated.resources import Resource
from fairlead.cluster.simulated.store import Change, Key, Object, Record, Store

_FORGOTTEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results."
)


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a resource. namespace: None for all."""

    namespace: str | None = None
    labels: Test | None = None
    fields: Callable[[Object], bool] | None = None

    def matches(self, key: Key, obj: Object) -> bool:
        """Whether an object is among them."""
        if self.namespace is not None and key[0] != self.namespace:
            return False
        if self.labels is not None and not self.labels(obj["metadata"].get("labels") or {}):
            return False
        return self.fields is None or self.fields(obj)


class Page(msgspec.Struct, frozen=True):
    """Part of a list. next: the token for more, or empty; remaining: how many more, if it is known."""

    records: list[Record]
    version: int
    next: str = ""
    remaining: int | None = None


class Watch:
    """Changes of a selection, from a version on. notify: called when there is something in `changes`."""

    def __init__(self, store: Store, resource: Resource, selection: Selection, backlog: list[Change]) -> None:
        self.changes: deque[tuple[str, Record]] = deque()
        self.notify: Callable[[], None] = lambda: None
        self.resource = resource
        self._store = store
        self._selection = selection
        self._open = True
        for change in backlog:
            self._changed(change)
        store.listen(resource.table, self._changed)

    @property
    def store_version(self) -> int:
        """How far the store has come."""
        return self._store.version

    def close(self) -> None:
        """Stop listening; may be called again."""
        if self._open:
            self._open = False
            self._store.deafen(self.resource.table, self._changed)

    def _changed(self, change: Change) -> None:
        now = change.kind != "DELETED" and self._selection.matches(change.key, change.record.object)
        before = change.before is not None and self._selection.matches(change.key, change.before.object)
        if now:
            self.changes.append(("MODIFIED" if before else "ADDED", change.record))
        elif before:
            record = change.record
            self.changes.append(("DELETED", record))
        else:
            return
        self.notify()


class Reading:
    """Reads the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, resource: Resource, namespace: str, name: str) -> Record:
        """One object. Raises `StatusError` 404."""
        record = self._store.get(resource.table, (namespace, name))
        if record is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return record

    def page(
        self, resource: Resource, selection: Selection, *, limit: int = 0, token: str = "", exact: int | None = None
    ) -> Page:
        """A page of a selection in the order of names, as it was when the first page was read.

        token: of the page before. exact: the version to show. Raises `StatusError` 410 for one that is forgotten.
        """
        after: Key | None = None
        version = self._store.version if exact is None else exact
        if token:
            version, after = self._read_token(token)
        found = self._store.at(resource.table, version, selection.namespace)
        if found is None:
            raise errors.expired(_FORGOTTEN if token else "The resourceVersion for the provided list is too old.")
        kept: list[Record] = []
        last: Key = ("", "")
        for key, record in found.after(after):
            if not selection.matches(key, record.object):
                continue
            if limit and len(kept) == limit:
                counted = selection.labels is None and selection.fields is None
                token = msgspec.json.encode([version, *last]).hex()
                return Page(kept, version, token, found.count_after(last) if counted else None)
            kept.append(record)
            last = key
        return Page(kept, version)

    def _read_token(self, token: str) -> tuple[int, Key]:
        try:
            version, namespace, name = msgspec.json.decode(bytes.fromhex(token), type=tuple[int, str, str])
        except (ValueError, msgspec.DecodeError) as error:
            detail = "it was not given out by this server"
            raise errors.bad_request(f"invalid continue token: continue key is not valid: {detail}") from error
        return version, (namespace, name)

    def watch(self, resource: Resource, selection: Selection, version: int | None) -> Watch:
        """Changes after a version; None or 0: everything that exists first. Raises `StatusError` 410."""
        if not version:
            watch = Watch(self._store, resource, selection, [])
            for key, record in self._store.sorted(resource.table, selection.namespace):
                if selection.matches(key, record.object):
                    watch.changes.append(("ADDED", record))
            return watch
        backlog = self._store.since(resource.table, version)
        if backlog is None:
            raise errors.expired(f"too old resource version: {version} ({self._store.compacted})")
        return Watch(self._store, resource, selection, backlog)
