"""What the API server refuses in ResourceSlices and DeviceClasses.

The rules and limits are those of kube-apiserver 1.36 (`pkg/apis/resource/validation`) in its words. What is left out:
docs/design/simulated-devices.md.
"""

from __future__ import annotations

from fairlead.cluster.simulated import device_values as values
from fairlead.cluster.simulated.device_rules import ITEMS, check_selector
from fairlead.cluster.simulated.device_values import listed
from fairlead.cluster.simulated.errors import Cause, invalid_value, required
from fairlead.cluster.simulated.formats import qualified
from fairlead.cluster.simulated.pod_rules import check_node_selector
from fairlead.cluster.simulated.store import Object

_DEVICES, _ADVANCED_DEVICES, _SETS, _COUNTERS, _CONSUMED, _TAINTS, _NAMED = 128, 64, 8, 32, 2, 16, 32
_SLICE_NODES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_DEVICE_NODES = ("nodeName", "nodeSelector", "allNodes")


def check_class(obj: Object) -> list[Cause]:
    """What is wrong with a class of devices."""
    spec = obj.get("spec") or {}
    causes = listed(spec.get("selectors"), "spec.selectors", ITEMS, check_selector)
    causes += listed(spec.get("config"), "spec.config", ITEMS, lambda each, at: values.opaque(at, each))
    name = spec.get("extendedResourceName")
    if name is not None and ("/" not in name or "kubernetes.io/" in name or name.startswith("requests.") or qualified("", name)):
        causes.append(invalid_value("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return causes


def check_slice(obj: Object) -> list[Cause]:
    """What is wrong with a slice of a pool."""
    spec = obj.get("spec") or {}
    pool = spec.get("pool") or {}
    causes = values.driver_name("spec.driver", spec.get("driver", "")) + values.pool_name("spec.pool.name", pool.get("name", ""))
    if pool.get("resourceSliceCount", 0) <= 0:
        causes.append(
            invalid_value("spec.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), "must be greater than zero")
        )
    if pool.get("generation", 0) < 0:
        causes.append(invalid_value("spec.pool.generation", pool["generation"], "must be greater than or equal to zero"))
    causes += _nodes(spec, "spec", _SLICE_NODES)
    devices = spec.get("devices") or ()
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        causes.append(invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    advanced = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    each_selects = bool(spec.get("perDeviceNodeSelection"))
    most = _ADVANCED_DEVICES if advanced else _DEVICES
    causes += listed(
        devices,
        "spec.devices",
        most,
        lambda each, at: _device(each, at, selects=each_selects),
        lambda each: str(each.get("name", "")),
    )
    sets = spec.get("sharedCounters")
    return causes + listed(sets, "spec.sharedCounters", _SETS, _counter_set, lambda each: str(each.get("name", "")))


def check_slice_update(before: Object, obj: Object) -> list[Cause]:
    """Driver, pool and node stay."""
    old, new = before.get("spec") or {}, obj.get("spec") or {}
    causes = []
    if (old.get("pool") or {}).get("name") != (new.get("pool") or {}).get("name"):
        causes.append(invalid_value("spec.pool.name", (new.get("pool") or {}).get("name", ""), "field is immutable"))
    causes += [
        invalid_value(f"spec.{field}", new.get(field), "field is immutable")
        for field in ("driver", "nodeName")
        if old.get(field) != new.get(field)
    ]
    return causes


def _nodes(what: Object, place: str, fields: tuple[str, ...], *, more: str = "") -> list[Cause]:
    """A slice, or a device, is on one node, on those of a selector, or on all."""
    causes: list[Cause] = []
    given = []
    for field in fields:
        value = what.get(field)
        if value is None:
            continue
        if value is False or value == "":
            wanted = "true" if value is False else "a non-empty string"
            detail = "must not be empty" if value == "" and more else f"must be either unset or set to {wanted}"
            causes.append(invalid_value(f"{place}.{field}", value, detail))
            continue
        given.append(f"`{field}`")
        if field == "nodeName":
            causes += values.subdomain(f"{place}.nodeName", value)
        elif field == "nodeSelector":
            causes += check_node_selector(value, f"{place}.nodeSelector")
            terms = value.get("nodeSelectorTerms") or []
            if len(terms) != 1 and not more:
                at = f"{place}.nodeSelector.nodeSelectorTerms"
                causes.append(invalid_value(at, terms, "must have exactly one node selector term"))
    shown = ", ".join(f"`{each}`" for each in fields)
    detail = f"exactly one of {_or(fields) if more else shown} is required{more}"
    if not given:
        causes.append(required(place, detail))
    elif len(given) > 1:
        causes.append(
            invalid_value(place, f"{{{', '.join(given)}}}", detail if more else f"{detail}, but multiple fields are set")
        )
    return causes


def _or(fields: tuple[str, ...]) -> str:
    return f"{', '.join(f'`{each}`' for each in fields[:-1])}, or `{fields[-1]}`"


def _device(device: Object, place: str, *, selects: bool) -> list[Cause]:
    causes = values.short_name(f"{place}.name", device.get("name", ""))
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    named = len(attributes) + len(capacity)
    if named > _NAMED:
        causes.append(invalid_value(place, named, f"the total number of attributes and capacities must not exceed {_NAMED}"))
    for name, value in attributes.items():
        causes += values.qualified_name(f"{place}.attributes", name) + values.attribute(f"{place}.attributes[{name}]", value)
    multiple = bool(device.get("allowMultipleAllocations"))
    for name, value in capacity.items():
        causes += values.qualified_name(f"{place}.capacity", name)
        causes += values.capacity(f"{place}.capacity[{name}]", value, multiple=multiple)
    causes += listed(device.get("taints"), f"{place}.taints", _TAINTS, lambda each, at: values.taint(at, each))
    at = f"{place}.consumesCounters"
    causes += listed(device.get("consumesCounters"), at, _CONSUMED, _consumption, lambda each: str(each.get("counterSet", "")))
    if selects:
        more = " when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        causes += _nodes(device, place, _DEVICE_NODES, more=more)
    elif any(device.get(field) is not None for field in _DEVICE_NODES):
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
            "ResourceSlice spec"
        )
        causes.append(values.nothing(place, detail))
    return causes + values.conditions(place, device)


def _counter_set(counters: Object, place: str) -> list[Cause]:
    name = counters.get("name", "")
    return (values.short_name(f"{place}.name", name) if name else [required(f"{place}.name")]) + _counters(counters, place)


def _consumption(consumption: Object, place: str) -> list[Cause]:
    name, at = consumption.get("counterSet", ""), f"{place}.counterSet"
    return (values.short_name(at, name) if name else [required(at)]) + _counters(consumption, place)


def _counters(counters: Object, place: str) -> list[Cause]:
    found, place = counters.get("counters") or {}, f"{place}.counters"
    if not found:
        return [required(place)]
    if len(found) > _COUNTERS:
        return [values.too_many(place, len(found), _COUNTERS)]
    return [cause for name in found for cause in values.short_name(place, name)]
