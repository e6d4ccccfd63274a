"""What the controller remembers of one job beside its observations: when it wrote and did what."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

import msgspec

from fairlead.api.kinds.ai_job import AIJobStatus
from fairlead.operator.jobs.accepted import Notes
from fairlead.operator.jobs.alternatives import Offer

_WRITE_INTERVAL = 0.5  # seconds between two statuses that differ in counts only
_BETWEEN = 1.0  # seconds at least between two attempts of a job, or two reconciliations of an array of which elements began again


@dataclass(slots=True)
class Record:
    """notes: problems for its conditions beside those of `plan`; ended: pods that succeeded, are gone, and not in its status yet.

    timer: when it is reconciled again by itself; written_at: when its status was written; attempted_at: when it, or an element
    of it, last began again; served: the attempt for which its Service was made, or found. bounds: how many members its PodGroup
    was made for, of which roles, and in which forms; kinds: version, and role -> how its members ask for nodes. offered: the
    forms in which it may run. ungrouped: elements (-1: the job) whose PodGroup is gone.
    """

    notes: Notes = field(default_factory=Notes)
    ended: set[str] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None
    written_at: float = 0.0
    attempted_at: float = -math.inf
    served: int = -1
    bounds: tuple[object, ...] | None = None
    kinds: tuple[str, dict[str, str]] = ("", {})
    offered: Offer = field(default_factory=Offer)
    ungrouped: set[int] = field(default_factory=set)

    @property
    def write_at(self) -> float:
        """When a status may be written that differs in counts only."""
        return self.written_at + _WRITE_INTERVAL

    def rests(self, now: float) -> float:
        """Seconds until it may begin again."""
        left = self.attempted_at + _BETWEEN - now
        return left if left <= _BETWEEN else 0.0  # the clock may have been set back

    def stop_timer(self) -> None:
        """It is reconciled now, which finds out anew when it is due again."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def same(one: object, other: object) -> bool:
    """Whether both have the same values: what was read is of stricter classes, whose objects equal no others."""
    return one == other or msgspec.json.encode(one) == msgspec.json.encode(other)


def begins_again(before: AIJobStatus | None, after: AIJobStatus) -> bool:
    """Whether a job, or an element of it, starts another attempt."""
    old = before or AIJobStatus()
    return after.attempt != old.attempt or not same(after.elements, old.elements)


def counts_only(old: AIJobStatus | None, new: AIJobStatus) -> bool:
    """Whether two statuses differ in nothing but how many run."""
    if old is None:
        return False
    counts = {name: getattr(new, name) for name in ("running", "succeeded", "succeeded_members")}
    return same(msgspec.structs.replace(old, **counts), new)
