"""Creating objects."""

from __future__ import annotations

import random
import uuid

import msgspec

from fairlead.cluster.simulated import admission, checks, defaults, device_rules, errors, ownership
from fairlead.cluster.simulated.api.definitions import Definitions
from fairlead.cluster.simulated.api.garbage import Garbage
from fairlead.cluster.simulated.api.pods import KnownSpecs, resolve_priority
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.quotas import Quotas
from fairlead.cluster.simulated.resources import NAMESPACES, PODS, Catalog, Resource
from fairlead.cluster.simulated.store import Object, Store

OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class Creating:
    """Creates objects. seed: of UIDs and generated names."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        clock: Clock,
        definitions: Definitions,
        quotas: Quotas,
        garbage: Garbage,
        seed: int,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._definitions = definitions
        self._quotas = quotas
        self._garbage = garbage
        self._random = random.Random(seed)
        self._specs = KnownSpecs()

    def create(
        self,
        resource: Resource,
        namespace: str,
        obj: Object,
        *,
        manager: str = "",
        dry_run: bool = False,
        applied: ownership.Manager | None = None,
    ) -> Object:
        """Create an object. Raises `StatusError`."""
        metadata = obj["metadata"] = self._fresh_metadata(resource, namespace, obj.get("metadata") or {})
        obj = {**obj, "kind": resource.kind, "apiVersion": resource.stored_version}
        name = metadata.get("name", "")
        key = (namespace, name)
        if not name:
            raise errors.invalid(resource.group, resource.kind, "", checks.check_metadata(resource, obj))
        if resource.namespaced:
            self._check_namespace(resource, namespace, name)
        now = self._clock.text()
        metadata["creationTimestamp"] = now
        if resource.custom:
            if "status" in resource.subresources:
                obj.pop("status", None)
            obj = self._definitions.custom(resource).filled(obj)
            metadata = obj["metadata"]
        if resource.table == PODS:
            obj = self._quotas.default(namespace, obj)
            metadata = obj["metadata"]
        if resource.custom or resource.table in checks.WITH_GENERATION:
            metadata["generation"] = 1
        self._complete(resource, obj, now)
        admission.admit(self._store, self._catalog, admission.Request(resource, "CREATE", namespace, name, obj))
        if self._store.get(resource.table, key) is not None:
            raise errors.already_exists(resource.group, resource.plural, name)
        self._quotas.admit(resource, namespace, obj, dry_run=dry_run)
        who = applied or ((manager, "Update", "") if manager else None)
        if who is not None:
            ownership.update(None, obj, who, self._definitions.node_of(resource), now, resource.api_version)
        if dry_run:
            return obj
        self._store.put(resource.table, key, obj)
        if metadata.get("ownerReferences"):
            self._garbage.adopted(resource.table, key, metadata["ownerReferences"])
        return obj

    def _complete(self, resource: Resource, obj: Object, now: str) -> None:
        """Fill in the defaults, and refuse what breaks a rule. Pods whose spec was seen before are filled from that."""
        asked = msgspec.json.encode(obj.get("spec")) if resource.table == PODS else b""
        known = bool(asked) and self._specs.fill(asked, obj)
        if not known:
            default = defaults.DEFAULTS.get(resource.table)
            checks.read_quantities(resource, obj.get("spec"))
            checks.read_quantities(resource, obj.get("status"))
            self._definitions.check_shape(resource, obj)
            if default is not None:
                default(obj, now)
        if resource.table == PODS:
            resolve_priority(self._store, obj)
        checks.validate(resource, obj, None, known=known, causes=device_rules.check_admin(self._store, resource, obj, None))
        if asked and not known:
            self._specs.remember(asked, obj)

    def _fresh_metadata(self, resource: Resource, namespace: str, given: Object) -> Object:
        metadata = dict(given)
        if metadata.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = str(metadata["generateName"])[:58] + "".join(self._random.choice(_SUFFIX) for _ in range(5))
        if resource.namespaced:
            if metadata.get("namespace") not in (None, "", namespace):
                raise errors.bad_request(OTHER_NAMESPACE)
            metadata["namespace"] = namespace
        elif metadata.get("namespace"):
            raise errors.bad_request(OTHER_NAMESPACE)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        return metadata

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        record = self._store.get(NAMESPACES, ("", namespace))
        if record is None:
            raise errors.not_found("", "namespaces", namespace)
        if record.object["metadata"].get("deletionTimestamp"):
            raise errors.forbidden(
                resource.group,
                resource.plural,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )
