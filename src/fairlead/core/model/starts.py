"""Starts of pods that have nodes: how long they may take, what keeps them, and how often those of a gang failed."""

from __future__ import annotations

import msgspec

START_TIMEOUT = 900.0
"""Seconds that members with nodes may take to start where nothing else is given."""
START_RETRIES = 30.0
"""Seconds for which a container may report what waiting hardly solves until its kubelet has tried it again."""


class StartTrouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """What keeps a pod that has a node from having started, in its container's words. reason: empty where that gives none.

    hopeless: no waiting helps. retried: waiting hardly helps, but the kubelet tries it again.
    """

    reason: str = ""
    message: str = ""
    hopeless: bool = False
    retried: bool = False


class FailedStarts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Starts of a gang that failed in a row, as last written. until: it is placed again no sooner, seconds since the epoch."""

    count: int
    until: float
    message: str = ""
