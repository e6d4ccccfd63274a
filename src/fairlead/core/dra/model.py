"""The objects of `resource.k8s.io/v1` as the allocator needs them: slices, devices, classes, claims.

Amounts are exact: an integer, or a fraction where a quantity is one. Names of attributes and capacities are as the object has
them, with a domain or without; `qualified` adds the driver's.
"""

from __future__ import annotations

import msgspec

from fairlead.core.model.allocations import Allocation, Amount, Chosen, DeviceId, Taint, Toleration
from fairlead.core.model.selectors import SelectorTerm

__all__ = ["Allocation", "Amount", "Chosen", "DeviceId", "Taint", "Toleration"]

MOST_DEVICES = 32
"""Results of one claim, as the API allows them."""

EXACT, ALL = "ExactCount", "All"
BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


class Version(msgspec.Struct, frozen=True):
    """A semantic version, as the text that the driver wrote: two are the same if their texts are."""

    text: str


Value = int | bool | str | Version


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How requests for a capacity are rounded: to values, or to a range with steps. What is absent does not limit."""

    default: Amount | None = None
    values: tuple[Amount, ...] = ()
    least: Amount | None = None
    most: Amount | None = None
    step: Amount | None = None


class Capacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a device has of one capacity, and how it is requested."""

    value: Amount
    policy: Policy | None = None


class Reach(msgspec.Struct, frozen=True, omit_defaults=True):
    """From which nodes a device can be used: one, all, or those that a term selects; none of them: unknown, so from none.

    terms: of a node selector; None: there is no selector.
    """

    node: str = ""
    everywhere: bool = False
    terms: tuple[SelectorTerm, ...] | None = None


NOWHERE = Reach()


class Device(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device of a slice. driver: of its slice, since selectors read it.

    counters: (set, ((counter, amount), ...)) that it consumes. multiple: it may be allocated several times, in shares.
    reach: where the slice leaves that to its devices. conditions, failures: binding conditions and binding failure conditions.
    """

    name: str
    driver: str = ""
    attributes: dict[str, Value] = {}
    capacity: dict[str, Capacity] = {}
    counters: tuple[tuple[str, tuple[tuple[str, Amount], ...]], ...] = ()
    taints: tuple[Taint, ...] = ()
    multiple: bool = False
    binds_to_node: bool = False
    reach: Reach = NOWHERE
    conditions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class Slice(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One ResourceSlice. slices: how many the pool has in this generation. per_device: `reach` is each device's own.

    counters: set name -> counter -> amount; a slice with counters has no devices.
    """

    name: str
    driver: str
    pool: str
    generation: int = 0
    slices: int = 1
    reach: Reach = NOWHERE
    per_device: bool = False
    devices: tuple[Device, ...] = ()
    counters: tuple[tuple[str, dict[str, Amount]], ...] = ()


class DeviceClass(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A DeviceClass. selectors: CEL expressions. configs: opaque parameters, as JSON text of each.

    resource: the extended resource that its devices serve, empty: none but the one by its name. created: seconds since the epoch.
    """

    name: str
    selectors: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    resource: str = ""
    created: float = 0.0


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an exact request, or one alternative of a request, asks for. name: as in results, `request` or `request/alternative`.

    capacity: sorted (name, amount). mode: ExactCount, or All devices that match.
    """

    name: str
    device_class: str
    mode: str = EXACT
    count: int = 1
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    admin: bool = False
    capacity: tuple[tuple[str, Amount], ...] = ()


class Request(msgspec.Struct, frozen=True):
    """One request of a claim: the first of its alternatives that can be had; an exact request has one."""

    name: str
    alternatives: tuple[Ask, ...]


class Constraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """All devices of these requests (empty: of the claim) have one value of an attribute, or distinct ones.

    requests: names of requests or `request/alternative`. attribute: fully qualified.
    """

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True, omit_defaults=True):
    """Opaque parameters of a claim, as JSON text; requests: empty for all."""

    parameters: str
    requests: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ResourceClaim without an allocation, or what a template makes. mistake: why it cannot be read; empty: it can."""

    namespace: str
    name: str
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    configs: tuple[Config, ...] = ()
    mistake: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class DeviceClaim(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A ResourceClaim as it is now. key: `namespace/name`. asks: what it asks for, its namespace and name left out.

    allocation: what it holds. users: UIDs of the pods for which it is reserved; foreign: it is reserved for something else, too.
    owner: UID of the pod that it was made for. extended: it was made for extended resources of that pod, not of a template.
    """

    key: str
    uid: str = ""
    asks: Claim = Claim("", "")
    allocation: Allocation | None = None
    users: tuple[str, ...] = ()
    foreign: bool = False
    deleting: bool = False
    owner: str = ""
    extended: bool = False


class DeviceTemplate(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A ResourceClaimTemplate. key: `namespace/name`. asks: as in the claims that are made of it."""

    key: str
    asks: Claim = Claim("", "")


DeviceObject = Slice | DeviceClass | DeviceClaim | DeviceTemplate


def typed(value: Value) -> tuple[str, Value]:
    """A value with its type: `True` and `1` are different attributes."""
    return type(value).__name__, value


def attribute_of(device: Device, qualified: str) -> Value | None:
    """An attribute by its fully qualified name; an attribute without a domain has the driver's. None: it has none."""
    found = device.attributes.get(qualified)
    if found is not None:
        return found
    domain, slash, name = qualified.partition("/")
    return device.attributes.get(name) if slash and domain == device.driver else None
