"""One pod's claims on one node, prepared for the search: for each request the devices that could be it, as sets.

What fails for every combination (a missing class, too few devices) is found here and refused with numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.core.dra.held import NodeState
from fairlead.core.dra.inventory import Inventory, bits
from fairlead.core.dra.model import ALL, EXACT, MOST_DEVICES, Amount, Ask, Claim, DeviceClass, Toleration
from fairlead.core.dra.refusals import Counts, Kind, Refusal

MOST_IN_A_POD = 256
"""Devices of all claims of a pod: beyond that the claims are refused, since a search is as deep as there are devices."""


_Wanted = tuple[str, tuple[str, ...], tuple[tuple[str, Amount], ...], tuple[Toleration, ...], bool]
"""What decides which devices an alternative can get: class, selectors, capacity, tolerations, admin access."""

_Having = tuple[int, int, int]
"""(devices that it can get now, how many match, those for which a selector errs)."""


class Limit(msgspec.Struct):
    """A constraint as the search applies it: at: its position in the claim; of, masks: as `Inventory.values`."""

    at: int
    distinct: bool
    of: list[int]
    masks: list[int]


class Slot(msgspec.Struct):
    """One alternative of a request. candidates: devices that it can get now; count: how many it needs; every: all of them."""

    ask: Ask
    candidates: int
    count: int
    every: bool
    limits: list[Limit]
    refusal: Refusal | None = None


class Position(msgspec.Struct):
    """One request in the order of the search. claim: position of its claim; first: of its claim's requests."""

    claim: int
    first: bool
    slots: list[Slot]


class Problem(msgspec.Struct):
    """All requests in order. limits: constraints of each claim, how many."""

    state: NodeState
    positions: list[Position]
    limits: list[list[bool]]
    admin: bool
    limited: bool
    claims: Sequence[Claim]


def prepare(  # noqa: PLR0911 - the first thing that is wrong
    state: NodeState, claims: Sequence[Claim], classes: Mapping[str, DeviceClass]
) -> Problem | Refusal:
    """The problem that claims are on a node, or why they cannot have devices in any combination."""
    positions: list[Position] = []
    limits, total, exact_total, admin, limited = [], 0, 0, False, False
    known: dict[_Wanted, _Having] = {}
    for number, claim in enumerate(claims):
        if claim.mistake:
            return Refusal(Kind.INVALID, claim.mistake, str(claim))
        fewest = most = exact_fewest = exact_most = 0
        for request in claim.requests:
            slots = []
            for ask in request.alternatives:
                slot = _slot(state, claim, ask, classes, known)
                if isinstance(slot, Refusal):
                    return slot
                slots.append(slot)
                admin = admin or ask.admin
            if not slots:
                return Refusal(
                    Kind.INVALID, "it names no devices: one of exactly and firstAvailable is needed", str(claim), request.name
                )
            fewest += min(each.count for each in slots)
            most += max(each.count for each in slots)
            exact_fewest += min(0 if each.every else each.count for each in slots)
            exact_most += max(0 if each.every else each.count for each in slots)
            positions.append(Position(number, request is claim.requests[0], slots))
        if fewest > MOST_DEVICES:
            message = f"it asks for at least {fewest} devices, and a claim can have {MOST_DEVICES}"
            kind = Kind.INVALID if exact_fewest > MOST_DEVICES else Kind.DEVICES  # of `All` there can be fewer later
            return Refusal(kind, message, str(claim), wanted=fewest)
        limited = limited or most > MOST_DEVICES
        total += min(most, MOST_DEVICES)
        exact_total += min(exact_most, MOST_DEVICES)
        limits.append([each.distinct for each in claim.constraints])
    if total > MOST_IN_A_POD:
        message = f"the pod's claims ask for up to {total} devices, and at most {MOST_IN_A_POD} are searched for"
        return Refusal(Kind.INVALID if exact_total > MOST_IN_A_POD else Kind.DEVICES, message, wanted=total)
    for position in positions:
        refusals = [slot.refusal for slot in position.slots if slot.refusal is not None]
        if len(refusals) == len(position.slots):
            return refusals[-1]
    return Problem(state, positions, limits, admin, limited, claims)


def faults_of(inventory: Inventory) -> tuple[str, ...]:
    """Pools of the node that give no devices, each with why."""
    return tuple(f"{each.driver}/{each.name}: {each.fault}" for each in inventory.faults)


