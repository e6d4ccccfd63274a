"""Devices of Dynamic Resource Allocation: DeviceClasses, and templates of the claims that pods make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from fairlead.core.dra.selectors import SelectorError, compile_selector
from fairlead.pulumi import checks
from fairlead.pulumi.checks import InvalidArgument

_MOST_REQUESTS, _MOST_ALTERNATIVES, _MOST_DEVICES = 32, 8, 32


@dataclass(frozen=True)
class DeviceRequest:
    """Devices of one class.

    name: of the request, or of the alternative. device_class: name of a DeviceClass. count: how many; None: all that match.
    selectors: CEL expressions, all of which a device must match. capacity: what a share consumes, such as `{"memory": "10Gi"}`.
    alternatives: the first of these that can be had; then nothing but the name is given besides.
    """

    name: str
    device_class: str = ""
    count: int | None = 1
    selectors: Sequence[str] = ()
    capacity: Mapping[str, str | int] = field(default_factory=dict)
    alternatives: Sequence[DeviceRequest] = ()

    def body(self) -> dict[str, object]:
        """As `spec.devices.requests` has it. Raises InvalidArgument."""
        checks.name(self.name, "name of request", 63)
        if not self.alternatives:
            return {"name": self.name, "exactly": self.exactly()}
        if self.device_class or self.selectors or self.capacity or self.count != 1:
            raise InvalidArgument(f"request {self.name!r} has alternatives and a class, count, selectors or capacity of its own")
        if len(self.alternatives) > _MOST_ALTERNATIVES:
            raise InvalidArgument(f"request {self.name!r} has {len(self.alternatives)} alternatives, of {_MOST_ALTERNATIVES}")
        checks.unique((each.name for each in self.alternatives), f"name of two alternatives of {self.name!r}")
        if nested := next((each.name for each in self.alternatives if each.alternatives), ""):
            raise InvalidArgument(f"alternative {nested!r} of request {self.name!r} has alternatives")
        first = [{"name": checks.name(each.name, "name of alternative", 63), **each.exactly()} for each in self.alternatives]
        return {"name": self.name, "firstAvailable": first}

    def exactly(self) -> dict[str, object]:
        """As a request without alternatives has it, but for the name. Raises InvalidArgument."""
        body: dict[str, object] = {"deviceClassName": checks.name(self.device_class, f"device class of request {self.name!r}")}
        if self.count is None:
            body["allocationMode"] = "All"
        else:
            count = checks.whole(self.count, f"count of {self.name!r}", 1, _MOST_DEVICES)
            body |= {"allocationMode": "ExactCount", "count": count}
        if self.selectors:
            body["selectors"] = _selectors(self.selectors, f"request {self.name!r}")
        if self.capacity:
            body["capacity"] = {"requests": checks.amounts(self.capacity, f"capacity of {self.name!r}: ")}
        return body


class DeviceClasses(pulumi.ComponentResource):
    """A DeviceClass for each name, by the CEL expressions that its devices match.

    Raises InvalidArgument: no class, a name that is none, an expression that Kubernetes would refuse, with the place in it.
    """

    names: pulumi.Output[dict[str, str]]
    """Class -> its name, once it exists."""

    def __init__(self, name: str, classes: Mapping[str, Sequence[str]], *, opts: pulumi.ResourceOptions | None = None) -> None:
        if not classes:
            raise InvalidArgument("there are no device classes")
        specs: dict[str, Any] = {
            checks.name(each, "device class"): {"selectors": _selectors(found, f"device class {each!r}")}
            for each, found in classes.items()
        }
        super().__init__("fairlead:index:DeviceClasses", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        made = {
            each: kubernetes.resource.v1.DeviceClass(f"{name}-{each}", metadata={"name": each}, spec=spec, opts=inside)
            for each, spec in specs.items()
        }
        self.names = pulumi.Output.all(**{each: found.metadata.name for each, found in made.items()})
        self.register_outputs({"names": self.names})


class ClaimTemplate(pulumi.ComponentResource):
    """A ResourceClaimTemplate: each pod that names it in `resourceClaimTemplateName` gets a claim of its own.

    template: its name; absent, that of the component. match, distinct: attributes, such as `gpu.nvidia.com/pcieRoot`, of which
    all devices of the claim have one value, or all another.

    Raises InvalidArgument: no request or too many, two of one name, and what `DeviceRequest` refuses.
    """

    template: pulumi.Output[str]
    """Its name, once it exists."""

    def __init__(
        self,
        name: str,
        requests: Sequence[DeviceRequest],
        namespace: str,
        template: str = "",
        *,
        match: Sequence[str] = (),
        distinct: Sequence[str] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        if not 0 < len(requests) <= _MOST_REQUESTS:
            raise InvalidArgument(f"a claim has 1 to {_MOST_REQUESTS} requests, not {len(requests)}")
        checks.unique((each.name for each in requests), "name of two requests")
        checks.name(namespace, "namespace", 63)
        constraints = [{"matchAttribute": _attribute(each)} for each in match]
        constraints += [{"distinctAttribute": _attribute(each)} for each in distinct]
        devices: dict[str, object] = {"requests": [each.body() for each in requests]}
        if constraints:
            devices["constraints"] = constraints
        spec: Any = {"spec": {"devices": devices}}
        metadata: Any = {"name": checks.name(template or name, "claim template"), "namespace": namespace}
        super().__init__("fairlead:index:ClaimTemplate", name, None, opts)
        made = kubernetes.resource.v1.ResourceClaimTemplate(
            name, metadata=metadata, spec=spec, opts=pulumi.ResourceOptions(parent=self)
        )
        self.template = made.metadata.name
        self.register_outputs({"template": self.template})


def _selectors(expressions: Sequence[str], of: str) -> list[dict[str, dict[str, str]]]:
    for each in expressions:
        try:
            compile_selector(each)
        except SelectorError as error:
            raise InvalidArgument(
                f"{of}: selector {each!r} is refused at {error.line}:{error.column}: {error.message}"
            ) from error
    return [{"cel": {"expression": each}} for each in expressions]


def _attribute(value: str) -> str:
    domain, slash, rest = value.partition("/")
    if not slash or not domain or not rest:
        raise InvalidArgument(f"attribute {value!r} needs its domain, such as gpu.nvidia.com/{value or 'pcieRoot'}")
    return value
