"""How many of the waiting pods a supply of partitions serves, where a pod may accept one of several profiles.

A pod takes one partition. The sets of pods that can be served at once form a transversal matroid, so that serving class
by class along augmenting paths serves as many of the first classes as is possible at all, and as many pods in all
(Edmonds and Fulkerson, 1965). Pods of a class are alike and are served by amounts: a path carries as many as fit.
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
    serving = Serving(demands)
    return list(serving.counts([supply.get(profile, 0) for profile in serving.profiles]))


class Serving:
    """The same for many supplies of the same demands. profiles: those that a demand accepts, in the order of a supply;
    steps: what the calls so far have cost, two in about a microsecond.
    """

    def __init__(self, demands: Sequence[Demand]) -> None:
        index: dict[str, int] = {}
        self._accepts = [tuple({index.setdefault(name, len(index)): None for name in each.profiles}) for each in demands]
        self._wanted = [each.count for each in demands]
        self.profiles = tuple(index)
        self.steps = 0
        # More than all that accept a profile are never taken of it.
        self._caps = [0] * len(index)
        for accepted, count in zip(self._accepts, self._wanted, strict=True):
            for profile in accepted:
                self._caps[profile] += count
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def counts(self, supply: Sequence[int]) -> tuple[int, ...]:
        """How many of each demand are served."""
        key = tuple(map(min, supply, self._caps))
        self.steps += 2 + (len(key) + len(self._wanted)) // 4
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._serve(list(key))
        return found

    def _serve(self, left: list[int]) -> tuple[int, ...]:
        """Each demand takes what is free, then what others can give up for another profile that they accept.

        A profile from which no path leads to a free one never gets such a path again: it is closed.
        """
        found = [0] * len(self._wanted)
        taken: list[dict[int, int]] = [{} for _ in self._wanted]
        holders: list[set[int]] = [set() for _ in left]
        closed: set[int] = set()
        for number, wanted in enumerate(self._wanted):
            self.steps += 2 + len(self._accepts[number])
            missing = wanted
            for profile in self._accepts[number]:
                if missing and left[profile] > 0:
                    amount = min(missing, left[profile])
                    left[profile] -= amount
                    taken[number][profile] = amount
                    holders[profile].add(number)
                    missing -= amount
            while missing and (amount := self._augment(number, missing, left, taken, holders, closed)):
                missing -= amount
            found[number] = wanted - missing
        return tuple(found)

    def _augment(
        self,
        number: int,
        missing: int,
        left: list[int],
        taken: list[dict[int, int]],
        holders: list[set[int]],
        closed: set[int],
    ) -> int:
        """Serve more of a demand, none of whose profiles is free, along a path to a free one: how many. Breadth first, over
        profiles.
        """
        came: dict[int, tuple[int, int | None]] = {
            profile: (number, None) for profile in self._accepts[number] if profile not in closed
        }
        line, seen = list(came), {number}
        for profile in line:
            for other in holders[profile]:
                self.steps += 1
                if other in seen:
                    continue
                seen.add(other)
                self.steps += len(self._accepts[other])
                for another in self._accepts[other]:
                    if another not in came and another not in closed:
                        came[another] = other, profile
                        line.append(another)
                        if left[another] > 0:
                            amount = _shift(another, min(missing, left[another]), came, taken, holders)
                            left[another] -= amount
                            return amount
        closed.update(came)
        return 0


def _shift(
    profile: int,
    amount: int,
    came: Mapping[int, tuple[int, int | None]],
    taken: list[dict[int, int]],
    holders: list[set[int]],
) -> int:
    """Along the path that led to a free profile, each demand gives up the one before and takes the one after: so many
    as each of them has, and that amount.
    """
    at: int | None = profile
    while at is not None:
        who, at = came[at]
        if at is not None:
            amount = min(amount, taken[who][at])
    at = profile
    while at is not None:
        who, before = came[at]
        taken[who][at] = taken[who].get(at, 0) + amount
        holders[at].add(who)
        if before is not None:
            taken[who][before] -= amount
            if not taken[who][before]:
                holders[before].discard(who)
        at = before
    return amount
