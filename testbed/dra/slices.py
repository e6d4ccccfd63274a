"""Many slices: what a node's pools, a change of a slice, and the first question on a node cost.

Slices of 8 GPUs each: of one node; of a rack, by a selector of its 10 nodes; in pools that all nodes see. A change is another
attribute of one device. The first question is a claim with three CEL selectors and a constraint on nodes whose GPUs differ in
nothing but their `uuid`. All times are CPU time, without the garbage collector, which costs by the size of the heap.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from fairlead.core.dra.allocator import allocate
from fairlead.core.dra.evaluation import Evaluation
from fairlead.core.dra.held import Held
from fairlead.core.dra.inventory import Inventory
from fairlead.core.dra.model import Ask, Capacity, Claim, Constraint, Device, DeviceClass, Reach, Request, Slice, Version
from fairlead.core.dra.pools import Slices
from fairlead.core.model.nodes import Node
from fairlead.core.model.selectors import Requirement, SelectorTerm

Each = TypeVar("Each")

DRIVER, ROOT = "gpu.example.com", "resource.example.com/pcieRoot"
_ASKED, _CHANGED, _QUESTIONS = 200, 200, 500
_CLASSES = {"gpu": DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))}
_SELECTORS = (
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'device.attributes["{DRIVER}"].driverVersion.compareTo(semver("550.0.0")) >= 0',
    f'device.attributes["{DRIVER}"].model.matches("^h100")',
)
_CLAIM = Claim("d", "c", (Request("r", (Ask("r", "gpu", "ExactCount", 2, _SELECTORS),)),), (Constraint(ROOT),))


class Pools(msgspec.Struct):
    """Of one kind of slices: how many pools a node sees, and microseconds: all slices put, by slice; a node's pools the first
    time, and again; a change, and a change with a question of a node that sees it.
    """

    seen: int
    put_us: float
    first_us: float
    again_us: float
    change_us: float
    change_and_ask_us: float


class Measured(msgspec.Struct):
    """What was measured. first_us, second_us: a question on a node, the median of 500 nodes."""

    slices: int
    pools: dict[str, Pools] = {}
    first_us: float = 0.0
    second_us: float = 0.0


def _reach_of_rack(at: int) -> Reach:
    return Reach(terms=(SelectorTerm((Requirement("rack", "In", (f"r{at // 10}",)),)),))


_KINDS: dict[str, Callable[[int], Reach]] = {
    "of nodes": lambda at: Reach(node=f"n{at}"),
    "of racks": _reach_of_rack,
    "of all nodes": lambda _: Reach(everywhere=True),
}


def _gpus(node: int, changed: int = 0) -> tuple[Device, ...]:
    return tuple(
        Device(
            f"gpu-{at}",
            DRIVER,
            {
                "uuid": f"GPU-{node}-{at}",
                "model": "h100",
                "driverVersion": Version("550.54.15"),
                "index": at,
                "changed": changed if not at else 0,
                ROOT: f"pci-{at // 2}",
            },
            {"memory": Capacity(80 << 30)},
        )
        for at in range(8)
    )


def _slice(at: int, reach: Reach, changed: int = 0) -> Slice:
    return Slice(f"s{at:06}", DRIVER, f"p{at:06}", 1, 1, reach, devices=_gpus(at, changed))


def run(count: int, report: Callable[[int, int], None]) -> Measured:
    """Measure so many slices of each kind. report: takes (done, total)."""
    result = Measured(count)
    gc.collect()
    gc.disable()
    try:
        _run(count, report, result)
    finally:
        gc.enable()
    return result


def _run(count: int, report: Callable[[int, int], None], result: Measured) -> None:
    for done, (name, reach) in enumerate(_KINDS.items()):
        report(done, len(_KINDS) + 1)
        result.pools[name] = _measure([_slice(at, reach(at)) for at in range(count)])
    report(len(_KINDS), len(_KINDS) + 1)
    result.first_us, result.second_us = _questions()
    report(len(_KINDS) + 1, len(_KINDS) + 1)


def _measure(given: list[Slice]) -> Pools:
    some = range(min(len(given), _ASKED))
    nodes = [Node(f"n{at}", {}, {"rack": f"r{at // 10}", "zone": "a"}) for at in some]
    begun = time.thread_time()
    slices = Slices(given)
    put = (time.thread_time() - begun) / max(1, len(given))
    seen = len(slices.pools(nodes[0]))
    first = _mean(nodes[1:], slices.pools)
    again = _mean(nodes, slices.pools)
    changes = [_slice(at, given[at].reach, 1) for at in some]
    more = [_slice(at, given[at].reach, 2) for at in some]
    change = _mean(changes, slices.put)

    def ask(each: Slice) -> None:
        slices.put(each)
        slices.pools(nodes[int(each.name[1:])])

    both = _mean(more, ask)
    return Pools(seen, *(round(each * 1e6, 1) for each in (put, first, again, change, both)))


def _mean(of: list[Each], call: Callable[[Each], object]) -> float:
    begun = time.thread_time()
    for each in of:
        call(each)
    return (time.thread_time() - begun) / max(1, len(of))


def _questions() -> tuple[float, float]:
    nodes = [Node(f"n{at}", {}) for at in range(_QUESTIONS)]
    slices = Slices(_slice(at, Reach(node=each.name)) for at, each in enumerate(nodes))
    evaluation, held = Evaluation(), Held()
    first, second = [], []
    for node in nodes:
        begun = time.thread_time()
        state = held.on(Inventory(slices.pools(node), evaluation))
        allocate(state, node.name, [_CLAIM], _CLASSES)
        middle = time.thread_time()
        allocate(state, node.name, [_CLAIM], _CLASSES)
        first.append(middle - begun)
        second.append(time.thread_time() - middle)
    return round(sorted(first)[_QUESTIONS // 2] * 1e6, 1), round(sorted(second)[_QUESTIONS // 2] * 1e6, 1)
