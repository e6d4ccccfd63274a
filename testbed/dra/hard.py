"""Hard instances: up to 128 devices and 32 requests on one node, and how long our allocator takes to decide them.

n+1 of n devices, requests that compete for devices, partitions of GPUs that almost fit, one switch for all devices of a claim.
The verdict of each is compared with an integer program's (`solver.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from random import Random
from typing import Any

import msgspec

from fairlead.core.dra.allocator import Options, allocate
from fairlead.core.dra.evaluation import Evaluation
from fairlead.core.dra.refusals import Kind, Refusal
from testbed.dra import checker, solver
from testbed.dra.ours import Case, as_json

Json = dict[str, Any]
DRIVER, ROOT = "gpu.example.com", "resource.example.com/root"
_BY_CEL = Evaluation()
_MOST_DEVICES, _MOST_REQUESTS, _MOST_IN_CLAIM = 128, 32, 32
_PROFILES: tuple[tuple[str, int, tuple[int, ...], int], ...] = (
    ("1g", 1, tuple(range(7)), 1),
    ("2g", 2, (0, 2, 4), 2),
    ("3g", 3, (0, 4), 4),
    ("4g", 4, (0,), 4),
    ("7g", 7, (0,), 8),
)
"""(name, compute slices, starts, memory slices) of an A100."""


Draw = Callable[[Random], tuple[list[Json], list[Json], list[Json]]]
"""Draws (devices, counter sets, claims) of one node and pod."""


class Hard(msgspec.Struct):
    """What came of the instances. p50_ms, p99_ms, longest_ms: CPU time to decide, with what does not depend on the claims
    prepared; first_p99_ms: the first time on a node, slices read and selectors evaluated by CEL. gave_up: without a verdict.
    """

    instances: int = 0
    feasible: int = 0
    undecided: int = 0
    wrong_verdicts: int = 0
    gave_up: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    longest_ms: float = 0.0
    first_p99_ms: float = 0.0
    work_p99: int = 0
    by_kind: dict[str, float] = {}
    examples: list[str] = []


def instance(seed: int, kinds: Sequence[Draw] | None = None) -> Json:
    """One hard case, on one node. kinds: that take turns; None: all of `KINDS`."""
    draw = Random(seed)
    kinds = kinds or KINDS
    kind = kinds[seed % len(kinds)]
    devices, counters, claims = kind(draw)
    slices = []
    parts = [devices[start : start + 64] for start in range(0, len(devices), 64)]
    specs: list[Json] = [{"devices": part} for part in parts]
    specs += [{"sharedCounters": counters[start : start + 8]} for start in range(0, len(counters), 8)]
    for at, spec in enumerate(specs):
        pool = {"name": "n0", "generation": 1, "resourceSliceCount": len(specs)}
        slices.append({"metadata": {"name": f"s{at:02}"}, "spec": {"driver": DRIVER, "pool": pool, "nodeName": "n0", **spec}})
    return {
        "id": seed,
        "kind": kind.__name__.strip("_"),
        "nodes": [{"metadata": {"name": "n0", "labels": {}}}],
        "slices": slices,
        "classes": [{"metadata": {"name": "gpu"}, "spec": {"selectors": [_cel(f'device.driver == "{DRIVER}"')]}}],
        "allocated": [],
        "claims": claims,
    }


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def _equals(name: str, value: str) -> Json:
    return _cel(f'device.attributes["{DRIVER}"].?{name}.orValue("") == "{value}"')


def _ask(count: int, *selectors: Json) -> Json:
    return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": list(selectors)}


def _claims(requests: list[Json], constraints: Sequence[Json] = ()) -> list[Json]:
    """Requests in as many claims as their devices need."""
    claims: list[Json] = []
    room = 0
    for request in requests:
        asks = [request["exactly"]] if "exactly" in request else request["firstAvailable"]
        needed = max(ask["count"] for ask in asks)
        if not claims or room < needed:
            claims.append({"metadata": {"name": f"c{len(claims)}", "namespace": "d"}, "spec": {"devices": {"requests": []}}})
            room = _MOST_IN_CLAIM
        room -= needed
        claims[-1]["spec"]["devices"]["requests"].append(request)
    for claim in claims:
        claim["spec"]["devices"]["constraints"] = list(constraints)
    return claims


def _one_too_many(draw: Random) -> tuple[list[Json], list[Json], list[Json]]:
    """n+1 of n identical devices, or n of them."""
    n = draw.randint(2, _MOST_DEVICES)
    total = n + draw.choice((0, 1, 1))
    devices = [{"name": f"d{at:03}", "attributes": {"uuid": {"string": f"GPU-{at}"}}} for at in range(n)]
    counts: list[int] = []
    left = total
    while left:
        least = -(-left // (_MOST_REQUESTS - len(counts)))
        counts.append(min(left, max(least, draw.randint(1, _MOST_IN_CLAIM))))
        left -= counts[-1]
    requests = [{"name": f"r{at}", "exactly": _ask(count)} for at, count in enumerate(counts)]
    return devices, [], _claims(requests)


def _competing(draw: Random) -> tuple[list[Json], list[Json], list[Json]]:
    """Requests whose devices overlap, in about the number of devices that there are."""
    n = draw.randint(16, _MOST_DEVICES)
    kinds = draw.randint(3, 8)
    devices = []
    for at in range(n):
        attributes = {
            "index": {"int": draw.randrange(kinds)},
            "model": {"string": draw.choice("ab")},
            "uuid": {"string": f"GPU-{at}"},
        }
        devices.append({"name": f"d{at:03}", "attributes": attributes})
    requests: list[Json] = []
    left = n + draw.randint(-4, 1)
    while left > 0 and len(requests) < _MOST_REQUESTS:
        count = min(left, max(1, -(-left // (_MOST_REQUESTS - len(requests))), draw.randint(1, 6)))
        left -= count
        selectors = [_cel(f'device.attributes["{DRIVER}"].?index.orValue(0) < {draw.randint(1, kinds)}')]
        if draw.random() < 0.3:
            selectors.append(_equals("model", draw.choice("ab")))
        asks = [_ask(count, *selectors), _ask(max(1, count - 1), _equals("model", draw.choice("ab")))]
        if draw.random() < 0.2:
            options: list[Json] = [{"name": f"s{each}", **ask} for each, ask in enumerate(asks)]
            requests.append({"name": f"r{len(requests)}", "firstAvailable": options})
        else:
            requests.append({"name": f"r{len(requests)}", "exactly": asks[0]})
    draw.shuffle(requests)
    return devices, [], _claims(requests)


def _partitions(gpus: int) -> tuple[list[Json], list[Json]]:
    devices, counters = [], []
    for gpu in range(gpus):
        slots = {f"memory-slice-{at}": {"value": "1"} for at in range(8)}
        counters.append({"name": f"gpu-{gpu}", "counters": {"multiprocessors": {"value": "98"}, **slots}})
        for name, compute, starts, memory in _PROFILES:
            for start in starts:
                used = {f"memory-slice-{at}": {"value": "1"} for at in range(start, start + memory)}
                used["multiprocessors"] = {"value": str(14 * compute)}
                devices.append(
                    {
                        "name": f"gpu-{gpu}-{name}-{start}",
                        "attributes": {"profile": {"string": name}, "parent": {"string": f"GPU-{gpu}"}},
                        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": used}],
                    }
                )
    return devices, counters


def _almost_full(draw: Random) -> tuple[list[Json], list[Json], list[Json]]:
    """Partitions of up to nine GPUs that use about all there is."""
    gpus = draw.randint(1, 9)
    devices, counters = _partitions(gpus)
    requests: list[Json] = []
    size, target = 0, gpus * 7 + draw.randint(-3, 1)
    while size < target and len(requests) < _MOST_REQUESTS:
        name, compute, _, _ = draw.choice(_PROFILES)
        count = draw.choice((1, 1, 1, 2, 3)) if compute < 4 else 1
        size += compute * count
        ask = _ask(count, _equals("profile", name))
        if draw.random() < 0.15:
            other = draw.choice(_PROFILES)[0]
            options = [{"name": "s0", **ask}, {"name": "s1", **_ask(count, _equals("profile", other))}]
            requests.append({"name": f"r{len(requests)}", "firstAvailable": options})
        else:
            requests.append({"name": f"r{len(requests)}", "exactly": ask})
    constraints = [{"matchAttribute": f"{DRIVER}/parent"}] if draw.random() < 0.1 else []
    return devices, counters, _claims(requests, constraints)


def _one_root(draw: Random) -> tuple[list[Json], list[Json], list[Json]]:
    """Several claims, each of which wants all its devices behind one switch, or each behind another."""
    roots, size = draw.randint(2, 12), draw.randint(2, 10)
    devices = []
    for root in range(roots):
        for at in range(size - draw.randrange(2)):
            kind = draw.choice(("gpu", "gpu", "nic"))
            attributes = {ROOT: {"string": f"root-{root}"}, "kind": {"string": kind}, "index": {"int": draw.randrange(3)}}
            devices.append({"name": f"d{root:02}-{at:02}", "attributes": attributes})
    devices = devices[:_MOST_DEVICES]
    claims = []
    for at in range(draw.randint(1, min(8, roots + 1))):
        requests = [{"name": "r0", "exactly": _ask(draw.randint(1, max(1, size // 2)), _equals("kind", "gpu"))}]
        if draw.random() < 0.6:
            requests.append({"name": "r1", "exactly": _ask(draw.choice((1, 1, 2)), _equals("kind", "nic"))})
        how = "distinctAttribute" if draw.random() < 0.2 else "matchAttribute"
        devices_ = {"requests": requests, "constraints": [{how: ROOT}]}
        claims.append({"metadata": {"name": f"c{at}", "namespace": "d"}, "spec": {"devices": devices_}})
    return devices, [], claims


KINDS: tuple[Draw, ...] = (
    _one_too_many,
    _competing,
    _almost_full,
    _one_root,
    _almost_full,
)


def judge(seed: int, kinds: Sequence[Draw] | None = None) -> tuple[str, bool | None, bool | None, float, float, int, str]:
    """One instance: (kind, our verdict, the solver's, seconds, seconds the first time, work, what is wrong)."""
    case = instance(seed, kinds)
    begun = time.thread_time()
    ours = Case(case, _BY_CEL)
    node = ours.nodes[0]
    state = ours.held.on(ours.inventory(node))
    answer = allocate(state, node.name, ours.claims, ours.classes)
    first = time.thread_time() - begun
    taken = []
    for _ in range(3):
        begun = time.thread_time()
        answer = allocate(state, node.name, ours.claims, ours.classes, Options())
        taken.append(time.thread_time() - begun)
    verdict: bool | None = not isinstance(answer, Refusal)
    wrong, work = "", 0
    if isinstance(answer, Refusal):
        work = answer.work
        if answer.kind is Kind.GAVE_UP:
            verdict = None
    elif found := checker.violations(case, case["nodes"][0], as_json(answer)):
        wrong = f"{seed}: our allocation is not valid: {found[0]}"
    try:
        theirs: bool | None = solver.possible(case, case["nodes"][0])
    except solver.Undecided:
        theirs = None
    if verdict is not None and theirs is not None and verdict != theirs:
        wrong = f"{seed}: we say {verdict}, the solver {theirs}"
    return case["kind"], verdict, theirs, sorted(taken)[1], first, work, wrong


def run(count: int, report: Callable[[int, int], None], first: int = 0, kinds: Sequence[Draw] | None = None) -> Hard:
    """Judge so many instances of some kinds, from a seed on. report: takes (done, total)."""
    result, times, firsts, works = Hard(), [], [], []
    by_kind: dict[str, list[float]] = {}
    with ProcessPoolExecutor(max_workers=1, initializer=_quiet) as pool:
        for done, each in enumerate(pool.map(partial(judge, kinds=kinds), range(first, first + count), chunksize=10)):
            kind, verdict, theirs, seconds, cold, work, wrong = each
            result.instances += 1
            result.feasible += bool(theirs)
            result.undecided += theirs is None
            result.gave_up += verdict is None
            if wrong:
                result.wrong_verdicts += 1
                result.examples.append(wrong)
            times.append(seconds * 1e3)
            firsts.append(cold * 1e3)
            works.append(work)
            by_kind.setdefault(kind, []).append(seconds * 1e3)
            report(done + 1, count)
    result.p50_ms, result.p99_ms, result.longest_ms = _at(times, 0.5), _at(times, 0.99), _at(times, 1.0)
    result.first_p99_ms, result.work_p99 = _at(firsts, 0.99), int(_at([float(each) for each in works], 0.99))
    result.by_kind = {kind: _at(each, 0.99) for kind, each in sorted(by_kind.items())}
    return result


def _quiet() -> None:
    """The solver greets on standard output, which is for the result: let it greet on standard error."""
    os.dup2(2, 1)


def _at(values: list[float], part: float) -> float:
    """A quantile."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 3) if ordered else 0.0
