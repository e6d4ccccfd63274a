"""How many of the waiting pods a supply of partitions serves, where a pod may accept one of several profiles.

A pod takes one partition. The sets of pods that can be served at once form a transversal matroid, so that serving class
by class along augmenting paths serves as many of the first classes as is possible at all, and as many pods in all
(Edmonds and Fulkerson, 1965).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Demand(msgspec.Struct, frozen=True):
    """So many pods that accept one of these profiles."""

    profiles: tuple[str, ...]
    count: int


def served(demands: Sequence[Demand], supply: Mapping[str, int]) -> list[int]:
    """How many of each demand are served, the first ones preferred. supply: partitions by profile."""
    left = dict(supply)
    taken: list[dict[str, int]] = [{} for _ in demands]
    for number, demand in enumerate(demands):
        for _ in range(demand.count):
            if not _augment(number, demands, left, taken):
                break
    return [sum(each.values()) for each in taken]


def _augment(number: int, demands: Sequence[Demand], left: dict[str, int], taken: list[dict[str, int]]) -> bool:
    """Serve one more of a demand, if others can take other profiles that they accept. Breadth first, over profiles."""
    came: dict[str, tuple[int, str | None]] = dict.fromkeys(demands[number].profiles, (number, None))
    line = list(came)
    for profile in line:
        if left.get(profile, 0) > 0:
            left[profile] -= 1
            _shift(profile, came, taken)
            return True
        for other, has in enumerate(taken):
            if has.get(profile, 0) > 0:
                for another in demands[other].profiles:
                    if another not in came:
                        came[another] = other, profile
                        line.append(another)
    return False


def _shift(profile: str, came: Mapping[str, tuple[int, str | None]], taken: list[dict[str, int]]) -> None:
    """Along the path that led to a free profile, each demand gives up the one before and takes the one after."""
    at: str | None = profile
    while at is not None:
        who, before = came[at]
        taken[who][at] = taken[who].get(at, 0) + 1
        if before is not None:
            taken[who][before] -= 1
        at = before
