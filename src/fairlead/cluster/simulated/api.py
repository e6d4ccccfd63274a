"""The API server's verbs on the store: what kube-apiserver's registry does, without any HTTP.

Every refusal is a `StatusError`. Objects given in belong to the server afterwards; objects given out
must not be changed.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from fairlead.cluster.label_queries import Test
from fairlead.cluster.simulated import admission, checks, defaults, errors, merging, ownership, schema, selectors
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.garbage import Garbage
from fairlead.cluster.simulated.options import check_deletion
from fairlead.cluster.simulated.quotas import Quotas
from fairlead.cluster.simulated.resources import Catalog, Resource
from fairlead.cluster.simulated.store import Change, Key, Object, Record, Store
from fairlead.cluster.times import seconds

PODS, NODES, NAMESPACES = "pods", "nodes", "namespaces"
BUDGETS = "policy/poddisruptionbudgets"
DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"
CLASSES = "scheduling.k8s.io/priorityclasses"
_SPECS = 1000
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_FORGOTTEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results."
)
_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


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
    """Changes of a selection, from a version on. wake: called when there is something in `changes`."""

    def __init__(self, store: Store, resource: Resource, selection: Selection, backlog: list[Change]) -> None:
        self.changes: deque[tuple[str, Record]] = deque()
        self.wake: Callable[[], None] = lambda: None
        self.resource = resource
        self._store = store
        self._selection = selection
        self._open = True
        for change in backlog:
            self._hear(change)
        store.listen(resource.table, self._hear)

    @property
    def store_version(self) -> int:
        """How far the store has come."""
        return self._store.version

    def close(self) -> None:
        """Hear no more; may be called again."""
        if self._open:
            self._open = False
            self._store.deafen(self.resource.table, self._hear)

    def _hear(self, change: Change) -> None:
        now = change.kind != "DELETED" and self._selection.matches(change.key, change.record.object)
        before = change.before is not None and self._selection.matches(change.key, change.before.object)
        if now:
            self.changes.append(("MODIFIED" if before else "ADDED", change.record))
        elif before:
            record = change.record
            self.changes.append(("DELETED", record))
        else:
            return
        self.wake()


class _Schema(NamedTuple):
    """What is made of a custom resource's schema; `definition` is held, since its identity is the key."""

    tree: schema.Node
    validator: schema.Validator
    defaults: schema.Defaults | None
    definition: Object

    def filled(self, obj: Object) -> Object:
        """The object with defaults, and with metadata of its own that may be written to."""
        filled: Object = {**(self.defaults.filled(obj) if self.defaults is not None else obj)}
        filled["metadata"] = {**filled["metadata"]}
        return filled


