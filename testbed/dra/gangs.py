"""Gangs whose members have devices only if they are decided together: each is built around a solution, so all can be placed.

GPUs are a whole, two halves or four quarters; members take alternatives, and prefer more than there is for all. Some share a
claim, of a part of a GPU or of a device of the network. What was placed is checked by `checker.py`, node by node.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from fairlead.cluster import device_views as views
from fairlead.core.dra.allocator import allocate
from fairlead.core.dra.gangs import Gang, Member, Place, allocate_gang
from fairlead.core.dra.model import Claim
from fairlead.core.dra.refusals import Refusal
from testbed.dra import checker
from testbed.dra.ours import Case, as_json

Json = dict[str, Any]
DRIVER, NET = "gpu.example.com", "nic.example.com"
_LAYOUTS = (("whole",), ("half", "half"), ("half", "quarter", "quarter"), ("quarter", "quarter", "half"), ("quarter",) * 4)
_SIZES = {"whole": 4, "half": 2, "quarter": 1}
_KINDS = ("whole", "half", "quarter")


class Gangs(msgspec.Struct):
    """What came of the gangs. one_by_one: those whose members all get devices one after the other, each the first that fit.

    p50_ms, p99_ms: CPU time of one decision, slices and selectors prepared.
    """

    gangs: int = 0
    placed: int = 0
    invalid: int = 0
    one_by_one: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    examples: list[str] = []


class Drawn(msgspec.Struct):
    """A cluster as a case without claims, the members' claims with the shared ones that each uses, and the shared claims."""

    case: Json
    members: list[tuple[list[Json], list[int]]]
    shared: list[Json]


def draw_gang(seed: int) -> Drawn:
    """One gang that can be placed, and its cluster."""
    draw = Random(seed)
    slices: list[Json] = []
    nodes: list[Json] = [{"metadata": {"name": f"n{at}", "labels": {}}} for at in range(draw.randint(1, 6))]
    allocated: list[Json] = []
    members: list[tuple[list[Json], list[int]]] = []
    shared: list[Json] = []
    for node in nodes:
        name = node["metadata"]["name"]
        gpus = draw.randint(1, 3)
        slices += _slices(name, gpus)
        parts = [(gpu, kind, start) for gpu in range(gpus) for kind, start in _layout(draw)]
        while parts:
            gpu, kind, start = parts.pop()
            fate = draw.random()
            if fate < 0.15:
                allocated.append(_holding(name, gpu, kind, start, len(allocated)))
            elif fate < 0.25 and parts:
                other = parts.pop()
                requests = [_request("r0", draw, kind), _request("r1", draw, other[1])]
                members.append(([_claim(f"m{len(members)}", requests)], []))
            elif fate < 0.35:
                shared.append(_claim(f"s{len(shared)}", [_request("r0", draw, kind)]))
                members += [([], [len(shared) - 1]) for _ in range(2)]
            else:
                members.append(([_claim(f"m{len(members)}", [_request("r0", draw, kind)])], []))
    if not members:
        members.append(([], []))
    if draw.random() < 0.3:
        pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"nic-{at}"} for at in range(draw.randint(1, 2))]
        spec = {"driver": NET, "pool": pool, "allNodes": True, "devices": devices}
        slices.append({"metadata": {"name": "net"}, "spec": spec})
        request = {"name": "r0", "exactly": {"deviceClassName": "net", "allocationMode": "ExactCount", "count": 1}}
        shared.append(_claim(f"s{len(shared)}", [request]))
        members = [(own, [*uses, len(shared) - 1]) for own, uses in members]
    draw.shuffle(members)
    classes = [_class("gpu", DRIVER), _class("net", NET)]
    case = {"id": seed, "nodes": nodes, "slices": slices, "classes": classes, "allocated": allocated, "claims": []}
    return Drawn(case, members, shared)


def _class(name: str, driver: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}}


def _layout(draw: Random) -> list[tuple[str, int]]:
    start, parts = 0, []
    for kind in draw.choice(_LAYOUTS):
        parts.append((kind, start))
        start += _SIZES[kind]
    return parts


def _slices(node: str, gpus: int) -> list[Json]:
    devices, counters = [], []
    for gpu in range(gpus):
        counters.append(
            {"name": f"gpu-{gpu}", "counters": {"memory": {"value": "4"}, **{f"s{at}": {"value": "1"} for at in range(4)}}}
        )
        for kind, size in _SIZES.items():
            for start in range(0, 4, size):
                used = {"memory": {"value": str(size)}, **{f"s{at}": {"value": "1"} for at in range(start, start + size)}}
                devices.append(
                    {
                        "name": f"gpu-{gpu}-{kind}-{start}",
                        "attributes": {"kind": {"string": kind}},
                        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": used}],
                    }
                )
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    base = {"driver": DRIVER, "pool": pool, "nodeName": node}
    return [
        {"metadata": {"name": f"{node}-a"}, "spec": {**base, "devices": devices}},
        {"metadata": {"name": f"{node}-b"}, "spec": {**base, "sharedCounters": counters}},
    ]


