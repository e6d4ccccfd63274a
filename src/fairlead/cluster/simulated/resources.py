"""What is served: every resource, its names, verbs and subresources, and discovery documents.

The built-in ones come from lightkube, generated from Kubernetes' published OpenAPI; custom ones
from CustomResourceDefinitions.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from lightkube.core import resource as lightkube_resource

# Tables of the store with rules of their own.
PODS, NODES, NAMESPACES = "pods", "nodes", "namespaces"
BUDGETS = "policy/poddisruptionbudgets"
DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"
CLASSES = "scheduling.k8s.io/priorityclasses"
DEVICES = "resource.k8s.io"
SLICES, DEVICE_CLASSES = f"{DEVICES}/resourceslices", f"{DEVICES}/deviceclasses"
CLAIMS, TEMPLATES = f"{DEVICES}/resourceclaims", f"{DEVICES}/resourceclaimtemplates"
_MODULES = (
    "core_v1",
    "apps_v1",
    "batch_v1",
    "autoscaling_v2",
    "coordination_v1",
    "events_v1",
    "policy_v1",
    "rbac_authorization_v1",
    "scheduling_v1",
    "storage_v1",
    "networking_v1",
    "node_v1",
    "discovery_v1",
    "resource_v1",
    "admissionregistration_v1",
    "apiextensions_v1",
    "authentication_v1",
    "authorization_v1",
)
_SHORT_NAMES = {
    "configmaps": ("cm",),
    "endpoints": ("ep",),
    "events": ("ev",),
    "limitranges": ("limits",),
    "namespaces": ("ns",),
    "nodes": ("no",),
    "persistentvolumeclaims": ("pvc",),
    "persistentvolumes": ("pv",),
    "pods": ("po",),
    "replicationcontrollers": ("rc",),
    "resourcequotas": ("quota",),
    "serviceaccounts": ("sa",),
    "services": ("svc",),
    "daemonsets": ("ds",),
    "deployments": ("deploy",),
    "replicasets": ("rs",),
    "statefulsets": ("sts",),
    "cronjobs": ("cj",),
    "horizontalpodautoscalers": ("hpa",),
    "poddisruptionbudgets": ("pdb",),
    "priorityclasses": ("pc",),
    "storageclasses": ("sc",),
    "networkpolicies": ("netpol",),
    "ingresses": ("ing",),
    "customresourcedefinitions": ("crd", "crds"),
}
_ALL = {
    "pods",
    "replicationcontrollers",
    "services",
    "daemonsets",
    "deployments",
    "replicasets",
    "statefulsets",
    "cronjobs",
    "jobs",
    "horizontalpodautoscalers",
}
_VERBS = {
    "post": "create",
    "put": "update",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "deletecollection",
    "get": "get",
    "list": "list",
    "watch": "watch",
}
# One storage, two spellings: events.k8s.io/v1 is converted on the way in and out.
_STORED_AS = {"events.k8s.io/events": "events"}


class Subresource(msgspec.Struct, frozen=True):
    """`status`, `binding` and their like. model: the type of its body."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]
    model: type[Any] | None


class Resource(msgspec.Struct, frozen=True):
    """One served resource. model: typed fields of a built-in kind; schema, columns, selectable: of a custom one.

    table: the name of its table in the store.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]
    subresources: dict[str, Subresource]
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    model: type[Any] | None = None
    schema: dict[str, Any] | None = None
    columns: tuple[dict[str, Any], ...] = ()
    selectable: frozenset[str] = frozenset()
    table: str = ""

    def __post_init__(self) -> None:
        path = f"{self.group}/{self.plural}" if self.group else self.plural
        msgspec.structs.force_setattr(self, "table", _STORED_AS.get(path, path))

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_version(self) -> str:
        """The apiVersion of stored objects."""
        return "v1" if self.table == "events" else self.api_version

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition defines it."""
        return self.schema is not None

    @property
    def has_status(self) -> bool:
        """Whether status is written by its own subresource only."""
        return "status" in self.subresources


@cache
def builtin() -> dict[tuple[str, str], Resource]:
    """(group/version, plural) -> resource, for everything built in."""
    found: dict[tuple[str, str], Resource] = {}
    for module in _MODULES:
        classes: list[Any] = [
            each
            for each in vars(importlib.import_module(f"lightkube.resources.{module}")).values()
            if isinstance(each, type) and "_api_info" in vars(each)
        ]
        subresources: dict[tuple[str, str], dict[str, Subresource]] = {}
        for each in classes:
            info = each._api_info  # noqa: SLF001 - lightkube shows it in no other way
            if info.parent is not None and info.action:
                of = subresources.setdefault((info.parent.api_version, info.plural), {})
                allowed = tuple(sorted({_VERBS[verb] for verb in info.verbs if verb in _VERBS}))
                of[info.action] = Subresource(
                    info.action, info.resource.group, info.resource.version, info.resource.kind, allowed, _model(each)
                )
        for each in classes:
            info = each._api_info  # noqa: SLF001 - lightkube shows it in no other way
            if info.action:
                continue
            definition = info.resource
            verbs = frozenset(_VERBS[verb] for verb in info.verbs if verb in _VERBS)
            verbs |= {verb.removeprefix("global_") for verb in info.verbs if verb in ("global_list", "global_watch")}
            found[definition.api_version, info.plural] = Resource(
                definition.group,
                definition.version,
                info.plural,
                definition.kind,
                issubclass(each, (lightkube_resource.NamespacedResource,)),
                verbs,
                subresources.get((definition.api_version, info.plural), {}),
                definition.kind.lower(),
                _SHORT_NAMES.get(info.plural, ()),
                ("all",) if info.plural in _ALL else (),
                _model(each),
            )
    return found


