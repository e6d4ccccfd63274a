"""What was written, read by the metrics."""

from __future__ import annotations

import msgspec

from fairlead.observability.metrics import Distribution

_BIND_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class WriteCounters(msgspec.Struct):
    """Writes of each kind, and those that were refused or given up."""

    bound: int = 0
    bind_failed: int = 0
    evicted: int = 0
    evict_failed: int = 0
    suspended: int = 0
    resumed: int = 0
    plans_released: int = 0
    conditions: int = 0
    events: int = 0
    events_dropped: int = 0
    latencies: Distribution = msgspec.field(default_factory=lambda: Distribution(_BIND_BOUNDS))  # of bindings
