"""Which missing members of a job may be created now, by bounds and by quotas, and what is reported where they may not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import msgspec

from fairlead.api.kinds.ai_job import AIJob
from fairlead.cluster.kubernetes.client import ApiError, Client
from fairlead.cluster.resource_quotas import Refusal
from fairlead.operator.faults import Faults
from fairlead.operator.jobs import members as made
from fairlead.operator.jobs.accepted import NOTHING, Notes, Taken
from fairlead.operator.jobs.array_runs import ArrayRuns
from fairlead.operator.jobs.cache import Cache
from fairlead.operator.jobs.expectations import Expectations
from fairlead.operator.jobs.limits import Waiting
from fairlead.operator.jobs.making import REFUSED, Maker
from fairlead.operator.jobs.plan import Plan
from fairlead.operator.jobs.quotas import Quotas, batches
from fairlead.operator.jobs.record import Record
from fairlead.operator.jobs.writer import Writer

_NEXT = 0.2  # seconds until it is tried again where another job of the namespace makes its pods
_SHORT, _QUOTA_REST = 30.0, 1.0  # seconds until a job that waits for a quota is retried: in any case, and after one changed
_BLOCKED_REST = 5.0  # seconds until it is tried again what others stand in the way of


class Creation:
    """again: has a job reconciled; speed: of the client's clock against the loop's."""

    def __init__(  # noqa: PLR0913 - the parts of the controller that it works with
        self,
        client: Client,
        faults: Faults,
        writer: Writer,
        maker: Maker,
        again: Callable[[str], None],
        *,
        cache: Cache,
        waiting: Waiting,
        expectations: Expectations,
        arrays: ArrayRuns,
        speed: float,
    ) -> None:
        self.quotas = Quotas(client, faults, self._quota_changed)
        self._client = client
        self._writer = writer
        self._maker = maker
        self._again = again
        self._cache = cache
        self._waiting = waiting
        self._expectations = expectations
        self._arrays = arrays
        self._speed = speed
        self._short: dict[str, set[str]] = {}  # namespace -> jobs that wait for a quota
        self._retrying: set[str] = set()  # namespaces whose jobs are about to be retried

    def forget(self, key: str) -> None:
        """A job is gone: it waits for no quota."""
        self._short.get(key.partition("/")[0], set()).discard(key)

    async def create(self, key: str, job: AIJob, decided: Plan, record: Record) -> None:
        """Make those members of a plan that may be made."""
        rests = record.notes.rests(self._client.clock(), job.metadata.generation)
        if rests > 0:
            self._later(key, rests)
            return
        members, why = self._within_bounds(key, job, decided)
        namespace = job.metadata.namespace
        if not members or not self.quotas.concerns(namespace):
            self._short.get(namespace, set()).discard(key)
            await self._make(key, job, decided, record, members, why)
        elif not self.quotas.enter(namespace):
            self._later(key, _NEXT)
        else:
            try:
                fitting, short = await self._within_quotas(key, job, decided, members)
                await self._make(key, job, decided, record, fitting, why, short)
            finally:
                self.quotas.leave(namespace)

    def _later(self, key: str, seconds: float) -> None:
        self._arrays.forget(key)  # it counts all of them as made
        asyncio.get_running_loop().call_later(seconds / self._speed, self._again, key)

    def _within_bounds(self, key: str, job: AIJob, decided: Plan) -> tuple[tuple[made.Member, ...], str]:
        """Those members of a plan that the bounds allow, and why not the others."""
        namespace = job.metadata.namespace
        gang = job.spec.array is None
        own = sum(not pod.node and pod.phase == "Pending" for pod in self._cache.pods(key).values()) if gang else 0
        allowance, why = self._waiting.allowance(namespace, len(decided.create), whole=gang, own=own)
        if allowance >= len(decided.create):
            return decided.create, ""
        if gang or made.is_gang(job):
            needed = tuple(each for each in decided.create if not each.elastic)
            if len(needed) > allowance:
                return (), why
            elastic = tuple(each for each in decided.create if each.elastic)
            return (*needed, *elastic[: allowance - len(needed)]), why
        return decided.create[:allowance], why

    async def _within_quotas(
        self, key: str, job: AIJob, decided: Plan, members: tuple[made.Member, ...]
    ) -> tuple[tuple[made.Member, ...], Refusal | None]:
        """Those members that the quotas of their namespace admit, and why not all; what is there of a gang goes, too, then."""
        namespace = job.metadata.namespace
        wanted = batches(job, members)
        fitting, short = await self.quotas.admitted(namespace, wanted)
        left = [batch for batch in wanted if batch not in fitting]
        needed = {each.element for batch in left for each in batch.members if not each.elastic}
        if needed:
            await self._maker.take_back(key, job, decided, needed)
        if job.spec.array is None and needed:
            fitting = []  # without those that it needs the others are of no use
        if left:
            self._short.setdefault(namespace, set()).add(key)
            self._later(key, _SHORT)
        else:
            self._short.get(namespace, set()).discard(key)
        kept = {each for batch in fitting for each in batch.members}
        return tuple(each for each in members if each in kept), short if needed else None

    def _quota_changed(self, namespace: str) -> None:
        """Jobs that wait for a quota may fit now: retry all of them together, and not too often."""
        if self._short.get(namespace) and namespace not in self._retrying:
            self._retrying.add(namespace)
            asyncio.get_running_loop().call_later(_QUOTA_REST / self._speed, self._retry_short, namespace)

    def _retry_short(self, namespace: str) -> None:
        self._retrying.discard(namespace)
        waiting = [self._cache.jobs[key] for key in self._short.get(namespace, ()) if key in self._cache.jobs]
        for job in sorted(waiting, key=lambda job: (job.metadata.creation_timestamp or "", job.metadata.uid)):
            self._again(job.metadata.key)

    async def _make(
        self,
        key: str,
        job: AIJob,
        decided: Plan,
        record: Record,
        members: tuple[made.Member, ...],
        why: str,
        short: Refusal | None = None,
    ) -> None:
        """Make these members; the others are held back by bounds (why), or by quotas (short).

        That a quota refuses one the API server, another program, reports in words alone: 403 has other causes, too.
        """
        notes = record.notes
        try:
            await self._make_counted(key, job, decided, record, members)
        except ApiError as error:
            if error.code not in REFUSED:
                raise
            notes.refused(self._client.clock(), job.metadata.generation)
            await self._maker.probe(job, notes)
            by_quota = error.code == 403 and re.search("(exceeded|failed) quota: ", error.message)
            reason = "ResourceQuota" if by_quota else "PodsRefused"
            await self._report(key, job, notes, (reason, f"the API server refuses its pods: {error.message or error}"))
            raise
        except Taken as error:
            await self._report(key, job, notes, (error.reason, str(error)))
            self._later(key, _BLOCKED_REST)
            return
        if members:
            notes.refusals = 0
        if short is not None:
            if not self._leaving(key, decided):  # what goes now may be all that is missing
                await self._report(key, job, notes, (short.reason, short.message), warning=short.for_good)
        elif why:
            await self._report(key, job, notes, ("TooManyWaitingPods", why), warning=False)
            self._later(key, _BLOCKED_REST)
        elif notes.pods[0]:
            notes.pods = NOTHING
            self._again(key)

    async def _make_counted(self, key: str, job: AIJob, decided: Plan, record: Record, members: tuple[made.Member, ...]) -> None:
        """Make these members. They count as waiting from the start: other jobs check the bounds meanwhile."""
        expected = [self._pod_of(job, each, decided) for each in members]
        for each in expected:
            self._waiting.seen(each, placed=False)
        try:
            if members:
                await self._maker.make(key, job, msgspec.structs.replace(decided, create=members), record)
        finally:
            awaited = self._expectations.names(key)
            for each in expected:
                known = self._cache.pod(each)
                if known is not None:
                    self._waiting.seen(each, placed=bool(known.node) or known.phase != "Pending")
                elif each.partition("/")[2] not in awaited:
                    self._waiting.seen(each, placed=True)

    def _leaving(self, key: str, decided: Plan) -> bool:
        """Whether pods of a job are on their way out."""
        return bool(decided.delete) or any(pod.terminating for pod in self._cache.pods(key).values())

    @staticmethod
    def _pod_of(job: AIJob, member: made.Member, decided: Plan) -> str:
        attempt = decided.attempts.get(member.element, decided.status.attempt)
        return f"{job.metadata.namespace}/{made.name_of(job, member, attempt)}"

    async def _report(self, key: str, job: AIJob, notes: Notes, why: tuple[str, str], *, warning: bool = True) -> None:
        """Report, once, why its pods are not created: by an event, and by the condition with the next reconciliation."""
        if notes.pods != why:
            notes.pods = why
            await self._writer.event(job, why[0], why[1], warning=warning)
            self._again(key)
