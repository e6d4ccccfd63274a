"""Backoffs: how long to wait before what came to nothing is tried again."""

from __future__ import annotations

_MOST_DOUBLINGS = 16


def backoff(first: float, times: int, longest: float) -> float:
    """Seconds to wait after so many times in a row: `first` after one, twice as long after each more."""
    return min(first * 2.0 ** min(times - 1, _MOST_DOUBLINGS), longest)
