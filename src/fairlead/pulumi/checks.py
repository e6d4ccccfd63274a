"""Arguments are checked when the program runs. An error names the argument, what is wrong and what to change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from fairlead.api.kinds.rules import strict
from fairlead.api.quantity import parse

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_Spec = TypeVar("_Spec", bound=msgspec.Struct)


class InvalidArgument(ValueError):
    """An argument with which the program would fail later, or have an unintended effect."""


def name(value: object, what: str, longest: int = 253) -> str:
    """A name as Kubernetes takes it: lower case letters, digits, `-`, and `.` between parts. longest: characters."""
    if not isinstance(value, str) or len(value) > longest or not all(_LABEL.fullmatch(part) for part in value.split(".")):
        raise InvalidArgument(
            f"{what} {value!r} is not an object name: use at most {longest} lower case letters, digits, '-' and '.', "
            "with a letter or digit at both ends"
        )
    return value


def whole(value: object, what: str, least: int, most: int | None = None) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{what} is {value!r}; give a whole number")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise InvalidArgument(f"{what} is {value}; give a number {bounds}")
    return value


def amount(value: object, what: str) -> str:
    """A quantity that is not negative, such as 20, 500m or 100Gi, as a string."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidArgument(f"{what} is {value!r}; give a quantity such as 20, '500m' or '100Gi'")
    try:
        parse(str(value))
    except ValueError as error:
        raise InvalidArgument(f"{what} is {value!r}: {error}; give a quantity such as 20, '500m' or '100Gi'") from error
    return str(value)


def unique(values: Iterable[object], what: str) -> None:
    """Refuse whatever comes twice."""
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise InvalidArgument(f"{what} {value!r} appears twice; use each only once")
        seen.add(value)


def spec(value: _Spec, what: str) -> dict[str, object]:
    """The spec of one of our objects as the API server gets it; refused where the CustomResourceDefinition would refuse it."""
    plain: dict[str, object] = msgspec.to_builtins(value)
    try:
        msgspec.convert(plain, strict(type(value)))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{what}: {error}") from error
    return plain


def amounts(values: Mapping[str, object], what: str) -> dict[str, str]:
    """Quantities by resource."""
    return {resource: amount(value, f"{what}[{resource!r}]") for resource, value in values.items()}
