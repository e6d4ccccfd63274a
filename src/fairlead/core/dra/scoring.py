"""Which of interchangeable choices keeps most of what others could still get: the order of a scored search.

Devices that share counters are valued by what taking one makes impossible: for every size of device in the cell the share of its
places that is lost, weighted by the size, so that whole devices stay whole as long as partial ones suffice. Devices of a claim
are kept in as few groups (values of attributes such as the PCIe root) as possible, and in the smallest group that holds all that
is still needed. Before all that, GPUs and network cards are taken by how they are connected, where that is known
(`connected.py`).
"""

from __future__ import annotations

from fairlead.core.dra.connected import Wanted
from fairlead.core.dra.inventory import Inventory, bits
from fairlead.core.dra.problem import Position, Slot
from fairlead.core.dra.search import Search

_UNIT = 1_000_000


class Packed:
    """The order in which a search tries devices: least loss first. groups: attributes, most important first.

    doubted: devices that are tried after all others.
    """

    def __init__(self, inventory: Inventory, groups: tuple[str, ...] = (), doubted: int = 0) -> None:
        self._doubted = doubted
        self._inventory = inventory
        self._groups = [inventory.values(each) for each in groups]
        self._cell_of = {index: members for members in inventory.cells for index in members}
        self._sizes = [
            sum(int(_UNIT * amount / inventory.totals[at]) if inventory.totals[at] else 0 for at, amount in uses)
            for uses in inventory.uses
        ]
        self._wants: dict[int, tuple[int, int, int]] = {}
        self._chosen: dict[int, int] = {}
        self._losses: dict[tuple[int, tuple[int, ...], object], int] = {}

    def __call__(self, search: Search, position: Position, slot: Slot, candidates: int, needed: int) -> list[int]:
        """Candidates, the best first."""
        own = 0
        for at, _, device in search.picks:
            if search.problem.positions[at].claim == position.claim:
                own |= 1 << device
        first = self._connected(search, position, slot, candidates, needed)
        ranks = [self._ranks(masks, candidates, needed, own) for _, masks in self._groups]

        def key(index: int) -> tuple[object, ...]:
            grouped = [rank.get(of[index], (3, 0)) for (of, _), rank in zip(self._groups, ranks, strict=True)]
            return (self._doubted >> index & 1, not first >> index & 1, *grouped, *self._loss(search, index), index)

        return sorted(bits(candidates), key=key)

    def _connected(self, search: Search, position: Position, slot: Slot, candidates: int, needed: int) -> int:
        """The devices that are best connected with each other and with those of the claim, if all are GPUs, or network cards."""
        connected = self._inventory.connected
        of_gpus, of_cards = not candidates & ~connected.gpus, not candidates & ~connected.cards
        if not (of_gpus or of_cards) or slot.every or slot.ask.admin or any(each.distinct for each in slot.limits):
            return 0
        gpus, cards, allowed = self._later(search, position)
        gettable = connected.gpus | allowed | (candidates if of_cards else 0)
        own = tuple(device for at, _, device in search.picks if search.problem.positions[at].claim == position.claim)
        state = search.problem.state
        usable = gettable & ~(search.used | state.alone | state.sharing | state.unservable)
        if of_cards:
            return connected.cards_first(candidates, Wanted(own, gpus, cards + needed, usable), allowed)
        mine = sum(1 << each for each in own) & connected.gpus
        chosen = self._chosen.get(position.claim, 0)
        if chosen.bit_count() == mine.bit_count() + needed + gpus and not mine & ~chosen and not chosen & ~mine & ~candidates:
            return chosen & ~mine  # what was best before the first of them was taken still is
        sets = [each.masks for each in slot.limits]
        found = connected.gpus_first(candidates, Wanted(own, gpus + needed, cards, usable), sets)
        if not found and gpus:
            found = connected.gpus_first(candidates, Wanted(own, needed, cards, usable), sets)
        self._chosen[position.claim] = found | mine
        return found

    def _later(self, search: Search, position: Position) -> tuple[int, int, int]:
        """What later requests of a claim want: how many GPUs, how many network cards, and of which of both."""
        found = self._wants.get(id(position))
        if found is None:
            connected, gpus, cards, allowed, after = self._inventory.connected, 0, 0, 0, False
            for each in search.problem.positions:
                slot = next((slot for slot in each.slots if slot.refusal is None), None)
                if after and slot is not None and each.claim == position.claim and not slot.ask.admin:
                    if not slot.candidates & ~connected.gpus:
                        gpus, allowed = gpus + slot.count, allowed | slot.candidates
                    elif not slot.candidates & ~connected.cards:
                        cards, allowed = cards + slot.count, allowed | slot.candidates
                after = after or each is position
            found = self._wants[id(position)] = gpus, cards, allowed
        return found

    @staticmethod
    def _ranks(masks: list[int], candidates: int, needed: int, own: int) -> dict[int, tuple[int, int]]:
        """By value: used by the claim already, large enough (the smallest first), or too small (the largest first)."""
        ranks = {}
        for number, mask in enumerate(masks):
            there = (candidates & mask).bit_count()
            if own & mask:
                ranks[number] = (0, -there)
            else:
                ranks[number] = (1, there) if there >= needed else (2, -there)
        return ranks

    def _loss(self, search: Search, index: int) -> tuple[int, int]:
        """(what taking a device makes impossible, how much of its cell is free): a share of a device in use loses nothing."""
        inventory = self._inventory
        if search.sharing >> index & 1:
            return 0, 0
        members = self._cell_of.get(index)
        if members is None:
            return (_UNIT if inventory.multiple >> index & 1 else 0), 0
        counters = sorted({at for each in members for at, _ in inventory.uses[each]})
        free = tuple(search.free[at] for at in counters)
        used = search.used
        state = (index, tuple(each for each in members if used >> each & 1), free)
        loss = self._losses.get(state)
        if loss is None:
            uses = dict(inventory.uses[index])
            lost: dict[int, int] = {}
            places: dict[int, int] = {}
            for each in members:
                size = self._sizes[each]
                places[size] = places.get(size, 0) + 1
                open_before = not used >> each & 1 and all(search.free[at] >= amount for at, amount in inventory.uses[each])
                if open_before and (
                    each == index or any(search.free[at] - uses.get(at, 0) < amount for at, amount in inventory.uses[each])
                ):
                    lost[size] = lost.get(size, 0) + 1
            loss = self._losses[state] = sum(size * count // places[size] for size, count in lost.items())
        return loss, sum(int(_UNIT * search.free[at] / inventory.totals[at]) for at in counters if inventory.totals[at])
