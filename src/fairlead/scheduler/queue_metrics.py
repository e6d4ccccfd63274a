"""The metrics of queues that autoscalers follow: their names, of which installing makes rights, and what each shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Backlog(NamedTuple):
    """What waits in a queue and below it. jobs: how many. gpus: devices that they ask for. wait: seconds, see `backlog`."""

    jobs: int
    gpus: float
    wait: float


METRICS: dict[str, Callable[[Backlog], float]] = {
    "fairlead_queue_pending_jobs": lambda backlog: backlog.jobs,
    "fairlead_queue_pending_gpus": lambda backlog: backlog.gpus,
    "fairlead_queue_expected_wait_seconds": lambda backlog: backlog.wait,
}
"""Name -> how it is read. Name and meaning are part of the interface."""
