"""How the GPUs of an inventory are connected, and which of them a claim had best get: preferences of a scored search.

What is known comes from the node's annotation (its links, by the number in a device's name, `gpu-3`) and from attributes (PCIe
root, NUMA node). A preference is a set of devices that are tried first; it excludes none, so that verdicts do not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from fairlead.core.dra.model import Device, Value, attribute_of, typed
from fairlead.core.dra.weights import is_gpu
from fairlead.core.links.choice import Cards, Choices, beside, cards_of, choices_of
from fairlead.core.links.matrix import MOST_GPUS, FaultKind, Links, LinksError, by_place, links_of

ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"

_NUMBERED = re.compile(r"gpu-(\d{1,3})")
_MOST_PLACES = 256
_MOST_SETS = 64
"""Combinations of values of constraints that are compared."""


class Wanted(msgspec.Struct, frozen=True):
    """What a claim still wants. own: devices that it has. gpus, cards: how many more.

    usable: GPUs that nothing else holds, and of the network cards those that it can get.
    """

    own: tuple[int, ...]
    gpus: int
    cards: int
    usable: int


class Connected:
    """The connected GPUs of an inventory. gpus: whole ones, cards: network cards, as sets of devices.

    fault: why the node's annotation is not used; empty: it is, or there is none.
    """

    def __init__(self, devices: Sequence[Device], links: Links | None) -> None:
        self.fault = ""
        members = [index for index, each in enumerate(devices) if _is_whole_gpu(each)]
        others = [
            index
            for index, each in enumerate(devices)
            if not is_gpu(each.driver) and not each.multiple and _place(each, ROOT) is not None
        ]
        self._device: dict[int, int] = {}
        found = None
        try:
            if links is not None:
                self._device = _numbered(devices, members, links)
                found = _with_places(links, {number: devices[index] for number, index in self._device.items()}, devices, others)
        except LinksError as error:
            self.fault = f"{error.kind}: {error}"
        self._choices: Choices | None = None
        if found is not None:
            self._choices = choices_of(found) if _differ(found) else None
        elif 1 < len(members) <= MOST_GPUS:
            self._device = dict(enumerate(members))
            self._choices = _by_attributes([devices[index] for index in members], [devices[index] for index in others])
        if self._choices is None:
            self._device, others = {}, []
        self._number = {index: number for number, index in self._device.items()}
        self._cards = others
        self._card = {index: number for number, index in enumerate(others)}
        self.gpus = _mask(self._number)
        self.cards = _mask(others)

    def gpus_first(self, candidates: int, wanted: Wanted, sets: Iterable[Sequence[int]]) -> int:
        """Devices that a request for GPUs had best get, of candidates, all of them GPUs; 0: any.

        sets: for each constraint by value the devices of which all must be: they are chosen of one.
        """
        choices = self._choices
        if choices is None:
            return 0
        required = self._numbers(wanted.own)
        free = self._numbers_of(wanted.usable)
        count = required.bit_count() + wanted.gpus
        cards = self._wanted_cards(wanted)
        best: tuple[tuple[int, int, int], int] | None = None
        for allowed in _combined(candidates, sets, wanted.gpus):
            found = choices.best(free, count, required, self._numbers_of(allowed), cards)
            if found is not None:
                worth = choices.worth(found, free, cards)
                if best is None or worth > best[0]:
                    best = worth, found
        return 0 if best is None else _mask(self._device[each] for each in _bits(best[1] & ~required)) & candidates

    def cards_first(self, candidates: int, wanted: Wanted, allowed: int) -> int:
        """Devices that a request for network cards had best get, of candidates, all of them cards; 0: any.

        allowed: GPUs that the claim can still get.
        """
        choices = self._choices
        if choices is None:
            return 0
        gpus = self._numbers(wanted.own)
        if wanted.gpus:
            free = self._numbers_of(wanted.usable)
            found = choices.best(
                free, gpus.bit_count() + wanted.gpus, gpus, self._numbers_of(allowed), self._wanted_cards(wanted)
            )
            gpus = gpus if found is None else found
        free_cards = [self._card[each] for each in _bits(candidates)]
        taken = [self._card[each] for each in wanted.own if each in self._card]
        return _mask(self._cards[each] for each in beside(choices.links, gpus, free_cards, wanted.cards, taken))

    def _wanted_cards(self, wanted: Wanted) -> Cards:
        """The network cards that a claim has, and those that it can get."""
        fixed = [self._card[each] for each in wanted.own if each in self._card]
        if self._choices is None or not (fixed or wanted.cards):
            return Cards()
        free = [self._card[each] for each in _bits(wanted.usable & self.cards)] if wanted.cards else []
        return cards_of(self._choices.links, fixed, free, wanted.cards)

    def _numbers(self, devices: Iterable[int]) -> int:
        return _mask({self._number[each] for each in devices if each in self._number})

    def _numbers_of(self, devices: int) -> int:
        return sum(1 << self._number[each] for each in _bits(devices & self.gpus))


def _combined(candidates: int, sets: Iterable[Sequence[int]], count: int) -> list[int]:
    """Candidates that agree in the value of each constraint, where there are enough of them; too many combinations: none."""
    found = [candidates]
    for masks in sets:
        found = [part for each in found for mask in masks if (part := each & mask).bit_count() >= count]
        if len(found) > _MOST_SETS:
            return []
    return found


def _is_whole_gpu(device: Device) -> bool:
    """Whether a device is all of a GPU, for one holder: with counters that follows from NVIDIA's attribute `type`."""
    if not is_gpu(device.driver) or device.multiple:
        return False
    return not device.counters or attribute_of(device, f"{device.driver}/type") == "gpu"


