"""The Kubernetes adapter of the port: watches in, writes out.

Every write ends in a certain answer. One that got no answer, or an error that does not say whether
it was applied, is followed by a read of the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.reasons import Reason
from fairlead.cluster import intents, storage_views, views, workloads
from fairlead.cluster.kubernetes import conditions, events, targets
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.port import ClusterEvent, GroupReport, Outcome, QueueReport, Sink, StorageKnown, Synced
from fairlead.cluster.times import timestamp
from fairlead.cluster.translate import (
    STORAGE,
    Change,
    Translator,
    forecasts_shown,
    group_shown,
    reason_shown,
    run_times_shown,
    shown,
    usage_shown,
    why_waiting,
)
from fairlead.core.model.objects import ForecastRecord, RunTimeRecord
from fairlead.core.model.transactions import Binding, PodRef, Resume, Suspension, VolumeChoice
from fairlead.core.nodes.storage import Claim

log = structlog.get_logger("kubernetes")

_PODS = "/api/v1/pods"
_NODES = "/api/v1/nodes"
_NAMESPACES = "/api/v1/namespaces"
_QUEUES = f"/apis/{names.API_VERSION}/queues"
_CHOSEN_NODE = "volume.kubernetes.io/selected-node"
_MERGE = "application/merge-patch+json"
_BIND_LIMIT = 600.0  # seconds that volumes may take, as kube-scheduler's bindTimeoutSeconds
_FIRST_LOOK = 0.05
_GROUPS = f"/apis/{names.API_VERSION}/podgroups"
_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_CLASSES = f"/apis/{names.API_VERSION}/serviceclasses"
_POOLS = f"/apis/{names.API_VERSION}/nodepools"
_RESERVATIONS = f"/apis/{names.API_VERSION}/reservations"
_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
_STORAGE = "/apis/storage.k8s.io/v1"
_BIND_TRIES = 3
_REPEATS, _REPEATS_LATER = 0.5, 10.0  # seconds until a deletion without an answer is sent again; doubled up to the second

_Kind = tuple[str, type[msgspec.Struct], Callable[[list[Change[Any]]], None], Callable[[views.Metadata], str]]


def _name(metadata: views.Metadata) -> str:
    return metadata.name


def _key(metadata: views.Metadata) -> str:
    return metadata.key


def _uid(metadata: views.Metadata) -> str:
    return metadata.uid


STORAGE_KINDS: dict[str, tuple[str, type[msgspec.Struct], Callable[[views.Metadata], str]]] = {
    "claim": ("/api/v1/persistentvolumeclaims", storage_views.Claim, _key),
    "volume": ("/api/v1/persistentvolumes", storage_views.Volume, _name),
    "storageclass": (f"{_STORAGE}/storageclasses", storage_views.StorageClass, _name),
    "nodedrivers": (f"{_STORAGE}/csinodes", storage_views.NodeDrivers, _name),
    "driver": (f"{_STORAGE}/csidrivers", storage_views.Driver, _name),
    "capacity": (f"{_STORAGE}/csistoragecapacities", storage_views.StorageCapacity, _key),
    "attachment": (f"{_STORAGE}/volumeattachments", storage_views.Attachment, _name),
}
_WORKLOAD_KINDS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "services": ("/api/v1/services", workloads.PlainWorkload),
    "replicationcontrollers": ("/api/v1/replicationcontrollers", workloads.PlainWorkload),
    "replicasets": ("/apis/apps/v1/replicasets", workloads.Workload),
    "statefulsets": ("/apis/apps/v1/statefulsets", workloads.Workload),
}


class KubernetesCluster:
    """A real API server. instance: how we sign events."""

    def __init__(self, client: Client, *, schedulers: Mapping[str, str] = names.SCHEDULERS, instance: str = "fairlead") -> None:
        self.client = client
        self.translator = Translator(schedulers)
        self.instance = instance
        self.informers: dict[str, Informer[Any]] = {}
        self._sink: Sink = lambda _: None
        self._tasks: asyncio.TaskGroup | None = None
        self._demanded: set[str] = set()
        self._written: dict[str, dict[str, dict[str, str]]] = {}  # queue -> amounts in its status
        self._users: dict[str, set[str]] = {}  # queue -> users in its status
        self._learned: dict[str, tuple[RunTimeRecord, ...]] = {}  # queue -> run times in its status
        self._foretold: dict[str, tuple[ForecastRecord, ...]] = {}  # queue -> forecasts in its status
        self._running: set[asyncio.Future[Any]] = set()

    # -- watches -------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        """Watch everything; `Synced` follows once every kind has been listed."""
        self._sink = sink
        kinds: list[_Kind] = [
            (_NAMESPACES, views.Namespace, self._namespaces, _name),
            (_PRIORITIES, views.PriorityClass, self._priorities, _name),
            (_CLASSES, views.ServiceClass, self._classes, _name),
            (_QUEUES, views.Queue, self._queues, _name),
            (_POOLS, views.NodePool, self._pools, _name),
            (_RESERVATIONS, views.Reservation, self._reservations, _name),
            (_NODES, views.Node, self._nodes, _name),
            (_GROUPS, views.PodGroup, self._groups, _key),
            (_PODS, views.Pod, self._pods, _uid),
        ]
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            self._watch(kinds, Synced())
            # Nobody waits for these, nor for the right to see them: evictions are tried dry all the same.
            self._watch([(_BUDGETS, views.Budget, self._budgets, _key)], None)

    def _watch(self, kinds: list[_Kind], known: ClusterEvent | None) -> None:
        """Watch kinds. known: said once all of them have been listed."""
        missing = {path for path, *_ in kinds}

        def listed(path: str) -> None:
            missing.discard(path)
            if not missing and known is not None:
                self._sink([known])

        for path, view, report, key in kinds:
            informer = Informer(self.client, path, view, report, partial(listed, path), key=key)
            self.informers[path] = informer
            if self._tasks is not None:
                self._tasks.create_task(informer.run())

    def _watch_demanded(self) -> None:
        """Kinds that few clusters need are watched from the first pod on that needs them."""
        for demand in sorted(self.translator.demands - self._demanded):
            self._demanded.add(demand)
            if demand == STORAGE:
                kinds: list[_Kind] = [
                    (path, view, partial(self._storage, kind), key) for kind, (path, view, key) in STORAGE_KINDS.items()
                ]
                self._watch(kinds, StorageKnown())
            else:
                kinds = [(path, view, partial(self._workloads, kind), _key) for kind, (path, view) in _WORKLOAD_KINDS.items()]
                self._watch(kinds, None)

    def relist(self) -> None:
        """List every kind again, as after a 410."""
        for informer in self.informers.values():
            informer.relist()

    def _namespaces(self, changes: list[Change[views.Namespace]]) -> None:
        self._tell(self.translator.namespaces(changes))

    def _queues(self, changes: list[Change[views.Queue]]) -> None:
        self._tell(self.translator.queues(changes))

    def _classes(self, changes: list[Change[views.ServiceClass]]) -> None:
        self._tell(self.translator.classes(changes))

    def _pools(self, changes: list[Change[views.NodePool]]) -> None:
        self._tell(self.translator.node_pools(changes))

    def _reservations(self, changes: list[Change[views.Reservation]]) -> None:
        self._tell(self.translator.reservations(changes))

    def _priorities(self, changes: list[Change[views.PriorityClass]]) -> None:
        self._tell(self.translator.priorities(changes))

    def _nodes(self, changes: list[Change[views.Node]]) -> None:
        self._tell(self.translator.nodes(changes))

    def _groups(self, changes: list[Change[views.PodGroup]]) -> None:
        self._tell(self.translator.groups(changes))

    def _pods(self, changes: list[Change[views.Pod]]) -> None:
        self._tell(self.translator.pods(changes))
        if self.translator.demands != self._demanded:
            self._watch_demanded()

    def _storage(self, kind: str, changes: list[Change[Any]]) -> None:
        self._tell(self.translator.storage(kind, changes))

    def _workloads(self, kind: str, changes: list[Change[Any]]) -> None:
        self._tell(self.translator.workloads(kind, changes))

    def _budgets(self, changes: list[Change[views.Budget]]) -> None:
        self._tell(self.translator.budgets(changes))

    def _tell(self, events: list[ClusterEvent]) -> None:
        if events:
            self._sink(events)

    # -- writes --------------------------------------------------------------------------------

    async def bind(self, binding: Binding, epoch: int | None) -> tuple[Outcome, str]:
        """Bind one pod under its UID and the version last seen, marked with our epoch.

        Where somebody, as often as not we ourselves, wrote no more than its status meanwhile, it is bound in its new version.
        """
        pod = binding.pod
        metadata: dict[str, Any] = {"name": pod.name, "uid": pod.uid}
        if epoch is not None:
            metadata["annotations"] = {names.EPOCH_ANNOTATION: str(epoch)}
        message = ""
        for _ in range(_BIND_TRIES):
            version = self.translator.versions.get(pod.uid)
            if version:
                metadata["resourceVersion"] = version
            body = encode({"metadata": metadata, "target": {"kind": "Node", "name": binding.node}})
            outcome, message = await _outcome(self.client.post(f"{_path(pod)}/binding", body))
            if outcome is not None:
                return outcome, message
            seen = await self._read(pod)
            if seen is None:
                return Outcome.GONE, message
            if seen.spec.node_name == binding.node:
                return Outcome.DONE, ""
            self.translator.versions[pod.uid] = seen.metadata.resource_version
            if seen.metadata.resource_version == version or not self.translator.unchanged(seen):
                break
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
        # A 429 here is a PodDisruptionBudget's no, which waiting a moment does not change.
        path, sent = f"{_path(pod)}/eviction", encode(body)
        if dry_run:
            outcome, message = await _outcome(self.client.post(path, sent, patient=False))
            return outcome or Outcome.REFUSED, message
        return await self._removed(pod, lambda: self.client.post(path, sent, patient=False))

    async def _removed(self, pod: PodRef, write: Callable[[], Awaitable[object]]) -> tuple[Outcome, str]:
        """What came of a deletion. One without an answer may still take effect: it is repeated until it is known."""
        wait = _REPEATS
        while True:
            unanswered = False
            try:
                await write()
                return Outcome.DONE, ""
            except ApiError as error:
                outcome, message = _judged(error)
            except Unreachable as error:
                outcome, message, unanswered = None, str(error), True
            if outcome is not None:
                return outcome, message
            found = await self._whether_leaving(pod, message)
            if found[0] is not Outcome.REFUSED or not unanswered:
                return found
            await asyncio.sleep(wait)
            wait = min(2 * wait, _REPEATS_LATER)

    async def suspend(self, job: Suspension) -> tuple[Outcome, str]:
        """Write the intent into the job's PodGroup, made first where it has none."""
        namespace, _, name = job.group.partition("/")
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups"
        if job.made:
            outcome, message = await _outcome(self.client.post(path, encode(intents.group_for(job))))
            if outcome is Outcome.REFUSED or outcome is Outcome.GONE:
                return Outcome.REFUSED, message
        owner = job.owners[0][1] if job.made else ""
        return await targets.write(self.client, f"{path}/{name}", intents.suspended(job), owner)

    async def resume(self, job: Resume) -> tuple[Outcome, str]:
        """Write the intent into the job's PodGroup."""
        namespace, _, name = job.group.partition("/")
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{name}"
        return await targets.write(self.client, path, intents.running(job))

    async def _whether_leaving(self, pod: PodRef, message: str) -> tuple[Outcome, str]:
        """The outcome of a deletion whose answer did not tell."""
        seen = await self._read(pod)
        if seen is None:
            return Outcome.GONE, message
        if seen.metadata.deletion_timestamp is not None:
            return Outcome.DONE, ""
        return Outcome.REFUSED, message

    async def bind_volumes(self, binding: Binding) -> tuple[Outcome, str]:
        """Claim references on volumes, the node on claims to provision; then wait until the claims are bound."""
        try:
            for each in binding.volumes:
                refused = await self._claim_volume(each, binding.node)
                if refused:
                    return Outcome.REFUSED, refused
            async with asyncio.timeout(_BIND_LIMIT):
                for each in binding.volumes:
                    refused = await self._await_bound(each, binding.node)
                    if refused:
                        return Outcome.REFUSED, refused
        except ApiError as error:
            return Outcome.REFUSED, str(error)
        except TimeoutError:
            return Outcome.REFUSED, f"the claims were not bound within {_BIND_LIMIT:.0f} seconds"
        return Outcome.DONE, ""

    async def _claim_volume(self, choice: VolumeChoice, node: str) -> str:
        """Write one choice; returns why it does not hold any more, or nothing."""
        path = _claim_path(choice.claim)
        if not choice.volume:
            await self.client.patch(path, encode({"metadata": {"annotations": {_CHOSEN_NODE: node}}}), _MERGE)
            return ""
        claim = msgspec.json.decode(await self.client.get(path), type=storage_views.Claim)
        volume_path = f"/api/v1/persistentvolumes/{choice.volume}"
        volume = msgspec.json.decode(await self.client.get(volume_path), type=storage_views.Volume)
        reference = volume.spec.claim_ref
        if reference is not None and (reference.namespace, reference.name) != (claim.metadata.namespace, claim.metadata.name):
            return f"volume {choice.volume} was given to {reference.namespace}/{reference.name} meanwhile"
        if reference is not None and reference.uid == claim.metadata.uid:
            return ""
        metadata = claim.metadata
        body = {
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata.namespace,
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "resourceVersion": metadata.resource_version,
                }
            },
        }
        await self.client.patch(volume_path, encode(body), _MERGE)
        return ""

    async def _await_bound(self, choice: VolumeChoice, node: str) -> str:
        wait = _FIRST_LOOK
        while True:
            claim = msgspec.json.decode(await self.client.get(_claim_path(choice.claim)), type=storage_views.Claim)
            seen = storage_views.convert(claim)
            if isinstance(seen, Claim):
                if seen.volume and seen.bound:
                    return ""
                if not choice.volume and seen.chosen_node != node:
                    return f"no volume could be made for claim {choice.claim} on this node"
            await asyncio.sleep(wait)
            wait = min(2 * wait, 1.0)

    async def preempt(self, pod: PodRef, *, grace: int | None = None) -> tuple[Outcome, str]:
        """Condition DisruptionTarget, then DELETE, as kube-scheduler does."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{names.SCHEDULER_NAME}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": self._now(),
        }
        await self._status(f"{_path(pod)}/status", {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self._removed(pod, lambda: self.client.delete(_path(pod), encode(options)))

    async def nominate(self, pod: PodRef, node: str, reason: Reason) -> None:
        """`status.nominatedNodeName`, with the condition that says what it waits for."""
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node, "conditions": [self._waiting(reason)]}}
        await self._status(f"{_path(pod)}/status", body)

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
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [self._waiting(reason)]}}
        if await self._status(f"{_path(pod)}/status", body, insist=True) and pod.uid in self.translator.versions:
            self.translator.told[pod.uid] = told

    def _waiting(self, reason: Reason) -> dict[str, str]:
        why, message = why_waiting(reason)
        return {
            "type": "PodScheduled",
            "status": "False",
            "reason": why,
            "message": message,
            "lastTransitionTime": self._now(),
        }

    async def group_status(self, group: str, status: GroupReport) -> None:
        """`PodGroup.status`: phase, members placed and succeeded, why not all are, and when they are expected to start."""
        namespace, _, name = group.partition("/")
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{name}/status"
        await self._status(path, {"status": group_shown(status)}, "application/merge-patch+json", insist=True)

    async def condition(self, regarding: PodRef | str, kind: str, reason: str, message: str) -> None:
        """A condition that holds of a pod, or of the pod group `namespace/name`."""
        if isinstance(regarding, PodRef):
            # Pods' conditions of others' making carry a domain.
            told = conditions.condition(f"{names.GROUP}/{kind}", holds=True, reason=reason, message=message, since=self._now())
            body = {"metadata": {"uid": regarding.uid}, "status": {"conditions": [told]}}
            await self._status(f"{_path(regarding)}/status", body, insist=True)
            return
        told = conditions.condition(kind, holds=True, reason=reason, message=message, since=self._now())
        # Each under a manager of its own: what one manager applies is all that it says.
        await self._condition("podgroups", regarding, told, f"{names.SCHEDULER_NAME}-{kind.lower()}")

    async def queue_status(self, queue: str, status: QueueReport) -> None:
        """`Queue.status`: what it holds, what waits, what is its due, what it used of late."""
        path, merge = f"{_QUEUES}/{queue}/status", "application/merge-patch+json"
        amounts = {"allocated": shown(status.allocated), "fairShare": shown(status.fair_share), "foreign": shown(status.foreign)}
        written = self._written.get(queue)
        if written is None:
            # Whatever a scheduler before this one wrote: a merge keeps what it does not name.
            await self._status(path, {"status": dict.fromkeys(amounts)}, merge, insist=True)
            written = {field: {} for field in amounts}
        body: dict[str, dict[str, Any] | None] = {
            field: {**dict.fromkeys(written[field]), **values} for field, values in amounts.items()
        }
        if not amounts["foreign"]:
            body["foreign"] = None  # it is there only where there is such a part
        # Until this is written, what stood there before may stand there still.
        self._written[queue] = {field: {**written[field], **values} for field, values in amounts.items()}
        usage = {"usage": usage_shown(status.usage)} if status.usage is not None else {}
        if usage and (users := usage["usage"]["users"]) is not None:
            # A merge keeps users that it does not name.
            usage["usage"]["users"] = {**dict.fromkeys(self._users.get(queue, ())), **users}
            self._users[queue] = self._users.get(queue, set()) | set(users)
        news = status.run_times and self._learned.get(queue) != status.run_times
        learned = {"runTimes": run_times_shown(status.run_times)} if news else {}
        if status.forecasts and self._foretold.get(queue) != status.forecasts:
            learned["forecasts"] = forecasts_shown(status.forecasts)
        told = {**body, **usage, **learned, "pending": status.pending, "reason": reason_shown(status.reason)}
        if not await self._status(path, {"status": told}, merge, insist=True):
            return
        self._written[queue] = amounts
        if usage and users is not None:
            self._users[queue] = set(users)
        self._learned[queue], self._foretold[queue] = status.run_times, status.forecasts

    async def reservation_status(self, name: str, phase: str, nodes: Sequence[str]) -> None:
        """`Reservation.status`: its phase and its nodes."""
        body = {"status": {"phase": phase, "nodes": list(nodes)}}
        await self._status(f"{_RESERVATIONS}/{name}/status", body, "application/merge-patch+json", insist=True)

    async def event(self, regarding: PodRef | str, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """One event, in events.k8s.io/v1 as kube-scheduler writes them."""
        if isinstance(regarding, PodRef):
            namespace, name = regarding.namespace, regarding.name
            about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": regarding.uid}
        elif "/" not in regarding:
            about = {"apiVersion": "v1", "kind": "Node", "name": regarding}
        else:
            namespace, _, name = regarding.partition("/")
            about = {"apiVersion": names.API_VERSION, "kind": "PodGroup", "namespace": namespace, "name": name}
        doing = action or ("Binding" if reason == "Scheduled" else "Scheduling")
        who = {"controller": names.SCHEDULER_NAME, "instance": self.instance}
        await events.write(self.client, about, reason, note, action=doing, warning=warning, **who)

    async def verdict(self, kind: str, name: str, *, accepted: bool, reason: str, message: str) -> None:
        """Condition Accepted of a policy."""
        told = (accepted, reason, message[: events.NOTE_LIMIT])
        if self.translator.verdicts.get((kind, name)) == told:
            return
        condition = conditions.condition("Accepted", holds=accepted, reason=reason, message=message, since=self._now())
        await self._condition(kind, name, condition)

    async def _condition(self, plural: str, key: str, condition: dict[str, str], manager: str = names.SCHEDULER_NAME) -> None:
        """The one condition of an object that this manager writes."""
        await self._told(key, conditions.apply(self.client, plural, key, [condition], manager), insist=True)

    async def _status(
        self, path: str, body: object, kind: str = "application/strategic-merge-patch+json", *, insist: bool = False
    ) -> bool:
        return await self._told(path, self.client.patch(path, encode(body), kind), insist=insist)

    async def _told(self, path: str, writing: Awaitable[object], *, insist: bool) -> bool:
        """Whether it was written. insist: raises `Unreachable` where it may be written later; else that is logged, no more."""
        try:
            await writing
        except (ApiError, Unreachable) as error:
            if isinstance(error, ApiError) and error.code == 404:
                return False
            log.warning("status not written", path=path, error=str(error)[:300])
            # No version is named here: a conflict means that others wrote meanwhile. Another object of that name is 422.
            # An API server that starts refuses everything until it has loaded the roles.
            if insist and (isinstance(error, Unreachable) or error.code in (401, 403, 409, 429) or error.code >= 500):
                raise Unreachable(str(error)) from error
            return False
        return True

    def _now(self) -> str:
        return timestamp(self.client.clock())

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)


async def _outcome(write: Awaitable[object]) -> tuple[Outcome | None, str]:
    """What a write came to; None where only a look at the object can tell: no answer, a fault of the server, or a 409.

    A 409 may mean another object of that name, or only that somebody wrote at the same time.
    """
    try:
        await write
    except ApiError as error:
        return _judged(error)
    except Unreachable as error:
        return None, str(error)
    return Outcome.DONE, ""


def _judged(error: ApiError) -> tuple[Outcome | None, str]:
    if error.code == 404:
        return Outcome.GONE, error.message
    if error.code < 500 and error.code != 409:
        return Outcome.REFUSED, str(error)
    return None, str(error)


def _claim_path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


def _path(pod: PodRef) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
