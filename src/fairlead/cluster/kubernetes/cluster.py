"""The Kubernetes adapter of the port: watches in, writes out.

Every write ends in a certain answer. One that got no answer, or an error that does not say whether
it was applied, is followed by a read of the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.reasons import Reason
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.port import ClusterEvent, Outcome, Sink, Synced
from fairlead.cluster.translate import Change, Complaint, Translator, why_waiting
from fairlead.core.transactions import Binding, PodRef

log = structlog.get_logger("kubernetes")

_NOTE_LIMIT = 1000
_PODS = "/api/v1/pods"
_NODES = "/api/v1/nodes"
_NAMESPACES = "/api/v1/namespaces"
_QUEUES = f"/apis/{names.API_VERSION}/queues"
_GROUPS = f"/apis/{names.API_VERSION}/podgroups"


class KubernetesCluster:
    """A real API server. instance: how we sign events."""

    def __init__(self, client: Client, *, schedulers: Mapping[str, str] = names.SCHEDULERS, instance: str = "fairlead") -> None:
        self.client = client
        self.translator = Translator(schedulers)
        self.instance = instance
        self.informers: dict[str, Informer[Any]] = {}
        self._sink: Sink = lambda _: None
        self._unsynced: set[str] = set()
        self._running: set[asyncio.Future[Any]] = set()

    # -- watches -------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        """Watch everything; `Synced` follows once every kind has been listed."""
        self._sink = sink
        kinds: list[tuple[str, type[msgspec.Struct], Callable[[list[Change[Any]]], None], Callable[[views.Metadata], str]]] = [
            (_NAMESPACES, views.Namespace, self._namespaces, _name),
            (_QUEUES, views.Queue, self._queues, _name),
            (_NODES, views.Node, self._nodes, _name),
            (_GROUPS, views.PodGroup, self._groups, _key),
            (_PODS, views.Pod, self._pods, _uid),
        ]
        self._unsynced = {path for path, *_ in kinds}
        async with asyncio.TaskGroup() as group:
            for path, view, report, key in kinds:
                informer = Informer(self.client, path, view, report, lambda path=path: self._listed(path), key=key)  # type: ignore[misc]
                self.informers[path] = informer
                group.create_task(informer.run())

    def relist(self) -> None:
        """List every kind again, as after a 410."""
        for informer in self.informers.values():
            informer.relist()

    def _listed(self, path: str) -> None:
        self._unsynced.discard(path)
        if not self._unsynced:
            self._sink([Synced()])

    def _namespaces(self, changes: list[Change[views.Namespace]]) -> None:
        self._tell(self.translator.namespaces(changes))

    def _queues(self, changes: list[Change[views.Queue]]) -> None:
        events, complaints = self.translator.queues(changes)
        for complaint in complaints:
            if not self.client.read_only:
                self._later(self._queue_condition(complaint))
        self._tell(events)

    def _nodes(self, changes: list[Change[views.Node]]) -> None:
        self._tell(self.translator.nodes(changes))

    def _groups(self, changes: list[Change[views.PodGroup]]) -> None:
        self._tell(self.translator.groups(changes))

    def _pods(self, changes: list[Change[views.Pod]]) -> None:
        self._tell(self.translator.pods(changes))

    def _tell(self, events: list[ClusterEvent]) -> None:
        if events:
            self._sink(events)

    # -- writes --------------------------------------------------------------------------------

    async def bind(self, binding: Binding, epoch: int | None) -> tuple[Outcome, str]:
        """Bind one pod under its UID and the version last seen, marked with our epoch."""
        pod = binding.pod
        metadata: dict[str, Any] = {"name": pod.name, "uid": pod.uid}
        version = self.translator.versions.get(pod.uid)
        if version:
            metadata["resourceVersion"] = version
        if epoch is not None:
            metadata["annotations"] = {names.EPOCH_ANNOTATION: str(epoch)}
        body = encode({"metadata": metadata, "target": {"kind": "Node", "name": binding.node}})
        try:
            await self.client.post(f"{_path(pod)}/binding", body)
            return Outcome.DONE, ""
        except ApiError as error:
            if error.code == 404:
                return Outcome.GONE, error.message
            if error.code < 500 and error.code != 409:
                return Outcome.REFUSED, str(error)
            message = str(error)
        except Unreachable as error:
            message = str(error)
        seen = await self._read(pod)
        if seen is None:
            return Outcome.GONE, message
        if seen.spec.node_name == binding.node:
            return Outcome.DONE, ""
        self.translator.versions[pod.uid] = seen.metadata.resource_version
        return Outcome.REFUSED, message

    async def evict(self, pod: PodRef, *, dry_run: bool, grace: int | None = None) -> tuple[Outcome, str]:
        """Evict through the Eviction API, which asks the PodDisruptionBudgets."""
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if dry_run:
            options["dryRun"] = ["All"]
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        try:
            # A 429 here is a PodDisruptionBudget's no, which waiting a moment does not change.
            await self.client.post(f"{_path(pod)}/eviction", encode(body), patient=False)
            return Outcome.DONE, ""
        except ApiError as error:
            if error.code == 404:
                return Outcome.GONE, error.message
            if error.code < 500 and error.code != 409:
                return Outcome.REFUSED, str(error)
            message = str(error)  # a 409 may mean another pod of that name, or only that somebody wrote at the same time
        except Unreachable as error:
            message = str(error)
        if dry_run:
            return Outcome.REFUSED, message
        seen = await self._read(pod)
        if seen is None:
            return Outcome.GONE, message
        if seen.metadata.deletion_timestamp is not None:
            return Outcome.DONE, ""
        return Outcome.REFUSED, message

    async def _read(self, pod: PodRef) -> views.Pod | None:
        """The pod as it is now, None if it is gone; asks until somebody answers, for nothing may be assumed before."""
        wait = 0.1
        while True:
            try:
                seen = msgspec.json.decode(await self.client.get(_path(pod)), type=views.Pod)
                return seen if seen.metadata.uid == pod.uid else None
            except ApiError as error:
                if error.code == 404:
                    return None
            except (Unreachable, msgspec.DecodeError):
                pass
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)

    async def refuse(self, pod: PodRef, reason: Reason) -> None:
        """Condition PodScheduled=False, in kube-scheduler's form where capacity is missing."""
        told = why_waiting(reason)
        if self.translator.told.get(pod.uid) == told:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": told[0],
            "message": told[1],
            "lastTransitionTime": self._now(),
        }
        await self._status(f"{_path(pod)}/status", {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})

    async def group_status(self, group: str, phase: str, scheduled: int, reason: Reason | None) -> None:
        """`PodGroup.status`: phase, members placed, and why not all are."""
        namespace, _, name = group.partition("/")
        why = {"code": str(reason.code), "message": reason.message[:_NOTE_LIMIT]} if reason else None
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{name}/status"
        body = {"status": {"phase": phase, "scheduled": scheduled, "reason": why}}
        await self._status(path, body, "application/merge-patch+json")

    async def event(self, regarding: PodRef | str, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """One event, in events.k8s.io/v1 as kube-scheduler writes them."""
        if isinstance(regarding, PodRef):
            namespace, name = regarding.namespace, regarding.name
            about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": regarding.uid}
        else:
            namespace, _, name = regarding.partition("/")
            about = {"apiVersion": names.API_VERSION, "kind": "PodGroup", "namespace": namespace, "name": name}
        now = datetime.fromtimestamp(self.client.clock(), UTC)
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{name[:200]}.{int(now.timestamp() * 1e6):x}", "namespace": namespace},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": names.SCHEDULER_NAME,
            "reportingInstance": self.instance[:128],
            "action": action or ("Binding" if reason == "Scheduled" else "Scheduling"),
            "reason": reason[:128],
            "regarding": about,
            "note": note[:_NOTE_LIMIT],
            "type": "Warning" if warning else "Normal",
        }
        try:
            await self.client.post(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", encode(body))
        except (ApiError, Unreachable) as error:
            log.warning("event not written", regarding=f"{namespace}/{name}", reason=reason, error=str(error)[:300])

    async def _queue_condition(self, complaint: Complaint) -> None:
        condition = {
            "type": "Accepted",
            "status": "False",
            "reason": "Unsupported",
            "message": complaint.message[:_NOTE_LIMIT],
            "lastTransitionTime": self._now(),
        }
        path = f"{_QUEUES}/{complaint.queue}/status"
        await self._status(path, {"status": {"conditions": [condition]}}, "application/merge-patch+json")

    async def _status(self, path: str, body: object, kind: str = "application/strategic-merge-patch+json") -> None:
        try:
            await self.client.patch(path, encode(body), kind)
        except ApiError as error:
            if error.code not in (404, 409):
                log.warning("status not written", path=path, error=str(error)[:300])
        except Unreachable as error:
            log.warning("status not written", path=path, error=str(error)[:300])

    def _now(self) -> str:
        return datetime.fromtimestamp(self.client.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def _name(metadata: views.Metadata) -> str:
    return metadata.name


def _key(metadata: views.Metadata) -> str:
    return f"{metadata.namespace}/{metadata.name}"


def _uid(metadata: views.Metadata) -> str:
    return metadata.uid


def _path(pod: PodRef) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
