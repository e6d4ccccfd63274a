"""AIJobs without pods in the lists of jobs: held, waiting for others, not accepted, between two attempts.

The scheduler knows jobs by their pods and PodGroups, so neither the leader nor a snapshot has these. They are listed from the
API server, which selects by phase: those that run or have ended are not sent.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import typer

from fairlead.api import names
from fairlead.scheduler.overview.rows import Job, State, Why

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairlead.api.kinds.ai_job import AIJob
    from fairlead.cli.leader import Leader
    from fairlead.cluster.kubernetes.client import Client

AIJOB = "AIJob"

_PHASES = ",".join(f"status.phase!={phase}" for phase in ("Running", "Resizing", "Succeeded", "Failed"))
_STATES = {state.value: state for state in (State.STARTING, State.SUSPENDED, State.RESTARTING)}
_PART = 0.05  # of the time is spent on listing, where a view is refreshed
_NOT_SELECTABLE, _FORBIDDEN, _NOT_FOUND = 400, 403, 404


class WithoutPods:
    """Lists AIJobs that may have no pods. namespace: of which; empty: of all."""

    def __init__(self, namespace: str = "") -> None:
        self._namespace = namespace
        self._known: list[AIJob] = []
        self._queues: dict[str, str] = {}
        self._next = 0.0
        self._warned = False

    async def read(self, leader: Leader) -> None:
        """List them; again at the earliest when that costs little of the time. Raises `ApiError`, `Unreachable`."""
        from fairlead.cli import aijobs

        begun = time.monotonic()
        if begun < self._next:
            return
        self._known = await self._listed(leader)
        for job in self._known:
            if not _queue(job) and job.metadata.namespace not in self._queues:
                self._queues[job.metadata.namespace] = await aijobs.default_queue(leader.client, job.metadata.namespace)
        ended = time.monotonic()
        self._next = ended + (ended - begun) / _PART

    def beside(self, known: Iterable[Job], now: float, namespace: str = "") -> list[Job]:
        """The rows of those that no row of `known` is about, as `explain` describes them. now: seconds since the epoch.

        namespace: the only one of which `known` has rows; empty: it has those of all.
        """
        jobs = [job for job in self._known if namespace in ("", job.metadata.namespace)]
        rows = _Rows(known, {job.metadata.key for job in jobs}) if jobs else None
        return [self._row(job, now) for job in jobs if rows is not None and not rows.have(job)]

    def _row(self, job: AIJob, now: float) -> Job:
        from fairlead.cli import aijobs
        from fairlead.cluster.times import seconds

        explained = aijobs.by_status(job, now)
        return Job(
            namespace=job.metadata.namespace,
            name=job.metadata.name,
            kind=AIJOB,
            queue=explained.queue or self._queues.get(job.metadata.namespace, names.DEFAULT_QUEUE),
            state=_STATES.get(explained.state, State.PENDING),
            pods=explained.pods,
            running=0,
            gpus=explained.gpus,
            priority=0,
            submitted_at=seconds(job.metadata.creation_timestamp) or now,
            reason=Why(explained.code or "", explained.message or ""),
            user=explained.user,
            expected_start=seconds(explained.expected_start) if explained.expected_start else None,
        )

    async def _listed(self, leader: Leader) -> list[AIJob]:
        """All in the namespace or cluster, or in the user's own namespace, where the user may see no more."""
        from fairlead.cluster.kubernetes.client import ApiError

        places = [self._namespace] if self._namespace or not leader.namespace else ["", leader.namespace]
        for place in places:
            try:
                return await _list(leader.client, place)
            except ApiError as error:
                if error.code == _NOT_FOUND:
                    return []
                if error.code != _FORBIDDEN:
                    raise
        if not self._warned:
            self._warned = True
            typer.echo("AIJobs without pods are not shown: you may not list aijobs.fairlead.dev", err=True)
        return []


async def _list(client: Client, namespace: str) -> list[AIJob]:
    from fairlead.api.kinds.ai_job import AIJob
    from fairlead.cli import aijobs
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.cluster.kubernetes.listing import list_all

    below = f"namespaces/{namespace}/" if namespace else ""
    path = f"/apis/{names.API_VERSION}/{below}aijobs"
    try:
        found = await list_all(client, path, AIJob, fields=_PHASES)
    except ApiError as error:
        if error.code != _NOT_SELECTABLE:
            raise
        found = await list_all(client, path, AIJob)  # its CustomResourceDefinition is of an earlier version
    ran = ("Running", "Resizing")
    return [job for job in found if not aijobs.over(job) and (job.status is None or job.status.phase not in ran)]


def _queue(job: AIJob) -> str:
    return (job.status.queue if job.status is not None else "") or job.spec.queue or ""


class _Rows:
    """Rows of jobs that may be of some AIJobs: those of an array's elements, and of pods without a gang, have longer names.

    wanted: `namespace/name` of the AIJobs.
    """

    def __init__(self, known: Iterable[Job], wanted: set[str]) -> None:
        self._by_start: dict[str, list[str]] = {}
        for row in known:
            for start in _starts(row.name):
                if (key := f"{row.namespace}/{start}") in wanted:
                    self._by_start.setdefault(key, []).append(row.name)

    def have(self, job: AIJob) -> bool:
        """Whether any row is of this job: of its PodGroup, of an element's, or of a pod by itself."""
        near = self._by_start.get(job.metadata.key)
        if near is None:
            return False
        roles = "|".join(re.escape(role.name) for role in job.spec.roles)
        element = r"(-\d+)?" if job.spec.array is not None else ""
        its = re.compile(rf"{re.escape(job.metadata.name)}{element}(-({roles})-\d+-\d+)?")
        return any(its.fullmatch(name) for name in near)


def _starts(name: str) -> Iterator[str]:
    """A name, and what is before each of its hyphens."""
    yield name
    at = name.rfind("-")
    while at > 0:
        yield name[:at]
        at = name.rfind("-", 0, at)
