"""Which values the devices of a claim under a constraint can have at all: others are left out before the search.

Under matchAttribute all have one value. A value for which a request has too few devices, or for which the counters of its
devices cannot serve all requests, can be no solution; nor can the devices that have it. Under distinctAttribute each value is
had by one device at most: requests are matched with values. Devices without the attribute are no solution in either case.
"""

from __future__ import annotations

from fairlead.core.dra.inventory import bits
from fairlead.core.dra.matching import Matching
from fairlead.core.dra.model import Amount
from fairlead.core.dra.problem import Limit, Problem, Slot
from fairlead.core.dra.refusals import Kind, Refusal


def narrow(problem: Problem) -> bool:
    """Leave out of candidates what has a value that cannot be; whether every request still has an alternative."""
    for claim, limits in enumerate(problem.limits):
        for at, distinct in enumerate(limits):
            if not _narrow(problem, claim, at, distinct=distinct):
                return False
    return True


def _narrow(problem: Problem, claim: int, at: int, *, distinct: bool) -> bool:
    """One constraint of one claim."""
    bound: list[list[tuple[Slot, Limit | None]]] = []
    for position in problem.positions:
        if position.claim == claim:
            slots = [slot for slot in position.slots if slot.refusal is None]
            bound.append([(slot, next((limit for limit in slot.limits if limit.at == at), None)) for slot in slots])
    limited = next((limit for slots in bound for _, limit in slots if limit is not None), None)
    if limited is None:
        return True
    always = [[slot for slot, _ in slots] for slots in bound if all(limit is not None for _, limit in slots)]
    kept = 0
    for mask in limited.masks:
        if distinct or _possible(problem, always, mask):
            kept |= mask
    if distinct and not _enough_values(always, limited.masks):
        return False
    for pairs in bound:
        for slot, limit in pairs:
            if limit is None:
                continue
            slot.candidates &= kept
            if slot.candidates.bit_count() < slot.count:
                slot.refusal = Refusal(Kind.TOGETHER, "no value of the attribute that a constraint names suits all requests")
        if all(slot.refusal is not None for slot, _ in pairs):
            return False
    return True


def _enough_values(requests: list[list[Slot]], masks: list[int]) -> bool:
    """Whether requests can have different values."""
    candidates, needed = [], []
    for slots in requests:
        union = 0
        for slot in slots:
            union |= slot.candidates
        candidates.append(sum(1 << number for number, mask in enumerate(masks) if union & mask))
        needed.append(min(slot.count for slot in slots))
    return Matching(candidates, needed).exists()


def _possible(problem: Problem, requests: list[list[Slot]], mask: int) -> bool:
    """Whether requests that are all under the constraint can be served by the devices that have a value."""
    state = problem.state
    inventory, total, union = state.inventory, 0, 0
    exclusive = True
    needed: dict[int, Amount] = {}
    for slots in requests:
        fitting = [slot for slot in slots if (slot.candidates & mask).bit_count() >= slot.count]
        if not fitting:
            return False
        total += min(slot.count for slot in fitting)
        for slot in fitting:
            union |= slot.candidates & mask
        if problem.admin or union & inventory.multiple:
            exclusive = False
        elif inventory.totals:
            least = [(slot.count, inventory.least(slot.candidates & mask)) for slot in fitting]
            for kind in least[0][1]:
                needed[kind] = needed.get(kind, 0) + min(count * each.get(kind, 0) for count, each in least)
    if not exclusive:
        return True
    if total > union.bit_count():
        return False
    if not any(needed.values()):
        return True
    free: dict[int, Amount] = {}
    for counter in {counter for index in bits(union) for counter, _ in inventory.uses[index]}:
        kind = inventory.kinds[counter]
        free[kind] = free.get(kind, 0) + max(0, state.free[counter])
    return all(free.get(kind, 0) >= amount for kind, amount in needed.items())
