"""NUMA nodes as NodeResourceTopology objects and annotations of nodes have them, and what pods need of them.

The annotation `fairlead.dev/numa` of a Node has the fields `zones`, `attributes` and `topologyPolicies` of one, as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from fairlead.api import names, quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster.views import Container, Metadata, Pod, Resources, View
from fairlead.core.model.late import late
from fairlead.core.numa.model import MOST_ZONES, NONE, POLICIES, SCOPES, ContainerNeed, Machine, NodeTopology, NumaNeed, Zone

if TYPE_CHECKING:
    import structlog
else:  # commands read what kinds there are, and write no log
    structlog = late("structlog")

_MOST_CPUS = 8192
_MOST_DEVICES = 1024
_MOST_DIGITS = 4  # of the number of a NUMA node, of a socket and of threads
_IGNORED_OPTIONS = ("strict-cpu-reservation",)
_NUMBER = re.compile(r"(\d+)$")
_OLD_POLICIES = {
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "Restricted": ("restricted", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "BestEffort": ("best-effort", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
    "None": ("none", "container"),
}
"""`topologyPolicies`, which attributes have replaced."""


class Attribute(View):
    """Of a node or a zone."""

    name: str = ""
    value: str = ""


class Cost(View):
    """The distance to a zone."""

    name: str = ""
    value: int = 0


class ZoneResource(View):
    """What a zone has of a resource. What is available is not read: it is older than our own accounting."""

    name: str = ""
    capacity: str | int = 0
    allocatable: str | int = 0


class ZoneView(View):
    """A zone, as a rule a NUMA node."""

    name: str = ""
    type: str = ""
    costs: list[Cost] | None = None
    attributes: list[Attribute] | None = None
    resources: list[ZoneResource] | None = None


class NodeResourceTopology(View):
    """An object of `topology.node.k8s.io/v1alpha2`; its name is that of the node."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    topology_policies: list[str] | None = None
    zones: list[ZoneView] | None = None
    attributes: list[Attribute] | None = None


class TopologyFault(ValueError):
    """What a node reports its NUMA nodes cannot be used, and why."""


def topology(view: NodeResourceTopology, error: str = "") -> NodeTopology:
    """What the object of a node states. One that cannot be used has the reason instead. error: why it could not be decoded."""
    if error:
        return NodeTopology(view.metadata.name, fault=error)
    try:
        return NodeTopology(view.metadata.name, _machine(view))
    except (TopologyFault, QuantityError) as fault:
        structlog.get_logger("numa").warning("NUMA nodes cannot be used", node=view.metadata.name, fault=str(fault))
        return NodeTopology(view.metadata.name, fault=str(fault))


@lru_cache(maxsize=1024)
def annotated(name: str, text: str) -> NodeTopology:
    """What the annotation of a node states."""
    try:
        view = msgspec.json.decode(text, type=NodeResourceTopology)
    except (msgspec.DecodeError, RecursionError) as error:
        return NodeTopology(name, fault=f"annotation {names.NUMA_ANNOTATION}: {error}")
    read = topology(msgspec.structs.replace(view, metadata=Metadata(name=name)))
    return msgspec.structs.replace(read, fault=f"annotation {names.NUMA_ANNOTATION}: {read.fault}") if read.fault else read


def _machine(view: NodeResourceTopology) -> Machine:
    attributes = {each.name: each.value for each in view.attributes or ()}
    named = [each for each in view.zones or () if each.type in ("", "Node")]
    numbered = sorted((_number(each.name), at) for at, each in enumerate(named))
    zones = [named[at] for _, at in numbered]
    if not zones:
        raise TopologyFault("it has no zone of type Node")
    if len({number for number, _ in numbered}) != len(zones):
        raise TopologyFault("two zones have the same number")
    old = next((_OLD_POLICIES[each] for each in view.topology_policies or () if each in _OLD_POLICIES), (NONE, "container"))
    policy = _one_of(attributes, "topologyManagerPolicy", POLICIES, old[0])
    scope = _one_of(attributes, "topologyManagerScope", SCOPES, old[1])
    options = _options(attributes, "topologyManagerPolicyOptions")
    cpu_options = _options(attributes, "cpuManagerPolicyOptions")
    unknown = sorted(name for name, on in cpu_options.items() if on and name not in (*_IGNORED_OPTIONS, "full-pcpus-only"))
    if unknown:
        raise TopologyFault(f"CPU manager option {unknown[0]!r} is not predicted")
    if len(zones) > MOST_ZONES:
        raise TopologyFault(f"{len(zones)} zones are more than the {MOST_ZONES} that are predicted")
    read = [_zone(each) for each in zones]
    has_cpus, has_memory = any(each.cpus for each in read), any(each.memory for each in read)
    static = _one_of(attributes, "cpuManagerPolicy", ("none", "static"), "static" if has_cpus else "none") == "static"
    memory_static = _one_of(attributes, "memoryManagerPolicy", ("None", "Static"), "Static" if has_memory else "None") == "Static"
    if static and not has_cpus:
        raise TopologyFault("its CPU manager is static, and no zone has the resource cpu")
    if memory_static and not has_memory:
        raise TopologyFault("its memory manager is Static, and no zone has the resource memory")
    threads = attributes.get("threadsPerCore", "")
    full = static and cpu_options.get("full-pcpus-only", False)
    if full and not threads:
        raise TopologyFault("its CPU manager has the option full-pcpus-only, and the attribute threadsPerCore is not given")
    if threads and not (_is_number(threads) and 1 <= int(threads) <= 16):
        raise TopologyFault(f"attribute threadsPerCore: {threads[:40]!r} is no number from 1 to 16")
    per_core = int(threads or 1)
    if any(each.cpus % per_core for each in read):
        raise TopologyFault(f"a zone has CPUs that are no multiple of its {per_core} threads for each core")
    closest = options.get("prefer-closest-numa-nodes", False)
    return Machine(
        tuple(read),
        policy,
        scope,
        closest=closest,
        static=static,
        full_cores=full,
        threads=per_core,
        memory_static=memory_static,
        distances=_distances(zones) if closest else (),
    )


