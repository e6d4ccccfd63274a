"""Making a job's members: its Service, its PodGroups and its pods, each of which must be the job's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, create, encode
from fairlead.operator.jobs import members as made
from fairlead.operator.jobs.accepted import Notes, Taken, taken, trust
from fairlead.operator.jobs.cache import Cache
from fairlead.operator.jobs.counters import Counters
from fairlead.operator.jobs.expectations import Expectations
from fairlead.operator.jobs.limits import Waiting
from fairlead.operator.jobs.plan import Plan
from fairlead.operator.jobs.record import Record
from fairlead.operator.jobs.writer import Writer

log = structlog.get_logger("jobs")

REFUSED = (400, 403, 422)
"""What the API server answers to pods that it does not take, by a policy or by their form."""
_AT_ONCE = 64


class Maker:
    """untrusted_as: the user that the API server takes us for, where it does not believe whose pods are.

    again: has a job reconciled.
    """

    def __init__(
        self,
        client: Client,
        writer: Writer,
        counters: Counters,
        again: Callable[[str], None],
        *,
        cache: Cache,
        waiting: Waiting,
        expectations: Expectations,
    ) -> None:
        self.untrusted_as = ""
        self._client = client
        self._writer = writer
        self._counters = counters
        self._again = again
        self._cache = cache
        self._waiting = waiting
        self._expectations = expectations

    async def make(self, key: str, job: AIJob, decided: Plan, record: Record) -> None:
        """Make the members of a plan, but for those whose names are taken. Raises `Taken` and what the API server refuses."""
        metadata = job.metadata
        blocked = self._blocked(job, decided)
        if record.served != decided.status.attempt:  # it may have been deleted since the last
            services = f"/api/v1/namespaces/{metadata.namespace}/services"
            if not await create(self._client, services, made.service(job)):
                await self._check_owner(f"{services}/{metadata.name}", "Service", metadata.name, job)
        record.served = decided.status.attempt
        slots = asyncio.Semaphore(_AT_ONCE)
        blocked |= await self._make_gangs(job, decided, slots)
        free = [each for each in decided.create if each.element not in blocked]
        needed = [each for each in free if not each.elastic]
        failures = await self._make_pods(key, job, decided, record.notes, slots, needed)
        refused = {member.element for member, error in failures if _is_refusal(error)}
        if refused:
            await self.take_back(key, job, decided, refused)
            if made.is_gang(job) and any(isinstance(error, Taken) for _, error in failures):
                record.notes.refused(self._client.clock(), metadata.generation)  # the others are not made anew without pause
        await self._raise(job, failures)
        # Only then: a gang that begins with elastic replicas would have to swap them for those that it needs.
        elastic = [each for each in free if each.elastic]
        await self._raise(job, await self._make_pods(key, job, decided, record.notes, slots, elastic))
        if blocked:
            raise blocked[min(blocked)]

    def _blocked(self, job: AIJob, decided: Plan) -> dict[int, Taken]:
        """Elements of which a pod's name is taken: by a job of the same name that was deleted, or by another."""
        found: dict[int, Taken] = {}
        for each in decided.create:
            name = made.name_of(job, each, decided.attempts.get(each.element, decided.status.attempt))
            there = self._cache.pod(f"{job.metadata.namespace}/{name}")
            if there is not None and there.job != job.metadata.uid:
                found[each.element] = Taken(*taken("Pod", name, job))
        return found

    async def group_again(self, key: str, job: AIJob, record: Record) -> None:
        """Make those of its PodGroups again that are gone while their pods are there: without it none of them starts."""
        there = {pod.element for pod in self._cache.pods(key).values() if pod.phase in ("Pending", "Running")}
        groups = f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/podgroups"
        for element in sorted(record.ungrouped & there):
            await create(self._client, groups, made.group(job, element))
        record.ungrouped.clear()

    async def _make_gangs(self, job: AIJob, decided: Plan, slots: asyncio.Semaphore) -> dict[int, Taken]:
        """Make the PodGroups of a plan; the elements for which that of another object is there."""
        groups = f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/podgroups"

        async def gang(element: int) -> Taken | None:
            async with slots:
                name = made.gang_of(job, element)
                try:
                    if not await create(self._client, groups, made.group(job, element)):
                        await self._check_owner(f"{groups}/{name}", "PodGroup", name, job)
                except Taken as error:
                    return error
            return None

        elements = sorted({member.element for member in decided.create})
        if elements != [-1] and not made.is_gang(job):
            return {}
        found = await asyncio.gather(*(gang(element) for element in elements))
        return {element: error for element, error in zip(elements, found, strict=True) if error is not None}

    async def _make_pods(
        self,
        key: str,
        job: AIJob,
        decided: Plan,
        notes: Notes,
        slots: asyncio.Semaphore,
        members: Sequence[made.Member],
    ) -> list[tuple[made.Member, Exception]]:
        """Make these members; which could not be made, and why."""
        roles = {role.name: role for role in job.spec.roles}

        async def one(member: made.Member) -> None:
            async with slots:
                attempt = decided.attempts.get(member.element, decided.status.attempt)
                manifest = made.pod(job, roles[member.role], member, attempt)
                name = manifest["metadata"]["name"]
                pods = f"/api/v1/namespaces/{job.metadata.namespace}/pods"
                reply = await self._post_new(pods, manifest)
                if reply is not None:
                    self._counters.created += 1
                    self._check_user(job, reply, notes)
                if name not in self._cache.pods(key):
                    if reply is None:
                        await self._check_pod(pods, name, job)
                    self._expectations.expect(key, name, self._client.clock())

        outcomes = await asyncio.gather(*map(one, members), return_exceptions=True)
        return [(each, outcome) for each, outcome in zip(members, outcomes, strict=True) if isinstance(outcome, Exception)]

    async def _raise(self, job: AIJob, failures: Sequence[tuple[made.Member, Exception]]) -> None:
        """Raise the first failure, if there is one; what the API server refuses gets its event where it is caught."""
        if failures:
            _, error = failures[0]
            if not _is_refusal(error):  # those have events of their own
                await self._writer.event(job, "FailedCreate", f"a member cannot be made: {error}", warning=True)
            raise error

    async def take_back(self, key: str, job: AIJob, decided: Plan, elements: set[int]) -> None:
        """The pods of gangs that cannot be made whole go: they would keep their quota, and never start."""
        gone: list[str] = []
        for element in elements:
            attempt = decided.attempts.get(element, decided.status.attempt)
            named = {made.name_of(job, each, attempt) for each in made.members(job, element)}
            there = {name: pod for name, pod in self._cache.pods(key).items() if name in named}
            if not any(pod.node for pod in there.values()):
                expected = {name for name in self._expectations.names(key) if name in named}
                gone += sorted(expected | {name for name, pod in there.items() if not pod.terminating})
        for name in gone:
            self._expectations.observed(key, name)
            self._waiting.seen(f"{job.metadata.namespace}/{name}", placed=True)
        await asyncio.gather(*(self._writer.delete_pod(job, name) for name in gone))

    async def _post_new(self, path: str, manifest: made.Manifest) -> bytes | None:
        """The object as the API server made it; None: it was there already."""
        try:
            return await self._client.post(path, encode(manifest))
        except ApiError as error:
            if error.code == 409 and error.reason == "AlreadyExists":
                return None
            raise

    async def probe(self, job: AIJob, notes: Notes) -> None:
        """Whether the API server believes us whose it is: a refusal may be for the wrong user. Nothing is made."""
        group = made.group(job)
        group["metadata"] |= {"name": f"{job.metadata.name[:200]}-probe", "ownerReferences": []}
        group["spec"] = {"minMember": 1}
        path = f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/podgroups"
        with contextlib.suppress(ApiError):
            self._check_user(job, await self._client.post(path, encode(group), dry_run=True), notes)

    def _check_user(self, job: AIJob, reply: bytes, notes: Notes) -> None:
        """Whether a pod belongs to its job's user: the API server stamps it with our user where we are not trusted."""
        given = made.stamp(job.metadata.annotations)
        found = made.stamp(msgspec.json.decode(reply, type=views.OnlyMetadata).metadata.annotations)
        as_whom = "" if not given or found == given else found.get(names.USER_ANNOTATION, "")
        if as_whom != notes.untrusted:
            notes.untrusted = as_whom
            self._again(job.metadata.key)
        if as_whom and as_whom != self.untrusted_as:
            log.error("the policies do not trust this operator", user=as_whom, do=trust(as_whom))
        self.untrusted_as = as_whom if given else self.untrusted_as

    async def _check_owner(self, path: str, kind: str, name: str, job: AIJob) -> None:
        """Something of that name is there: whether it is the job's. Raises `Taken`."""
        try:
            found = msgspec.json.decode(await self._client.get(path), type=views.OnlyMetadata).metadata
        except ApiError as error:
            if error.code == 403:  # an older role without this right: the object counts as the job's, as it did then
                log.warning("the owner cannot be read", kind=kind, job=job.metadata.key, error=str(error)[:300])
                return
            if error.code != 404:
                raise
            raise Taken(*taken(kind, name, job)) from error
        if not made.owned(found.owner_references, job):
            raise Taken(*taken(kind, name, job))

    async def _check_pod(self, pods: str, name: str, job: AIJob) -> None:
        """As `_check_owner`, of a pod, which the operator may list and not get. Raises `Taken`."""
        body = await self._client.get(pods, fieldSelector=f"metadata.name={name}")
        found = msgspec.json.decode(body, type=_Found).items
        if not any(made.owned(each.metadata.owner_references, job) for each in found):
            raise Taken(*taken("Pod", name, job))


class _Found(msgspec.Struct):
    items: list[views.OnlyMetadata] = []


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, Taken) or (isinstance(error, ApiError) and error.code in REFUSED)
