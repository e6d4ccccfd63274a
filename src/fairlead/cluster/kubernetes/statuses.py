"""Statuses and conditions that the scheduler writes: of pods, pod groups, queues, reservations and policies."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import structlog

from fairlead.api import names
from fairlead.api.reasons import Reason
from fairlead.cluster.kubernetes import conditions, events
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode
from fairlead.cluster.kubernetes.queue_statuses import QueueStatuses
from fairlead.cluster.port import GroupReport, QueueReport
from fairlead.cluster.reported import group_shown, waiting_condition, why_waiting
from fairlead.cluster.times import timestamp
from fairlead.cluster.translate import Translator
from fairlead.core.model.transactions import PodRef

log = structlog.get_logger("kubernetes")

_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


class Statuses:
    """Writes statuses; what stands there already is not written again."""

    def __init__(self, client: Client, translator: Translator) -> None:
        self._client = client
        self._translator = translator
        self._queues = QueueStatuses(self._queue)

    async def disrupted(self, pod: PodRef) -> None:
        """Condition DisruptionTarget: the pod is preempted."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{names.SCHEDULER_NAME}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": self._now(),
        }
        await self._status(f"{pod_path(pod)}/status", {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})

    async def nominate(self, pod: PodRef, node: str, reason: Reason | None = None) -> None:
        """`status.nominatedNodeName`, with the condition that names what it waits for, if there is a reason."""
        status: dict[str, object] = {"nominatedNodeName": node}
        if reason is not None:
            status["conditions"] = [waiting_condition(reason, self._now())]
        await self._status(f"{pod_path(pod)}/status", {"metadata": {"uid": pod.uid}, "status": status})

    async def refuse(self, pod: PodRef, reason: Reason, *, withdraw: bool = False) -> None:
        """Condition PodScheduled=False, in kube-scheduler's form where capacity is missing."""
        report = why_waiting(reason)
        if self._translator.reported.get(pod.uid) == report and not withdraw:
            return
        status: dict[str, object] = {"conditions": [waiting_condition(reason, self._now())]}
        if withdraw:
            status["nominatedNodeName"] = None
        body = {"metadata": {"uid": pod.uid}, "status": status}
        if await self._status(f"{pod_path(pod)}/status", body, retry=True) and pod.uid in self._translator.versions:
            self._translator.reported[pod.uid] = report

    async def group_status(self, group: str, status: GroupReport) -> None:
        """`PodGroup.status`: phase, members placed and succeeded, why not all are, and when they are expected to start."""
        namespace, _, name = group.partition("/")
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{name}/status"
        await self._status(path, {"status": group_shown(status)}, _MERGE, retry=True)

    async def condition(self, regarding: PodRef | str, kind: str, reason: str, message: str) -> None:
        """A condition that holds of a pod, or of the pod group `namespace/name`."""
        if isinstance(regarding, PodRef):
            # Pods' conditions of others' making carry a domain.
            kind = f"{names.GROUP}/{kind}"
            condition = conditions.condition(kind, holds=True, reason=reason, message=message, since=self._now())
            body = {"metadata": {"uid": regarding.uid}, "status": {"conditions": [condition]}}
            await self._status(f"{pod_path(regarding)}/status", body, retry=True)
            return
        condition = conditions.condition(kind, holds=True, reason=reason, message=message, since=self._now())
        # Each under a manager of its own: what a manager applies replaces all that it applied before.
        await self._condition("podgroups", regarding, condition, f"{names.SCHEDULER_NAME}-{kind.lower()}")

    async def queue_status(self, queue: str, status: QueueReport) -> None:
        """`Queue.status`: allocation, pending pods, fair share, recent usage."""
        await self._queues.write(queue, status)

    async def _queue(self, queue: str, status: object) -> bool:
        return await self._status(f"/apis/{names.API_VERSION}/queues/{queue}/status", {"status": status}, _MERGE, retry=True)

    async def reservation_status(self, name: str, phase: str, nodes: Sequence[str]) -> None:
        """`Reservation.status`: its phase and its nodes."""
        body = {"status": {"phase": phase, "nodes": list(nodes)}}
        await self._status(f"/apis/{names.API_VERSION}/reservations/{name}/status", body, _MERGE, retry=True)

    async def verdict(self, kind: str, name: str, *, accepted: bool, reason: str, message: str) -> None:
        """Condition Accepted of a policy."""
        if self._translator.verdicts.get((kind, name)) == (accepted, reason, message[: events.NOTE_LIMIT]):
            return
        condition = conditions.condition("Accepted", holds=accepted, reason=reason, message=message, since=self._now())
        await self._condition(kind, name, condition)

    async def _condition(self, plural: str, key: str, condition: dict[str, str], manager: str = names.SCHEDULER_NAME) -> None:
        """The one condition of an object that this manager writes."""
        await self._written(key, conditions.apply(self._client, plural, key, [condition], manager), retry=True)

    async def _status(self, path: str, body: object, kind: str = _STRATEGIC, *, retry: bool = False) -> bool:
        return await self._written(path, self._client.patch(path, encode(body), kind), retry=retry)

    async def _written(self, path: str, writing: Awaitable[object], *, retry: bool) -> bool:
        """Whether it was written. retry: raises `Unreachable` where it may be written later; else that is only logged."""
        try:
            await writing
        except (ApiError, Unreachable) as error:
            if isinstance(error, ApiError) and error.code == 404:
                return False
            log.warning("status not written", path=path, error=str(error)[:300])
            # No version is named here: a conflict means that others wrote meanwhile. Another object of that name is 422.
            # An API server that starts refuses everything until it has loaded the roles.
            if retry and (isinstance(error, Unreachable) or error.code in (401, 403, 409, 429) or error.code >= 500):
                raise Unreachable(str(error)) from error
            return False
        return True

    def _now(self) -> str:
        return timestamp(self._client.clock())


def pod_path(pod: PodRef) -> str:
    """Where a pod is served."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
