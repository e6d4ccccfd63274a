"""Hints, and how a kubelet's topology manager merges them: for each resource the masks of NUMA nodes that would do.

A kubelet tries every combination of hints. The result depends on sets of masks alone: a merged hint is preferred exactly if all
hints are, and are of one mask; of others the masks that can be had are built resource by resource. So it is found in time that
grows with the resources and not with the combinations (Kubernetes 1.36, `pkg/kubelet/cm/topologymanager/policy.go`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fairlead.core.numa.model import SINGLE, Machine, bits


class Hint(NamedTuple):
    """mask: NUMA nodes that would do; None: any. preferred: they are as few as could do on an empty machine."""

    mask: int | None
    preferred: bool


Hints = Sequence[Hint]
ANY: Hints = (Hint(None, preferred=True),)
IMPOSSIBLE: Hints = (Hint(None, preferred=False),)


@lru_cache(maxsize=64)
def masks(zones: tuple[int, ...]) -> tuple[int, ...]:
    """All sets of these NUMA nodes but the empty one, smaller ones first."""
    found = [0]
    for zone in zones:
        found += [each | 1 << zone for each in found]
    return tuple(sorted(found[1:], key=lambda mask: (mask.bit_count(), mask)))


def merge(machine: Machine, hints: Sequence[Hints]) -> Hint:
    """The hint that a kubelet acts on. mask None: its managers choose without one."""
    everywhere = (1 << len(machine.zones)) - 1
    single = machine.policy == SINGLE
    if single:
        hints = [[each for each in one if each.preferred and (each.mask is None or each.mask.bit_count() == 1)] for one in hints]
    best = _preferred(machine, hints, everywhere)
    if best is None:
        best = Hint(everywhere, preferred=False) if single else _other(machine, hints, everywhere)
    return Hint(None, best.preferred) if single and best.mask == everywhere else best


def _preferred(machine: Machine, hints: Sequence[Hints], everywhere: int) -> Hint | None:
    common: set[int] | None = None
    for one in hints:
        if any(each.mask is None and each.preferred for each in one):
            continue
        found = {each.mask for each in one if each.preferred and each.mask is not None}
        common = found if common is None else common & found
    if common is None:
        return Hint(everywhere, preferred=True)
    return Hint(min(common, key=lambda mask: _order(machine, mask)), preferred=True) if common else None


def _order(machine: Machine, mask: int) -> tuple[int, int, int]:
    """Narrower first; of equally narrow ones the closest, where the option states so; then the lowest."""
    apart = 0
    if machine.closest and machine.policy != SINGLE and machine.distances:
        there = bits(mask)
        apart = sum(machine.distances[one][other] for one in there for other in there)
    return mask.bit_count(), apart, mask


def _other(machine: Machine, hints: Sequence[Hints], everywhere: int) -> Hint:
    """The best that is not preferred: as narrow as the resource that needs the most NUMA nodes, if that can be had."""
    reached, least = {everywhere}, 0
    for one in hints:
        given = {each.mask for each in one if each.mask is not None}
        least = max(least, min((mask.bit_count() for mask in given), default=0))
        free = any(each.mask is None for each in one)
        reached = {have & mask for have in reached for mask in given} | (reached if free else set())
    reached.discard(0)
    if not reached:
        return Hint(everywhere, preferred=False)
    exact = [mask for mask in reached if mask.bit_count() == least]
    below = [mask for mask in reached if mask.bit_count() < least]
    if not exact and below:
        most = max(mask.bit_count() for mask in below)
        exact = [mask for mask in below if mask.bit_count() == most]
    return Hint(min(exact or reached, key=lambda mask: _order(machine, mask)), preferred=False)
