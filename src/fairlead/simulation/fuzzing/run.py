"""Many worlds, one after the other, and what went wrong in them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from fairlead.simulation.fuzzing.world import Fault, World

PER_WORLD = (40, 80, 200)
_MOST_SHOWN = 20


class FuzzResult(msgspec.Struct):
    """What came of it.

    failed_passes: exceptions that ended a pass, or anything else outside isolation. set_aside: objects that could not be taken
    in, and units that were set aside, for an error of ours. starved: canaries without a node though one was free.
    broken: invariants that did not hold. untold: pods that wait without a reason. faults: one of each kind, with the seed of its
    world (`--seed SEED --worlds 1` shows it alone) and how often it came.
    """

    pods: int
    worlds: int
    seconds: float
    failed_passes: int
    set_aside: int
    starved: int
    broken: int
    untold: int
    faults: list[dict[str, str | int]]


def fuzz(pods: int, seed: int = 0, *, worlds: int = 0, progress: Callable[[int, int], None] | None = None) -> FuzzResult:
    """Write so many pods into worlds of so many each, of seeds from `seed` on; or live so many worlds, where that is given."""
    start = time.perf_counter()
    kinds: Counter[str] = Counter()
    sites: dict[tuple[str, str], list[Fault]] = {}
    written = lived = untold = starved = set_aside = 0
    while written < pods and not (worlds and lived >= worlds):
        world = World(seed + lived, PER_WORLD[(seed + lived) % len(PER_WORLD)])
        world.run()
        written += world.written
        lived += 1
        untold += world.untold
        set_aside += world.set_aside
        starved += len(world.starved)
        found = world.faults + [Fault(world.seed, world.step, "starved", "", each) for each in world.starved]
        if world.untold:
            found.append(Fault(world.seed, world.step, "untold", "", f"{world.untold} pods wait without a reason"))
        for fault in found:
            kinds[fault.kind] += 1
            sites.setdefault((fault.kind, fault.where), []).append(fault)
        if progress is not None:
            progress(min(written, pods), pods)
    shown = sorted(sites.values(), key=lambda each: (-len(each), each[0].seed))[:_MOST_SHOWN]
    return FuzzResult(
        pods=written,
        worlds=lived,
        seconds=round(time.perf_counter() - start, 1),
        failed_passes=kinds["pass"],
        set_aside=set_aside,
        starved=starved,
        broken=kinds["invariant"],
        untold=untold,
        faults=[{"count": len(each), **msgspec.to_builtins(each[0])} for each in shown],
    )
