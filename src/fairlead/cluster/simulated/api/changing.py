"""Changing objects: update, patches, server-side apply."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.cluster.simulated import admission, checks, device_defaults, device_rules, errors, merging, ownership, schema
from fairlead.cluster.simulated.api.creating import OTHER_NAMESPACE, Creating
from fairlead.cluster.simulated.api.definitions import Definitions
from fairlead.cluster.simulated.api.deleting import Deleting
from fairlead.cluster.simulated.api.preconditions import check_name, check_uid
from fairlead.cluster.simulated.api.reading import Reading
from fairlead.cluster.simulated.api.versions import prepared, same
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import DEVICES, PODS, Catalog, Resource
from fairlead.cluster.simulated.store import Key, Object, Record, Store


class Changing:
    """Puts new versions of objects in the place of present ones."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        clock: Clock,
        definitions: Definitions,
        reading: Reading,
        creating: Creating,
        deleting: Deleting,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._definitions = definitions
        self._reading = reading
        self._creating = creating
        self._deleting = deleting

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        obj: Object,
        *,
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Replace an object, or its status. Raises `StatusError`."""
        given = obj.get("metadata") or {}
        check_name({"name": None, **given}, name)
        if resource.namespaced and given.get("namespace") not in (None, "", namespace):
            raise errors.bad_request(OTHER_NAMESPACE)
        record = self._store.get(resource.table, (namespace, name))
        if record is None:
            if resource.plural in ("leases", "priorityclasses") and not subresource:
                return self._creating.create(
                    resource, namespace, {**obj, "metadata": {**given, "name": name}}, manager=manager, dry_run=dry_run
                )
            raise errors.not_found(resource.group, resource.plural, name)
        version = given.get("resourceVersion")
        if not version and resource.custom:
            raise errors.invalid(
                resource.group,
                resource.kind,
                name,
                [errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")],
            )
        return self.replace(
            resource, (namespace, name), record, obj, subresource, (manager, "Update", subresource), dry_run=dry_run
        )

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        content_type: str,
        patch: Any,
        *,
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Patch an object or its status: JSON, merge or strategic merge. Raises `StatusError`."""
        record = self._reading.get(resource, namespace, name)
        live = record.object
        if content_type == "application/json-patch+json":
            obj = merging.json_patch(live, patch)
        elif content_type == "application/merge-patch+json":
            obj = merging.merge(live, patch)
        else:
            obj = merging.strategic(live, patch, self._definitions.node_of(resource))
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict | None):
            obj = {}
        check_name({"name": None, **(obj.get("metadata") or {})}, name)
        obj = self._decoded(resource, obj, live, patch if "strategic" in content_type else None)
        if resource.namespaced and obj["metadata"].get("namespace") != namespace:
            raise errors.bad_request(OTHER_NAMESPACE)
        if obj["metadata"].get("uid") != live["metadata"]["uid"]:
            wrong = errors.invalid_value("metadata.uid", str(obj["metadata"].get("uid")), "field is immutable")
            raise errors.invalid(resource.group, resource.kind, name, [wrong])
        return self.replace(
            resource, (namespace, name), record, obj, subresource, (manager, "Update", subresource), dry_run=dry_run
        )

    def _decoded(self, resource: Resource, obj: Object, live: Object, patch: Object | None) -> Object:
        """A patched object, all of it of the right types. patch: of a strategic merge, which is read otherwise."""
        if resource.custom:
            self._definitions.check_custom_kind(resource, obj)
        try:
            if not resource.custom and patch is None:
                self._check_patched_kind(resource, obj)
            decoded: Object = schema.decode(self._definitions.node_of(resource), obj, [], known=live)
        except schema.Mistyped as error:
            metadata = self._definitions.node_of(resource).children["metadata"]
            if resource.custom and not schema.mistyped(metadata, obj["metadata"]):
                return obj  # its schema decides what is wrong
            shown = merging.go_text(patch) if patch is not None else msgspec.json.encode(obj, order="sorted").decode()
            quoted = msgspec.json.encode(shown).decode()[1:-1]
            cause = errors.invalid_value("patch", quoted, error.converting if patch is not None else str(error))
            raise errors.invalid("", "", "", [cause]) from error
        return decoded

    def _check_patched_kind(self, resource: Resource, obj: Object) -> None:
        version, kind = obj.get("apiVersion"), obj.get("kind")
        if (version, kind) != (resource.stored_version, resource.kind):
            raise schema.Mistyped(self._definitions.not_convertible(resource, str(version), str(kind)))

    def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        obj: Object,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> tuple[Object, bool]:
        """Server-side apply; returns the object and whether it was created. Raises `StatusError`."""
        given = obj.get("metadata") or {}
        if given.get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        check_name({"name": None, **given}, name)
        record = self._store.get(resource.table, (namespace, name))
        who = (manager, "Apply", subresource)
        if record is None:
            if subresource:
                raise errors.not_found(resource.group, resource.plural, name)
            if given.get("uid"):
                detail = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: "
                raise errors.conflict(resource.group, resource.plural, name, detail)
            fresh = {**obj, "metadata": {**given, "name": name}}
            return self._creating.create(resource, namespace, fresh, applied=who, dry_run=dry_run), True
        live = record.object
        if given.get("uid") and given["uid"] != live["metadata"]["uid"]:
            check_uid(resource, name, given["uid"], live)
        node = self._definitions.node_of(resource)
        merged = ownership.apply(live, obj, who, node, force=force, now=self._clock.text(), api_version=resource.api_version)
        return self.replace(resource, (namespace, name), record, merged, subresource, None, dry_run=dry_run), False

    def replace(
        self,
        resource: Resource,
        key: Key,
        record: Record,
        obj: Object,
        subresource: str,
        who: ownership.Manager | None,
        *,
        dry_run: bool,
    ) -> Object:
        """Put a new version in the place of the present one; who: None keeps the ownership that obj carries."""
        live = record.object
        given = obj.get("metadata") or {}
        if given.get("uid") not in (None, "", live["metadata"]["uid"]):
            check_uid(resource, key[1], given["uid"], live)
        if given.get("resourceVersion") not in (None, "", "0", live["metadata"]["resourceVersion"]):
            if not str(given["resourceVersion"]).isdecimal():
                raise StatusError(500, "", f'strconv.ParseUint: parsing "{given["resourceVersion"]}": invalid syntax')
            raise errors.conflict(resource.group, resource.plural, key[1])
        obj = device_defaults.completed(resource, prepared(resource, live, obj, subresource), self._clock.text())
        metadata = obj["metadata"]
        if resource.custom:
            obj = self._definitions.custom(resource).filled(obj)
            metadata = obj["metadata"]
            self._definitions.check_shape(resource, obj, live)
        else:
            checks.read_quantities(resource, obj if resource.group == DEVICES else obj.get("spec"))
        checks.validate(resource, obj, live, causes=device_rules.check_admin(self._store, resource, obj, live))
        operation = admission.Request(resource, "UPDATE", key[0], key[1], obj, live, subresource=subresource)
        admission.admit(self._store, self._catalog, operation)
        if who is not None:
            tracked = bool(live["metadata"].get("managedFields"))
            if tracked:
                ownership.update(
                    live,
                    obj,
                    (who[0] or "unknown", *who[1:]),
                    self._definitions.node_of(resource),
                    self._clock.text(),
                    resource.api_version,
                )
            elif metadata.get("managedFields"):
                metadata.pop("managedFields")
        if same(live, obj):
            return live
        if dry_run:
            return obj
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and not self._graceful(resource, obj):
            self._deleting.finish(resource.table, key, obj)
            return obj
        self._store.put(resource.table, key, obj)
        if metadata.get("ownerReferences") != live["metadata"].get("ownerReferences"):
            self._deleting.garbage.adopted(resource.table, key, metadata.get("ownerReferences") or [])
        return obj

    @staticmethod
    def _graceful(resource: Resource, obj: Object) -> bool:
        """Whether a kubelet has still to confirm that it is gone."""
        return resource.table == PODS and bool(obj["metadata"].get("deletionGracePeriodSeconds"))
