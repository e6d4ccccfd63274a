"""Typed views of `resource.k8s.io/v1`, and what the core makes of them: slices, classes, claims, templates, allocations.

A slice or claim that cannot be read spoils only itself: a slice is refused with `DeviceError`, so that its pool is incomplete; a
claim has in `mistake` what is wrong with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.api import quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster import claim_status
from fairlead.cluster.selection import node_terms
from fairlead.cluster.times import seconds
from fairlead.cluster.views import Metadata, NodeSelector, View
from fairlead.core.dra import model
from fairlead.core.model.selectors import term_mistake

_MOST_SELECTORS = 32
_Text = str | int | float


class DeviceError(ValueError):
    """An object of `resource.k8s.io` that cannot be used, and why."""


class Attribute(View):
    string: str | None = None
    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    version: str | None = None


class ValidRange(View):
    min: _Text | None = None
    max: _Text | None = None
    step: _Text | None = None


class RequestPolicy(View):
    default: _Text | None = None
    valid_values: list[_Text] | None = None
    valid_range: ValidRange | None = None


class DeviceCapacity(View):
    value: _Text = 0
    request_policy: RequestPolicy | None = None


class Counter(View):
    value: _Text = 0


class CounterSet(View):
    name: str = ""
    counters: dict[str, Counter] | None = None


class CounterConsumption(View):
    counter_set: str = ""
    counters: dict[str, Counter] | None = None


class DeviceTaint(View):
    key: str = ""
    value: str = ""
    effect: str = ""


class DeviceToleration(View):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Device(View):
    name: str = ""
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[CounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(View):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(View):
    driver: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)


class Cel(View):
    expression: str = ""


class DeviceSelector(View):
    cel: Cel | None = None


class DeviceConfiguration(View):
    opaque: dict[str, Any] | None = None
    requests: list[str] | None = None


class DeviceClassSpec(View):
    selectors: list[DeviceSelector] | None = None
    config: list[DeviceConfiguration] | None = None
    extended_resource_name: str | None = None


class DeviceClass(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


class CapacityRequirements(View):
    requests: dict[str, _Text] | None = None


class ExactRequest(View):
    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(View):
    name: str = ""
    exactly: ExactRequest | None = None
    first_available: list[ExactRequest] | None = None


class DeviceConstraint(View):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(View):
    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[DeviceConfiguration] | None = None


class ClaimSpec(View):
    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class Result(View):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, _Text] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class Results(View):
    results: list[Result] | None = None


class AllocationResult(View):
    devices: Results = msgspec.field(default_factory=Results)
    node_selector: NodeSelector | None = None


class Consumer(View):
    resource: str = ""
    name: str = ""
    api_group: str = ""
    uid: str = ""


class ClaimStatus(View):
    allocation: AllocationResult | None = None
    reserved_for: list[Consumer] | None = None


class ResourceClaim(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus | None = None


class TemplateSpec(View):
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)


class ResourceClaimTemplate(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


def device_slice(view: ResourceSlice) -> model.Slice:
    """A slice. Raises `DeviceError` where an amount, a selector or the reach of it cannot be read."""
    spec = view.spec
    per_device = bool(spec.per_device_node_selection)
    try:
        return model.Slice(
            view.metadata.name,
            spec.driver,
            spec.pool.name,
            spec.pool.generation,
            spec.pool.resource_slice_count,
            _reach(spec.node_name, spec.all_nodes, spec.node_selector),
            per_device,
            tuple(_device(each, spec.driver, per_device=per_device) for each in spec.devices or ()),
            tuple((each.name, _amounts(each.counters)) for each in spec.shared_counters or ()),
        )
    except (QuantityError, DeviceError) as error:
        raise DeviceError(f"ResourceSlice {view.metadata.name}: {error}") from error


def device_object(view: Any) -> model.DeviceObject:
    """What the core makes of a view. Raises `DeviceError`, and `QuantityError` where what a claim holds cannot be read."""
    match view:
        case ResourceSlice():
            return device_slice(view)
        case DeviceClass():
            return device_class(view)
        case ResourceClaimTemplate():
            return model.DeviceTemplate(view.metadata.key, _asks(view.metadata, view.spec.spec))
        case _:
            return _claim(view)


def _claim(view: ResourceClaim) -> model.DeviceClaim:
    metadata, status = view.metadata, view.status or ClaimStatus()
    users = status.reserved_for or ()
    pods = tuple(each.uid for each in users if _is_pod(each))
    owner = _owner(metadata)
    return model.DeviceClaim(
        metadata.key,
        metadata.uid,
        _asks(metadata, view.spec),
        allocation(status.allocation) if status.allocation is not None else None,
        pods,
        len(pods) < len(users),
        metadata.deletion_timestamp is not None,
        owner,
        bool(owner_of_extended(metadata)),
    )


def _owner(metadata: Metadata) -> str:
    return next((each.uid for each in metadata.owner_references or () if each.controller and each.kind == "Pod"), "")


def owner_of_extended(metadata: Metadata) -> str:
    """UID of the pod for whose extended resources a claim was created; empty: it is another claim."""
    return _owner(metadata) if (metadata.annotations or {}).get(claim_status.EXTENDED) == "true" else ""


def _is_pod(user: Consumer) -> bool:
    return user.resource == "pods" and not user.api_group


def _asks(metadata: Metadata, spec: ClaimSpec) -> model.Claim:
    return msgspec.structs.replace(device_claim(metadata, spec), namespace="", name="")


def device_class(view: DeviceClass) -> model.DeviceClass:
    """A class. Raises `DeviceError` where it selects by something else than CEL."""
    configs = tuple(_parameters(each) for each in view.spec.config or ())
    created = seconds(view.metadata.creation_timestamp)
    resource = view.spec.extended_resource_name or ""
    return model.DeviceClass(view.metadata.name, _selectors(view.spec.selectors), configs, resource, created)


def device_claim(metadata: Metadata, spec: ClaimSpec) -> model.Claim:
    """A claim, or the claim that a template will make for a pod."""
    namespace, name = metadata.namespace or "", metadata.name
    try:
        requests = tuple(_request(each) for each in spec.devices.requests or ())
        constraints = tuple(_constraint(each) for each in spec.devices.constraints or ())
    except (QuantityError, DeviceError) as error:
        return model.Claim(namespace, name, mistake=str(error))
    configs = tuple(model.Config(_parameters(each), tuple(each.requests or ())) for each in spec.devices.config or ())
    return model.Claim(namespace, name, requests, constraints, configs)


def allocation(view: AllocationResult) -> model.Allocation:
    """What a claim holds, as far as it keeps devices from others. Raises `QuantityError`."""
    devices = tuple(
        model.Chosen(
            each.request,
            model.DeviceId(each.driver, each.pool, each.device),
            bool(each.admin_access),
            each.share_id is not None,
            tuple(sorted((name, quantity.exact("", amount)) for name, amount in (each.consumed_capacity or {}).items())),
            conditions=tuple(each.binding_conditions or ()),
            failures=tuple(each.binding_failure_conditions or ()),
        )
        for each in view.devices.results or ()
    )
    return model.Allocation(devices, (), None if view.node_selector is None else node_terms(view.node_selector))


def _device(view: Device, driver: str, *, per_device: bool) -> model.Device:
    try:
        return model.Device(
            view.name,
            driver,
            {name: _value(each) for name, each in (view.attributes or {}).items()},
            {name: _capacity(each) for name, each in (view.capacity or {}).items()},
            tuple((each.counter_set, tuple(_amounts(each.counters).items())) for each in view.consumes_counters or ()),
            tuple(model.Taint(each.key, each.value, each.effect) for each in view.taints or ()),
            bool(view.allow_multiple_allocations),
            bool(view.binds_to_node),
            _reach(view.node_name, view.all_nodes, view.node_selector) if per_device else model.NOWHERE,
            tuple(view.binding_conditions or ()),
            tuple(view.binding_failure_conditions or ()),
        )
    except (QuantityError, DeviceError) as error:
        raise DeviceError(f"device {view.name}: {error}") from error


def _reach(node: str | None, everywhere: bool | None, selector: NodeSelector | None) -> model.Reach:  # noqa: FBT001
    terms = None if selector is None else node_terms(selector)
    if terms is not None and len(terms) > 1:
        raise DeviceError(f"its node selector has {len(terms)} terms, and one is allowed")
    for each in terms or ():
        if wrong := term_mistake(each):
            raise DeviceError(f"its node selector cannot be read: {wrong}")
    return model.Reach(node or "", bool(everywhere), terms)


def _value(view: Attribute) -> model.Value:
    found: list[model.Value] = [each for each in (view.string, view.int_, view.bool_) if each is not None]
    if view.version is not None:
        found.append(model.Version(view.version))
    if len(found) != 1:
        raise DeviceError(f"an attribute has {len(found)} values of known types, and one is needed")
    return found[0]


def _capacity(view: DeviceCapacity) -> model.Capacity:
    policy = view.request_policy
    if policy is None:
        return model.Capacity(quantity.exact("", view.value))
    limits = policy.valid_range or ValidRange()
    step = _optional(limits.step)
    if step is not None and step <= 0:
        raise DeviceError(f"a request policy has steps of {step}, and they must be positive")
    return model.Capacity(
        quantity.exact("", view.value),
        model.Policy(
            _optional(policy.default),
            tuple(quantity.exact("", each) for each in policy.valid_values or ()),
            _optional(limits.min),
            _optional(limits.max),
            step,
        ),
    )


def _optional(text: _Text | None) -> model.Amount | None:
    return None if text is None else quantity.exact("", text)


def _amounts(counters: dict[str, Counter] | None) -> dict[str, model.Amount]:
    return {name: quantity.exact("", each.value) for name, each in (counters or {}).items()}


def _selectors(view: list[DeviceSelector] | None) -> tuple[str, ...]:
    selectors = view or []
    if len(selectors) > _MOST_SELECTORS:
        raise DeviceError(f"{len(selectors)} selectors, and at most {_MOST_SELECTORS} are allowed")
    if any(each.cel is None for each in selectors):
        raise DeviceError("a selector is of no known type: only cel is")
    return tuple(each.cel.expression for each in selectors if each.cel is not None)


def _request(view: DeviceRequest) -> model.Request:
    if view.exactly is not None:
        return model.Request(view.name, (_ask(view.exactly, view.name),))
    alternatives = tuple(_ask(each, f"{view.name}/{each.name}") for each in view.first_available or ())
    return model.Request(view.name, alternatives)


def _ask(view: ExactRequest, name: str) -> model.Ask:
    count = 1 if view.count is None else view.count
    try:
        if count < 0:
            raise DeviceError(f"a count of {count} is negative")
        return model.Ask(
            name,
            view.device_class_name,
            view.allocation_mode or model.EXACT,
            count,
            _selectors(view.selectors),
            tuple(
                model.Toleration(each.key, each.operator or "Equal", each.value, each.effect, each.toleration_seconds)
                for each in view.tolerations or ()
            ),
            bool(view.admin_access),
            tuple(sorted((key, quantity.exact("", amount)) for key, amount in _requested(view).items())),
        )
    except (QuantityError, DeviceError) as error:
        raise DeviceError(f"request {name}: {error}") from error


def _requested(view: ExactRequest) -> dict[str, _Text]:
    return (view.capacity.requests if view.capacity else None) or {}


def _constraint(view: DeviceConstraint) -> model.Constraint:
    attribute = view.match_attribute or view.distinct_attribute
    if not attribute:
        raise DeviceError("a constraint is of no known type: only matchAttribute and distinctAttribute are")
    return model.Constraint(attribute, not view.match_attribute, tuple(view.requests or ()))


def _parameters(view: DeviceConfiguration) -> str:
    return msgspec.json.encode(view.opaque or {}, order="deterministic").decode()
