"""Moments as text: RFC 3339 in UTC, to the second."""

from __future__ import annotations

from datetime import UTC, datetime

_FIRST, _LAST = (at.timestamp() for at in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(microsecond=0, tzinfo=UTC)))


def at_time(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339, to the second.

    Beyond the years 1 to 9999 it is the nearest time that can be written: users choose durations, so sums may be of any size.
    """
    at = datetime.fromtimestamp(min(max(_FIRST, seconds), _LAST), UTC)
    return at.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
