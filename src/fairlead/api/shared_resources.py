"""Shared resources: amounts that the nodes of a pool share, as NodePools, AIJobs and annotations have them.

Names are DNS labels that an administrator chooses, such as `storage-bandwidth`; amounts are quantities, here whole units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fairlead.api import quantity
from fairlead.api.quantity import QuantityError

Amounts = tuple[tuple[str, int], ...]
"""(name, amount) sorted by name, without those that are 0."""

NAME: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
MOST: Final = 16
_NAME = re.compile(NAME, re.ASCII)
_MOST_TEXT = 2048
_UNITS = (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))


def names_rule(given: str) -> str:
    """CEL: all names of a map are valid."""
    return f"{given}.all(name, name.matches('^{NAME}$'))"


def declared(given: Mapping[str, str | float]) -> Amounts:
    """What a pool has: a name with 0 is declared, and no pod gets any of it there. Raises `QuantityError`."""
    found = dict(amounts(given))
    return tuple((name, found.get(name, 0)) for name in sorted(given))


def amounts(given: Mapping[str, str | float]) -> Amounts:
    """What some quantities by name mean. Raises `QuantityError`."""
    if len(given) > MOST:
        raise QuantityError(f"{len(given)} names are more than {MOST}")
    found = []
    for name, text in sorted(given.items()):
        if not _NAME.fullmatch(name):
            raise QuantityError(f"{name[:80]!r} is no name: up to 63 of a-z, 0-9 and -, such as storage-bandwidth")
        try:
            amount = quantity.amount(name, text) if name != "cpu" else quantity.amount("", text)
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}", too_large=error.too_large) from error
        found += [(name, amount)] if amount else []
    return tuple(found)


def read(text: str) -> Amounts:
    """What the annotation of pods has, such as `storage-bandwidth=2G,scratch=1`. Raises `QuantityError`."""
    return amounts(quantity.by_name(text, _MOST_TEXT, "name=amount, each name once"))


def written(given: Mapping[str, str | float]) -> str:
    """The annotation for quantities by name."""
    return ",".join(f"{name}={value}" for name, value in sorted(given.items()))


def show(amount: int) -> str:
    """An amount as a person would write it: `2.5G`."""
    for suffix, scale in _UNITS:
        if abs(amount) >= scale:
            return f"{amount / scale:.4g}{suffix}"
    return str(amount)
