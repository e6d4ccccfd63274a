"""GPUs of one model, indexed by the state that they are in: what a choice costs depends on the states, not on the GPUs.

Beside the states, a pool keeps for each profile its *availability*: at how many (GPU, start) one more of it fits now, and a
little for each place that is blocked. If running partitions end at rate 1 each and a request waits until a clock of the rate
`_PATIENCE` rings, all m that block a place leave in time with the chance j / (j + rate), multiplied over j = 1..m. The rate
is so large that blocked places only decide between choices that are otherwise alike: of these the one is better that keeps
places nearly free.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.core.mig.states import EMPTY, States

_PATIENCE = 1000.0


class Availability:
    """The availability of each profile in each state of a GPU, computed at its first use."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._known: dict[int, tuple[float, ...]] = {}
        self._chance = [1.0]
        for leaving in range(1, len(states.placements) + 1):
            self._chance.append(self._chance[-1] * leaving / (leaving + _PATIENCE))

    def of(self, state: int) -> tuple[float, ...]:
        """One number for each profile of the geometry."""
        found = self._known.get(state)
        if found is None:
            totals = [0.0] * len(self._states.geometry.profiles)
            for number, placement in enumerate(self._states.placements):
                totals[placement.profile] += self._chance[self._states.blockers(state, number)]
            found = self._known[state] = tuple(totals)
        return found


class Pool:
    """So many GPUs of one model. GPUs are numbered from 0; among GPUs in one state the lowest number is taken."""

    def __init__(self, states: States, gpus: int) -> None:
        self.states = states
        self.availability = Availability(states)
        self._state = [EMPTY] * gpus
        self._members = {EMPTY: (1 << gpus) - 1} if gpus else {}
        self._compute = 0
        self.totals = [gpus * each for each in self.availability.of(EMPTY)]
        """For each profile: its availability in the whole pool."""

    def __len__(self) -> int:
        """How many GPUs."""
        return len(self._state)

    @property
    def compute(self) -> int:
        """Compute slices in use."""
        return self._compute

    def state(self, gpu: int) -> int:
        """Of one GPU."""
        return self._state[gpu]

    def groups(self) -> Iterator[tuple[int, int]]:
        """(state, lowest GPU in it) for each state that occurs."""
        for state, members in self._members.items():
            yield state, (members & -members).bit_length() - 1

    def members(self, state: int) -> Iterator[int]:
        """The GPUs in a state, by number."""
        rest = self._members.get(state, 0)
        while rest:
            lowest = rest & -rest
            yield lowest.bit_length() - 1
            rest ^= lowest

    def add(self, gpu: int, placement: int) -> None:
        """A partition begins. Raises `IllegalPlacement`."""
        self._become(gpu, self.states.add(self._state[gpu], placement))

    def remove(self, gpu: int, placement: int) -> None:
        """A partition ends. Raises `IllegalPlacement` if it is not there."""
        self._become(gpu, self.states.remove(self._state[gpu], placement))

    def _become(self, gpu: int, state: int) -> None:
        before, bit = self._state[gpu], 1 << gpu
        rest = self._members[before] ^ bit
        if rest:
            self._members[before] = rest
        else:
            del self._members[before]
        self._members[state] = self._members.get(state, 0) | bit
        self._state[gpu] = state
        self._compute += self.states.compute(state) - self.states.compute(before)
        old, new = self.availability.of(before), self.availability.of(state)
        for index, total in enumerate(self.totals):
            self.totals[index] = total + new[index] - old[index]
