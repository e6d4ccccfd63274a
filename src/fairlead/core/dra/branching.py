"""Claims under constraints as a tree of covering problems: fix what a constraint leaves open, until the covering problem decides.

A node of the tree is a problem of which some values are fixed. Its covering problem (`packing.py`, constraints left out) has no
solution: neither has anything below it. It has one that breaks no constraint: that is a solution. Else one broken constraint is
chosen, the one with the fewest ways, and each way is tried: the value of a `matchAttribute` constraint, or the request that may
use a value which `distinctAttribute` allows once, and if it takes several devices which of them. The ways of one constraint
cover all solutions, so both verdicts are exact (branch and bound, Land and Doig 1960). Of values that are interchangeable (their
cells have the same structure, state and uses) one is tried.

Requests with admin access and shared devices are left out of the covering problems; where there are some, a search decides the
problem once all values are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from fairlead.core.dra.covering import GaveUp
from fairlead.core.dra.inventory import bits
from fairlead.core.dra.packing import LARGEST_CELL, Packing, Pick
from fairlead.core.dra.problem import Limit, Position, Problem, Slot
from fairlead.core.dra.refusals import Kind, Refusal
from fairlead.core.dra.values import narrow

_NODE, _PART = 4, 16
"""Units of work of a node of the tree; so many devices are one more."""

_EXCLUDED = Refusal(Kind.TOGETHER, "no device that the request could have satisfies a constraint")

_Under = tuple[int, Slot, Limit]
"""(position, an alternative of it that is under a constraint, the constraint)."""

Decide = Callable[[Problem], list[Pick] | None]
"""A search for a problem whose values are fixed; raises `GaveUp`."""


class Tree:
    """The tree of one problem. spend: counts units of work, and raises `GaveUp` beyond those that may be done."""

    def __init__(self, problem: Problem, decide: Decide, spend: Callable[[int], None], left: Callable[[], int]) -> None:
        self._decide, self._spend, self._left = decide, spend, left
        self._inventory = problem.state.inventory
        self._problem = problem
        slots = [slot for position in problem.positions for slot in position.slots]
        self._whole = not any(slot.ask.admin or slot.candidates & self._inventory.multiple for slot in slots)
        self._large = any(len(members) > LARGEST_CELL for members in self._inventory.cells)
        self._unknown = False
        self._numbers: dict[object, int] = {}

    def solve(self) -> list[Pick] | None:
        """Devices for all requests; None: there are none. Raises `GaveUp`."""
        found = self._node(self._problem)
        if found is None and self._unknown:
            raise GaveUp
        return found

    def _node(self, problem: Problem) -> list[Pick] | None:
        """A solution of a problem; None: it has none, or that is not known: then `_unknown` is true."""
        self._spend(_NODE + len(self._inventory.devices) // _PART)
        picks = None
        if not self._large:
            packing = Packing(problem if self._whole else Packing.relaxed(problem), self._left() // 2)
            try:
                picks = packing.solve()
                if picks is None:
                    return None
            except GaveUp:
                pass
            finally:
                self._spend(packing.work)
        broken = self._broken(problem, picks if self._whole else None)
        if broken is None:
            return picks if self._whole and picks is not None else self._leaf(problem)
        for child in broken:
            found = self._node(child)
            if found is not None:
                return found
        return None

    def _leaf(self, problem: Problem) -> list[Pick] | None:
        """What the covering problem does not decide."""
        try:
            return self._decide(problem)
        except GaveUp:
            self._unknown = True
            return None

    def _broken(self, problem: Problem, picks: list[Pick] | None) -> Iterator[Problem] | None:
        """The problems below a node by the constraint with the fewest ways, of those that picks break; None: there is none.

        Without picks every constraint counts of which several values are open.
        """
        values: dict[tuple[int, int], list[int]] = {}
        for at, number, device in picks or ():
            position = problem.positions[at]
            for limit in position.slots[number].limits:
                values.setdefault((position.claim, limit.at), []).append(limit.of[device])
        best: tuple[int, Iterator[Problem]] | None = None
        for claim, kinds in enumerate(problem.limits):
            for at, distinct in enumerate(kinds):
                under = _under(problem, claim, at)
                if not under:
                    continue
                chosen = values.get((claim, at), [])
                if distinct:
                    twice = next((value for value in dict.fromkeys(chosen) if chosen.count(value) > 1), None)
                    if twice is not None:
                        ways = self._once(problem, under, under[0][2].masks[twice])
                        best = min(best or ways, ways, key=_ways)
                elif len(set(chosen)) > 1 or picks is None:
                    union = 0
                    for _, slot, _ in under:
                        union |= slot.candidates
                    open_ = [value for value, mask in enumerate(under[0][2].masks) if union & mask]
                    if len(open_) > 1:
                        ways = len(open_), self._values(problem, under, open_)
                        best = min(best or ways, ways, key=_ways)
        return None if best is None else best[1]

    def _values(self, problem: Problem, under: list[_Under], open_: list[int]) -> Iterator[Problem]:
        """One problem for each value that the devices under a constraint can have; of interchangeable values the first."""
        tried, limit = set(), under[0][2]
        for value in open_:
            mask = limit.masks[value]
            if self._whole:
                signature = self._signature(problem, limit, mask)
                if signature in tried:
                    continue
                tried.add(signature)
            restricted = _restricted(problem, {id(slot): mask for _, slot, _ in under})
            if restricted is not None:
                yield restricted

    def _once(self, problem: Problem, under: list[_Under], mask: int) -> tuple[int, Iterator[Problem]]:
        """One problem for each request that may use a value alone, and if it takes several devices for each device of it."""
        ways: list[tuple[int, int]] = []
        for at in dict.fromkeys(at for at, _, _ in under):
            slots = [slot for position, slot, _ in under if position == at and slot.candidates & mask]
            if not slots:
                continue
            if all(slot.count == 1 for slot in slots):
                ways.append((at, mask))
            else:
                union = 0
                for slot in slots:
                    union |= slot.candidates & mask
                ways += [(at, 1 << device) for device in bits(union)]
        limited = {id(slot) for _, slot, _ in under}

        def problems() -> Iterator[Problem]:
            for at, allowed in ways:
                own = {id(slot) for slot in problem.positions[at].slots}
                masks = {each: ~mask | (allowed if each in own else 0) for each in limited}
                restricted = _restricted(problem, masks)
                if restricted is not None:
                    yield restricted

        return len(ways), problems()

    def _signature(self, problem: Problem, limit: Limit, mask: int) -> object:
        """Equal for values whose devices can be exchanged for each other, cell by cell, without any request noticing."""
        slots = [
            (slot, [other.of for other in slot.limits if other.of is not limit.of])
            for position in problem.positions
            for slot in position.slots
            if slot.refusal is None
        ]
        treated: dict[int, object] = {}
        for device in bits(mask):
            treated[device] = tuple(
                (number, tuple(of[device] for of in others))
                for number, (slot, others) in enumerate(slots)
                if slot.candidates >> device & 1
            )
        inventory, free = self._inventory, problem.state.free
        parts: list[object] = []
        rest = mask
        for at, members in enumerate(inventory.cells):
            inside = [each for each in members if mask >> each & 1]
            if not inside:
                continue
            if len(inside) < len(members):
                return mask  # a cell of several values
            form, _, counters = inventory.forms[at]
            parts.append((form, tuple(free[counter] for counter in counters), tuple(treated[each] for each in members)))
            for each in members:
                rest ^= 1 << each
        parts += [(inventory.uses[each] and each, treated[each]) for each in bits(rest)]
        return tuple(sorted(self._numbers.setdefault(each, len(self._numbers)) for each in parts))


def _ways(each: tuple[int, Iterator[Problem]]) -> int:
    return each[0]


def _under(problem: Problem, claim: int, at: int) -> list[_Under]:
    """The alternatives under a constraint, with their positions."""
    return [
        (number, slot, limit)
        for number, position in enumerate(problem.positions)
        if position.claim == claim
        for slot in position.slots
        if slot.refusal is None
        for limit in slot.limits
        if limit.at == at
    ]


def _restricted(problem: Problem, allowed: Mapping[int, int]) -> Problem | None:
    """A problem with fewer candidates, by `id` of slots; None: a request has no alternative left."""
    positions = []
    for position in problem.positions:
        slots = []
        for slot in position.slots:
            candidates = slot.candidates & allowed.get(id(slot), -1)
            if slot.refusal is not None:
                slots.append(slot)
            elif candidates.bit_count() < slot.count:
                slots.append(msgspec.structs.replace(slot, refusal=_EXCLUDED))
            else:
                slots.append(msgspec.structs.replace(slot, candidates=candidates))
        if all(slot.refusal is not None for slot in slots):
            return None
        positions.append(Position(position.claim, position.first, slots))
    found = msgspec.structs.replace(problem, positions=positions)
    return found if narrow(found) else None  # it changes alternatives, which are copies
