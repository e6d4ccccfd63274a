"""Kubernetes quantities as CEL compares and adds them: exact, of either sign, of any size.

`fairlead.api.quantity` gives amounts that nodes and pods have, in base units, and refuses what no machine has. Selectors need
the arithmetic of `resource.Quantity` (k8s.io/apimachinery v0.36.3) itself, in which such values are valid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_FORM: Final = re.compile(r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?P<part>\.[0-9]*)?(?P<suffix>[eE][+-]?[0-9]+|[A-Za-z]*)")
_NANO: Final = 10**9
_LARGEST: Final = (1 << 63) - 1
_FURTHEST: Final = 1000
"""Exponents beyond it are refused: a number of so many digits takes long to compute with."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount; equal amounts are equal, however they were written."""

    value: Fraction

    @property
    def integer(self) -> int | None:
        """The amount as a signed integer of 64 bits; None if it is not one."""
        whole = self.value.numerator
        return whole if self.value.denominator == 1 and -_LARGEST - 1 <= whole <= _LARGEST else None


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """A quantity such as `1.5Gi`, `-3` or `12e6`; what is finer than a billionth is rounded away from zero.

    A text without digits, such as `Mi`, is zero, as in Kubernetes.

    Raises ValueError if it is none.
    """
    match = _FORM.fullmatch(text) if text else None
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    whole, part, suffix = match["whole"], (match["part"] or "")[1:], match["suffix"]
    value = Fraction(int((whole + part) or "0"), 10 ** len(part))
    if suffix in _BINARY:
        value *= 1 << _BINARY[suffix]
    else:
        exponent = _DECIMAL.get(suffix)
        if exponent is None:
            if suffix[:1] not in ("e", "E") or len(suffix) == 1:
                raise ValueError(f"{text!r} ends in {suffix!r}, which is not a unit of quantities")
            exponent = int(suffix[1:])
            if abs(exponent) > _FURTHEST:
                raise ValueError(f"{text!r} has an exponent beyond {_FURTHEST}")
        value *= Fraction(10) ** exponent
    fine = value * _NANO
    value = Fraction(-(-fine.numerator // fine.denominator), _NANO)
    if suffix in _BINARY and value > _LARGEST:
        value = Fraction(_LARGEST)
    return Quantity(-value if match["sign"] == "-" else value)