class ApiServer:
    """One simulated API server. seed: of UIDs and generated names; history: changes remembered for watches."""

    def __init__(self, clock: Clock, *, seed: int = 0, history: int = 100_000) -> None:
        self.clock = clock
        self.store = Store(history)
        self.catalog = Catalog()
        self.garbage = Garbage(self.store, self.catalog, self.delete, self._finish)
        self.quotas = Quotas(self.store, clock)
        self.logs: Callable[[Object, str], str] = lambda _pod, _container: ""
        self.attach: Any = None  # an `attach.Attach`, where pods' commands run
        self.on_delete_pod: Callable[[Key, Object], None] = lambda _key, _pod: None
        self._random = random.Random(seed)
        self._specs: dict[bytes, tuple[Object, Object]] = {}  # pod spec as sent -> (spec, status) as stored
        self._schemas: dict[int, _Schema] = {}  # holds what its keys are the ids of
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create(self.served("v1", "namespaces"), "", {"metadata": {"name": name}})
        for name, value in _SYSTEM_CLASSES.items():
            self.create(self.served("scheduling.k8s.io/v1", "priorityclasses"), "", {"metadata": {"name": name}, "value": value})
        self.store.listen(DEFINITIONS, self._defined)

    # -- what is served ------------------------------------------------------------------------

    def served(self, api_version: str, plural: str) -> Resource:
        """A resource that must be served. Raises `StatusError` 404."""
        resource = self.catalog.find(api_version, plural)
        if resource is None:
            raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
        return resource

    def node_of(self, resource: Resource) -> schema.Node:
        """The tree of a resource's fields."""
        if resource.schema is not None:
            return self._custom(resource).tree
        return schema.of_model(resource.model) if resource.model is not None else schema.Node("any")

    def _custom(self, resource: Resource) -> _Schema:
        definition = resource.schema or {}
        known = self._schemas.get(id(definition))
        if known is None:
            tree = schema.of_schema(definition, root=True)
            parts = tree, schema.Validator(definition), schema.defaults_of(definition)
            known = self._schemas[id(definition)] = _Schema(*parts, definition)
        return known

    def _defined(self, change: Change) -> None:
        if change.kind != "DELETED":
            self.catalog.define(change.record.object)
            return
        for resource in self.catalog.undefine(change.key[1]):
            for key, _ in self.store.sorted(resource.table):
                self.store.remove(resource.table, key)

    # -- reading -------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Record:
        """One object. Raises `StatusError` 404."""
        record = self.store.get(resource.table, (namespace, name))
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
        version = self.store.version if exact is None else exact
        if token:
            version, after = self._read_token(token)
        found = self.store.at(resource.table, version, selection.namespace)
        if found is None:
            raise errors.expired(_FORGOTTEN if token else "The resourceVersion for the provided list is too old.")
        records = [(key, record) for key, record in found if selection.matches(key, record.object)]
        if after is not None:
            records = [item for item in records if item[0] > after]
        if not limit or len(records) <= limit:
            return Page([record for _, record in records], version)
        kept = records[:limit]
        counted = selection.labels is None and selection.fields is None
        return Page(
            [record for _, record in kept],
            version,
            msgspec.json.encode([version, *kept[-1][0]]).hex(),
            len(records) - limit if counted else None,
        )

    def _read_token(self, token: str) -> tuple[int, Key]:
        try:
            version, namespace, name = msgspec.json.decode(bytes.fromhex(token), type=tuple[int, str, str])
        except (ValueError, msgspec.DecodeError) as error:
            told = "it was not given out by this server"
            raise errors.bad_request(f"invalid continue token: continue key is not valid: {told}") from error
        return version, (namespace, name)

    def watch(self, resource: Resource, selection: Selection, version: int | None) -> Watch:
        """Changes after a version; None or 0: everything that exists first. Raises `StatusError` 410."""
        if not version:
            watch = Watch(self.store, resource, selection, [])
            for key, record in self.store.sorted(resource.table, selection.namespace):
                if selection.matches(key, record.object):
                    watch.changes.append(("ADDED", record))
            return watch
        backlog = self.store.since(resource.table, version)
        if backlog is None:
            raise errors.expired(f"too old resource version: {version} ({self.store.compacted})")
        return Watch(self.store, resource, selection, backlog)

    # -- creating ------------------------------------------------------------------------------

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
        now = self.clock.text()
        metadata["creationTimestamp"] = now
        if resource.custom:
            if "status" in resource.subresources:
                obj.pop("status", None)
            obj = self._custom(resource).filled(obj)
            metadata = obj["metadata"]
        if resource.table == PODS:
            obj = self.quotas.default(namespace, obj)
            metadata = obj["metadata"]
        asked = msgspec.json.encode(obj.get("spec")) if resource.table == PODS else b""
        known = bool(asked) and self._known_spec(asked, obj)
        if not known:
            default = defaults.DEFAULTS.get(resource.table)
            checks.read_quantities(resource, obj.get("spec"))
            checks.read_quantities(resource, obj.get("status"))
            self._check_shape(resource, obj)
            if default is not None:
                default(obj, now)
        if resource.table == PODS:
            self._resolve_priority(obj)
        if resource.custom or resource.table in checks.WITH_GENERATION:
            metadata["generation"] = 1
        self._validate(resource, obj, None, known=known)
        if asked and not known:
            self._remember_spec(asked, obj)
        admission.admit(self.store, self.catalog, admission.Request(resource, "CREATE", namespace, name, obj))
        if self.store.get(resource.table, key) is not None:
            raise errors.already_exists(resource.group, resource.plural, name)
        self.quotas.admit(resource, namespace, obj, dry_run=dry_run)
        who = applied or ((manager, "Update", "") if manager else None)
        if who is not None:
            ownership.update(None, obj, who, self.node_of(resource), now, resource.api_version)
        if dry_run:
            return obj
        self.store.put(resource.table, key, obj)
        if metadata.get("ownerReferences"):
            self.garbage.adopted(resource.table, key, metadata["ownerReferences"])
        return obj

    def _fresh_metadata(self, resource: Resource, namespace: str, given: Object) -> Object:
        metadata = dict(given)
        if metadata.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = str(metadata["generateName"])[:58] + "".join(self._random.choice(_SUFFIX) for _ in range(5))
        if resource.namespaced:
            if metadata.get("namespace") not in (None, "", namespace):
                raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
            metadata["namespace"] = namespace
        elif metadata.get("namespace"):
            raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        return metadata

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        record = self.store.get(NAMESPACES, ("", namespace))
        if record is None:
            raise errors.not_found("", "namespaces", namespace)
        if record.object["metadata"].get("deletionTimestamp"):
            raise errors.forbidden(
                resource.group,
                resource.plural,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )

    def _check_shape(self, resource: Resource, obj: Object, live: Object | None = None) -> None:
        """Rules of custom resources that must hold before anything reads the object."""
        if resource.custom:
            wrong = self._custom(resource).validator.causes(obj, live)
            if wrong:
                raise errors.invalid(resource.group, resource.kind, obj["metadata"].get("name", ""), wrong)

    def _known_spec(self, asked: bytes, pod: Object) -> bool:
        """Whether a pod with this very spec was valid before: it then gets the same one, defaults filled in.

        Pods come in thousands of equals; stored objects are never changed in place, so they may share.
        """
        found = self._specs.get(asked)
        if found is None:
            return False
        pod["spec"], status = found
        pod["status"] = dict(status)
        return True

    def _remember_spec(self, asked: bytes, pod: Object) -> None:
        if len(self._specs) >= _SPECS:
            self._specs.clear()
        if not pod["spec"].get("priorityClassName"):  # what a class means may change
            self._specs[asked] = (pod["spec"], pod["status"])

    def _resolve_priority(self, pod: Object) -> None:
        """The admission plugin Priority."""
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        if not name:
            for _, record in self.store.sorted(CLASSES):
                if record.object.get("globalDefault"):
                    name = record.object["metadata"]["name"]
                    break
        if not name:
            if spec.get("priority"):
                pod["spec"] = {**spec, "priority": 0}
            return
        found = self.store.get(CLASSES, ("", name))
        if found is None:
            raise errors.forbidden("", "pods", pod["metadata"].get("name", ""), f"no PriorityClass with name {name} was found")
        pod["spec"] = {
            **spec,
            "priorityClassName": name,
            "priority": found.object["value"],
            "preemptionPolicy": found.object.get("preemptionPolicy", "PreemptLowerPriority"),
        }

    def _validate(self, resource: Resource, obj: Object, before: Object | None, *, known: bool = False) -> None:
        causes = checks.check_metadata(resource, obj)
        check = None if known else checks.CHECKS.get(resource.table)
        if check is not None and (before is None or "spec" not in obj or before.get("spec") != obj["spec"]):
            causes += check(obj)
        update_check = checks.UPDATE_CHECKS.get(resource.table)
        if before is not None and update_check is not None:
            causes += update_check(before, obj)
        if causes:
            raise errors.invalid(resource.group, resource.kind, obj["metadata"].get("name", ""), causes)

    # -- changing ------------------------------------------------------------------------------

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
        self._check_name({"name": None, **given}, name)
        if resource.namespaced and given.get("namespace") not in (None, "", namespace):
            raise errors.bad_request(_OTHER_NAMESPACE)
        record = self.store.get(resource.table, (namespace, name))
        if record is None:
            if resource.plural in ("leases", "priorityclasses") and not subresource:
                return self.create(
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
        return self._replace(
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
        record = self.get(resource, namespace, name)
        live = record.object
        if content_type == "application/json-patch+json":
            obj = merging.json_patch(live, patch)
        elif content_type == "application/merge-patch+json":
            obj = merging.merge(live, patch)
        else:
            obj = merging.strategic(live, patch, self.node_of(resource))
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict | None):
            obj = {}
        self._check_name({"name": None, **(obj.get("metadata") or {})}, name)
        obj = self._decoded(resource, obj, live, patch if "strategic" in content_type else None)
        if resource.namespaced and obj["metadata"].get("namespace") != namespace:
            raise errors.bad_request(_OTHER_NAMESPACE)
        if obj["metadata"].get("uid") != live["metadata"]["uid"]:
            wrong = errors.invalid_value("metadata.uid", str(obj["metadata"].get("uid")), "field is immutable")
            raise errors.invalid(resource.group, resource.kind, name, [wrong])
        return self._replace(
            resource, (namespace, name), record, obj, subresource, (manager, "Update", subresource), dry_run=dry_run
        )

    def _decoded(self, resource: Resource, obj: Object, live: Object, patch: Object | None) -> Object:
        """A patched object, all of it of the right types. patch: of a strategic merge, which is read otherwise."""
        if resource.custom:
            self.check_custom_kind(resource, obj)
        try:
            if not resource.custom and patch is None:
                self._check_patched_kind(resource, obj)
            decoded: Object = schema.decode(self.node_of(resource), obj, [], known=live)
        except schema.Mistyped as error:
            metadata = self.node_of(resource).children["metadata"]
            if resource.custom and not schema.mistyped(metadata, obj["metadata"]):
                return obj  # its schema says what is wrong
            shown = merging.go_text(patch) if patch is not None else msgspec.json.encode(obj, order="sorted").decode()
            quoted = msgspec.json.encode(shown).decode()[1:-1]
            cause = errors.invalid_value("patch", quoted, error.converting if patch is not None else str(error))
            raise errors.invalid("", "", "", [cause]) from error
        return decoded

    def _check_patched_kind(self, resource: Resource, obj: Object) -> None:
        version, kind = obj.get("apiVersion"), obj.get("kind")
        if (version, kind) != (resource.stored_version, resource.kind):
            raise schema.Mistyped(self.not_convertible(resource, str(version), str(kind)))

    def not_convertible(self, resource: Resource, version: str, kind: str) -> str:
        """Why an object of another kind is none of this resource."""
        other = self.catalog.of_kind(version, kind)
        if other is None or other.custom:
            return errors.unregistered(version, kind)
        ours = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
        return f"converting ({other.version}.{kind}) to ({ours}): unknown conversion"

    @staticmethod
    def check_custom_kind(resource: Resource, obj: Object) -> None:
        """An object of a custom kind says so. Raises `StatusError` 422."""
        kind, version = obj.get("kind"), obj.get("apiVersion")
        group, _, _ = str(version).rpartition("/")
        for field, given, wanted in (("kind", kind, resource.kind), ("apiVersion", version, resource.api_version)):
            if given != wanted:
                name = str((obj.get("metadata") or {}).get("name") or "")
                raise errors.invalid(group, str(kind), name, [errors.invalid_value(field, str(given), f"must be {wanted}")])

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
        self._check_name({"name": None, **given}, name)
        record = self.store.get(resource.table, (namespace, name))
        who = (manager, "Apply", subresource)
        if record is None:
            if subresource:
                raise errors.not_found(resource.group, resource.plural, name)
            if given.get("uid"):
                told = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: "
                raise errors.conflict(resource.group, resource.plural, name, told)
            fresh = {**obj, "metadata": {**given, "name": name}}
            return self.create(resource, namespace, fresh, applied=who, dry_run=dry_run), True
        live = record.object
        if given.get("uid") and given["uid"] != live["metadata"]["uid"]:
            self._check_uid(resource, name, given["uid"], live)
        node = self.node_of(resource)
        merged = ownership.apply(live, obj, who, node, force=force, now=self.clock.text(), api_version=resource.api_version)
        return self._replace(resource, (namespace, name), record, merged, subresource, None, dry_run=dry_run), False

    @staticmethod
    def _check_name(given: Object, name: str) -> None:
        """What is sent to an object's path is that object."""
        if not given.get("name", name):
            raise errors.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
        if given.get("name", name) != name:
            raise errors.bad_request(f"the name of the object ({given.get('name')}) does not match the name on the URL ({name})")

    @staticmethod
    def _check_precondition(resource: Resource, name: str, what: str, wanted: str, present: str, why: str) -> None:
        """A precondition of a deletion."""
        if wanted != present:
            differ = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({present})"
            told = f"{differ}. The object might have been {why}"
            raise errors.conflict(resource.group, resource.kind, name, told)

    def _check_uid(self, resource: Resource, name: str, uid: str, live: Object) -> None:
        if uid != live["metadata"]["uid"]:
            told = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
            raise errors.conflict(resource.group, resource.plural, name, told)

    def _replace(
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
            self._check_uid(resource, key[1], given["uid"], live)
        if given.get("resourceVersion") not in (None, "", "0", live["metadata"]["resourceVersion"]):
            if not str(given["resourceVersion"]).isdecimal():
                raise StatusError(500, "", f'strconv.ParseUint: parsing "{given["resourceVersion"]}": invalid syntax')
            raise errors.conflict(resource.group, resource.plural, key[1])
        obj = self._prepared(resource, live, obj, subresource)
        metadata = obj["metadata"]
        if resource.custom:
            obj = self._custom(resource).filled(obj)
            metadata = obj["metadata"]
            self._check_shape(resource, obj, live)
        else:
            checks.read_quantities(resource, obj.get("spec"))
        self._validate(resource, obj, live)
        operation = admission.Request(resource, "UPDATE", key[0], key[1], obj, live, subresource=subresource)
        admission.admit(self.store, self.catalog, operation)
        if who is not None:
            tracked = bool(live["metadata"].get("managedFields"))
            if tracked:
                ownership.update(
                    live, obj, (who[0] or "unknown", *who[1:]), self.node_of(resource), self.clock.text(), resource.api_version
                )
            elif metadata.get("managedFields"):
                metadata.pop("managedFields")
        if self._same(live, obj):
            return live
        if dry_run:
            return obj
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and not self._graceful(resource, obj):
            self._finish(resource.table, key, obj)
            return obj
        self.store.put(resource.table, key, obj)
        if metadata.get("ownerReferences") != live["metadata"].get("ownerReferences"):
            self.garbage.adopted(resource.table, key, metadata.get("ownerReferences") or [])
        return obj

    @staticmethod
    def _graceful(resource: Resource, obj: Object) -> bool:
        """Whether a kubelet has still to say that it is gone."""
        return resource.table == PODS and bool(obj["metadata"].get("deletionGracePeriodSeconds"))

    @staticmethod
    def _same(live: Object, obj: Object) -> bool:
        if {name: value for name, value in live.items() if name != "metadata"} != {
            name: value for name, value in obj.items() if name != "metadata"
        }:
            return False
        ignored = ("resourceVersion", "managedFields")
        return {name: value for name, value in live["metadata"].items() if name not in ignored} == {
            name: value for name, value in obj["metadata"].items() if name not in ignored
        } and _without_times(live) == _without_times(obj)

    def _prepared(self, resource: Resource, live: Object, obj: Object, subresource: str) -> Object:
        """What of the new version counts: spec or status by the subresource; the server's own fields stay."""
        before = live["metadata"]
        if subresource in ("status", "scale", "finalize"):
            result = {**live}
            if subresource == "status":
                result.pop("status", None)
                if "status" in obj:
                    result["status"] = obj["status"]
            else:
                result["spec"] = obj.get("spec", live.get("spec"))
            given = obj.get("metadata") or {}
            metadata = dict(before)
            if subresource == "status" and not resource.custom:
                for name in ("labels", "annotations"):
                    if given.get(name):
                        metadata[name] = given[name]
            if "managedFields" in given:
                metadata["managedFields"] = given["managedFields"]
        else:
            result = {**obj, "kind": resource.kind, "apiVersion": resource.stored_version}
            if resource.has_status:
                result.pop("status", None)
                if "status" in live:
                    result["status"] = live["status"]
            metadata = dict(result["metadata"])
            if resource.table == PODS:
                result["spec"] = defaults.tolerating(result.get("spec") or {})
            if resource.table == NAMESPACES:  # its finalizers have a subresource of their own
                result["spec"] = live.get("spec", {})
                metadata["labels"] = {**(metadata.get("labels") or {}), defaults.NAME_LABEL: before["name"]}
        for name in (
            "uid",
            "name",
            "namespace",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
        ):
            if name in before:
                metadata[name] = before[name]
            else:
                metadata.pop(name, None)
        metadata["resourceVersion"] = before["resourceVersion"]
        if "generation" in before and any(
            live.get(name) != result.get(name) for name in {*live, *result} - {"metadata", "status", "apiVersion", "kind"}
        ):
            metadata["generation"] = before["generation"] + 1
        result["metadata"] = metadata
        return result

    # -- deleting ------------------------------------------------------------------------------

    def delete(
        self, resource: Resource, namespace: str, name: str, options: Object | None = None, *, dry_run: bool = False
    ) -> tuple[Object, bool]:
        """Delete an object; returns its last version and whether it is gone already. Raises `StatusError`."""
        options = options or {}
        key = (namespace, name)
        record = self.get(resource, namespace, name)
        obj = record.object
        conditions = options.get("preconditions") or {}
        if conditions.get("uid"):
            self._check_precondition(
                resource, name, "UID", conditions["uid"], obj["metadata"]["uid"], "deleted and then recreated"
            )
        if conditions.get("resourceVersion"):
            present = obj["metadata"]["resourceVersion"]
            self._check_precondition(resource, name, "ResourceVersion", conditions["resourceVersion"], present, "modified")
        check_deletion(options.get("propagationPolicy"), orphans=options.get("orphanDependents") is not None)
        policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "Background")
        if dry_run or "All" in (options.get("dryRun") or ()):
            return obj, False
        return self._delete(resource, key, obj, options, policy)

    def _delete(self, resource: Resource, key: Key, obj: Object, options: Object, policy: str) -> tuple[Object, bool]:
        metadata = obj["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        if policy == "Foreground" and _FOREGROUND not in finalizers and self.garbage.dependents(metadata["uid"]):
            finalizers.append(_FOREGROUND)
        if policy == "Orphan":
            self.garbage.orphan(metadata["uid"])
        grace = self._grace(resource, obj, options)
        if resource.table == NAMESPACES:
            return self._terminate_namespace(resource, key, obj), False
        if not grace and not finalizers:
            last = self._finish(resource.table, key, obj)
            return last, True
        if metadata.get("deletionTimestamp") and not self._sooner(metadata, grace, finalizers):
            return obj, False
        marked = dict(metadata)
        known = metadata.get("deletionGracePeriodSeconds")
        asked = seconds(metadata["deletionTimestamp"]) - known if known else self.clock.now()  # the first delete's time
        marked["deletionTimestamp"] = self.clock.text(asked + grace)
        marked["deletionGracePeriodSeconds"] = grace
        if finalizers:
            marked["finalizers"] = finalizers
        if "generation" in marked and not metadata.get("deletionTimestamp"):
            marked["generation"] += 1
        changed = {**obj, "metadata": marked}
        self.store.put(resource.table, key, changed)
        if _FOREGROUND in finalizers:
            self.garbage.foreground(resource.table, key, metadata["uid"])
        if resource.table == PODS:
            self.on_delete_pod(key, changed)
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

    def _finish(self, table: str, key: Key, obj: Object) -> Object:
        """Remove an object for good, and let the garbage collector see to what it owned."""
        last = self.store.remove(table, key)
        self.garbage.removed(table, key, obj)
        return last.object

    def _terminate_namespace(self, resource: Resource, key: Key, obj: Object) -> Object:
        if obj["metadata"].get("deletionTimestamp"):
            return obj
        marked = {**obj["metadata"], "deletionTimestamp": self.clock.text()}
        changed = {**obj, "metadata": marked, "status": {"phase": "Terminating"}}
        self.store.put(resource.table, key, changed)
        self.garbage.empty_namespace(key[1])
        return changed

    # -- pods ----------------------------------------------------------------------------------

    def bind(self, namespace: str, name: str, binding: Object, *, dry_run: bool = False) -> None:
        """The `binding` subresource of a pod. Raises `StatusError`."""
        resource = self.served("v1", "pods")
        binding = {**binding, "metadata": binding.get("metadata") or {}}
        target = binding.get("target") or {}
        if target.get("kind") not in (None, "", "Node"):
            cause = errors.unsupported("target.kind", target["kind"], "Node")
            raise errors.invalid("", "Binding", name, [cause])
        if not target.get("name"):
            raise StatusError(500, "", "target.name: Required value")
        given = binding["metadata"]
        admission.admit(
            self.store, self.catalog, admission.Request(resource, "CREATE", namespace, name, binding, subresource="binding")
        )
        record = self.get(resource, namespace, name)
        pod = record.object
        metadata = pod["metadata"]
        if given.get("uid"):
            self._check_uid(resource, name, given["uid"], pod)
        if given.get("resourceVersion") not in (None, "", metadata["resourceVersion"]):
            told = (
                f"Precondition failed: ResourceVersion in precondition: {given['resourceVersion']}, "
                f"ResourceVersion in object meta: {metadata['resourceVersion']}"
            )
            raise errors.conflict("", "pods", name, told)
        if metadata.get("deletionTimestamp"):
            raise errors.conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
        spec = pod["spec"]
        if spec.get("nodeName"):
            raise errors.conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
        if spec.get("schedulingGates"):
            raise errors.conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
        if dry_run:
            return
        marked = {**metadata}
        if given.get("annotations"):
            marked["annotations"] = {**(metadata.get("annotations") or {}), **given["annotations"]}
        if "generation" in marked:
            marked["generation"] += 1
        status = dict(pod.get("status") or {})
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": self.clock.text()}
        status["conditions"] = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"] + [
            scheduled
        ]
        bound = {**pod, "metadata": marked, "spec": {**spec, "nodeName": target["name"]}, "status": status}
        self.store.put(PODS, (namespace, name), bound)

    def evict(self, namespace: str, name: str, eviction: Object, *, dry_run: bool = False) -> None:
        """The `eviction` subresource: delete, if no disruption budget forbids it. Raises `StatusError`."""
        resource = self.served("v1", "pods")
        pod = self.get(resource, namespace, name).object
        options = eviction.get("deleteOptions") or {}
        dry_run = dry_run or "All" in (options.get("dryRun") or ())
        phase = (pod.get("status") or {}).get("phase")
        uid = (options.get("preconditions") or {}).get("uid")
        if uid:
            self._check_uid(resource, name, uid, pod)
        if phase not in ("Pending", "Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp"):
            self._ask_budgets(namespace, pod, dry_run=dry_run)
        if not dry_run:
            self.delete(resource, namespace, name, {name: value for name, value in options.items() if name != "dryRun"})

    def _ask_budgets(self, namespace: str, pod: Object, *, dry_run: bool) -> None:
        labels = pod["metadata"].get("labels") or {}
        budgets = [
            (key, record.object)
            for key, record in self.store.sorted(BUDGETS, namespace)
            if selectors.in_object((record.object.get("spec") or {}).get("selector"))(labels)
        ]
        if len(budgets) > 1:
            raise StatusError(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                {},
            )
        for key, budget in budgets:
            status = budget.get("status") or {}
            allowed = status.get("disruptionsAllowed", 0)
            if allowed <= 0:
                needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
                cause = {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {key[1]} needs {needed} healthy pods and has {healthy} currently",
                }
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise StatusError(429, "TooManyRequests", message, {"causes": [cause]})
            if not dry_run:
                self.store.put(BUDGETS, key, _with(budget, status={**status, "disruptionsAllowed": allowed - 1}))

    # -- scale ---------------------------------------------------------------------------------

    def scale(self, resource: Resource, record: Record) -> Object:
        """The Scale of a workload."""
        obj = record.object
        metadata = obj["metadata"]
        selector = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                name: metadata[name]
                for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
                if name in metadata
            },
            "spec": _nonzero(replicas=(obj.get("spec") or {}).get("replicas", 0)),
            "status": {
                "replicas": (obj.get("status") or {}).get("replicas", 0),
                "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
            },
        }

    def set_scale(self, resource: Resource, namespace: str, name: str, scale: Object, *, dry_run: bool = False) -> Object:
        """Change the number of replicas."""
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            raise errors.invalid(
                "autoscaling",
                "Scale",
                name,
                [errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")],
            )
        record = self.get(resource, namespace, name)
        live = record.object
        version = (scale.get("metadata") or {}).get("resourceVersion", "")
        wanted = {
            **live,
            "metadata": {**live["metadata"], "resourceVersion": version},
            "spec": {**(live.get("spec") or {}), "replicas": replicas},
        }
        self._replace(resource, (namespace, name), record, wanted, "scale", ("", "Update", "scale"), dry_run=dry_run)
        return self.scale(resource, self.get(resource, namespace, name))


def _with(obj: Object, **fields: Any) -> Object:
    """A copy with other top-level fields and metadata of its own."""
    return {**obj, **fields, "metadata": dict(obj["metadata"])}


def _nonzero(**numbers: int) -> dict[str, int]:
    return {name: number for name, number in numbers.items() if number}


def _without_times(obj: Object) -> Any:
    return [
        {name: value for name, value in each.items() if name != "time"} for each in obj["metadata"].get("managedFields") or ()
    ]