def _number(name: str) -> int:
    match = _NUMBER.search(name)
    if match is None or not _is_number(match[1]):
        raise TopologyFault(f"zone {name[:40]!r} does not end with the number of its NUMA node")
    return int(match[1])


def _is_number(text: str) -> bool:
    """Whether a text is a number of few digits: Python refuses to read very long ones."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _one_of(attributes: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = attributes.get(name) or default
    if value not in allowed:
        raise TopologyFault(f"attribute {name}: {value!r} is none of {', '.join(allowed)}")
    return value


def _options(attributes: Mapping[str, str], name: str) -> dict[str, bool]:
    """Options of a policy, `NAME=true,NAME=false`; numbers, as of `max-allowable-numa-nodes`, count as on."""
    found = {}
    for each in attributes.get(name, "").split(","):
        option, _, value = each.partition("=")
        if option.strip():
            found[option.strip()] = value.strip().lower() not in ("false", "0", "f")
    return found


def _zone(view: ZoneView) -> Zone:
    memory, devices = [], []
    cpus = reserved = 0
    for each in view.resources or ():
        whole, usable = (quantity.amount(each.name, str(text)) for text in (each.capacity, each.allocatable))
        whole = max(whole, usable)
        if each.name == "cpu":
            cpus, reserved = whole // 1000, whole // 1000 - usable // 1000
            if cpus > _MOST_CPUS:
                raise TopologyFault(f"zone {view.name!r} has {cpus} CPUs, more than {_MOST_CPUS}")
        elif each.name == "memory" or each.name.startswith("hugepages-"):
            memory.append((each.name, usable))
        elif "/" in each.name and usable:
            if usable > _MOST_DEVICES:
                raise TopologyFault(f"zone {view.name!r} has {usable} {each.name}, more than {_MOST_DEVICES}")
            devices.append((each.name, usable))
    sockets = {each.name: each.value for each in view.attributes or ()}
    socket = sockets.get("socket", "")
    if socket and not _is_number(socket):
        raise TopologyFault(f"zone {view.name!r}, attribute socket: {socket[:40]!r} is no number")
    number = int(socket) if socket else _number(view.name)
    return Zone(view.name, cpus, reserved, number, tuple(sorted(memory)), tuple(sorted(devices)))


def _distances(zones: list[ZoneView]) -> tuple[tuple[int, ...], ...]:
    found = []
    for each in zones:
        costs = {cost.name: cost.value for cost in each.costs or ()}
        if any(other.name not in costs for other in zones):
            raise TopologyFault(f"zone {each.name!r} has no costs to all zones, which prefer-closest-numa-nodes needs")
        found.append(tuple(costs[other.name] for other in zones))
    return tuple(found)


# -- pods ----------------------------------------------------------------------------------------


def need(view: Pod) -> NumaNeed:
    """What a pod's containers need of NUMA nodes; empty: nothing that a kubelet would align.

    Exclusive CPUs and memory are of pods of class Guaranteed only, whole CPUs at that, and not with resources of the pod as a
    whole (feature gate PodLevelResourceManagers, off in 1.36).
    """
    spec = view.spec
    first, main = spec.init_containers or [], spec.containers
    pinned = spec.resources is None and _is_guaranteed([*first, *main])
    found = []
    for each in first:
        sidecar = each.restart_policy == "Always"
        found.append(_need(each, pinned=pinned, init=not sidecar, sidecar=sidecar))
    found += [_need(each, pinned=pinned) for each in main]
    return tuple(found) if any(each.cpus or each.memory or each.devices for each in found) else ()


def _need(container: Container, *, pinned: bool, init: bool = False, sidecar: bool = False) -> ContainerNeed:
    limits = _amounts(container.resources, limits=True)
    requests = {**limits, **_amounts(container.resources, limits=False)} if pinned else {}
    cpu = requests.get("cpu", 0)
    memory = [(name, size) for name, size in requests.items() if name == "memory" or name.startswith("hugepages-")]
    devices = [(name, count) for name, count in limits.items() if "/" in name and count]
    cpus = cpu // 1000 if cpu % 1000 == 0 else 0
    return ContainerNeed(cpus, tuple(sorted(memory)), tuple(sorted(devices)), init, sidecar)


def _amounts(resources: Resources | None, *, limits: bool) -> dict[str, int]:
    given = (resources.limits if limits else resources.requests) if resources is not None else None
    return {name: quantity.amount(name, text) for name, text in (given or {}).items()}


def _is_guaranteed(containers: list[Container]) -> bool:
    """Whether a pod is of the quality-of-service class Guaranteed."""
    for each in containers:
        limits, requests = _amounts(each.resources, limits=True), _amounts(each.resources, limits=False)
        for name in ("cpu", "memory"):
            if not limits.get(name) or requests.get(name, limits[name]) != limits[name]:
                return False
    return True
