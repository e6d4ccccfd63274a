"""Partitions that almost fit: a pod's devices as a covering problem over cells, for claims without constraints.

Requests with the same candidates are one class with a demand. A cell (a GPU with its partitions) can serve several vectors of
demands (`vectors.py`); only the maximal ones count, and cells of the same structure have the same ones. Cells are given vectors
(`covering.py`) until devices outside cells can serve what is left, by matching. Of constraints only this is respected: a cell
gives no value twice under `distinctAttribute`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from fairlead.core.dra.covering import Cover, Source, Vector
from fairlead.core.dra.inventory import Inventory, bits, keep
from fairlead.core.dra.matching import Matching
from fairlead.core.dra.model import MOST_DEVICES
from fairlead.core.dra.problem import Position, Problem, Slot
from fairlead.core.dra.vectors import maximal

Pick = tuple[int, int, int]
"""(position, alternative, device), as in `search.Search.picks`."""


LARGEST_CELL = 64
"""Devices of a cell whose vectors are listed."""

_Class = tuple[int, tuple[tuple[int, int], ...]]
"""What requests have in common that are one demand: candidates, and the `distinctAttribute` constraints, (claim, position)."""


def greedy(problem: Problem, order: Sequence[tuple[int, Sequence[int]]] | None = None) -> list[Pick] | None:
    """Each request in order takes the first devices that are left: what a search finds, unless it has to go back. None: it has.

    order: (position, its alternatives); None: as the claims have them.
    """
    inventory = problem.state.inventory
    all_uses, consumers = inventory.uses, inventory.consumers
    gone, free, in_claim = 0, list(problem.state.free), [0] * len(problem.claims)  # gone: taken, or short of a counter
    picks: list[Pick] = []
    for at, alternatives in order or [(at, range(len(each.slots))) for at, each in enumerate(problem.positions)]:
        claim, slots = problem.positions[at].claim, problem.positions[at].slots
        for alternative in alternatives:
            slot = slots[alternative]
            if slot.refusal is not None or in_claim[claim] + slot.count > MOST_DEVICES:
                continue
            taken: list[int] = []
            before = gone
            while len(taken) < slot.count and (left := slot.candidates & ~gone):
                low = left & -left
                gone |= low
                device = low.bit_length() - 1
                taken.append(device)
                for counter, amount in all_uses[device]:
                    free[counter] = rest = free[counter] - amount
                    amounts, devices = consumers[counter]
                    if rest < amounts[-1]:
                        gone |= devices[bisect_right(amounts, rest)]
            if len(taken) == slot.count:
                picks += [(at, alternative, device) for device in taken]
                in_claim[claim] += slot.count
                break
            gone = before
            for counter, amount in (one for device in taken for one in all_uses[device]):
                free[counter] += amount
        else:
            return None
    return picks


def largest_first(problem: Problem) -> list[Pick] | None:
    """Each request takes its first alternative, those that consume most before the others; None proves nothing."""
    inventory = problem.state.inventory
    order = []
    for at, position in enumerate(problem.positions):
        number = next(number for number, slot in enumerate(position.slots) if slot.refusal is None)
        slot = position.slots[number]
        order.append((-sum(inventory.least(slot.candidates).values()), slot.candidates.bit_count(), at, (number,)))
    picks = greedy(problem, [(at, numbers) for _, _, at, numbers in sorted(order)])
    return None if picks is None else sorted(picks)


def fits_smallest(problem: Problem) -> bool:
    """Whether all fit if the largest requests choose first, each its smallest alternative; False proves nothing."""
    inventory = problem.state.inventory
    order = []
    for at, position in enumerate(problem.positions):
        sizes = [
            (sum(inventory.least(slot.candidates).values()) * slot.count, number) for number, slot in enumerate(position.slots)
        ]
        sizes.sort()
        order.append((-sizes[0][0], at, [number for _, number in sizes]))
    order.sort()
    return greedy(problem, [(at, alternatives) for _, at, alternatives in order]) is not None


def _class(position: Position, slot: Slot) -> _Class:
    if not slot.limits:
        return slot.candidates, ()
    return slot.candidates, tuple((position.claim, each.at) for each in slot.limits if each.distinct)


class _Kind:
    """Cells of one structure. vectors: maximal demands that one of them serves -> its devices by class, as local positions."""

    __slots__ = ("cells", "vectors")

    def __init__(self, cells: list[tuple[int, ...]], vectors: dict[Vector, tuple[tuple[int, int], ...]]) -> None:
        self.cells, self.vectors = cells, vectors


class Packing:
    """The covering problem of one pod on one node."""

    @staticmethod
    def applies(problem: Problem) -> bool:
        """Whether the claims are of the kind that this decides exactly: no constraints, no admin access, no shares.

        Of cells that are too large not all vectors could be listed.
        """
        shared = problem.state.inventory.multiple
        slots = [slot for position in problem.positions for slot in position.slots if slot.refusal is None]
        if any(len(members) > LARGEST_CELL for members in problem.state.inventory.cells):
            return False
        return not problem.admin and not any(slot.limits or slot.candidates & shared for slot in slots)

    @staticmethod
    def relaxed(problem: Problem) -> Problem:
        """What is left of a problem without admin access and shared devices: no easier to refuse than it."""
        shared = problem.state.inventory.multiple
        positions = []
        for position in problem.positions:
            slots = [slot for slot in position.slots if slot.refusal is None]
            if not any(slot.ask.admin or slot.candidates & shared for slot in slots):
                positions.append(position)
        return msgspec.structs.replace(problem, positions=positions, admin=False)

    def __init__(self, problem: Problem, budget: int) -> None:
        self.problem = problem
        self._classes: list[int] = []
        self._distinct: list[tuple[tuple[tuple[int, int], list[int]], ...]] = []
        numbers: dict[_Class, int] = {}
        most: list[int] = []
        self._open: list[list[int]] = []
        for position in problem.positions:
            self._open.append([at for at, slot in enumerate(position.slots) if slot.refusal is None])
            counts: dict[int, int] = {}
            for at in self._open[-1]:
                slot = position.slots[at]
                number = numbers.setdefault(_class(position, slot), len(numbers))
                if number == len(self._classes):
                    self._classes.append(slot.candidates)
                    self._distinct.append(
                        tuple(((position.claim, each.at), each.of) for each in slot.limits if each.distinct)
                        if slot.limits
                        else ()
                    )
                    most.append(0)
                counts[number] = max(counts.get(number, 0), slot.count)
            for number, count in counts.items():
                most[number] += count
        self._number = numbers
        reached = 0
        for mask in self._classes:
            reached |= mask
        inventory = problem.state.inventory
        self._plain = reached
        self._matched: Matching | None = None
        self._kinds = self._kinds_of(inventory, reached, most)
        kinds = [Source(len(kind.cells), tuple(kind.vectors)) for kind in self._kinds]
        self._cover = Cover(kinds, self._grouped(self._plain) if kinds else [], self._by_plain, budget)

    @property
    def work(self) -> int:
        """States that were tried."""
        return self._cover.work

    def solve(self) -> list[Pick] | None:
        """Devices for all requests, the first alternatives that go together; None: there are none. Raises `GaveUp`."""
        demand, chosen = [0] * len(self._classes), [0] * len(self._open)
        in_claim = [0] * len(self.problem.claims)
        for at, position in enumerate(self.problem.positions):
            if len(self._open[at]) == 1:
                chosen[at] = self._open[at][0]
                demand = self._more(demand, position, position.slots[chosen[at]])
                in_claim[position.claim] += position.slots[chosen[at]].count
        if max(in_claim, default=0) > MOST_DEVICES:
            return None
        several = [at for at, open_ in enumerate(self._open) if len(open_) > 1]
        # With the smallest alternatives first: mostly all fit then, and else its weights prove what does not.
        if not (several and self._cover.solve(self._smallest(several, demand))) and not self._cover.solve(tuple(demand)):
            return None
        return self._alternatives(several, demand, chosen, in_claim)

    def _smallest(self, several: list[int], demand: list[int]) -> Vector:
        """Demands with the alternatives that consume least."""
        inventory = self.problem.state.inventory
        for at in several:
            position = self.problem.positions[at]
            slots = [position.slots[number] for number in self._open[at]]
            smallest = min(slots, key=lambda slot: sum(inventory.least(slot.candidates).values()) * slot.count)
            demand = self._more(demand, position, smallest)
        return tuple(demand)

    def _undecided(self, several: list[int]) -> list[tuple[tuple[Vector, ...], int]]:
        """Requests whose alternative is not chosen: the demands of their alternatives, and how many have the same."""
        found: dict[tuple[Vector, ...], int] = {}
        nothing = [0] * len(self._classes)
        for at in several:
            position = self.problem.positions[at]
            vectors = tuple(tuple(self._more(nothing, position, position.slots[number])) for number in self._open[at])
            found[vectors] = found.get(vectors, 0) + 1
        return list(found.items())

    def _alternatives(self, several: list[int], demand: list[int], chosen: list[int], in_claim: list[int]) -> list[Pick] | None:
        """Choose for requests with several alternatives, in order; what fails with those before is given up."""
        if not several:
            return self._picks(chosen)
        at = several[0]
        position, undecided = self.problem.positions[at], self._undecided(several[1:])
        for alternative in self._open[at]:
            slot = position.slots[alternative]
            if in_claim[position.claim] + slot.count > MOST_DEVICES:
                continue
            more = self._more(demand, position, slot)
            if self._cover.is_too_much(tuple(more), undecided) or not self._cover.solve(tuple(more)):
                continue
            in_claim[position.claim] += slot.count
            found = self._alternatives(several[1:], more, [*chosen[:at], alternative, *chosen[at + 1 :]], in_claim)
            if found is not None:
                return found
            in_claim[position.claim] -= slot.count
        return None

    def _more(self, demand: list[int], position: Position, slot: Slot) -> list[int]:
        more = list(demand)
        more[self._number[_class(position, slot)]] += slot.count
        return more

    def _by_plain(self, demand: Vector) -> bool:
        """Whether devices outside cells suffice."""
        total = sum(demand)
        if not total:
            return True
        if total > self._plain.bit_count():
            return False
        if self._matched is None:
            self._matched = Matching([each & self._plain for each in self._classes], [])
        return self._matched.meet(demand)

    def _matching(self, demand: Vector) -> Matching | None:
        numbers = [number for number, count in enumerate(demand) if count]
        matching = Matching([self._classes[number] & self._plain for number in numbers], [demand[number] for number in numbers])
        return matching if matching.exists() else None

    # What cells serve.

    def _kinds_of(self, inventory: Inventory, reached: int, most: list[int]) -> list[_Kind]:
        found: dict[tuple[object, ...], list[int]] = {}
        free, limited = self.problem.state.free, any(self._distinct)
        for at, (members, mask) in enumerate(zip(inventory.cells, inventory.cell_masks, strict=True)):
            if not mask & reached:
                continue
            self._plain &= ~mask
            first = members[0]
            if mask >> first == (1 << len(members)) - 1:
                classes = tuple((each & mask) >> first for each in self._classes)
            else:
                classes = tuple(sum(1 << local for local, one in enumerate(members) if each >> one & 1) for each in self._classes)
            form, _, counters = inventory.forms[at]
            values = self._once(members) if limited else ()
            found.setdefault((form, classes, tuple(free[counter] for counter in counters), tuple(most), values), []).append(at)
        result = []
        for key, numbers in found.items():
            vectors = inventory.packings.get(key)
            if vectors is None:
                _, uses, counters = inventory.forms[numbers[0]]
                locals_ = [
                    [index for index, each in enumerate(self._classes) if each >> one & 1] for one in inventory.cells[numbers[0]]
                ]
                once: dict[tuple[int, int], list[int]] = {}
                for local, class_, number in self._once(inventory.cells[numbers[0]]) if limited else ():
                    once.setdefault((local, class_), []).append(number)
                vectors = maximal(uses, locals_, [free[counter] for counter in counters], most, once)
                keep(inventory.packings, key, vectors)
            cells = [inventory.cells[number] for number in numbers]
            result.append(_Kind(cells, vectors))
        return result

    def _once(self, members: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
        """Where classes can have one of several devices under `distinctAttribute`: (device, class, number of the value)."""
        users: dict[tuple[tuple[int, int], int], list[tuple[int, int]]] = {}
        for number, limits in enumerate(self._distinct):
            for key, of in limits:
                for local, index in enumerate(members):
                    if self._classes[number] >> index & 1:
                        users.setdefault((key, of[index]), []).append((local, number))
        several = [each for each in users.values() if len({local for local, _ in each}) > 1]
        return tuple(sorted((local, class_, number) for number, each in enumerate(several) for local, class_ in each))

    def _grouped(self, plain: int) -> list[Source]:
        """Devices outside cells, those in the same classes together: each serves one demand of one class."""
        groups: dict[tuple[int, ...], int] = {}
        for index in bits(plain):
            classes = tuple(number for number, each in enumerate(self._classes) if each >> index & 1)
            groups[classes] = groups.get(classes, 0) + 1
        size = len(self._classes)
        units = {number: tuple(int(each == number) for each in range(size)) for number in range(size)}
        return [Source(count, tuple(units[each] for each in classes)) for classes, count in groups.items()]

    # The result.

    def _picks(self, chosen: list[int]) -> list[Pick]:
        """Devices of the cover, given to the requests in order, the first devices to the first requests."""
        devices = [0] * len(self._classes)
        served = [0] * len(self._classes)
        cells = {number: iter(kind.cells) for number, kind in enumerate(self._kinds)}
        demand = [0] * len(self._classes)
        for at, position in enumerate(self.problem.positions):
            slot = position.slots[chosen[at]]
            demand[self._number[_class(position, slot)]] += slot.count
        for number, vector in self._cover.solution:
            members = next(cells[number])
            for local, class_ in self._kinds[number].vectors[vector]:
                if served[class_] < demand[class_]:
                    served[class_] += 1
                    devices[class_] |= 1 << members[local]
        rest = tuple(map(int.__sub__, demand, served))
        matching = self._matching(rest) if any(rest) else None
        if matching is not None:
            for number, mask in zip([number for number, count in enumerate(rest) if count], matching.assigned, strict=True):
                devices[number] |= mask
        picks = []
        for at, position in enumerate(self.problem.positions):
            slot = position.slots[chosen[at]]
            number = self._number[_class(position, slot)]
            for _ in range(slot.count):
                low = devices[number] & -devices[number]
                devices[number] ^= low
                picks.append((at, chosen[at], low.bit_length() - 1))
        return picks
