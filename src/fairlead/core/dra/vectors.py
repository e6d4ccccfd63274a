"""What one cell can serve: the maximal vectors of demands, listed by going over its devices once.

A state is one integer: what is left of each counter, of each class's demand and of what may be used once, each in a field of its
own with a guard bit above it. Taking a device subtracts another integer; a guard bit that is gone means that something did not
suffice. States that are equal from some device on are merged, and a counter that no later device consumes is forgotten. Of ways
to serve the same the first in the order of devices and classes is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from fairlead.core.dra.covering import GaveUp, Vector
from fairlead.core.dra.model import Amount

_MOST_STATES = 20_000
"""States that are visited for one cell."""

Uses = Sequence[tuple[tuple[int, Amount], ...]]
Served = dict[Vector, tuple[tuple[int, int], ...]]

_Trace = tuple["_Trace", int, int] | None


def maximal(
    uses: Uses,
    classes: Sequence[Sequence[int]],
    free: Sequence[Amount],
    most: Sequence[int],
    once: Mapping[tuple[int, int], Sequence[int]],
) -> Served:
    """Vectors of demands that a cell can serve, without those that others contain, each with (device, class) that serve it.

    uses: by device, (counter, amount); classes: by device, those that it can serve; free: of each counter; most: by class, the
    demand. once: by (device, class), numbers of which each is used once at most. Raises `GaveUp` beyond so many states.
    """
    fields = _Fields(uses, free, most, once)
    order = [each for each in range(len(uses)) if classes[each]]
    last: dict[int, int] = {}
    for step, device in enumerate(order):
        for counter, _ in uses[device]:
            last[counter] = step
    states: dict[int, _Trace] = {fields.start: None}
    visited, guards = 0, fields.guards
    for step, device in enumerate(order):
        taken = [(fields.taken(device, each), each) for each in classes[device]]
        fresh: dict[int, _Trace] = {}
        for state, trace in states.items():
            for amount, number in taken:
                after = state - amount
                if after & guards == guards and after not in fresh:
                    fresh[after] = (trace, device, number)
            fresh.setdefault(state, trace)
        states = fresh
        visited += len(states)
        if visited > _MOST_STATES:
            raise GaveUp
        over = fields.full([counter for counter, at in last.items() if at == step])
        if over and step + 1 < len(order):
            merged: dict[int, _Trace] = {}
            for state, trace in states.items():
                merged.setdefault(state | over, trace)
            states = merged
    found: dict[int, _Trace] = {}
    for state, trace in states.items():
        found.setdefault(state & fields.demands, trace)
    return _without_contained(fields, found)


def _without_contained(fields: _Fields, found: dict[int, _Trace]) -> Served:
    guards = fields.guards & fields.demands
    vectors = sorted((-sum(vector), vector, unserved) for unserved in found for vector in [fields.vector(unserved)])
    kept: list[int] = []
    result: Served = {}
    for _, vector, unserved in vectors:
        if any(((unserved | guards) - (other & ~guards)) & guards == guards for other in kept):
            continue
        kept.append(unserved)
        picks = []
        trace = found[unserved]
        while trace is not None:
            trace, device, number = trace
            picks.append((device, number))
        result[vector] = tuple(reversed(picks))
    return result


class _Fields:
    """Where a state holds what. start: the first state; guards: all guard bits; demands: the fields of those."""

    def __init__(
        self, uses: Uses, free: Sequence[Amount], most: Sequence[int], once: Mapping[tuple[int, int], Sequence[int]]
    ) -> None:
        amounts = [amount for each in uses for _, amount in each]
        scale = lcm(*(each.denominator for each in (*amounts, *free) if isinstance(each, Fraction)))
        widest = [max(0, int(each * scale)) for each in free]
        for counter, amount in (one for each in uses for one in each):
            widest[counter] = max(widest[counter], int(amount * scale))
        singles = 1 + max((each for numbers in once.values() for each in numbers), default=-1)
        self.start = self.guards = at = 0
        self._most = tuple(most)
        self._demand, self._counter, self._single = [], [], []
        for value in most:
            self._demand.append((at, value.bit_length()))
            at = self._field(at, value, value)
        self.demands = (1 << at) - 1
        for value, each in zip(widest, free, strict=True):
            self._counter.append((at, value.bit_length()))
            at = self._field(at, value, max(0, int(each * scale)))
        for _ in range(singles):
            self._single.append(at)
            at = self._field(at, 1, 1)
        self._uses = [sum(int(amount * scale) << self._counter[counter][0] for counter, amount in each) for each in uses]
        self._once = once

    def _field(self, at: int, widest: int, value: int) -> int:
        width = widest.bit_length()
        self.guards |= 1 << at + width
        self.start |= (value | 1 << width) << at
        return at + width + 1

    def taken(self, device: int, number: int) -> int:
        """What a device takes that serves a class."""
        singles = sum(1 << self._single[each] for each in self._once.get((device, number), ()))
        return self._uses[device] + (1 << self._demand[number][0]) + singles

    def full(self, counters: Sequence[int]) -> int:
        """The fields of counters, all bits of them."""
        return sum(((1 << width) - 1) << at for at, width in (self._counter[each] for each in counters))

    def vector(self, unserved: int) -> Vector:
        """The demands that are served where so much of them is left."""
        return tuple(
            most - (unserved >> at & (1 << width) - 1) for most, (at, width) in zip(self._most, self._demand, strict=True)
        )
