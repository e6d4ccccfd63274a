"""Kubernetes events, behind everything else. One that is repeated while it waits is written once, in its latest form."""

from __future__ import annotations

from functools import partial

from fairlead.cluster.port import Cluster
from fairlead.core.model.transactions import PodRef
from fairlead.scheduler.writing.counters import WriteCounters
from fairlead.scheduler.writing.lines import EVENT, Lines

_MOST_EVENTS = 200_000


class Events:
    """Those that wait to be written. on: whether any are written at all."""

    def __init__(self, cluster: Cluster, lines: Lines, counters: WriteCounters, *, on: bool) -> None:
        self._cluster = cluster
        self._lines = lines
        self._counters = counters
        self._on = on
        self._waiting: dict[PodRef | str, dict[tuple[str, str], tuple[str, bool]]] = {}  # on what -> (reason, action) -> note

    @property
    def idle(self) -> bool:
        """Whether none waits."""
        return not self._waiting

    def put(self, regarding: PodRef | str, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """Write one event on a pod, a PodGroup or a node."""
        if not self._on:
            return
        waiting = self._waiting.get(regarding)
        if waiting is None:
            if self._lines.length(EVENT) >= _MOST_EVENTS:
                self._counters.events_dropped += 1
                return
            waiting = self._waiting[regarding] = {}
            self._lines.enter(EVENT, partial(self._write, regarding))
        waiting.pop((reason, action), None)
        waiting[reason, action] = note, warning

    async def _write(self, regarding: PodRef | str) -> None:
        waiting = self._waiting[regarding]
        try:
            while waiting:
                reason, action = what = next(iter(waiting))
                note, warning = waiting.pop(what)
                self._counters.events += 1
                await self._cluster.event(regarding, reason, note, warning=warning, action=action)
        finally:
            if waiting:
                self._lines.enter(EVENT, partial(self._write, regarding))
            else:
                del self._waiting[regarding]
