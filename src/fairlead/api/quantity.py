"""Kubernetes quantities as exact integers.

Every amount in Fairlead is a Python integer in the base unit of its resource: milli-CPU for
`cpu`, bytes for `memory` and storage, whole units for everything else. Fractions of a base unit
round up, as Kubernetes does. Nothing here touches a float, and nothing wraps: an amount beyond
`SANE_MAXIMUM` is refused with a `QuantityError` instead of overflowing somewhere later.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

SANE_MAXIMUM: Final = 1 << 60
"""The largest amount that is believed. Everything above is treated as an error of its author."""

_SUFFIXES: Final[dict[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1 << 10),
    "Mi": Fraction(1 << 20),
    "Gi": Fraction(1 << 30),
    "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50),
    "Ei": Fraction(1 << 60),
}
_FORM: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>\d+\.?\d*|\.\d+)(?:[eE](?P<exponent>[+-]?\d+)|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_LONGEST: Final = 64
_HIGHEST_EXPONENT: Final = 40


class QuantityError(ValueError):
    """A quantity that cannot be used; `too_large` distinguishes an absurd amount from a malformed one."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


def parse(text: str | float) -> Fraction:
    """The exact value of a quantity such as `500m`, `1.5Gi` or `1e3`.

    Raises `QuantityError` when the text is not a quantity, is negative, or is absurdly large.
    """
    form = str(text)
    match = _FORM.fullmatch(form) if len(form) <= _LONGEST else None
    if match is None:
        raise QuantityError(f"{form[:_LONGEST]!r} is not a quantity: write a number and a suffix such as 500m or 16Gi")
    digits, exponent = match["digits"], int(match["exponent"] or "0")
    nonzero = any(digit in "123456789" for digit in digits)
    if match["sign"] == "-" and nonzero:
        raise QuantityError(f"{form!r} is negative")
    if not nonzero:
        return Fraction(0)
    if exponent > _HIGHEST_EXPONENT:
        raise QuantityError(f"{form!r} is larger than any machine", too_large=True)
    if exponent < -_HIGHEST_EXPONENT:
        return Fraction(1, 10**9)
    return Fraction(digits) * Fraction(10) ** exponent * _SUFFIXES[match["suffix"] or ""]


@lru_cache(maxsize=16_384)
def amount(resource: str, text: str | float) -> int:
    """A quantity of `resource` in its base unit (milli-CPU for `cpu`, else units), rounded up.

    Raises `QuantityError` beyond `SANE_MAXIMUM` or for anything `parse` refuses.
    """
    value = parse(text) * (1000 if resource == "cpu" else 1)
    result = -(-value.numerator // value.denominator)
    if result > SANE_MAXIMUM:
        raise QuantityError(f"{text!r} of {resource} is larger than any machine", too_large=True)
    return result


@lru_cache(maxsize=16_384)
def exact(resource: str, text: str | float) -> int | Fraction:
    """A quantity of `resource` in its base unit, not rounded: an integer where it is one.

    Raises `QuantityError` as `amount` does.
    """
    value = parse(text) * (1000 if resource == "cpu" else 1)
    if value > SANE_MAXIMUM:
        raise QuantityError(f"{text!r} of {resource} is larger than any machine", too_large=True)
    return value.numerator if value.denominator == 1 else value


def show(resource: str, value: int) -> str:
    """An amount in base units as a person would write it, e.g. `1500` of `cpu` as `1.5`."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if resource == "memory" or resource.endswith("storage"):
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            scale = int(_SUFFIXES[suffix])
            if value >= scale:
                return f"{value / scale:.4g}{suffix}"
    return str(value)


def by_name(text: str, most: int, form: str) -> dict[str, str]:
    """The values of `name=value,name=value`. most: characters; form: what a part is, for complaints. Raises `QuantityError`."""
    if len(text) > most:
        raise QuantityError(f"{len(text)} characters are more than {most}")
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name in found:
            raise QuantityError(f"{part.strip()[:60]!r} is not one {form}")
        found[name] = value
    return found
