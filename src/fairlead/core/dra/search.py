"""The search for devices: depth first over claims, requests, alternatives and devices, in the order of upstream's allocator.

The first full solution wins, so the result is upstream's where nothing is scored. What is skipped cannot hold a solution:
- a device that is interchangeable with one that failed at the same point (`symmetry.py`);
- a state, up to interchangeable devices, that failed before (remembered for the whole search);
- a point from which the requests cannot be matched with different devices (`matching.py`), or where sums of counters do not
  suffice.
Without them the search for n+1 of n devices doubles with each device. Each device that is tried is a unit of work, and so are
so many groups and cells of a state that is written down; a search beyond its budget ends with `GaveUp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.core.dra.covering import GaveUp
from fairlead.core.dra.inventory import bits
from fairlead.core.dra.matching import Matching
from fairlead.core.dra.model import MOST_DEVICES, Amount
from fairlead.core.dra.problem import Limit, Position, Problem, Slot, fits
from fairlead.core.dra.steps import Steps, walk
from fairlead.core.dra.symmetry import Symmetry

Order = Callable[["Search", Position, Slot, int, int], Iterable[int]]
"""(search, position, slot, candidates, devices still needed) -> candidates in the order in which they are tried."""


_PART, _CELL = 16, 4
"""Groups of devices that are counted for one unit of work where a state is written down; a cell takes as long as so many."""


class Search:
    """One search. picks: (position, alternative, device) of the solution. used: devices that are taken alone so far.

    sharing: devices that are held in shares, before or by this search. free: what is left of each counter. matched: whether
    requests are matched all the time; without that a single try is cheaper.
    """

    def __init__(self, problem: Problem, budget: int, order: Order | None = None, *, matched: bool = True) -> None:
        state = problem.state
        self.problem, self.inventory = problem, state.inventory
        self.picks: list[tuple[int, int, int]] = []
        self.work = 0
        self.used = 0
        self.sharing = state.sharing
        self.free = list(state.free)
        self._budget, self._order = budget, order
        self._shares: dict[int, dict[str, Amount]] = {}
        self._claim_used = 0
        self._in_claim = 0
        self._bound: list[int] = []
        self._failed: set[object] = set()
        self._numbers: dict[object, int] = {}
        self._symmetry: Symmetry | None = None
        self._cell_used: list[int] = []
        self._kind_free: dict[int, Amount] = {}
        for at, amount in enumerate(self.free):
            kind = self.inventory.kinds[at]
            self._kind_free[kind] = self._kind_free.get(kind, 0) + max(amount, 0)
        self._sums = self._needed_sums()
        self._demand: list[int] = []
        self._matching = self._matched() if matched else None

    def run(self) -> bool:
        """Whether there is a solution; it is in `picks`. Raises `GaveUp`."""
        if any(self._kind_free.get(kind, 0) < amount for kind, amount in self._sums[0].items()):
            return False
        if self._matching is not None and not self._matching.exists():
            return False
        return walk(self._request(0))

    # The bounds, computed once.

    def _needed_sums(self) -> list[dict[int, Amount]]:
        """By position what it and later ones consume of each kind of counter at least."""
        sums: list[dict[int, Amount]] = [{}]
        if not self.free:
            return sums * (len(self.problem.positions) + 1)
        for position in reversed(self.problem.positions):
            total = dict(sums[-1])
            slots = [slot for slot in position.slots if slot.refusal is None]
            if any(slot.ask.admin or slot.candidates & self.inventory.multiple for slot in slots):
                sums.append(total)
                continue
            least = [(slot.count, self.inventory.least(slot.candidates)) for slot in slots]
            for kind in least[0][1]:
                total[kind] = total.get(kind, 0) + min(count * each.get(kind, 0) for count, each in least)
            sums.append(total)
        return sums[::-1]

    def _matched(self) -> Matching | None:
        """The matching, where requests compete for devices that only one can have."""
        candidates: list[int] = []
        needed: list[int] = []
        for position in self.problem.positions:
            slots = [slot for slot in position.slots if slot.refusal is None]
            union = 0
            for slot in slots:
                union |= slot.candidates
            if any(slot.ask.admin for slot in slots) or union & self.inventory.multiple:
                self._demand.append(-1)
                continue
            self._demand.append(len(candidates))
            candidates.append(union)
            needed.append(min(slot.count for slot in slots))
        return Matching(candidates, needed) if len(candidates) > 1 else None

    # The search.

    def _request(self, at: int) -> Steps:
        """Requests from a position on."""
        if at == len(self.problem.positions):
            return True
        position = self.problem.positions[at]
        before = self._bound, self._in_claim, self._claim_used
        if position.first:
            self._bound = [0 if distinct else -1 for distinct in self.problem.limits[position.claim]]
            self._in_claim = self._claim_used = 0
        if self._request_fits(at):
            for number, slot in enumerate(position.slots):
                if slot.refusal is not None or self._in_claim + slot.count > MOST_DEVICES:
                    continue
                self._in_claim += slot.count
                if (yield self._pick(at, number, slot.count, slot.candidates, 0)):
                    return True
                self._in_claim -= slot.count
        self._bound, self._in_claim, self._claim_used = before
        return False

    def _request_fits(self, at: int) -> bool:
        """Whether sums of counters suffice for all that follows."""
        return all(self._kind_free[kind] >= amount for kind, amount in self._sums[at].items() if amount)

    def _pick(self, at: int, number: int, needed: int, allowed: int, mine: int) -> Steps:
        """Devices for a request, `needed` of the `allowed` ones, and all later requests. mine: shared devices it has already."""
        if not needed:
            return (yield self._request(at + 1))
        position = self.problem.positions[at]
        slot = position.slots[number]
        candidates = self._open(slot, allowed)
        if candidates.bit_count() < needed:
            return False
        if slot.every:
            candidates &= -candidates  # each must be had, in this order
        key = self._key(at, number, needed, mine) if self._failed else None
        if key in self._failed:
            return False
        tried: set[object] = set()
        open_ = candidates
        for device in bits(candidates) if self._order is None else self._order(self, position, slot, candidates, needed):
            if not slot.every and open_.bit_count() < needed:
                break
            open_ ^= 1 << device
            if self._symmetry is not None and self._seen(device, tried):
                continue
            self.work += 1
            if self.work > self._budget:
                raise GaveUp
            if (yield self._try(at, number, needed, device, allowed ^ (1 << device) if slot.every else open_, mine)):
                return True
            if self._symmetry is None:
                self._seen(device, tried)
        self._failed.add(key if key is not None else self._key(at, number, needed, mine))
        return False

    def _open(self, slot: Slot, allowed: int) -> int:
        """Of allowed devices those that nothing in flight and no constraint excludes."""
        candidates = allowed & ~(self._claim_used if slot.ask.admin else self.used)
        for limit in slot.limits:
            bound = self._bound[limit.at]
            if limit.distinct:
                for value in bits(bound):
                    candidates &= ~limit.masks[value]
            elif bound >= 0:
                candidates &= limit.masks[bound]
        return candidates

    def _try(self, at: int, number: int, needed: int, device: int, allowed: int, mine: int) -> Steps:
        """Take one device, go on from there, and undo it where that fails."""
        slot = self.problem.positions[at].slots[number]
        bit, admin = 1 << device, slot.ask.admin
        shared = bool(self.inventory.multiple & bit)
        uses = () if admin or (shared and self.sharing & bit) else self.inventory.uses[device]
        if any(self.free[counter] < amount for counter, amount in uses):
            return False
        values = [(limit, limit.of[device]) for limit in slot.limits]
        if any(value < 0 for _, value in values):
            return False
        own = self._shares.get(device)
        held = own if own is not None else self.problem.state.shares.get(device)
        if shared and not admin and not fits(self.inventory, slot.ask, device, held):
            return False
        matching = self._matching
        saved = None
        if matching is not None and not shared:
            saved = matching.save()
            if not matching.take(self._demand[at], device):
                matching.restore(saved)
                return False
        before = self.used, self.sharing, self._claim_used, self._bound
        self._take(slot, device, uses, values, held)
        self.picks.append((at, number, device))
        if (yield self._pick(at, number, needed - 1, allowed, mine | bit if shared else mine)):
            return True
        self.picks.pop()
        self._undo(slot, device, uses, own, before)
        if saved is not None and matching is not None:
            matching.restore(saved)
        return False

    def _take(
        self,
        slot: Slot,
        device: int,
        uses: tuple[tuple[int, Amount], ...],
        values: list[tuple[Limit, int]],
        held: dict[str, Amount] | None,
    ) -> None:
        bit = 1 << device
        for counter, amount in uses:
            self.free[counter] -= amount
            self._kind_free[self.inventory.kinds[counter]] -= amount
        if not self.inventory.multiple & bit:
            self.used |= bit
            self._claim_used |= bit
            self._mark(device)
        elif not slot.ask.admin:
            self.sharing |= bit
            sums = dict(held or {})
            for name, amount in self.inventory.share(slot.ask.capacity, device).items():
                sums[name] = sums.get(name, 0) + amount
            self._shares[device] = sums
        if values:
            self._bound = list(self._bound)
            for limit, value in values:
                self._bound[limit.at] = self._bound[limit.at] | 1 << value if limit.distinct else value

    def _undo(
        self,
        slot: Slot,
        device: int,
        uses: tuple[tuple[int, Amount], ...],
        own: dict[str, Amount] | None,
        before: tuple[int, int, int, list[int]],
    ) -> None:
        for counter, amount in uses:
            self.free[counter] += amount
            self._kind_free[self.inventory.kinds[counter]] += amount
        self.used, self.sharing, self._claim_used, self._bound = before
        if not self.inventory.multiple >> device & 1:
            self._mark(device)
        elif own is not None:
            self._shares[device] = own
        else:
            self._shares.pop(device, None)

    # What is the same up to interchangeable devices.

    def _known(self) -> Symmetry:
        """Computed at the first failure: where everything fits at once it is not needed."""
        if self._symmetry is None:
            self._symmetry = Symmetry(self.problem)
            self._cell_used = [0] * len(self._symmetry.cells)
            for index in bits(self.used):
                self._mark(index)
        return self._symmetry

    def _seen(self, device: int, tried: set[object]) -> bool:
        """Whether one that is interchangeable with a device was tried at this point; from now on it was."""
        like = self._like(device)
        if like in tried:
            return True
        tried.add(like)
        return False

    def _mark(self, device: int) -> None:
        """Keep the taken devices of each cell."""
        symmetry = self._symmetry
        if symmetry is None:
            return
        cell = symmetry.cell_of[device]
        if cell < 0:
            return
        bit = 1 << symmetry.local[device]
        if self.used >> device & 1:
            self._cell_used[cell] |= bit
        else:
            self._cell_used[cell] &= ~bit

    def _cell_state(self, cell: int) -> object:
        symmetry = self._known()
        used: object = self._cell_used[cell]
        if symmetry.equal[cell]:
            used = tuple((self._cell_used[cell] & mask).bit_count() for mask in symmetry.equal[cell])
        base = (symmetry.alike[cell], used)
        if not self._shares and not self.problem.admin:
            return base
        extra = []
        for local, index in enumerate(symmetry.cells[cell]):
            share = self._shares.get(index)
            if share is not None:
                extra.append((local, tuple(sorted(share.items()))))
            if self._claim_used >> index & 1:
                extra.append((local, ()))
        return (*base, tuple(extra))

    def _like(self, device: int) -> object:
        """Equal for devices that are interchangeable now."""
        symmetry = self._known()
        cell = symmetry.cell_of[device]
        taken = (self.used >> device & 1, self._claim_used >> device & 1) if self.problem.admin else ()
        if cell < 0:
            return symmetry.group_of[device], taken
        return symmetry.like[device], taken, self._cell_state(cell)

    def _key(self, at: int, number: int, needed: int, mine: int) -> object:
        """Equal for states from which the same can be reached."""
        symmetry = self._known()
        groups, cells = symmetry.relevant[at]
        used = self.used
        counts: tuple[object, ...] = tuple((mask & ~used).bit_count() for mask in groups)
        if self.problem.admin:
            own = self._claim_used
            counts = (
                counts,
                tuple((mask & ~own).bit_count() for mask in groups),
                tuple((mask & used & ~own).bit_count() for mask in groups),
            )
        self.work += (len(groups) + _CELL * len(cells)) // _PART
        states = sorted(self._numbers.setdefault(self._cell_state(cell), len(self._numbers)) for cell in cells)
        claim = self._in_claim if self.problem.limited else 0
        return at, number, needed, mine, claim, counts, tuple(states), tuple(self._bound)
