"""Exceptions that the core contained: each is counted and logged, and what it did not concern goes on."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from fairlead.core.model.transactions import Fault
from fairlead.scheduler.counters import Counters

log = structlog.get_logger("core")

_SHOWN = 8  # pods named in a line of the log


class Faults:
    """Counts and logs them."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def note(self, site: str, about: str, error: Exception) -> None:
        """An exception of the core's own loop. site: at which step; about: on which subject."""
        self._counters.fault(site)
        log.error("internal error", site=site, about=about, exc_info=error)

    def set_aside(self, caught: Sequence[tuple[Fault, Sequence[Exception]]]) -> None:
        """What a pass set aside, with tracebacks."""
        for fault, errors in caught:
            self._counters.fault(fault.site)
            pods = [pod.key for pod in fault.pods[:_SHOWN]]
            for error in errors:
                log.error("set aside", site=fault.site, pods=pods, subject=fault.subject or fault.group, exc_info=error)
