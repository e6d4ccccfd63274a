"""What the controller of AIJobs did, read by the metrics."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct):
    """Pods, statuses, and what became of jobs."""

    created: int = 0
    deleted: int = 0
    statuses: int = 0
    finished: int = 0
    restarted: int = 0
