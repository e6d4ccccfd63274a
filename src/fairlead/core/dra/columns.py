"""What selectors read of a node's devices, by attribute or capacity: devices that agree in it are evaluated once.

A column is one attribute or capacity of all devices, with its values numbered. Devices that have the same in all columns that an
expression reads are one group: a new expression costs one step for each device, and one evaluation for each group at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec

from fairlead.core.dra.model import Device, Value, Version
from fairlead.expressions import versions

Mention = tuple[str, str, str]
"""(map of a device, domain, name), as an expression reads them."""


Held = TypeVar("Held")

_MOST_GROUPED = 16
"""Sets of columns of which the groups of a node are kept."""


class Group(msgspec.Struct, frozen=True):
    """Devices, as a set, that present the same to an expression. key: what that is; None: it is not known of this one device."""

    mask: int
    key: tuple[object, ...] | None


class Selected:
    """The devices that an expression selects, as a set; failed: those for which it errs; message: of the first."""

    __slots__ = ("failed", "mask", "message")

    def __init__(self, mask: int, failed: int, message: str) -> None:
        self.mask, self.failed, self.message = mask, failed, message


class Groups:
    """The groups of a node's devices, in the order of the first of each. Nodes whose groups are alike share one object.

    selected: by expression, of those that read the columns of these groups; without the names of devices.
    """

    __slots__ = ("__weakref__", "each", "selected")

    def __init__(self, each: tuple[Group, ...]) -> None:
        self.each = each
        self.selected: dict[str, Selected] = {}


_shared: WeakValueDictionary[tuple[Group, ...], Groups] = WeakValueDictionary()


class Columns:
    """The columns of one node's devices; each is made when an expression first reads it."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = devices
        self._columns: dict[Mention, tuple[list[int], list[object]]] = {}
        self._base: tuple[list[int], list[object]] | None = None
        self._groups: dict[tuple[Mention, ...], Groups] = {}

    def groups(self, read: tuple[Mention, ...]) -> Groups:
        """Devices by what they have in these columns. A key is as `Selector` has it."""
        known = self._groups.get(read)
        if known is not None:
            return known
        if self._base is None:
            self._base = _numbered([_plain(each, at) for at, each in enumerate(self.devices)])
        columns = [self._base, *map(self._column, read)]
        masks: dict[tuple[int, ...], int] = {}
        bit = 1
        for numbers in zip(*(of for of, _ in columns), strict=True):
            masks[numbers] = masks.get(numbers, 0) | bit
            bit <<= 1
        each = []
        for numbers, mask in masks.items():
            base, *rest = (values[number] for number, (_, values) in zip(numbers, columns, strict=True))
            each.append(Group(mask, (*base, tuple(rest)) if isinstance(base, tuple) else None))
        found = _alike(tuple(each))
        if len(self._groups) >= _MOST_GROUPED:
            self._groups.clear()
        self._groups[read] = found
        return found

    def _column(self, mention: Mention) -> tuple[list[int], list[object]]:
        found = self._columns.get(mention)
        if found is None:
            of = _capacity if mention[0] == "device.capacity" else _attribute
            found = self._columns[mention] = _numbered([of(each, mention[1], mention[2]) for each in self.devices])
        return found


def _alike(each: tuple[Group, ...]) -> Groups:
    """The one object of groups that are alike. What is found of a device by itself holds for its node alone."""
    if any(group.key is None for group in each):
        return Groups(each)
    found = _shared.get(each)
    if found is None:
        found = _shared[each] = Groups(each)
    return found


def presented(device: Device, read: Sequence[Mention]) -> tuple[object, ...] | None:
    """What a device presents to an expression that reads these; None: it has to be evaluated by itself."""
    base = _plain(device, -1)
    if not isinstance(base, tuple):
        return None
    of = {"device.capacity": _capacity}
    return *base, tuple(of.get(each[0], _attribute)(device, each[1], each[2]) for each in read)


def _numbered(column: list[object]) -> tuple[list[int], list[object]]:
    numbers: dict[object, int] = {}
    return [numbers.setdefault(each, len(numbers)) for each in column], list(numbers)


def _plain(device: Device, at: int) -> object:
    """What every expression can read; the device's number where that is not all that decides: it has to be evaluated by itself.

    So it is if a version cannot be parsed, or an attribute or a capacity is there twice, with and without the driver's domain.
    """
    for of in (device.attributes, device.capacity):
        for name, value in of.items():
            if "/" not in name and f"{device.driver}/{name}" in of:
                return at
            if isinstance(value, Version):
                try:
                    versions.parse(value.text)
                except ValueError:
                    return at
    return device.driver, device.multiple


def _attribute(device: Device, domain: str, name: str) -> object:
    value: Value | versions.Version | None = _held(device.attributes, device.driver, domain, name)
    if isinstance(value, Version):
        try:
            value = versions.parse(value.text)
        except ValueError:
            return None
    return None if value is None else (type(value).__name__, value)


def _capacity(device: Device, domain: str, name: str) -> object:
    capacity = _held(device.capacity, device.driver, domain, name)
    return None if capacity is None else Fraction(capacity.value).as_integer_ratio()


def _held(of: dict[str, Held], driver: str, domain: str, name: str) -> Held | None:
    if "/" in name:
        return None
    found = of.get(f"{domain}/{name}")
    return found if found is not None or domain != driver else of.get(name)
