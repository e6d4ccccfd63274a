"""The status of ResourceClaims, as it is written: what they are allocated, and for which pods they are reserved."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import Any

from fairlead.core.model.allocations import Allocation, Amount, Chosen
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.transactions import ExtendedClaim, PodRef

EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""The annotation, with value `true`, of a claim that a scheduler creates for the extended resources of the pod that owns it."""
FINALIZER = "resource.kubernetes.io/delete-protection"
"""What keeps a claim that is allocated from being deleted, as upstream's scheduler sets it."""


def allocation(found: Allocation) -> dict[str, Any]:
    """`status.allocation`. Each share of a device gets an identifier of its own."""
    config = []
    for source, requests, parameters in found.configs:
        entry: dict[str, Any] = {"source": source, "opaque": json.loads(parameters)}
        config.append(entry | ({"requests": list(requests)} if requests else {}))
    devices: dict[str, Any] = {"results": [_result(each) for each in found.devices]}
    if config:
        devices["config"] = config
    body: dict[str, Any] = {"devices": devices}
    if found.terms is not None:
        body["nodeSelector"] = {"nodeSelectorTerms": [_term(each) for each in found.terms]}
    return body


def extended_claim(wanted: ExtendedClaim, pod: PodRef) -> dict[str, Any]:
    """A claim that is to be created for the extended resources of a pod, which owns it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    metadata = {
        "generateName": f"{pod.name}-extended-resources-",
        "namespace": pod.namespace,
        "annotations": {EXTENDED: "true"},
        "finalizers": [FINALIZER],
        "ownerReferences": [owner],
    }
    requests = [
        {"name": name, "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}}
        for name, device_class, count in wanted.requests
    ]
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    return {**body, "spec": {"devices": {"requests": requests}}}


def extended_status(name: str, wanted: ExtendedClaim) -> dict[str, Any]:
    """`extendedResourceClaimStatus` of a pod: its claim, and which container has the devices of which request."""
    mappings = [
        {"containerName": each.container, "resourceName": each.resource, "requestName": each.request} for each in wanted.mappings
    ]
    return {"resourceClaimName": name, "requestMappings": mappings}


def path_of(key: str) -> str:
    """Where the API server has a claim. key: `namespace/name`."""
    namespace, _, name = key.partition("/")
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"


def consumer(pod: PodRef) -> dict[str, str]:
    """An entry of `status.reservedFor`."""
    return {"resource": "pods", "name": pod.name, "uid": pod.uid}


def devices_of(status: Any) -> list[tuple[Any, ...]]:
    """What distinguishes the devices of an allocation, as the API has it or as it is to be written."""
    results = ((status or {}).get("devices") or {}).get("results") or []
    return sorted((each.get("request"), each["driver"], each["pool"], each["device"]) for each in results)


def _result(chosen: Chosen) -> dict[str, Any]:
    device = chosen.device
    result: dict[str, Any] = {
        "request": chosen.request,
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
    }
    if chosen.admin:
        result["adminAccess"] = True
    if chosen.shared:
        result["shareID"] = str(uuid.uuid4())
        result["consumedCapacity"] = {name: _shown(amount) for name, amount in chosen.consumed}
    if chosen.tolerations:
        result["tolerations"] = [
            {
                name: value
                for name, value in (
                    ("key", each.key),
                    ("operator", each.operator),
                    ("value", each.value),
                    ("effect", each.effect),
                    ("tolerationSeconds", each.seconds),
                )
                if value not in ("", None)
            }
            for each in chosen.tolerations
        ]
    if chosen.conditions:
        result["bindingConditions"] = list(chosen.conditions)
        result["bindingFailureConditions"] = list(chosen.failures)
    return result


def _shown(amount: Amount) -> str:
    """A quantity, exactly: what quantities can have is at most nine digits after the point."""
    if isinstance(amount, int):
        return str(amount)
    return f"{Decimal(amount.numerator) / Decimal(amount.denominator):f}"


def _term(term: SelectorTerm) -> dict[str, Any]:
    parts = (("matchExpressions", term.expressions), ("matchFields", term.fields))
    return {name: [_requirement(each) for each in found] for name, found in parts if found}


def _requirement(each: Requirement) -> dict[str, Any]:
    body: dict[str, Any] = {"key": each.key, "operator": each.operator}
    return body | ({"values": list(each.values)} if each.values else {})
