"""Speeds: how many steps per second a pod does, as annotations have it."""

from __future__ import annotations

import re

from fairlead.api.pressure import AT
from fairlead.api.quantity import QuantityError

_SPEED = re.compile(r"^[0-9]{1,12}([.][0-9]{1,9})?$", re.ASCII)
_MOST_TEXT = 128
MOST = 1e12
"""More steps per second than that are no measurement."""


def read(text: str) -> tuple[str, float]:
    """The time and the steps per second, as in `at=2027-01-31T08:00:00Z,speed=12.5`. Raises `QuantityError`."""
    parts = text.split(",")
    if len(text) > _MOST_TEXT or len(parts) != 2:
        raise QuantityError(f"{text[:60]!r} is not a measurement such as {AT}=2027-01-31T08:00:00Z,speed=12.5")
    (key, _, at), (name, _, value) = (part.strip().partition("=") for part in parts)
    if key != AT or not at or name != "speed" or not _SPEED.match(value):
        raise QuantityError(f"{text[:60]!r} is not a measurement such as {AT}=2027-01-31T08:00:00Z,speed=12.5")
    return at, float(value)


def written(at: str, speed: float) -> str:
    """The annotation for a speed; digits enough for a part in a million."""
    digits = f"{speed:.9f}".rstrip("0").rstrip(".")
    return f"{AT}={at},speed={digits}"
