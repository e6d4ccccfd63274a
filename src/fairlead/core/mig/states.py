"""The states of one GPU: which partitions run on it, and where. Interned: a state is a small integer.

What may follow a state is computed once, at its first use: the 64 GPUs of a pool share the few states that they are in.
An A100 with its six profiles without media extensions has 723 states; with them, some thousands, of which a pool sees
hundreds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import msgspec

from fairlead.core.mig.geometry import Geometry, Profile

EMPTY = 0
"""The state without partitions."""


class Placement(msgspec.Struct, frozen=True):
    """A partition at a place. profile: its index in the geometry; mask: the memory slices that it takes, a bit each."""

    profile: int
    start: int
    mask: int
    compute: int
    media: bool


class Blocked(msgspec.Struct, frozen=True):
    """A profile would fit if these placements left, and none of them is needless. final: the state when it is at
    `placement`.
    """

    leaving: tuple[int, ...]
    placement: int
    final: int


class IllegalPlacement(ValueError):
    """Partitions that no GPU of the model can have together."""


class States:
    """All states of one GPU of a geometry. Placements are numbered by profile, then by start."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.placements: tuple[Placement, ...] = tuple(
            Placement(index, start, ((1 << profile.memory) - 1) << start, profile.compute, profile.media)
            for index, profile in enumerate(geometry.profiles)
            for start in profile.starts
        )
        count = len(geometry.profiles)
        self._of_profile = [tuple(k for k, each in enumerate(self.placements) if each.profile == index) for index in range(count)]
        self._number: dict[int, int] = {}
        self._keys: list[int] = []  # a bit for each placement
        self._masks: list[int] = []
        self._compute: list[int] = []
        self._media: list[bool] = []
        self._options: list[list[tuple[tuple[int, int], ...] | None]] = []
        self._blocked: dict[tuple[int, int, int], tuple[Blocked, ...]] = {}
        self._intern(0)

    def __len__(self) -> int:
        """How many have been seen."""
        return len(self._keys)

    def profile(self, placement: int) -> Profile:
        """That of a placement."""
        return self.geometry.profiles[self.placements[placement].profile]

    def index(self, name: str) -> int:
        """Of a profile by its name. Raises `KeyError`."""
        found = self.geometry.profile(name)
        if found is None:
            raise KeyError(
                f"{self.geometry.model} has no profile {name!r}: it has {', '.join(p.name for p in self.geometry.profiles)}"
            )
        return self.geometry.profiles.index(found)

    def state(self, placements: Iterable[int]) -> int:
        """The state with these placements. Raises `IllegalPlacement` for those that overlap or take more than there
        is.
        """
        state = EMPTY
        for placement in placements:
            state = self.add(state, placement)
        return state

    def compute(self, state: int) -> int:
        """Compute slices in use."""
        return self._compute[state]

    def mask(self, state: int) -> int:
        """Memory slices in use, a bit each."""
        return self._masks[state]

    def running(self, state: int) -> tuple[int, ...]:
        """Its placements, by number."""
        key = self._keys[state]
        return tuple(k for k in range(len(self.placements)) if key >> k & 1)

    def fits(self, state: int, placement: int) -> bool:
        """Whether a partition can be there beside those that run."""
        each = self.placements[placement]
        return (
            not self._masks[state] & each.mask
            and self._compute[state] + each.compute <= self.geometry.compute
            and not (each.media and self._media[state])
        )

    def add(self, state: int, placement: int) -> int:
        """The state with one more. Raises `IllegalPlacement`."""
        if not self.fits(state, placement):
            each = self.placements[placement]
            raise IllegalPlacement(
                f"{self.profile(placement).name} at memory slice {each.start} does not fit beside "
                f"{', '.join(f'{self.profile(k).name} at {self.placements[k].start}' for k in self.running(state))}"
            )
        return self._intern(self._keys[state] | 1 << placement)

    def remove(self, state: int, placement: int) -> int:
        """The state with one less. Raises `IllegalPlacement` if it is not there."""
        if not self._keys[state] >> placement & 1:
            raise IllegalPlacement(f"{self.profile(placement).name} at {self.placements[placement].start} does not run there")
        return self._intern(self._keys[state] & ~(1 << placement))

    def options(self, state: int, profile: int) -> tuple[tuple[int, int], ...]:
        """Where a profile fits: (placement, next state), by start."""
        found = self._options[state][profile]
        if found is None:
            found = tuple((k, self.add(state, k)) for k in self._of_profile[profile] if self.fits(state, k))
            self._options[state][profile] = found
        return found

    def blockers(self, state: int, placement: int) -> int:
        """The fewest partitions that must leave so that this one fits: those in its memory, then the largest for
        compute.
        """
        each = self.placements[placement]
        rest, count, used = [], 0, self._compute[state]
        for k in self.running(state):
            other = self.placements[k]
            if other.mask & each.mask or (each.media and other.media):
                count += 1
                used -= other.compute
            else:
                rest.append(other.compute)
        for compute in sorted(rest, reverse=True):
            if used + each.compute <= self.geometry.compute:
                break
            count += 1
            used -= compute
        return count

    def blocked(self, state: int, profile: int, most: int) -> tuple[Blocked, ...]:
        """The sets of at most so many partitions whose leaving makes place for a profile, without needless ones:
        smaller sets first.
        """
        key = (state, profile, most)
        found = self._blocked.get(key)
        if found is None:
            found = self._blocked[key] = tuple(self._search(state, profile, most))
        return found

    def _search(self, state: int, profile: int, most: int) -> list[Blocked]:
        found = []
        running = self.running(state)
        for count in range(1, most + 1):
            for leaving in combinations(running, count):
                rest = self._without(state, leaving)
                for placement, final in self.options(rest, profile):
                    if all(not self.fits(self.add(rest, k), placement) for k in leaving):
                        found.append(Blocked(leaving, placement, final))
        return found

    def _without(self, state: int, leaving: Sequence[int]) -> int:
        for placement in leaving:
            state = self.remove(state, placement)
        return state

    def _intern(self, key: int) -> int:
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self._keys)
            held = [each for k, each in enumerate(self.placements) if key >> k & 1]
            self._keys.append(key)
            mask = 0
            for each in held:
                mask |= each.mask
            self._masks.append(mask)
            self._compute.append(sum(each.compute for each in held))
            self._media.append(any(each.media for each in held))
            self._options.append([None] * len(self.geometry.profiles))
        return number


def possible(geometry: Geometry, counts: Mapping[str, int]) -> bool:
    """Whether one GPU can have so many partitions of each profile at once. Raises `KeyError` for unknown profiles."""
    states = States(geometry)
    found = {EMPTY}
    for name, count in sorted(counts.items()):
        index = states.index(name)
        for _ in range(count):
            found = {after for state in found for _, after in states.options(state, index)}
    return bool(found)