def _holding(node: str, gpu: int, kind: str, start: int, number: int) -> Json:
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": f"gpu-{gpu}-{kind}-{start}"}
    metadata = {"name": f"held-{number}", "namespace": "d"}
    return {"metadata": metadata, "status": {"allocation": {"devices": {"results": [result]}}}}


def _request(name: str, draw: Random, kind: str) -> Json:
    """A request for a part of this kind; often it would rather have a larger one."""
    kinds = [each for each in _KINDS if _SIZES[each] >= _SIZES[kind]]
    if draw.random() < 0.6:
        return {"name": name, "firstAvailable": [{"name": each, **_ask(each)} for each in kinds]}
    return {"name": name, "exactly": _ask(kind)}


def _ask(kind: str) -> Json:
    selector = f'device.attributes["{DRIVER}"].?kind.orValue("") == "{kind}"'
    return {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": selector}}],
    }


def _claim(name: str, requests: list[Json]) -> Json:
    return {"metadata": {"name": name, "namespace": "d"}, "spec": {"devices": {"requests": requests}}}


def _read(claim: Json) -> Claim:
    view = msgspec.convert(claim, views.ResourceClaim)
    return views.device_claim(view.metadata, view.spec)


def problems(drawn: Drawn, gang: Gang) -> list[str]:
    """What is wrong with a gang's allocation."""
    by_node: dict[str, list[tuple[Json, list[Json]]]] = {}
    where: dict[int, set[str]] = {}
    for (claims, shared), placed in zip(drawn.members, gang.members, strict=True):
        for claim, results in zip(claims, as_json(list(placed.allocations)), strict=True):
            by_node.setdefault(placed.node, []).append((claim, results))
        for each in shared:
            where.setdefault(each, set()).add(placed.node)
    allocated = {at: each for at, each in enumerate(gang.shared) if each is not None}
    for at, results in zip(allocated, as_json(list(allocated.values())), strict=True):
        for node in sorted(where.get(at, ()))[:1]:
            by_node.setdefault(node, []).append((drawn.shared[at], results))
    found = []
    for at, nodes in where.items():
        local = [each for each in allocated[at].devices if each.device.driver == DRIVER]
        if local and nodes != {local[0].device.pool}:
            found.append(f"shared claim {at} is of {local[0].device.pool}, its members run on {sorted(nodes)}")
    for node in drawn.case["nodes"]:
        chosen = by_node.get(node["metadata"]["name"], [])
        found += checker.violations(
            {**drawn.case, "claims": [each for each, _ in chosen]}, node, [results for _, results in chosen]
        )
    return found


def decide(drawn: Drawn) -> tuple[Gang | Refusal, float, bool]:
    """(the gang's allocation, CPU seconds of the second decision, whether its members get devices one by one, too)."""
    case = Case(drawn.case)
    places = [Place(node, case.inventory(node)) for node in case.nodes]
    members = [Member(f"m{at}", tuple(map(_read, claims)), tuple(uses)) for at, (claims, uses) in enumerate(drawn.members)]
    shared = [_read(each) for each in drawn.shared]
    allocate_gang(places, case.held, members, shared, case.classes)
    begun = time.thread_time()
    result = allocate_gang(places, case.held, members, shared, case.classes)
    seconds = time.thread_time() - begun
    return result, seconds, _one_by_one(case, places, members, shared)


def _one_by_one(case: Case, places: list[Place], members: list[Member], shared: list[Claim]) -> bool:
    """Whether members, one after the other, get the first devices that fit, as a scheduler that takes pods one by one does."""
    known: dict[int, str] = {}
    for member in members:
        fresh = [each for each in member.shared if each not in known]
        claims = [*(shared[each] for each in fresh), *member.claims]
        bound = {known[each] for each in member.shared if each in known} - {"anywhere"}
        for place in places:
            if bound and place.node.name not in bound:
                continue
            answer = allocate(case.held.on(place.inventory), place.node.name, claims, case.classes)
            if not isinstance(answer, Refusal):
                case.held.take(answer)
                for each, allocation in zip(fresh, answer, strict=False):
                    known[each] = place.node.name if allocation.terms else "anywhere"
                break
        else:
            return False
    return True


def run(count: int, report: Callable[[int, int], None], first: int = 0) -> Gangs:
    """Decide so many gangs, from a seed on. report: takes (done, total)."""
    result, times = Gangs(gangs=count), []
    for at in range(first, first + count):
        drawn = draw_gang(at)
        gang, seconds, one_by_one = decide(drawn)
        times.append(seconds * 1e3)
        result.one_by_one += one_by_one
        if isinstance(gang, Refusal):
            result.examples.append(f"{at}: {gang.text()}"[:300])
        elif wrong := problems(drawn, gang):
            result.invalid += 1
            result.examples.append(f"{at}: {wrong[0]}"[:300])
        else:
            result.placed += 1
        report(at - first + 1, count)
    times.sort()
    result.p50_ms, result.p99_ms = (round(times[int(part * (count - 1))], 2) for part in (0.5, 0.99))
    return result
