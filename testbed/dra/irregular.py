"""Irregular partitions under constraints: GPUs cut in different ways, and claims that want several parts at once.

Each GPU has counters of its own and devices that consume random amounts of them; attributes group parts of one GPU, of several,
or of none in order. Some nodes have network devices, exclusive or in shares. Claims have up to three constraints each,
matchAttribute and distinctAttribute, over all or some of their requests, so neither the order of devices nor one covering problem
decides them. Requests are drawn until they need about what there is.
"""

from __future__ import annotations

from random import Random
from typing import Any

Json = dict[str, Any]
DRIVER = "gpu.example.com"
NUMA = "resource.example.com/numa"
_KINDS = ("a", "b", "c", "d")


def devices(draw: Random) -> tuple[list[Json], list[Json]]:
    """(devices, counter sets) of up to eight GPUs."""
    found: list[Json] = []
    sets: list[Json] = []
    shapes = [_shape(draw) for _ in range(draw.randint(1, 3))]
    for gpu in range(draw.randint(2, 8)):
        slots, parts = draw.choice(shapes)
        counters = {f"s{at}": {"value": "1"} for at in range(slots)}
        sets.append({"name": f"gpu-{gpu}", "counters": {"units": {"value": str(slots + draw.choice((0, 0, -1)))}, **counters}})
        for at, (kind, start, size) in enumerate(parts):
            used = {"units": {"value": str(size)}, **{f"s{each}": {"value": "1"} for each in range(start, start + size)}}
            attributes = {
                "kind": {"string": kind},
                "parent": {"string": f"GPU-{gpu}"},
                "index": {"int": at % 3},
                NUMA: {"int": gpu % 3},
                "lane": {"int": draw.randrange(4)},
            }
            for name in ("index", "lane"):
                if draw.random() < 0.1:
                    del attributes[name]
            uses = [{"counterSet": f"gpu-{gpu}", "counters": used}]
            found.append({"name": f"gpu-{gpu}-{kind}-{at}", "attributes": attributes, "consumesCounters": uses})
    if draw.random() < 0.4:
        found += [_port(draw, at, shared=draw.random() < 0.5) for at in range(draw.randint(1, 6))]
    return found, sets


def _port(draw: Random, at: int, *, shared: bool) -> Json:
    """A device of the network; a shared one has 10 of bandwidth."""
    attributes = {"kind": {"string": "port"}, "lane": {"int": draw.randrange(4)}, NUMA: {"int": at % 3}, "index": {"int": at % 3}}
    port: Json = {"name": f"port-{at}", "attributes": attributes}
    if shared:
        port |= {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10"}}}
    return port


def _shape(draw: Random) -> tuple[int, list[tuple[str, int, int]]]:
    """How one model of GPU can be cut: (slots, (kind, first slot, slots) of each part)."""
    slots = draw.randint(3, 8)
    parts = set()
    for kind in _KINDS[: draw.randint(2, 4)]:
        size = draw.randint(1, max(1, slots // 2)) if kind != "a" else slots
        starts = range(slots - size + 1)
        parts |= {(kind, start, size) for start in draw.sample(starts, draw.randint(1, min(4, len(starts))))}
    return slots, sorted(parts)


def claims(draw: Random, parts: list[Json], sets: list[Json]) -> list[Json]:
    """The claims of one pod, in one to four parts."""
    sizes: dict[str, int] = {}
    for each in parts:
        kind, uses = each["attributes"]["kind"]["string"], each.get("consumesCounters")
        size = int(uses[0]["counters"]["units"]["value"]) if uses else 1
        sizes[kind] = min(size, sizes.get(kind, size))
    left = sum(int(each["counters"]["units"]["value"]) for each in sets) * draw.choice((0.5, 0.8, 1.0))
    shares = any("allowMultipleAllocations" in each for each in parts) and draw.random() < 0.8
    found: list[Json] = []
    most = draw.randint(1, 4)
    while len(found) < most and left > 0:
        requests: list[Json] = []
        share = left if len(found) == most - 1 else left * draw.random()
        for _ in range(draw.randint(1, 6)):
            kind, count = draw.choice(sorted(sizes)), draw.choice((1, 1, 1, 2, 3))
            share -= sizes[kind] * count
            left -= sizes[kind] * count
            requests.append(_request(draw, f"r{len(requests)}", kind, count, sorted(sizes), shares=shares))
            if share <= 0:
                break
        constraints = [_constraint(draw, requests) for _ in range(draw.choice((0, 1, 1, 1, 2, 3)))]
        spec = {"requests": requests, "constraints": constraints}
        found.append({"metadata": {"name": f"c{len(found)}", "namespace": "d"}, "spec": {"devices": spec}})
    return found


def _constraint(draw: Random, requests: list[Json]) -> Json:
    how = draw.choice(("matchAttribute", "matchAttribute", "matchAttribute", "distinctAttribute"))
    names = (f"{DRIVER}/parent", NUMA, f"{DRIVER}/index", f"{DRIVER}/lane")
    found: Json = {how: draw.choice(names[:1] * 3 + names[1:2] * 2 + names[2:])}
    if draw.random() < 0.3 and len(requests) > 1:
        found["requests"] = [each["name"] for each in draw.sample(requests, draw.randint(1, len(requests) - 1))]
    return found


def _request(draw: Random, name: str, kind: str, count: int, kinds: list[str], *, shares: bool) -> Json:
    if draw.random() < 0.2:
        options = [(kind, count), (draw.choice(kinds), draw.randint(1, 2))]
        return {
            "name": name,
            "firstAvailable": [{"name": f"s{at}", **_ask(draw, *each, shares=shares)} for at, each in enumerate(options)],
        }
    return {"name": name, "exactly": _ask(draw, kind, count, shares=shares)}


def _ask(draw: Random, kind: str, count: int, *, shares: bool) -> Json:
    bandwidth = draw.choice((2, 4, 6)) if kind == "port" and shares else 0
    expression = f'device.attributes["{DRIVER}"].?kind.orValue("") == "{kind}"'
    ask: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if bandwidth:
        ask["capacity"] = {"requests": {"bandwidth": str(bandwidth)}}
    return ask | {"selectors": [{"cel": {"expression": expression}}]}


def irregular(draw: Random) -> tuple[list[Json], list[Json], list[Json]]:
    """(devices, counter sets, claims) of one instance."""
    parts, sets = devices(draw)
    return parts, sets, claims(draw, parts, sets)
