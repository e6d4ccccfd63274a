"""Spans of time as people write them: `90s`, `30m`, `1h30m`, `7d`."""

from __future__ import annotations

import re
from typing import Final

from fairlead.api.quantity import QuantityError

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST: Final = 100 * 365 * 86_400.0
"""Seconds of a century."""
_CEL_PART = r"'[0-9]+([.][0-9]+)?(ms|s|m|h|d)'"
_CEL_UNITS = "p.endsWith('ms') ? 0.001 : p.endsWith('s') ? 1.0 : p.endsWith('m') ? 60.0 : p.endsWith('h') ? 3600.0 : 86400.0"


def seconds(text: str) -> float:
    """A span in seconds. Raises `QuantityError` for what is none, or is longer than a century."""
    parts = _PART.findall(text) if len(text) <= 100 else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise QuantityError(f"{text[:100]!r} is not a duration such as 90s, 30m, 24h or 7d")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total > LONGEST:
        raise QuantityError(f"{text!r} is longer than a century")
    return float(total)


def in_cel(text: str) -> str:
    """CEL: the seconds of a span that is spelled as it should be. text: an expression."""
    return f"{text}.findAll({_CEL_PART}).map(p, double(p.find('[0-9.]+')) * ({_CEL_UNITS})).sum()"
