"""Moves of running partitions: where a request fits nowhere, the moves that make place for it, if they are worth it.

A request that is refused although slices are free is blocked by partitions that could run elsewhere. All GPUs (by
state) and all sets of at most `most` partitions are tried: they leave, the request takes its place, and each finds the
place with the least expected loss (`placing.py`), largest first. The gain of a plan is the compute slices of the
request less what the expected loss of the pool grows by, over the time until the pool is another one (`_HORIZON`
requests); plans are compared by gain per move.

Moves are rare by contract: at most `rate` for each request that arrived, at every moment. Which plans are worth their
moves follows from the last ones seen: the gain per move above which all plans together would have taken exactly the
rate. A plan below that is only taken while `_RESERVE` moves more than it needs are left.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable

import msgspec

from fairlead.core.mig.placing import Placer

_HORIZON = 10.0
_RESERVE = 10
_REMEMBERED = 4096
_TIE = 1e-12


class Move(msgspec.Struct, frozen=True):
    """A running partition leaves one place and continues at another."""

    gpu: int
    placement: int
    to_gpu: int
    to_placement: int


class Plan(msgspec.Struct, frozen=True):
    """Moves after which a request fits: first all of them leave, then the request and they are placed.

    gain: compute slices, for each move.
    """

    gpu: int
    placement: int
    moves: tuple[Move, ...]
    gain: float


def search(placer: Placer, profile: int, movable: Callable[[int, int], bool] | None = None, most: int = 2) -> Plan | None:
    """The plan with the most gain per move for a request that fits nowhere. None: no such moves.

    movable: whether the partition of (GPU, placement) may be moved; None: all may. The pool is the same afterwards.
    """
    pool, states = placer.pool, placer.pool.states
    size = states.geometry.profiles[profile].compute
    before = sum(placer.losses())
    best: Plan | None = None
    for state, _ in sorted(pool.groups(), key=lambda group: group[1]):
        for blocked in states.blocked(state, profile, most):
            gpu = next(
                (gpu for gpu in pool.members(state) if movable is None or all(movable(gpu, each) for each in blocked.leaving)),
                None,
            )
            if gpu is None:
                continue
            moves, after = _try(placer, gpu, blocked.leaving, blocked.placement)
            if moves is None:
                continue
            gain = (size - _HORIZON * (after - before)) / len(moves)
            if best is None or gain > best.gain + _TIE:
                best = Plan(gpu, blocked.placement, moves, gain)
    return best


def _try(placer: Placer, gpu: int, leaving: tuple[int, ...], placement: int) -> tuple[tuple[Move, ...] | None, float]:
    """The moves, and the expected loss after them; None: one of them fits nowhere. Everything is put back."""
    pool, states = placer.pool, placer.pool.states
    for each in leaving:
        pool.remove(gpu, each)
    pool.add(gpu, placement)
    moves: list[Move] = []
    for each in sorted(leaving, key=lambda each: (-states.placements[each].compute, each)):
        found = placer.choose(states.placements[each].profile)
        if found is None:
            break
        pool.add(*found)
        moves.append(Move(gpu, each, *found))
    after = sum(placer.losses())
    for move in reversed(moves):
        pool.remove(move.to_gpu, move.to_placement)
    pool.remove(gpu, placement)
    for each in leaving:
        pool.add(gpu, each)
    return (tuple(moves) if len(moves) == len(leaving) else None), after


class MoveBudget:
    """At most `rate` moves for each request that arrived, spent on the plans with the most gain per move."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.arrived = 0
        self.moved = 0
        self._recent: deque[tuple[float, int, int]] = deque()  # (-gain, moves, requests that had arrived)
        self._sorted: list[tuple[float, int, int]] = []
        self._since = 0  # requests that had arrived when the last forgotten plan was seen

    def arrive(self) -> None:
        """A request arrived, whether or not it needs moves."""
        self.arrived += 1

    def allows(self, plan: Plan) -> bool:
        """Whether a plan is carried out: then its moves are spent."""
        count = len(plan.moves)
        self._remember((-plan.gain, count, self.arrived))
        left = self.rate * self.arrived - self.moved
        if count > left or (plan.gain < self._threshold() and left < count + _RESERVE):
            return False
        self.moved += count
        return True

    def _remember(self, seen: tuple[float, int, int]) -> None:
        self._recent.append(seen)
        insort(self._sorted, seen)
        if len(self._recent) > _REMEMBERED:
            oldest = self._recent.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._since = oldest[2]

    def _threshold(self) -> float:
        """The gain above which the plans remembered would have taken the rate; minus infinity if all of them would
        not.
        """
        taken = 0
        for loss, count, _ in self._sorted:
            taken += count
            if taken > self.rate * (self.arrived - self._since):
                return -loss
        return float("-inf")
