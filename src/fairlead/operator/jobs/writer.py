"""What the controller writes of a job: its status, its PodGroup's size, marks and deletions, events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.common import Topology
from fairlead.api.kinds.rules import strict
from fairlead.cluster import views
from fairlead.cluster.kubernetes import events
from fairlead.cluster.kubernetes.client import ApiError, Client, delete, encode
from fairlead.operator.jobs import indexes
from fairlead.operator.jobs.accepted import over
from fairlead.operator.jobs.counters import Counters
from fairlead.operator.jobs.members import digest, gang_of, group, is_gang, owned
from fairlead.operator.jobs.plan import Plan
from fairlead.operator.jobs.record import Record

_MERGE = "application/merge-patch+json"
_STATUS_FIELDS = (
    "phase",
    "alternative",
    "queue",
    "serviceClass",
    "attempt",
    "restarts",
    "interruptions",
    "completeAttempt",
    "members",
    "running",
    "succeeded",
    "succeededMembers",
    "size",
    "resizes",
    "metDependencies",
    "completedIndexes",
    "failedIndexes",
    "elements",
    "resumeAt",
    "lastCheckpoint",
    "runningSince",
    "nodes",
    "preferredNodes",
    "avoidedNodes",
    "starts",
    "startedAt",
    "finishedAt",
    "message",
    "conditions",
)


_TOPOLOGY_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(Topology))


class Writer:
    """Writes to the API server."""

    def __init__(self, client: Client, counters: Counters) -> None:
        self._client = client
        self._counters = counters

    async def status(self, job: AIJob, decided: Plan) -> AIJob:
        """Write the status over the version that was read and no other; after a 409 the job is reconciled again."""
        status = msgspec.to_builtins(decided.status)
        patch = {name: status.get(name) for name in _STATUS_FIELDS} | {"phase": decided.status.phase}
        body = {"metadata": {"resourceVersion": job.metadata.resource_version}, "status": patch}
        reply = await self._client.patch(f"{_path(job)}/status", encode(body), _MERGE)
        self._counters.statuses += 1
        return msgspec.json.decode(reply, type=strict(AIJob))

    async def excuse(self, job: AIJob, name: str) -> None:
        """Have a failed pod count as one that succeeded, for the scheduler as for us."""
        body = {"metadata": {"annotations": {names.COUNTS_ANNOTATION: "Succeeded"}}}
        await self._patch(f"/api/v1/namespaces/{job.metadata.namespace}/pods/{name}", body)

    async def write_pause(self, job: AIJob, known: views.PodGroup | None) -> None:
        """Report to the scheduler whether the user pauses a job that the scheduler has suspended or just resumed.

        A paused job waits for no place: no place must be reserved for it, and no pod evicted for that. known: its PodGroup.
        """
        target = known.status.target if known is not None and known.status is not None else None
        if known is None or target is None or job.spec.array is not None or over(job):
            return
        written = (known.metadata.annotations or {}).get(names.PAUSED_ANNOTATION) == "true"
        if written == job.spec.suspend or not owned(known.metadata.owner_references, job):
            return
        annotations = {names.PAUSED_ANNOTATION: "true" if job.spec.suspend else None}
        await self._patch(_group_path(job), {"metadata": {"annotations": annotations}})

    async def write_ends(self, job: AIJob, group: Callable[[str], views.PodGroup | None]) -> None:
        """Report to the scheduler how a job, or elements of it, ended, where the pods alone do not show that: it failed for
        good, or it succeeded before all of its members had. group: a PodGroup by `namespace/name`.
        """
        status = job.status
        if status is None or (job.spec.array is not None and not is_gang(job)):
            return
        elements = sorted(indexes.as_set(status.failed_indexes)) if job.spec.array is not None else [-1] * over(job)
        phase = "Failed" if job.spec.array is not None else status.phase
        if phase == "Succeeded" and job.spec.success_policy is None:
            return
        for element in elements:
            name = gang_of(job, element)
            known = group(f"{job.metadata.namespace}/{name}")
            if known is None or (known.metadata.annotations or {}).get(names.ENDED_ANNOTATION) == phase:
                continue
            if owned(known.metadata.owner_references, job):
                await self._patch(_group_path(job, name), {"metadata": {"annotations": {names.ENDED_ANNOTATION: phase}}})

    async def resize_group(self, job: AIJob, known: views.PodGroup | None, record: Record) -> None:
        """A job's roles may change while it runs, or is suspended: its gang follows, and its PodGroup with it."""
        if job.spec.array is not None:
            return
        wanted = group(job)
        least, most, roles = wanted["spec"]["minMember"], wanted["spec"].get("maxMember", 0), digest(job)
        topology, special = wanted["spec"].get("topology"), wanted["spec"].get("roles")
        forms = (job.metadata.annotations or {}).get(names.ALTERNATIVES_ANNOTATION, "") if job.spec.alternatives else ""
        bounds = least, most, roles, topology, special, forms
        # Alternatives change with the pools, and the form with what the scheduler chooses: not only with the job's own spec.
        if bounds == record.bounds or (job.metadata.generation == 1 and not forms):
            record.bounds = bounds
            return
        if known is not None and not owned(known.metadata.owner_references, job):
            return
        metadata = {"annotations": {names.ROLES_LABEL: roles, names.ALTERNATIVES_ANNOTATION: forms or None}}
        # A merge patch keeps what it does not name: a part of a topology that is not asked for any more has to be null.
        levels = {**dict.fromkeys(_TOPOLOGY_FIELDS), **topology} if topology else None
        spec = {"minMember": least, "maxMember": most or None, "topology": levels, "roles": special}
        await self._patch(_group_path(job), {"metadata": metadata, "spec": spec})
        record.bounds = bounds

    async def _patch(self, path: str, body: Mapping[str, object]) -> None:
        """An object that may be gone."""
        try:
            await self._client.patch(path, encode(body), _MERGE)
        except ApiError as error:
            if error.code != 404:
                raise

    async def delete_pod(self, job: AIJob, name: str) -> None:
        """A pod of the job goes."""
        if await delete(self._client, f"/api/v1/namespaces/{job.metadata.namespace}/pods/{name}"):
            self._counters.deleted += 1

    async def delete_job(self, job: AIJob) -> None:
        """Its time after the end is over; all that it owns goes with it."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": job.metadata.uid},
        }
        try:
            await self._client.delete(_path(job), encode(body))
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def event(self, job: AIJob, reason: str, note: str, *, warning: bool) -> None:
        """An event on the job."""
        metadata = job.metadata
        regarding = {"apiVersion": names.API_VERSION, "kind": "AIJob", "uid": metadata.uid}
        regarding |= {"name": metadata.name, "namespace": metadata.namespace}
        who = {"controller": "fairlead.dev/operator", "instance": names.lease(names.release(), "operator")}
        await events.write(self._client, regarding, reason, note, action=reason, warning=warning, **who)


def _path(job: AIJob) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/aijobs/{job.metadata.name}"


def _group_path(job: AIJob, name: str = "") -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{job.metadata.namespace}/podgroups/{name or job.metadata.name}"
