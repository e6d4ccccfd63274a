"""Pods that were made and that the watch has not shown yet: asked for again they would count twice in a quota.

As client-go's controllers keep expectations of what they created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from fairlead.api.kinds.ai_job import AIJob
from fairlead.operator.jobs.limits import Waiting
from fairlead.operator.jobs.members import name_of
from fairlead.operator.jobs.plan import Plan

_SHOWN_IN = 30.0  # seconds within which the watch shows a pod that was made; one that came and went unseen must be made again


class Expectations:
    """By job. waiting: counts them as pods without a node."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._until: dict[str, dict[str, float]] = {}  # job -> pod's name -> until when it is expected

    def expect(self, key: str, name: str, now: float) -> None:
        """A pod was made."""
        self._until.setdefault(key, {})[name] = now + _SHOWN_IN

    def observed(self, key: str, name: str) -> None:
        """The watch showed a pod, or it was deleted."""
        self._until.get(key, {}).pop(name, None)

    def names(self, key: str) -> Collection[str]:
        """Those of a job."""
        return self._until.get(key, {}).keys()

    def due(self, key: str) -> Iterable[float]:
        """Until when each of a job is expected."""
        return self._until.get(key, {}).values()

    def forget(self, key: str) -> None:
        """A job's are not expected any more."""
        for name in self._until.pop(key, {}):
            self._waiting.seen(f"{key.partition('/')[0]}/{name}", placed=True)

    def without(self, key: str, job: AIJob, decided: Plan) -> Plan:
        """A plan that makes none of them."""
        expected = self._until.get(key)
        if not expected:
            return decided
        attempt = decided.status.attempt
        return msgspec.structs.replace(
            decided, create=tuple(each for each in decided.create if name_of(job, each, attempt) not in expected)
        )
