"""Which devices of a problem are interchangeable, so that a search tries one of them and not each.

Two devices without shared counters are interchangeable if every request of the pod treats them alike: one group, of which only
the number of free ones matters. Devices that share counters form a cell (a GPU with its partitions); two cells are
interchangeable if their devices are in the same groups, consume alike, and the same ones of them are taken. A device that can be
shared is a cell of its own.
"""

from __future__ import annotations

from fairlead.core.dra.inventory import bits
from fairlead.core.dra.problem import Problem


class Symmetry:
    """Groups and cells of one problem.

    group_of: by device, -1: no request can get it. plain: devices of each group that are not in a cell. cells: members of each;
    alike: by cell a number that cells of the same structure share. cell_of, local: by device its cell (-1: none), and its
    position there; like: the position of the first device there that consumes and is treated the same. equal: by cell its devices
    of each such kind, as sets of positions; empty: all differ. relevant: by request the (groups, cells) of it and later ones.
    """

    def __init__(self, problem: Problem) -> None:
        state = problem.state
        inventory = state.inventory
        slots = [slot for position in problem.positions for slot in position.slots]
        reached = 0
        for slot in slots:
            reached |= slot.candidates
        parts = [reached] if reached else []
        for candidates in {slot.candidates: None for slot in slots}:
            parts = _refine(parts, candidates)
        for values in {id(limit.masks): limit.masks for slot in slots for limit in slot.limits}.values():
            parts = _split(parts, values)
        self.group_of = [-1] * len(inventory.devices)
        self.cells: list[tuple[int, ...]] = [
            members for members in inventory.cells if any(reached >> each & 1 for each in members)
        ]
        celled = sum(1 << index for members in self.cells for index in members)
        self.cells += [(index,) for index in bits(reached & inventory.multiple & ~celled)]
        celled |= reached & inventory.multiple
        self.plain: list[int] = []
        for number, part in enumerate(parts):
            for index in bits(part):
                self.group_of[index] = number
            self.plain.append(part & ~celled)
        self.cell_of, self.local = [-1] * len(inventory.devices), [0] * len(inventory.devices)
        self.masks = [sum(1 << index for index in members) for members in self.cells]
        numbers: dict[object, int] = {}
        self.alike = []
        self.like = list(range(len(inventory.devices)))
        self.equal: list[tuple[int, ...]] = []
        for at, members in enumerate(self.cells):
            counters: dict[int, int] = {}
            masks: dict[int, int] = {}
            form: list[object] = []
            equal: dict[object, int] = {}
            for local, index in enumerate(members):
                self.cell_of[index], self.local[index] = at, local
                uses = tuple((counters.setdefault(counter, len(counters)), amount) for counter, amount in inventory.uses[index])
                share = state.shares.get(index)
                held = (state.sharing >> index & 1, tuple(sorted(share.items())) if share else ())
                kind = tuple(inventory.devices[index].capacity.items()) if inventory.devices[index].multiple else ()
                form.append((self.group_of[index], uses, held, repr(kind)))
                alone = index if inventory.multiple >> index & 1 else -1  # a shared device has a state of its own
                self.like[index] = equal.setdefault((form[-1], alone), local)
                masks[self.like[index]] = masks.get(self.like[index], 0) | 1 << local
            form.append(tuple(state.free[counter] for counter in counters))
            self.alike.append(numbers.setdefault(tuple(form), len(numbers)))
            self.equal.append(tuple(masks.values()) if len(masks) < len(members) else ())
        self.relevant = self._relevant(problem)

    def _relevant(self, problem: Problem) -> list[tuple[list[int], list[int]]]:
        result: list[tuple[list[int], list[int]]] = []
        later = 0
        for position in reversed(problem.positions):
            for slot in position.slots:
                later |= slot.candidates
            groups = [mask for mask in self.plain if mask & later]
            cells = [at for at, mask in enumerate(self.masks) if mask & later]
            result.append((groups, cells))
        return result[::-1]


def _refine(parts: list[int], mask: int) -> list[int]:
    """Split every part into what is in a set and what is not."""
    result = []
    for part in parts:
        inside = part & mask
        if inside:
            result.append(inside)
        if inside != part:
            result.append(part ^ inside)
    return result


def _split(parts: list[int], masks: list[int]) -> list[int]:
    """Split every part by the values of its devices: a set for each value."""
    result = []
    for part in parts:
        left = part
        for mask in masks:
            if not left & (left - 1):
                break
            if inside := left & mask:
                result.append(inside)
                left ^= inside
        if left:  # one, or those without the attribute
            result.append(left)
    return result
