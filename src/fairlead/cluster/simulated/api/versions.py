"""What of a new version of an object counts, and whether it differs from the present one."""

from __future__ import annotations

from typing import Any

from fairlead.cluster.simulated import defaults, device_rules
from fairlead.cluster.simulated.resources import CLAIMS, NAMESPACES, PODS, Resource
from fairlead.cluster.simulated.store import Object


def prepared(resource: Resource, live: Object, obj: Object, subresource: str) -> Object:
    """What of the new version counts: spec or status by the subresource; the server's own fields stay."""
    before = live["metadata"]
    if subresource in ("status", "scale", "finalize"):
        result = _by_subresource(resource, live, obj, subresource)
    else:
        result = _by_object(resource, live, obj)
    metadata = result["metadata"]
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
    return result


def _by_subresource(resource: Resource, live: Object, obj: Object, subresource: str) -> Object:
    """The object as it was with the part that a subresource writes."""
    result = {**live}
    if subresource == "status":
        result.pop("status", None)
        if "status" in obj:
            result["status"] = obj["status"]
    else:
        result["spec"] = obj.get("spec", live.get("spec"))
    given = obj.get("metadata") or {}
    metadata = result["metadata"] = dict(live["metadata"])
    if resource.table == CLAIMS and subresource == "status":
        result = device_rules.without_deallocated(live, result)
    elif subresource == "status" and not resource.custom:
        for name in ("labels", "annotations"):
            if given.get(name):
                metadata[name] = given[name]
    if "managedFields" in given:
        metadata["managedFields"] = given["managedFields"]
    return result


def _by_object(resource: Resource, live: Object, obj: Object) -> Object:
    """The new object without what only its subresources write."""
    result = {**obj, "kind": resource.kind, "apiVersion": resource.stored_version}
    if resource.has_status:
        result.pop("status", None)
        if "status" in live:
            result["status"] = live["status"]
    metadata = result["metadata"] = dict(result["metadata"])
    if resource.table == PODS:
        result["spec"] = defaults.tolerating(result.get("spec") or {})
    if resource.table == NAMESPACES:  # its finalizers have a subresource of their own
        result["spec"] = live.get("spec", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), defaults.NAME_LABEL: live["metadata"]["name"]}
    return result


def same(live: Object, obj: Object) -> bool:
    """Whether nothing has changed but versions and the times of ownership."""
    if {name: value for name, value in live.items() if name != "metadata"} != {
        name: value for name, value in obj.items() if name != "metadata"
    }:
        return False
    ignored = ("resourceVersion", "managedFields")
    return {name: value for name, value in live["metadata"].items() if name not in ignored} == {
        name: value for name, value in obj["metadata"].items() if name not in ignored
    } and _without_times(live) == _without_times(obj)


def _without_times(obj: Object) -> Any:
    return [
        {name: value for name, value in each.items() if name != "time"} for each in obj["metadata"].get("managedFields") or ()
    ]
