"""Which devices a CEL selector of a DeviceClass or a claim matches, as Kubernetes' scheduler evaluates it.

An expression sees `device.driver`, `device.attributes["domain"].name`, `device.capacity["domain"].name` and
`device.allowMultipleAllocations`. Verdicts are remembered by expression and by what it reads of a device. What differs from
Kubernetes, and how that is measured: docs/design/expressions.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from fairlead.expressions.errors import ExpressionError
from fairlead.expressions.quantities import Quantity
from fairlead.expressions.spans import Node, Sizes
from fairlead.expressions.versions import Version

if TYPE_CHECKING:
    from fairlead.expressions.environment import Environment, Program
    from fairlead.expressions.mentions import Mention

__all__ = ["DeviceView", "Quantity", "Selector", "SelectorError", "Version", "compile_selector"]

_REMEMBERED_EXPRESSIONS: Final = 1024
_REMEMBERED_VERDICTS: Final = 4096
"""Verdicts of one expression: as many devices as differ in what it reads."""
_DRIVER, _DOMAIN, _NAME, _VALUE, _COUNT = 63, 63, 32, 64, 32
"""The longest driver name, domain, name and value of an attribute, and the most attributes and capacities of a device."""

Attribute = int | bool | str | Version


class SelectorError(ExpressionError):
    """A selector that cannot be compiled, or that failed for a device; the allocation on that node fails with the message."""


@dataclass(frozen=True)
class DeviceView:
    """What a device presents to selectors. attributes, capacity: by qualified name; a name without domain is the driver's."""

    driver: str
    attributes: Mapping[str, Attribute]
    capacity: Mapping[str, Quantity]
    allow_multiple_allocations: bool = False

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What devices have in common that present the same: verdicts hold for all of them."""
        attributes = frozenset((name, type(value).__name__, value) for name, value in self.attributes.items())
        return self.driver, self.allow_multiple_allocations, attributes, frozenset(self.capacity.items())

    @cached_property
    def qualified(self) -> dict[tuple[str, str, str], tuple[Any, Any]]:
        """Attributes with their types, and capacities as fractions, by map, domain and name."""
        found: dict[tuple[str, str, str], tuple[Any, Any]] = {}
        for name, value in self.attributes.items():
            domain, _, bare = name.rpartition("/") if "/" in name else (self.driver, "", name)
            found["device.attributes", domain, bare] = type(value).__name__, value
        for name, amount in self.capacity.items():  # hashing a fraction of Python takes microseconds
            domain, _, bare = name.rpartition("/") if "/" in name else (self.driver, "", name)
            found["device.capacity", domain, bare] = amount.value.as_integer_ratio()
        return found

    @cached_property
    def variables(self) -> dict[str, Any]:
        """The variables of an evaluation."""
        from fairlead.expressions import messages

        attributes: dict[str, dict[str, Any]] = {}
        for name, value in self.attributes.items():
            domain, _, bare = name.rpartition("/") if "/" in name else (self.driver, "", name)
            attributes.setdefault(domain, {})[bare] = messages.of_version(value) if isinstance(value, Version) else value
        capacity: dict[str, dict[str, Any]] = {}
        for name, amount in self.capacity.items():
            domain, _, bare = name.rpartition("/") if "/" in name else (self.driver, "", name)
            capacity.setdefault(domain, {})[bare] = messages.of_quantity(amount)
        parts = {
            "driver": self.driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": self.allow_multiple_allocations,
        }
        return {"device": parts, **{f"device.{name}": part for name, part in parts.items()}}


class Selector:
    """A compiled selector; made by `compile_selector`."""

    __slots__ = ("_program", "_verdicts", "expression")

    def __init__(self, expression: str, program: Program) -> None:
        self.expression = expression
        self._program = program
        self._verdicts: OrderedDict[tuple[Any, ...], bool | SelectorError] = OrderedDict()

    @property
    def cost(self) -> int:
        """The most that an evaluation may cost, in CEL's units, as Kubernetes estimates it."""
        return self._program.cost

    def matches(self, device: DeviceView) -> bool:
        """Whether a device matches. Raises `SelectorError` where evaluating fails, for example for a missing attribute."""
        return self.matches_alike(self._key(device), lambda: device)

    @property
    def reads(self) -> tuple[Mention, ...] | None:
        """What of a device decides beside its driver and whether it may be allocated several times; None: anything."""
        return self._program.mentions

    def matches_alike(self, key: tuple[Any, ...], device: Callable[[], DeviceView]) -> bool:
        """Whether devices match that present the same. key: driver, whether they may be allocated several times, and what each of
        `reads` is: (type, value) of an attribute, a capacity as a ratio of integers, None where it is not there. device: one of
        them, asked for where the verdict is not remembered. Raises `SelectorError` as `matches` does.
        """
        found = self._verdicts.get(key)
        if found is None:
            found = self._verdict(device())
            self._verdicts[key] = found
            if len(self._verdicts) > _REMEMBERED_VERDICTS:
                self._verdicts.popitem(last=False)
        if isinstance(found, SelectorError):
            raise SelectorError(found.problem, found.message)
        return found

    def _key(self, device: DeviceView) -> tuple[Any, ...]:
        read = self._program.mentions
        if read is None:
            return device.key
        held = device.qualified
        return device.driver, device.allow_multiple_allocations, tuple(held.get(each) for each in read)

    def _verdict(self, device: DeviceView) -> bool | SelectorError:
        try:
            result = self._program.evaluate(device.variables)
        except ExpressionError as error:
            return SelectorError(error.problem, error.message)
        if isinstance(result, bool):
            return result
        return SelectorError("evaluation", f"the expression gave {type(result).__name__} and not bool")


