"""Times as the API server writes them."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from fairlead.core.model.instants import at_time


@lru_cache(maxsize=4096)
def seconds(timestamp: str | None) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 where there is none."""
    if not timestamp:
        return 0.0
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0


@lru_cache(maxsize=4096)
def timestamp(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339, to the second; what is written often is remembered."""
    return at_time(seconds)