def _slot(
    state: NodeState, claim: Claim, ask: Ask, classes: Mapping[str, DeviceClass], known: dict[_Wanted, _Having]
) -> Slot | Refusal:
    """One alternative; a refusal where nothing of the pod can be allocated, wherever else it fits. known: from equal ones."""
    device_class = classes.get(ask.device_class)
    if device_class is None:
        message = f"DeviceClass {ask.device_class!r} is not there" if ask.device_class else "it names no DeviceClass"
        return Refusal(Kind.NO_CLASS, message, str(claim), ask.name)
    if ask.mode not in (EXACT, ALL):
        return Refusal(Kind.INVALID, f"allocation mode {ask.mode!r} is not known", str(claim), ask.name)
    inventory = state.inventory
    wanted = ask.device_class, ask.selectors, ask.capacity, ask.tolerations, ask.admin
    having = known.get(wanted)
    if having is None:
        matching, failed = inventory.matching((*device_class.selectors, *ask.selectors), ask.capacity)
        having = known[wanted] = _having(state, ask, matching), matching.bit_count(), failed
    candidates, most, failed = having
    every = ask.mode == ALL
    if every and inventory.faults:
        counts, faults = _count(state, ask, device_class), faults_of(inventory)
        message = "it asks for all devices, and a pool is incomplete or invalid: wait for its driver"
        return Refusal(Kind.POOL, message, str(claim), ask.name, counts=counts, faults=faults)
    if every and failed:
        counts = _count(state, ask, device_class)
        message = f"it asks for all devices, and a selector errs: {counts.failure}"
        return Refusal(Kind.SELECTOR, message, str(claim), ask.name, counts=counts)
    count = most if every else ask.count
    slot = Slot(ask, candidates, count, every, _limits(inventory, claim, ask) if claim.constraints else [])
    if candidates.bit_count() < count or (every and not count):
        counts = _count(state, ask, device_class)
        needed = "all matching devices" if every else f"{count} of the devices"
        message = f"{needed} needed, {counts.left} can be had: {counts.text()}"
        slot.refusal = Refusal(Kind.DEVICES, message, str(claim), ask.name, count, counts, faults_of(inventory))
    return slot


def _having(state: NodeState, ask: Ask, matching: int) -> int:
    """Of matching devices those that can be had now."""
    candidates = matching & state.inventory.tolerated(ask.tolerations) & ~state.avoided.closed
    if not ask.admin:
        candidates &= ~(state.alone | state.unservable)
        if candidates & state.sharing:
            candidates &= ~_full(state, ask, candidates)
    return candidates


def _full(state: NodeState, ask: Ask, candidates: int) -> int:
    """Of shared devices those in which another share of this size does not fit."""
    full = 0
    for index in bits(candidates & state.sharing):
        if not fits(state.inventory, ask, index, state.shares.get(index)):
            full |= 1 << index
    return full


def _count(state: NodeState, ask: Ask, device_class: DeviceClass) -> Counts:
    """The numbers of a refusal: each device is counted where it fails first."""
    inventory = state.inventory
    left, failed, failure = inventory.all, 0, ""
    turned = []
    named = [(f"selector {at} of class {device_class.name}", text) for at, text in enumerate(device_class.selectors)]
    named += [(f"selector {at}", text) for at, text in enumerate(ask.selectors)]
    for which, expression in named:
        found = inventory.selected(expression)
        if erring := found.failed & left:
            failed |= erring
            failure = failure or found.message
        turned.append((which, (left & ~found.mask & ~found.failed).bit_count()))
        left &= found.mask
    numbers = {"devices": len(inventory.devices), "failed": failed.bit_count()}

    def without(name: str, mask: int) -> None:
        nonlocal left
        numbers[name] = (left & mask).bit_count()
        left &= ~mask

    without("capacity", ~inventory.given(ask.capacity))
    without("tainted", ~inventory.tolerated(ask.tolerations))
    avoided = next((f"{inventory.ids[at]}: {state.avoided.why[at]}" for at in bits(left & state.avoided.closed)), "")
    without("avoided", state.avoided.closed)
    if not ask.admin:
        without("allocated", state.alone)
        without("overdrawn", state.overdrawn & ~state.sharing)
        without("counters", state.unservable)
        without("shares", _full(state, ask, left))
    return Counts(selectors=tuple(turned), failure=failure, why=avoided, left=left.bit_count(), **numbers)


def fits(inventory: Inventory, ask: Ask, index: int, consumed: Mapping[str, Amount] | None) -> bool:
    """Whether a share fits beside what is consumed of a device's capacities."""
    if not consumed:
        return True
    capacity = inventory.devices[index].capacity
    return all(
        consumed.get(name, 0) + amount <= capacity[name].value for name, amount in inventory.share(ask.capacity, index).items()
    )


def _limits(inventory: Inventory, claim: Claim, ask: Ask) -> list[Limit]:
    request = ask.name.partition("/")[0]
    found = []
    for at, each in enumerate(claim.constraints):
        if not each.requests or request in each.requests or ask.name in each.requests:
            of, masks = inventory.values(each.attribute)
            found.append(Limit(at, each.distinct, of, masks))
    return found
