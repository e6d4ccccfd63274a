"""What every kind of write needs."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.cluster.port import Cluster
from fairlead.scheduler.writing.counters import WriteCounters
from fairlead.scheduler.writing.events import Events
from fairlead.scheduler.writing.lines import Lines
from fairlead.scheduler.writing.outcomes import Outcomes
from fairlead.scheduler.writing.statuses import Statuses


@dataclass(frozen=True, slots=True)
class Context:
    """The cluster, the lines before it, and what comes of a write: outcomes, events, statuses, counts."""

    cluster: Cluster
    lines: Lines
    counters: WriteCounters
    outcomes: Outcomes
    events: Events
    statuses: Statuses
