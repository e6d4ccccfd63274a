"""Deleting objects: grace, finalizers, namespaces, and what goes when its owner goes."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.cluster.simulated.api.garbage import FOREGROUND, Garbage
from fairlead.cluster.simulated.api.preconditions import check_deletion
from fairlead.cluster.simulated.api.reading import Reading
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.options import check_propagation
from fairlead.cluster.simulated.resources import NAMESPACES, PODS, Catalog, Resource
from fairlead.cluster.simulated.store import Key, Object, Store
from fairlead.cluster.times import seconds


class Deleting:
    """Deletes objects. on_pod: called when a pod begins to terminate."""

    def __init__(self, store: Store, catalog: Catalog, clock: Clock, reading: Reading) -> None:
        self.garbage = Garbage(store, catalog, self.delete, self.finish)
        self.on_pod: Callable[[Key, Object], None] = lambda _key, _pod: None
        self._store = store
        self._clock = clock
        self._reading = reading

    def delete(
        self, resource: Resource, namespace: str, name: str, options: Object | None = None, *, dry_run: bool = False
    ) -> tuple[Object, bool]:
        """Delete an object; returns its last version and whether it is gone already. Raises `StatusError`."""
        options = options or {}
        key = (namespace, name)
        record = self._reading.get(resource, namespace, name)
        obj = record.object
        check_deletion(resource, obj, options.get("preconditions") or {})
        check_propagation(options.get("propagationPolicy"), orphans=options.get("orphanDependents") is not None)
        policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "Background")
        if dry_run or "All" in (options.get("dryRun") or ()):
            return obj, False
        return self._delete(resource, key, obj, options, policy)

    def _delete(self, resource: Resource, key: Key, obj: Object, options: Object, policy: str) -> tuple[Object, bool]:
        metadata = obj["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        if policy == "Foreground" and FOREGROUND not in finalizers and self.garbage.dependents(metadata["uid"]):
            finalizers.append(FOREGROUND)
        if policy == "Orphan":
            self.garbage.orphan(metadata["uid"])
        grace = self._grace(resource, obj, options)
        if resource.table == NAMESPACES:
            return self._terminate_namespace(resource, key, obj), False
        if not grace and not finalizers:
            last = self.finish(resource.table, key, obj)
            return last, True
        if metadata.get("deletionTimestamp") and not self._sooner(metadata, grace, finalizers):
            return obj, False
        marked = dict(metadata)
        known = metadata.get("deletionGracePeriodSeconds")
        asked = seconds(metadata["deletionTimestamp"]) - known if known else self._clock.now()  # the first delete's time
        marked["deletionTimestamp"] = self._clock.text(asked + grace)
        marked["deletionGracePeriodSeconds"] = grace
        if finalizers:
            marked["finalizers"] = finalizers
        if "generation" in marked and not metadata.get("deletionTimestamp"):
            marked["generation"] += 1
        changed = {**obj, "metadata": marked}
        self._store.put(resource.table, key, changed)
        if FOREGROUND in finalizers:
            self.garbage.foreground(resource.table, key, metadata["uid"])
        if resource.table == PODS:
            self.on_pod(key, changed)
        return changed, False

    @staticmethod
    def _sooner(metadata: Object, grace: int, finalizers: list[str]) -> bool:
        """Whether a second delete changes anything."""
        return grace < metadata.get("deletionGracePeriodSeconds", 0) or len(finalizers) > len(metadata.get("finalizers") or ())

    @staticmethod
    def _grace(resource: Resource, obj: Object, options: Object) -> int:
        """Seconds that a pod's containers have left; other kinds have none."""
        if resource.table != PODS:
            return 0
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = obj["metadata"].get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30))
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        return max(0, int(grace))

    def finish(self, table: str, key: Key, obj: Object) -> Object:
        """Remove an object for good, and let the garbage collector see to what it owned."""
        last = self._store.remove(table, key)
        self.garbage.removed(table, key, obj)
        return last.object

    def _terminate_namespace(self, resource: Resource, key: Key, obj: Object) -> Object:
        if obj["metadata"].get("deletionTimestamp"):
            return obj
        marked = {**obj["metadata"], "deletionTimestamp": self._clock.text()}
        changed = {**obj, "metadata": marked, "status": {"phase": "Terminating"}}
        self._store.put(resource.table, key, changed)
        self.garbage.empty_namespace(key[1])
        return changed
