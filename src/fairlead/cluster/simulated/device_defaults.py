"""What the API server fills in in objects of `resource.k8s.io` that are made or change; whether amounts can be read."""

from __future__ import annotations

from typing import Any

from fairlead.api.quantity import QuantityError
from fairlead.cluster.simulated import device_values as values
from fairlead.cluster.simulated.errors import unhandled
from fairlead.cluster.simulated.resources import CLAIMS, SLICES, TEMPLATES, Resource
from fairlead.cluster.simulated.store import Object


def default_claim(obj: Object, _now: str) -> None:
    """Exactly one device, tolerations of equal values; a status is written by its subresource only."""
    obj["spec"] = _with_defaults(obj.get("spec") or {})
    obj["status"] = {}


def default_template(obj: Object, _now: str) -> None:
    """As for claims."""
    spec = obj.get("spec") or {}
    obj["spec"] = {**spec, "spec": _with_defaults(spec.get("spec") or {})}


def default_slice(obj: Object, now: str) -> None:
    """Taints get the time at which they came."""
    spec = obj.get("spec") or {}
    if isinstance(spec.get("devices"), list):
        obj["spec"] = {**spec, "devices": [_dated(each, now) for each in spec["devices"]]}


def completed(resource: Resource, obj: Object, now: str) -> Object:
    """A new version with what it leaves out: defaults hold for updates, too."""
    if resource.table not in (CLAIMS, TEMPLATES, SLICES):
        return obj
    result = dict(obj)
    if resource.table == SLICES:
        default_slice(result, now)
        return result
    if resource.table == TEMPLATES:
        default_template(result, now)
        return result
    result["spec"] = _with_defaults(obj.get("spec") or {})
    status = obj.get("status") or {}
    devices = (status.get("allocation") or {}).get("devices") or {}
    if any(each.get("tolerations") for each in devices.get("results") or ()):
        devices = {**devices, "results": [_with_operators(each) for each in devices["results"]]}
        result["status"] = {**status, "allocation": {**status["allocation"], "devices": devices}}
    return result


def _with_operators(what: Object) -> Object:
    if not what.get("tolerations"):
        return what
    return {**what, "tolerations": [{**each, "operator": each.get("operator") or "Equal"} for each in what["tolerations"]]}


def _dated(device: Object, now: str) -> Object:
    if not device.get("taints"):
        return device
    return {**device, "taints": [{"timeAdded": now, **each} for each in device["taints"]]}


def _with_defaults(spec: Object) -> Object:
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return {**spec, "devices": devices}
    return {**spec, "devices": {**devices, "requests": [_default_request(each) for each in devices["requests"]]}}


def _default_request(request: Object) -> Object:
    result = dict(request)
    if request.get("exactly") is not None:
        result["exactly"] = _default_asked(request["exactly"])
    if request.get("firstAvailable"):
        result["firstAvailable"] = [_default_asked(each) for each in request["firstAvailable"]]
    return result


def _default_asked(asked: Object) -> Object:
    result = {**asked, "allocationMode": asked.get("allocationMode") or "ExactCount"}
    if result["allocationMode"] == "ExactCount" and not asked.get("count"):
        result["count"] = 1
    return _with_operators(result)


def read_quantities(resource: Resource, obj: Any) -> None:
    """Every quantity can be read. Raises `StatusError`, as Go's decoder does."""
    for text in values.quantities(obj):
        try:
            values.number(text)
        except QuantityError as error:
            detail = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            raise unhandled(resource.api_version, resource.kind, resource.kind, detail) from error
