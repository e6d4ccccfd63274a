"""Sets of indexes as text, such as `0-3,7`: what an array runs, and which of it are done."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

MOST = 100_000
"""Elements of an array at most."""
_DIGITS = 18


class WrongIndexes(ValueError):
    """An invalid set of indexes."""


def parse(text: str) -> list[int]:
    """The indexes, in order. Raises `WrongIndexes` with what to change."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise WrongIndexes(f"array indexes {text!r}: {part!r} is neither a number nor a range such as 0-9")
        low, high = int(first), int(last or first)
        if high < low:
            raise WrongIndexes(f"array indexes {text!r}: {part!r} ends before it begins")
        if high - low >= MOST or len(found) + high - low >= MOST:
            raise WrongIndexes(f"an array has at most {MOST} elements; {part!r} goes beyond: submit several arrays")
        found.update(range(low, high + 1))
    return sorted(found)


def _is_number(text: str) -> bool:
    """Plain digits: superscripts are digits, too, and thousands of digits are no number for `int`."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


@lru_cache(maxsize=64)
def as_set(text: str) -> frozenset[int]:
    """The same, to be asked often."""
    return frozenset(parse(text))


def shown(indexes: Iterable[int]) -> str:
    """The same as text, shortest."""
    parts: list[str] = []
    first = last = -2
    for index in sorted(indexes):
        if index == last + 1:
            last = index
            continue
        if last >= 0:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = index
    if last >= 0:
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)
