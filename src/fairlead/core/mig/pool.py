"""GPUs of one model, indexed by the state that they are in: what a choice costs depends on the states, not on the GPUs.

Beside the states, a pool keeps for each profile its *places*: at how many (GPU, start) one more of it fits now.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.core.mig.states import EMPTY, States


class Pool:
    """So many GPUs of one model. GPUs are numbered from 0; among GPUs in one state the lowest number is taken."""

    def __init__(self, states: States, gpus: int) -> None:
        self.states = states
        self._state = [EMPTY] * gpus
        self._members = {EMPTY: (1 << gpus) - 1} if gpus else {}
        self._compute = 0
        self.places = [gpus * each for each in states.places(EMPTY)]
        """For each profile: at how many (GPU, start) it fits."""

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
        old, new = self.states.places(before), self.states.places(state)
        for index in range(len(self.places)):
            self.places[index] += new[index] - old[index]
