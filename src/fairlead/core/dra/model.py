"""The objects of `resource.k8s.io/v1` as the allocator needs them: slices, devices, classes, claims.

Amounts are exact: an integer, or a fraction where a quantity is one. Names of attributes and capacities are as the object has
them, with a domain or without; `qualified` adds the driver's.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec

from fairlead.core.model.selectors import SelectorTerm

Amount = int | Fraction

MOST_DEVICES = 32
"""Results of one claim, as the API allows them."""

EXACT, ALL = "ExactCount", "All"
BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


class Version(msgspec.Struct, frozen=True):
    """A semantic version, as the text that the driver wrote: two are the same if their texts are."""

    text: str


Value = int | bool | str | Version


class Policy(msgspec.Struct, frozen=True):
    """How requests for a capacity are rounded: to values, or to a range with steps. What is absent does not limit."""

    default: Amount | None = None
    values: tuple[Amount, ...] = ()
    least: Amount | None = None
    most: Amount | None = None
    step: Amount | None = None


class Capacity(msgspec.Struct, frozen=True):
    """What a device has of one capacity, and how it is requested."""

    value: Amount
    policy: Policy | None = None


class Taint(msgspec.Struct, frozen=True):
    """A device's repellent."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Toleration(msgspec.Struct, frozen=True):
    """Taints that a request accepts; an empty key or effect stands for all. seconds: how long NoExecute is tolerated."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether it accepts a taint, as the allocator upstream judges it."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class Reach(msgspec.Struct, frozen=True):
    """From which nodes a device can be used: one, all, or those that a term selects; none of them: unknown, so from none.

    terms: of a node selector; None: there is no selector.
    """

    node: str = ""
    everywhere: bool = False
    terms: tuple[SelectorTerm, ...] | None = None


NOWHERE = Reach()


class Device(msgspec.Struct, frozen=True):
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


class Slice(msgspec.Struct, frozen=True):
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


class DeviceId(msgspec.Struct, frozen=True, order=True):
    """What identifies a device in a cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceClass(msgspec.Struct, frozen=True):
    """A DeviceClass. selectors: CEL expressions. configs: opaque parameters, as JSON text of each."""

    name: str
    selectors: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()


class Ask(msgspec.Struct, frozen=True):
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


class Constraint(msgspec.Struct, frozen=True):
    """All devices of these requests (empty: of the claim) have one value of an attribute, or distinct ones.

    requests: names of requests or `request/alternative`. attribute: fully qualified.
    """

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True):
    """Opaque parameters of a claim, as JSON text; requests: empty for all."""

    parameters: str
    requests: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """A ResourceClaim without an allocation, or what a template makes. mistake: why it cannot be read; empty: it can."""

    namespace: str
    name: str
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    configs: tuple[Config, ...] = ()
    mistake: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Chosen(msgspec.Struct, frozen=True):
    """One result of an allocation. consumed: sorted (capacity, amount) of a share. shared: it is one of several holders."""

    request: str
    device: DeviceId
    admin: bool = False
    shared: bool = False
    consumed: tuple[tuple[str, Amount], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    conditions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class Allocation(msgspec.Struct, frozen=True):
    """The allocation of one claim: `status.allocation` of it.

    configs: (source, requests, parameters); empty requests: all. terms: where it can be used from; None: everywhere.
    """

    devices: tuple[Chosen, ...]
    configs: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None


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