def compile_selector(expression: str) -> Selector:
    """The selector of an expression; the same object for the same text, as long as it is remembered.

    Raises `SelectorError`: syntax, an identifier or function that is not known, a result that is not bool, more than 10 KiB, an
    estimated cost above 1,000,000, larger values or more calls of slow functions than are allowed.
    """
    found = _compiled(expression)
    if isinstance(found, SelectorError):
        raise SelectorError(found.problem, found.message, found.line, found.column)
    return found


@lru_cache(maxsize=_REMEMBERED_EXPRESSIONS)
def _compiled(expression: str) -> Selector | SelectorError:
    try:
        program = _environment().compile(expression)
    except ExpressionError as error:
        return SelectorError(error.problem, error.message, error.line, error.column)
    if program.type[0] not in ("bool", "any"):
        return SelectorError("type", f"must evaluate to bool or the unknown type, not {program.type[0]}", 1, 1)
    return Selector(expression, program)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    # CEL's library and protobuf are read with the first selector: a process without devices goes without them.
    from fairlead.expressions import messages
    from fairlead.expressions.environment import Environment

    outer = "map<string,map<string,{}>>"
    domain, name, value = Node(_DOMAIN), Node(_NAME), Node(_VALUE)
    attributes = Node(_COUNT, domain, Node(_COUNT, name, value, by_name=True))
    capacity = Node(_COUNT, domain, Node(_COUNT, name, Node(0)))
    fields = {"driver": Node(_DRIVER), "allowMultipleAllocations": Node(1), "attributes": attributes, "capacity": capacity}
    return Environment(
        {
            "device": messages.DEVICE,
            "device.driver": "string",
            "device.allowMultipleAllocations": "bool",
            "device.attributes": outer.format("any"),
            "device.capacity": outer.format(messages.QUANTITY),
        },
        at_run_time={
            "device": "map<string,dyn>",
            "device.attributes": outer.format("dyn"),
            "device.capacity": outer.format("dyn"),
        },
        sizes=Sizes({"device": Node(0, fields=fields)}),
        of_devices=True,
    )
