"""What the API server refuses in ResourceClaims and their templates, and what it drops.

The rules and limits are those of kube-apiserver 1.36 (`pkg/apis/resource/validation`, `pkg/registry/resource`) in its words, as
far as users and drivers meet them. What is left out: docs/design/simulated-devices.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.cluster.simulated import device_values as values
from fairlead.cluster.simulated.device_values import listed
from fairlead.cluster.simulated.errors import Cause, duplicate, forbidden_field, invalid_value, required, unsupported
from fairlead.cluster.simulated.pod_rules import check_node_selector
from fairlead.cluster.simulated.resources import CLAIMS, NAMESPACES, TEMPLATES, Resource
from fairlead.cluster.simulated.store import Object, Store
from fairlead.core.dra.selectors import SelectorError, compile_selector

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
ITEMS = 32  # requests, results, constraints, configurations, selectors
_ALTERNATIVES, _RESERVATIONS, _CONFIGURATIONS = 8, 256, 64
_CONDITIONS, _LONGEST_SELECTOR = 8, 10 * 1024
Names = Mapping[str, frozenset[str]]
"""The requests of a claim, and their alternatives."""


# -- claims ------------------------------------------------------------------------------------


def check_claim(obj: Object) -> list[Cause]:
    """What is wrong with the spec of a claim."""
    return _claim_spec(obj.get("spec") or {}, "spec")


def check_template(obj: Object) -> list[Cause]:
    """What is wrong with a template of claims."""
    return _claim_spec((obj.get("spec") or {}).get("spec") or {}, "spec.spec")


def _claim_spec(spec: Object, place: str) -> list[Cause]:
    devices, place = spec.get("devices") or {}, f"{place}.devices"
    names = _names(devices)
    causes = listed(devices.get("requests"), f"{place}.requests", ITEMS, _request, lambda each: str(each.get("name", "")))
    causes += listed(devices.get("constraints"), f"{place}.constraints", ITEMS, lambda each, at: _constraint(each, at, names))
    return causes + listed(devices.get("config"), f"{place}.config", ITEMS, lambda each, at: _configuration(each, at, names))


def _names(devices: Object) -> Names:
    return {
        each.get("name", ""): frozenset(one.get("name", "") for one in each.get("firstAvailable") or ())
        for each in devices.get("requests") or ()
    }


def _request(request: Object, place: str) -> list[Cause]:
    causes = values.short_name(f"{place}.name", request.get("name", ""))
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or ()
    either = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not alternatives:
        return [*causes, required(place, either)]
    if exactly is not None and alternatives:
        return [*causes, values.nothing(place, f"{either}, but multiple fields are set")]
    if exactly is not None:
        return causes + _asked(exactly, f"{place}.exactly")

    def alternative(each: Object, at: str) -> list[Cause]:
        return values.short_name(f"{at}.name", each.get("name", "")) + _asked(each, at)

    at = f"{place}.firstAvailable"
    return causes + listed(alternatives, at, _ALTERNATIVES, alternative, lambda each: str(each.get("name", "")))


def _asked(asked: Object, place: str) -> list[Cause]:
    """What one request, or one alternative of it, asks for."""
    name = asked.get("deviceClassName", "")
    causes = values.subdomain(f"{place}.deviceClassName", name) if name else [required(f"{place}.deviceClassName")]
    causes += listed(asked.get("selectors"), f"{place}.selectors", ITEMS, check_selector)
    mode, count = asked.get("allocationMode", ""), asked.get("count", 0)
    if mode == "All":
        if count:
            causes.append(invalid_value(f"{place}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode != "ExactCount":
        causes.append(unsupported(f"{place}.allocationMode", mode, "All", "ExactCount"))
    elif count <= 0:
        causes.append(invalid_value(f"{place}.count", count, "must be greater than zero"))
    return causes + listed(asked.get("tolerations"), f"{place}.tolerations", -1, lambda each, at: values.toleration(at, each))


def check_selector(selector: Object, place: str) -> list[Cause]:
    """An expression that can be compiled, and that cannot run for long."""
    place = f"{place}.cel"
    if selector.get("cel") is None:
        return [required(place)]
    expression = selector["cel"].get("expression", "")
    place = f"{place}.expression"
    if len(expression.encode()) > _LONGEST_SELECTOR:
        return [values.too_long(place, _LONGEST_SELECTOR)]
    try:
        compile_selector(expression)
    except SelectorError as error:
        if error.problem == "cost":
            return [forbidden_field(place, "too complex, exceeds cost limit")]
        return [invalid_value(place, expression, f"compilation failed: {error}")]
    return []


def _constraint(constraint: Object, place: str, names: Names) -> list[Cause]:
    causes = _references(constraint.get("requests"), f"{place}.requests", names)
    for field in ("matchAttribute", "distinctAttribute"):
        if constraint.get(field) is not None:
            return causes + values.full_name(f"{place}.{field}", constraint[field])
    detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    return [*causes, required(place, detail)]


def _configuration(configuration: Object, place: str, names: Names) -> list[Cause]:
    return _references(configuration.get("requests"), f"{place}.requests", names) + values.opaque(place, configuration)


def _references(requests: list[str] | None, place: str, names: Names) -> list[Cause]:
    return listed(requests, place, ITEMS, lambda each, at: _reference(each, at, names), str)


def _reference(name: str, place: str, names: Names) -> list[Cause]:
    """A request of the claim, perhaps with one of its alternatives."""
    parts = name.split("/")
    detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    if len(parts) > 2:
        return [invalid_value(place, name, detail)]
    causes = [cause for part in parts for cause in values.short_name(place, part)]
    known = parts[0] in names and (len(parts) == 1 or parts[1] in names[parts[0]])
    return causes if known else [*causes, invalid_value(place, name, detail)]


# -- the status of a claim ---------------------------------------------------------------------


def check_claim_update(before: Object, obj: Object) -> list[Cause]:
    """The spec stays; a status holds together, and an allocation stays while there is one."""
    causes = _unchanged(before, obj)
    status, old = obj.get("status") or {}, before.get("status") or {}
    if status == old:
        return causes
    allocation, reserved = status.get("allocation"), status.get("reservedFor") or ()
    names = _names((obj.get("spec") or {}).get("devices") or {})
    causes += listed(reserved, "status.reservedFor", _RESERVATIONS, _consumer, lambda each: str(each.get("uid", "")))
    held = {_identity(each) for each in ((allocation or {}).get("devices") or {}).get("results") or ()}
    causes += listed(status.get("devices"), "status.devices", -1, lambda each, at: _device_status(each, at, held), _identity)
    if reserved and allocation is None:
        causes.append(forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set"))
    elif (
        reserved
        and obj["metadata"].get("deletionTimestamp")
        and any(each not in (old.get("reservedFor") or ()) for each in reserved)
    ):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        causes.append(forbidden_field("status.reservedFor", detail))
    if allocation is None:
        return causes
    if old.get("allocation") is not None:
        if old["allocation"] != allocation:
            causes.append(invalid_value("status.allocation", allocation, "field is immutable"))
        return causes
    return causes + _allocation(allocation, "status.allocation", names)


def _unchanged(before: Object, obj: Object) -> list[Cause]:
    return [] if before.get("spec") == obj.get("spec") else [invalid_value("spec", obj.get("spec"), "field is immutable")]


def check_template_update(before: Object, obj: Object) -> list[Cause]:
    """A template stays as it is."""
    return _unchanged(before, obj)


def _consumer(consumer: Object, place: str) -> list[Cause]:
    return [required(f"{place}.{field}") for field in ("resource", "name", "uid") if not consumer.get(field)]


def _identity(result: Object) -> str:
    """A device, or a share of one, as the API server writes it."""
    device = "/".join(result.get(field, "") for field in ("driver", "pool", "device"))
    return f"{device}/{result['shareID']}" if result.get("shareID") else device


def _allocation(allocation: Object, place: str, names: Names) -> list[Cause]:
    devices, at = allocation.get("devices") or {}, f"{place}.devices"
    causes = listed(devices.get("results"), f"{at}.results", ITEMS, lambda each, at: _result(each, at, names))
    causes += listed(devices.get("config"), f"{at}.config", _CONFIGURATIONS, lambda each, at: _allocated_config(each, at, names))
    if allocation.get("nodeSelector") is not None:
        causes += check_node_selector(allocation["nodeSelector"], f"{place}.nodeSelector")
    return causes


def _result(result: Object, place: str, names: Names) -> list[Cause]:
    causes = _reference(result.get("request", ""), f"{place}.request", names)
    causes += values.driver_name(f"{place}.driver", result.get("driver", ""))
    causes += values.pool_name(f"{place}.pool", result.get("pool", ""))
    causes += values.short_name(f"{place}.device", result.get("device", ""))
    causes += values.conditions(place, result)
    return causes + (values.share_id(f"{place}.shareID", result["shareID"]) if result.get("shareID") is not None else [])


def _allocated_config(configuration: Object, place: str, names: Names) -> list[Cause]:
    source = configuration.get("source", "")
    known = ("FromClaim", "FromClass")
    wrong = required(f"{place}.source") if not source else unsupported(f"{place}.source", source, *known)
    return ([] if source in known else [wrong]) + _configuration(configuration, place, names)


def _device_status(device: Object, place: str, held: set[str]) -> list[Cause]:
    causes = values.driver_name(f"{place}.driver", device.get("driver", ""))
    causes += values.pool_name(f"{place}.pool", device.get("pool", ""))
    causes += values.short_name(f"{place}.device", device.get("device", ""))
    if device.get("shareID") is not None:
        causes += values.share_id(f"{place}.shareID", device["shareID"])
    if _identity(device) not in held:
        causes.append(invalid_value(place, _identity(device), "must be an allocated device in the claim"))
    found = device.get("conditions") or ()
    if len(found) > _CONDITIONS:
        causes.append(values.too_many(f"{place}.conditions", len(found), _CONDITIONS))
    for index, each in enumerate(found):
        at, kind = f"{place}.conditions[{index}]", each.get("type", "")
        causes += [duplicate(f"{at}.type", kind)] if kind in [other.get("type", "") for other in found[:index]] else []
        causes += values.condition(at, each)
    return causes + (values.raw(f"{place}.data", device["data"]) if device.get("data") is not None else [])


def without_deallocated(before: Object, obj: Object) -> Object:
    """A claim whose `status.devices` has no devices that were allocated before and are not any more."""
    gone = _held(before) - _held(obj)
    status = obj.get("status") or {}
    if not gone or not status.get("devices"):
        return obj
    kept = [each for each in status["devices"] if _identity(each) not in gone]
    status = {name: value for name, value in status.items() if name != "devices"}
    return {**obj, "status": {**status, "devices": kept} if kept else status}


def _held(claim: Object) -> set[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {_identity(each) for each in (allocation.get("devices") or {}).get("results") or ()}


def check_admin(store: Store, resource: Resource, obj: Object, before: Object | None) -> list[Cause]:
    """Admin access needs a label of the namespace. before: the version that is replaced; specs do not change."""
    place = ""
    if resource.table in (CLAIMS, TEMPLATES) and before is None:
        spec = obj.get("spec") or {}
        spec = (spec.get("spec") or {}) if resource.table == TEMPLATES else spec
        requests = (spec.get("devices") or {}).get("requests") or ()
        place = next(
            (
                f"spec.devices.requests[{at}].adminAccess"
                for at, each in enumerate(requests)
                if (each.get("exactly") or {}).get("adminAccess")
            ),
            "",
        )
    elif resource.table == CLAIMS and before is not None and not _admin_result(before):
        place = _admin_result(obj)
    if not place:
        return []
    namespace = store.get(NAMESPACES, ("", obj["metadata"]["namespace"]))
    labels = (namespace.object["metadata"].get("labels") or {}) if namespace is not None else {}
    detail = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
    return [] if labels.get(ADMIN_LABEL) == "true" else [forbidden_field(place, detail)]


def _admin_result(claim: Object) -> str:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return next(
        (f"status.allocation.devices.results[{at}].adminAccess" for at, each in enumerate(results) if each.get("adminAccess")), ""
    )