def _numbered(devices: Sequence[Device], members: Sequence[int], links: Links) -> dict[int, int]:
    """By number of a GPU its device. Raises `LinksError` where a GPU is none of the links'."""
    found: dict[int, int] = {}
    for index in members:
        name = devices[index].name
        match = _NUMBERED.fullmatch(name)
        number = int(match[1]) if match else -1
        if not 0 <= number < links.gpus or number in found:
            message = f"device {name} is not one of gpu-0 to gpu-{links.gpus - 1}, and the matrix has {links.gpus} GPUs"
            raise LinksError(FaultKind.OTHER_GPUS, message)
        found[number] = index
    return found


def _with_places(links: Links, gpus: dict[int, Device], devices: Sequence[Device], others: Sequence[int]) -> Links:
    """Links of an annotation with the roots that attributes give, since those are of the cards that claims can have."""
    roots = [_place(gpus[number], ROOT) if number in gpus else None for number in range(links.gpus)]
    cards = [_place(devices[index], ROOT) for index in others]
    placed = by_place(
        [None if each is None else typed(each) for each in roots],
        [None] * links.gpus,
        [typed(each) for each in cards if each is not None],
    )
    return links_of(links.weights, placed.roots, placed.nics)


def _by_attributes(gpus: Sequence[Device], others: Sequence[Device]) -> Choices | None:
    """The choices among GPUs by their attributes; None: nothing follows from these."""
    roots, numas = ([_place(each, attribute) for each in gpus] for attribute in (ROOT, NUMA))
    if all(each is None for each in (*roots, *numas)):
        return None
    numbers: dict[object, int] = {}
    places = [[_number(numbers, each) for each in values] for values in (roots, numas)]
    cards = tuple(_number(numbers, _place(each, ROOT)) for each in others)
    return _by_places(tuple(places[0]), tuple(places[1]), cards)


def _number(numbers: dict[object, int], value: Value | None) -> int:
    return -1 if value is None else numbers.setdefault(typed(value), len(numbers))


@lru_cache(maxsize=_MOST_PLACES)
def _by_places(roots: tuple[int, ...], numas: tuple[int, ...], cards: tuple[int, ...]) -> Choices | None:
    """The same by numbers of the places, -1: not known; nodes of one model have the same numbers."""
    values = [[None if each < 0 else each for each in places] for places in (roots, numas, cards)]
    found = by_place(*values)
    return choices_of(found) if _differ(found) else None


def _place(device: Device, attribute: str) -> Value | None:
    """The value of an attribute, as Kubernetes names it, or as the driver does; None: there is none."""
    found = attribute_of(device, attribute)
    return found if found is not None else attribute_of(device, f"{device.driver}/{attribute.rpartition('/')[2]}")


def _differ(links: Links) -> bool:
    """Whether one set can be better than another."""
    weights = {weight for at, row in enumerate(links.weights) for weight in row[:at]}
    return len(weights) > 1 or (bool(links.nics) and any(root >= 0 for root in links.roots))


def _mask(devices: Iterable[int]) -> int:
    return sum(1 << each for each in devices)


def _bits(mask: int) -> list[int]:
    return [at for at in range(mask.bit_length()) if mask >> at & 1]
