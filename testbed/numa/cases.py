"""Random machines, and pods for them, both as the core has them and as the judge reads them."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from fairlead.core.numa.model import BEST_EFFORT, NONE, RESTRICTED, SCOPES, SINGLE, ContainerNeed, Machine, NumaNeed, Zone

GPU, NIC, PAGES = "nvidia.com/gpu", "example.com/nic", "hugepages-2Mi"
_GIB = 1 << 30
_LARGE_PAGES = 2 << 20
_POLICIES = (NONE, BEST_EFFORT, RESTRICTED, RESTRICTED, SINGLE, SINGLE)


def machine(draw: random.Random) -> Machine:
    """A machine of one to four NUMA nodes with some policy; of more the judge tries too many combinations of hints."""
    count = draw.choice((1, 2, 2, 2, 3, 4))
    threads, sockets = draw.choice((1, 2, 2)), draw.choice((1, 2)) if count > 1 else 1
    cores, gpus = draw.choice((2, 4, 6)), draw.choice((0, 1, 2, 4))
    memory, pages = draw.choice((4, 8, 16)) * _GIB, draw.choice((0, 0, 1)) * _GIB
    lopsided = draw.random() < 0.3
    nics = {draw.randrange(count) for _ in range(draw.randrange(3))}
    zones = []
    for at in range(count):
        own = 0 if lopsided and at % 2 else gpus
        devices = [(NIC, draw.randrange(1, 3))] if at in nics else []
        devices += [(GPU, own)] if own else []
        amounts = [(PAGES, pages)] if pages else []
        amounts.append(("memory", memory - (1 + (at == 0)) * (_GIB // 4)))
        reserved = draw.randrange(1, threads + 1) if at == 0 else 0
        zones.append(Zone(f"node-{at}", cores * threads, reserved, at * sockets // count, tuple(amounts), tuple(devices)))
    near = [
        [10 if a == b else 12 if zones[a].socket == zones[b].socket else 20 + abs(a - b) for b in range(count)]
        for a in range(count)
    ]
    static = draw.random() < 0.85
    return Machine(
        tuple(zones),
        draw.choice(_POLICIES),
        draw.choice(SCOPES),
        closest=draw.random() < 0.3,
        static=static,
        full_cores=static and draw.random() < 0.3,
        threads=threads,
        memory_static=draw.random() < 0.7,
        distances=tuple(map(tuple, near)),
    )


def need(draw: random.Random, of: Machine) -> tuple[NumaNeed, list[dict[str, Any]]]:
    """A pod's need, and its containers as the judge reads them."""
    zones = len(of.zones)
    cores = of.zones[0].cpus
    guaranteed = draw.random() < 0.8
    pages = any(name == PAGES for name, _ in of.zones[0].memory)
    found: list[ContainerNeed] = []
    told: list[dict[str, Any]] = []
    kinds = draw.choice(
        (("",), ("",), ("",), ("", ""), ("init", ""), ("init", "init", ""), ("sidecar", ""), ("init", "sidecar", ""))
    )
    for kind in kinds:
        # Amounts about as large as a NUMA node, or several, are what policies differ on.
        width = draw.choice((0.25, 0.5, 0.5, 1, 1, 1.5, 2)) if zones > 1 else draw.choice((0.25, 0.5, 1))
        whole = draw.random() < 0.8
        cpus = max(1, int(cores * width * draw.uniform(0.3, 1)) // len(kinds))
        if of.full_cores and draw.random() < 0.9:
            cpus = max(of.threads, cpus // of.threads * of.threads)
        memory = max(1, int(dict(of.zones[0].memory)["memory"] * width * draw.uniform(0.2, 1)) // len(kinds) >> 20) << 20
        resources: dict[str, str] = {"cpu": str(cpus) if whole else f"{cpus * 1000 + 500}m", "memory": str(memory)}
        amounts = [("memory", memory)]
        if pages and draw.random() < 0.3:
            size = draw.randrange(1, 300) * _LARGE_PAGES
            resources[PAGES] = str(size)
            amounts.insert(0, (PAGES, size))
        devices = []
        for name in (NIC, GPU):
            most = max(dict(zone.devices).get(name, 0) for zone in of.zones)
            if most and draw.random() < 0.6:
                count = draw.randrange(1, int(most * max(1, width)) + 1)
                devices.append((name, count))
                resources[name] = str(count)
        one = {"resources": resources, "init": kind == "init", "sidecar": kind == "sidecar"}
        if not guaranteed:
            one["requests"] = {**resources, "cpu": "100m"}
        told.append(one)
        found.append(
            ContainerNeed(
                cpus if whole and guaranteed else 0,
                tuple(amounts) if guaranteed else (),
                tuple(devices),
                init=kind == "init",
                sidecar=kind == "sidecar",
            )
        )
    return tuple(found), told


def node(of: Machine) -> dict[str, Any]:
    """A machine as the judge reads it."""
    reserved: list[int] = []
    zones: list[dict[str, Any]] = []
    first = 0
    for at, zone in enumerate(of.zones):
        reserved += range(first, first + zone.cpus_reserved)
        first += zone.cpus
        amounts = dict(zone.memory)
        kept = (1 + (at == 0)) * (_GIB // 4)
        pages = amounts.get(PAGES, 0)
        zones.append(
            {
                "cores": zone.cpus // of.threads,
                "socket": zone.socket,
                "memory": amounts["memory"] + kept + pages,
                "reserved": kept,
                "pages": {"2048": pages} if pages else {},
                "devices": dict(zone.devices),
                "distances": of.distances[at],
            }
        )
    return {
        "policy": of.policy,
        "scope": of.scope,
        "options": {"prefer-closest-numa-nodes": "true"} if of.closest else {},
        "static": of.static,
        "cpu_options": {"full-pcpus-only": "true"} if of.full_cores else {},
        "reserved_cpus": reserved,
        "threads": of.threads,
        "memory_static": of.memory_static,
        "zones": zones,
    }


def judged(lines: list[dict[str, Any]], answer: bytes) -> list[dict[str, Any]]:
    """The judge's answers to cases, one by one."""
    found: list[dict[str, Any]] = [msgspec.json.decode(line) for line in answer.splitlines()]
    if len(found) != len(lines):
        raise RuntimeError(f"the judge answered {len(found)} of {len(lines)} cases")
    return found
