"""Selectors of an inventory by CEL: the devices of slices as `selectors.py` sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import partial

from fairlead.core.dra.columns import Columns, Group, Mention, Selected
from fairlead.core.dra.inventory import SelectorFailure, keep, merged
from fairlead.core.dra.model import Device, Version
from fairlead.core.dra.selectors import Attribute, DeviceView, Quantity, Selector, SelectorError, compile_selector
from fairlead.expressions import versions

_REMEMBERED = 100_000


class Evaluation:
    """Whether expressions hold for devices: what `Inventory` is given as `matches`. Views of devices are remembered."""

    def __init__(self) -> None:
        self._views: dict[int, tuple[Device, DeviceView]] = {}

    def __call__(self, expression: str, device: Device) -> bool:
        """Raises `SelectorFailure` where the expression cannot be compiled, or errs for the device."""
        try:
            return compile_selector(expression).matches(self._view(device))
        except SelectorError as error:
            raise SelectorFailure(str(error)) from error

    def reads(self, expressions: Iterable[str]) -> tuple[Mention, ...] | None:
        """What of a device decides whether expressions hold, beside its driver and whether it can be shared; None: anything."""
        found: set[Mention] = set()
        for each in expressions:
            try:
                read = compile_selector(each).reads
            except SelectorError:
                continue  # it holds for none
            if read is None:
                return None
            found.update(read)
        return tuple(sorted(found))

    def selected(self, expression: str, columns: Columns) -> Selected:
        """The devices of a node that an expression selects, and for which it errs; the message is that of the first of these.

        Devices that agree in what the expression reads are evaluated once, on however many nodes they are, and nodes all of whose
        devices do are one question.
        """
        try:
            selector = compile_selector(expression)
        except SelectorError as error:
            return Selected(0, (1 << len(columns.devices)) - 1, str(error))
        read = selector.reads
        if read is None:
            return merged(self._each(selector, columns, [Group(1 << at, None) for at in range(len(columns.devices))]))
        groups = columns.groups(read)
        found = groups.selected.get(expression)
        if found is None:
            found = keep(groups.selected, expression, merged(self._each(selector, columns, groups.each)))
        return found

    def _each(
        self, selector: Selector, columns: Columns, groups: Iterable[Group]
    ) -> Iterator[tuple[int, bool | SelectorFailure]]:
        for group in groups:
            first = columns.devices[(group.mask & -group.mask).bit_length() - 1]
            try:
                if group.key is None:
                    yield group.mask, selector.matches(self._view(first))
                else:
                    yield group.mask, selector.matches_alike(group.key, partial(self._view, first))
            except SelectorError as error:
                yield group.mask, SelectorFailure(str(error))
            except SelectorFailure as error:
                yield group.mask, error

    def _view(self, device: Device) -> DeviceView:
        known = self._views.get(id(device))  # the device is kept beside its view, so no other has this number
        if known is None:
            if len(self._views) >= _REMEMBERED:
                self._views.clear()
            known = self._views[id(device)] = (device, _seen(device))
        return known[1]


def _seen(device: Device) -> DeviceView:
    attributes: dict[str, Attribute] = {}
    for name, value in device.attributes.items():
        if isinstance(value, Version):
            try:
                attributes[name] = versions.parse(value.text)
            except ValueError as error:
                raise SelectorFailure(f"attribute {name}: {error}") from error
        else:
            attributes[name] = value
    capacity = {name: Quantity(Fraction(each.value)) for name, each in device.capacity.items()}
    return DeviceView(device.driver, attributes, capacity, device.multiple)
