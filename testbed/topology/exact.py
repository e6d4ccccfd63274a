"""`fairlead bench topology --exact`: small instances, compared with an integer program."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fairlead.core.topology.choose import choose
from fairlead.core.topology.request import Placement
from testbed.topology import solver
from testbed.topology.checker import broken, count, target_of
from testbed.topology.instances import draw


class Judged(msgspec.Struct):
    """What was found. invalid: requests that contradict themselves, as both see it from the request.

    wrong_verdicts: instances with places that were refused, or the reverse. broken: placements that do not keep a rule.
    """

    instances: int = 0
    invalid: int = 0
    placed: int = 0
    refused: int = 0
    wrong_verdicts: int = 0
    broken: int = 0
    undecided: int = 0
    most_above_optimum: int = 0
    mean_over_optimum: float = 0.0
    optimal: int = 0
    wrong: list[str] = []


def run(instances: int, progress: Callable[[int, int], None] | None = None, first: int = 0) -> Judged:
    """So many instances that are not invalid, from a seed on."""
    result = Judged()
    ratios: list[float] = []
    seed = first
    while result.instances < instances:
        if progress is not None:
            progress(result.instances, instances)
        labels, tree, request = draw(seed)
        seed += 1
        found = choose(tree, request)
        if not isinstance(found, Placement) and found.reason == "Invalid":
            result.invalid += 1
            continue
        result.instances += 1
        try:
            optimum = solver.fewest(labels, request)
        except solver.Undecided:
            result.undecided += 1
            continue
        if isinstance(found, Placement) != (optimum is not None):
            result.wrong_verdicts += 1
            result.wrong.append(f"{seed - 1}: {found}, the solver {optimum}")
            continue
        if not isinstance(found, Placement) or optimum is None:
            result.refused += 1
            continue
        result.placed += 1
        faults = list(broken(labels, request, found))
        result.broken += bool(faults)
        result.wrong += [f"{seed - 1}: {fault}" for fault in faults]
        used = count(labels, target_of(labels, request, request.sets[0]), found)
        if request.sets[0].rules.preferred is None and request.rules.preferred is None:
            continue  # nothing is preferred: whole domains are spared first
        above = used - optimum
        result.most_above_optimum = max(result.most_above_optimum, above)
        result.optimal += above == 0
        ratios.append(used / optimum)
        if above:
            result.wrong.append(f"{seed - 1}: {used} domains, {optimum} suffice")
    result.mean_over_optimum = sum(ratios) / len(ratios) if ratios else 0.0
    return result
