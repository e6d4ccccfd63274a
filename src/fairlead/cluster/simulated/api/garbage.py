"""Owner references and namespaces: what goes when something else goes.

Deletion propagates at once where a real garbage collector would take a moment; the outcome is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import Catalog, Resource
from fairlead.cluster.simulated.store import Key, Object, Store

FOREGROUND = "foregroundDeletion"
Place = tuple[str, Key]


class Garbage:
    """Knows who owns whom.

    delete: deletes an object, as a request would: (resource, namespace, name, options).
    finish: removes one for good: (table, key, object).
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        delete: Callable[[Resource, str, str, Object], object],
        finish: Callable[[str, Key, Object], object],
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._request_deletion = delete
        self._finish = finish
        self._owned: dict[str, set[Place]] = {}  # owner uid -> its dependents
        self._waiting: dict[str, Place] = {}  # uid of an owner that waits for its dependents to go
        self._emptying: set[str] = set()

    def adopted(self, table: str, key: Key, references: list[dict[str, Any]]) -> None:
        """An object names its owners."""
        for reference in references:
            self._owned.setdefault(reference.get("uid", ""), set()).add((table, key))

    def dependents(self, uid: str) -> list[tuple[Place, Object]]:
        """Objects that name this owner now."""
        found = []
        for table, key in sorted(self._owned.get(uid, ())):
            record = self._store.get(table, key)
            if record is not None and any(
                each.get("uid") == uid for each in record.object["metadata"].get("ownerReferences") or ()
            ):
                found.append(((table, key), record.object))
        return found

    def orphan(self, uid: str) -> None:
        """Dependents forget this owner."""
        for (table, key), obj in self.dependents(uid):
            kept = [each for each in obj["metadata"]["ownerReferences"] if each.get("uid") != uid]
            metadata = {**obj["metadata"], "ownerReferences": kept}
            if not kept:
                del metadata["ownerReferences"]
            self._store.put(table, key, {**obj, "metadata": metadata})
        self._owned.pop(uid, None)

    def foreground(self, table: str, key: Key, uid: str) -> None:
        """Delete dependents first; the owner goes with the last of them."""
        self._waiting[uid] = (table, key)
        self._delete_dependents(uid)
        self._release(uid)

    def removed(self, table: str, key: Key, obj: Object) -> None:
        """An object is gone for good."""
        uid = obj["metadata"]["uid"]
        self._waiting.pop(uid, None)
        self._delete_dependents(uid)
        self._owned.pop(uid, None)
        for reference in obj["metadata"].get("ownerReferences") or ():
            places = self._owned.get(reference.get("uid", ""))
            if places is not None:
                places.discard((table, key))
                if not places:
                    del self._owned[reference.get("uid", "")]
            self._release(reference.get("uid", ""))
        if key[0] in self._emptying:
            self._close_namespace(key[0])

    def _delete_dependents(self, uid: str) -> None:
        for (table, key), obj in self.dependents(uid):
            owners = obj["metadata"].get("ownerReferences") or ()
            if any(each.get("uid") != uid and self._alive(each, key[0]) for each in owners):
                kept = [each for each in owners if each.get("uid") != uid]
                self._store.put(table, key, {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}})
                continue
            self._delete(table, key)

    def _alive(self, reference: dict[str, Any], namespace: str) -> bool:
        resource = self._catalog.of_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None:
            return False
        record = self._store.get(resource.table, (namespace if resource.namespaced else "", reference.get("name", "")))
        return record is not None and record.object["metadata"]["uid"] == reference.get("uid")

    def _delete(self, table: str, key: Key) -> None:
        for resource in self._catalog:
            if resource.table == table:
                try:
                    self._request_deletion(resource, key[0], key[1], {"propagationPolicy": "Background"})
                except StatusError:
                    return
                return

    def _release(self, uid: str) -> None:
        """An owner in foreground deletion goes once nothing depends on it."""
        place = self._waiting.get(uid)
        if place is None or self.dependents(uid):
            return
        del self._waiting[uid]
        table, key = place
        record = self._store.get(table, key)
        if record is None:
            return
        kept = [each for each in record.object["metadata"].get("finalizers") or () if each != FOREGROUND]
        if kept:
            self._store.put(table, key, {**record.object, "metadata": {**record.object["metadata"], "finalizers": kept}})
        else:
            self._finish(table, key, record.object)

    # -- namespaces ----------------------------------------------------------------------------

    def empty_namespace(self, namespace: str) -> None:
        """Delete everything in a namespace, then the namespace."""
        self._emptying.add(namespace)
        for resource in self._catalog:
            if resource.namespaced:
                for key, _ in self._store.sorted(resource.table, namespace):
                    self._delete(resource.table, key)
        self._close_namespace(namespace)

    def _close_namespace(self, namespace: str) -> None:
        for resource in self._catalog:
            if resource.namespaced and self._store.count(resource.table, namespace):
                return
        self._emptying.discard(namespace)
        if self._store.get("namespaces", ("", namespace)) is not None:
            self._store.remove("namespaces", ("", namespace))
