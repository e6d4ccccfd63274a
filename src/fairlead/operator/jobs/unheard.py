"""Pods that were made and of which the watch has not told yet: asked for again they would count twice in a quota."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from fairlead.api.kinds.ai_job import AIJob
from fairlead.operator.jobs.limits import Waiting
from fairlead.operator.jobs.members import name_of
from fairlead.operator.jobs.plan import Plan

_HEARD = 30.0  # seconds within which the watch tells of a pod that was made; one that came and went unheard must be made again


class Unheard:
    """By job. waiting: counts them as pods without a node."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._until: dict[str, dict[str, float]] = {}  # job -> pod's name -> until when it should be heard of

    def made(self, key: str, name: str, now: float) -> None:
        """A pod was made."""
        self._until.setdefault(key, {})[name] = now + _HEARD

    def heard(self, key: str, name: str) -> None:
        """The watch told of a pod, or it was deleted."""
        self._until.get(key, {}).pop(name, None)

    def names(self, key: str) -> Collection[str]:
        """Those of a job."""
        return self._until.get(key, {}).keys()

    def due(self, key: str) -> Iterable[float]:
        """Until when each of a job should be heard of."""
        return self._until.get(key, {}).values()

    def forget(self, key: str) -> None:
        """A job's are not waited for any more."""
        for name in self._until.pop(key, {}):
            self._waiting.seen(f"{key.partition('/')[0]}/{name}", placed=True)

    def without(self, key: str, job: AIJob, decided: Plan) -> Plan:
        """A plan that makes none of them."""
        unheard = self._until.get(key)
        if not unheard:
            return decided
        attempt = decided.status.attempt
        return msgspec.structs.replace(
            decided, create=tuple(each for each in decided.create if name_of(job, each, attempt) not in unheard)
        )