def _model(resource: type[Any]) -> type[Any] | None:
    """The msgspec type of a resource's body."""
    return resource if issubclass(resource, msgspec.Struct) else None


def custom(definition: dict[str, Any]) -> Iterator[Resource]:
    """The resources of a CustomResourceDefinition, one per served version."""
    spec = definition["spec"]
    names = spec["names"]
    everything = frozenset(_VERBS.values())
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        group, name = spec["group"], version["name"]
        subresources = {}
        if "status" in version.get("subresources", {}):
            subresources["status"] = Subresource("status", group, name, names["kind"], ("get", "patch", "update"), None)
        if "scale" in version.get("subresources", {}):
            subresources["scale"] = Subresource("scale", "autoscaling", "v1", "Scale", ("get", "patch", "update"), None)
        yield Resource(
            group,
            name,
            names["plural"],
            names["kind"],
            spec["scope"] == "Namespaced",
            everything,
            subresources,
            names.get("singular") or names["kind"].lower(),
            tuple(names.get("shortNames", ())),
            tuple(names.get("categories", ())),
            None,
            version.get("schema", {}).get("openAPIV3Schema", {}),
            tuple(version.get("additionalPrinterColumns", ())),
            frozenset(each["jsonPath"].removeprefix(".") for each in version.get("selectableFields") or ()),
        )


class Catalog:
    """Everything served now."""

    def __init__(self) -> None:
        self._served = dict(builtin())
        self._custom: dict[str, list[tuple[str, str]]] = {}

    def find(self, api_version: str, plural: str) -> Resource | None:
        """The resource at a path."""
        return self._served.get((api_version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource of an object."""
        for resource in self._served.values():
            if resource.api_version == api_version and resource.kind == kind:
                return resource
        return None

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._served.values()))

    def define(self, definition: dict[str, Any]) -> None:
        """A CustomResourceDefinition came or changed."""
        self.undefine(definition["metadata"]["name"])
        keys = []
        for resource in custom(definition):
            key = (resource.api_version, resource.plural)
            self._served[key] = resource
            keys.append(key)
        self._custom[definition["metadata"]["name"]] = keys

    def undefine(self, name: str) -> list[Resource]:
        """A CustomResourceDefinition is gone; returns what was served by it."""
        return [self._served.pop(key) for key in self._custom.pop(name, ())]

    # -- discovery -----------------------------------------------------------------------------

    def groups(self) -> list[dict[str, Any]]:
        """The group list of /apis."""
        versions: dict[str, list[str]] = {}
        for resource in self._served.values():
            if resource.group and resource.version not in versions.setdefault(resource.group, []):
                versions[resource.group].append(resource.version)
        return [self._group(group, found) for group, found in versions.items()]

    @staticmethod
    def _group(group: str, versions: list[str]) -> dict[str, Any]:
        listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
        return {"name": group, "versions": listed, "preferredVersion": listed[0]}

    def group(self, name: str) -> dict[str, Any] | None:
        """The document of /apis/<group>."""
        found = [each for each in self.groups() if each["name"] == name]
        return {"kind": "APIGroup", "apiVersion": "v1", **found[0]} if found else None

    def resource_list(self, api_version: str) -> dict[str, Any] | None:
        """The document of /api/v1 or /apis/<group>/<version>."""
        listed: list[dict[str, Any]] = []
        for resource in sorted(self._served.values(), key=lambda each: each.plural):
            if resource.api_version != api_version:
                continue
            entry: dict[str, Any] = {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": sorted(resource.verbs),
            }
            if resource.short_names:
                entry["shortNames"] = list(resource.short_names)
            if resource.categories:
                entry["categories"] = list(resource.categories)
            listed.append(entry)
            for sub in sorted(resource.subresources.values(), key=lambda each: each.name):
                more: dict[str, Any] = {
                    "name": f"{resource.plural}/{sub.name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "kind": sub.kind,
                    "verbs": list(sub.verbs),
                }
                if (sub.group, sub.version) != (resource.group, resource.version):
                    more |= {"group": sub.group, "version": sub.version}
                listed.append(more)
        if not listed:
            return None
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed}
