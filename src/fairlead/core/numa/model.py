"""The NUMA nodes of a machine, how its kubelet is configured, what pods need of both, and what is free.

All amounts are integers: CPUs are hardware threads, memory is in bytes. A mask is a set of NUMA nodes, bit n for the n-th.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
SCOPES = ("container", "pod")
MOST_ZONES = 8
"""NUMA nodes for which a kubelet computes hints, unless `max-allowable-numa-nodes` allows more."""

Core = tuple[int, int]
"""NUMA node and number of a core there."""


class Zone(msgspec.Struct, frozen=True, omit_defaults=True):
    """One NUMA node. cpus: threads there, cpus_reserved: those of them that no container gets exclusively; socket: its package.

    memory: (resource, bytes) that the memory manager gives out, pages of all sizes included; devices: (resource, count).
    """

    name: str
    cpus: int = 0
    cpus_reserved: int = 0
    socket: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()


class Machine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The NUMA nodes of a node and its kubelet's policies.

    policy, scope, closest: of the topology manager (`prefer-closest-numa-nodes`). static: whether containers get CPUs of their
    own; full_cores: only whole cores (`full-pcpus-only`). threads: of each core. memory_static: whether memory has NUMA nodes.
    distances: between NUMA nodes, as the firmware gives them; empty: not known.
    """

    zones: tuple[Zone, ...]
    policy: str = NONE
    scope: str = "container"
    closest: bool = False
    static: bool = False
    full_cores: bool = False
    threads: int = 1
    memory_static: bool = False
    distances: tuple[tuple[int, ...], ...] = ()


class ContainerNeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one container needs of NUMA nodes. cpus: exclusive ones. init: it ends before others start; sidecar: it does not.

    memory: (resource, bytes) of a pod of class Guaranteed; devices: (resource, count), as limits have them. Sorted by name.
    """

    cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    init: bool = False
    sidecar: bool = False


NumaNeed = tuple[ContainerNeed, ...]
"""A pod's containers, init containers first, in the order in which a kubelet allocates for them."""


class NodeTopology(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What a NodeResourceTopology object, or an annotation, has of a node. machine: None if that cannot be used; fault: why."""

    name: str
    machine: Machine | None = None
    fault: str = ""


class Free(NamedTuple):
    """What no pod has of a machine.

    cores: by NUMA node and core the free threads. memory: by resource (`memories`) and NUMA node. cells: by NUMA node how many
    blocks of memory are assigned there, and of which mask they are. devices: by resource (`resources`) and NUMA node.
    """

    cores: tuple[tuple[int, ...], ...]
    memory: tuple[tuple[int, ...], ...]
    cells: tuple[tuple[int, int], ...]
    devices: tuple[tuple[int, ...], ...]


class Held(NamedTuple):
    """What one pod has: (NUMA node, core, threads), blocks (mask, resource, bytes), (resource, NUMA node, devices)."""

    threads: tuple[tuple[int, int, int], ...] = ()
    blocks: tuple[tuple[int, int, int], ...] = ()
    devices: tuple[tuple[int, int, int], ...] = ()


def memories(machine: Machine) -> tuple[str, ...]:
    """The resources that the memory manager gives out, by name."""
    return tuple(sorted({name for zone in machine.zones for name, _ in zone.memory})) if machine.memory_static else ()


def resources(machine: Machine) -> tuple[str, ...]:
    """The devices with NUMA nodes, by the names of their resources."""
    return tuple(sorted({name for zone in machine.zones for name, _ in zone.devices}))


def unused(machine: Machine) -> Free:
    """Everything that pods may have of a machine. Reserved CPUs are taken from whole cores, the first ones of each NUMA node."""
    cores = []
    for zone in machine.zones:
        count = zone.cpus // machine.threads
        left, line = zone.cpus_reserved, [machine.threads] * count
        for core in range(count):
            taken = min(left, machine.threads)
            line[core] -= taken
            left -= taken
        cores.append(tuple(line))
    return Free(
        tuple(cores),
        tuple(tuple(dict(zone.memory).get(name, 0) for zone in machine.zones) for name in memories(machine)),
        tuple((0, 1 << at) for at in range(len(machine.zones))),
        tuple(tuple(dict(zone.devices).get(name, 0) for zone in machine.zones) for name in resources(machine)),
    )


def bits(mask: int) -> list[int]:
    """The NUMA nodes of a mask, ascending."""
    return [at for at in range(mask.bit_length()) if mask >> at & 1]
