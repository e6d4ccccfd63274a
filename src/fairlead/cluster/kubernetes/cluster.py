"""The Kubernetes adapter of the port: watches in, writes out.

Every write ends in a certain answer. One that got no answer, or an error that leaves open whether
it was applied, is followed by a read of the pod.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster import targets, views
from fairlead.cluster.kinds import POD, POD_GROUP, QUEUE, RESERVATION, RESOURCE_CLAIM, SLICE, Kind, Watch, watched
from fairlead.cluster.kubernetes import events
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode
from fairlead.cluster.kubernetes.device_claims import DeviceClaims
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.kubernetes.kept_speeds import KeptSpeeds
from fairlead.cluster.kubernetes.statuses import Statuses, pod_path
from fairlead.cluster.kubernetes.targets import write_target
from fairlead.cluster.kubernetes.volumes import Volumes
from fairlead.cluster.ownership import Ownership
from fairlead.cluster.port import ClusterEvent, DevicesKnown, Outcome, Sink, StorageKnown, Synced
from fairlead.cluster.translate import Change, Translator
from fairlead.core.model.transactions import Binding, PodRef, Resume, Suspension

_BIND_TRIES = 3
_KNOWN: Mapping[Watch, ClusterEvent] = {Watch.STORAGE: StorageKnown(), Watch.DEVICES: DevicesKnown()}
_WRITTEN = (QUEUE, RESERVATION, POD_GROUP, POD)  # by a scheduler, with what the next one begins with
_CLASSES_LIMIT = 1.0  # the same where pods only request resources that a DeviceClass may serve: in most clusters none does
_DEVICES_LIMIT = 10.0  # seconds that the first pass waits for devices, where pods have claims: they may not be served, or denied
_SLICES_EVERY = 60.0  # seconds between two checks for a first ResourceSlice, while no pod needs devices
_REPEATS, _REPEATS_LATER = 0.5, 10.0  # seconds until a deletion without an answer is sent again; doubled up to the second


class KubernetesCluster:
    """A real API server. release: that of Fairlead which this process is of. instance: how we sign events.

    lease_namespace: where the scheduler's Leases are.
    """

    def __init__(
        self,
        client: Client,
        *,
        schedulers: Mapping[str, str] = names.SCHEDULERS,
        release: str = names.FIRST_RELEASE,
        instance: str = "fairlead",
        lease_namespace: str = "kube-system",
    ) -> None:
        self.client = client
        first = release == names.FIRST_RELEASE
        self.translator = Translator(schedulers, Ownership(schedulers, first=first))
        self.instance = instance
        self._fenced_by = {} if first else {names.LEASE_ANNOTATION: names.lease(release, "scheduler")}
        self.informers: dict[str, Informer[Any]] = {}
        self._sink: Sink = lambda _: None
        self._tasks: asyncio.TaskGroup | None = None
        self._demanded: set[Watch] = set()
        self._devices_listed = False
        self._synced_at: asyncio.TimerHandle | None = None  # set: all but devices have been listed
        self._statuses = statuses = Statuses(client, self.translator)
        self.bind_volumes = Volumes(client).bind
        self._claims = DeviceClaims(client, self._pod_written)
        self.allocate_claims, self.release_claims = self._claims.allocate, self._claims.release
        self.failed_devices = self._claims.failures
        self.nominate, self.refuse, self.condition = statuses.nominate, statuses.refuse, statuses.condition
        self.group_status, self.queue_status = statuses.group_status, statuses.queue_status
        self.reservation_status, self.verdict = statuses.reservation_status, statuses.verdict
        self.speeds = KeptSpeeds(client, lease_namespace, names.lease_of_speeds(release))
        self.keep_speeds = self.speeds.write

    # -- watches -------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        """Watch everything; `Synced` follows once every kind has been listed, of devices after a while at the latest."""
        self._sink = sink
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            self._watch(Watch.ALWAYS, Synced(), watched(Watch.SERVED))
            # Evictions are tried dry all the same.
            self._watch(Watch.ALONE, None)
            group.create_task(self._await_slices())

    def _watch(self, when: Watch, known: ClusterEvent | None, served: tuple[Kind[Any], ...] = ()) -> None:
        """Watch the kinds that are watched at this time. known: reported once all of them have been listed.

        served: further ones, which the server may not serve.
        """
        kinds = watched(when) + served
        missing = {kind.name for kind in kinds}

        def listed(kind: Kind[Any]) -> None:
            missing.discard(kind.name)
            if not missing and known is not None:
                self._listed(known)

        for kind in kinds:
            informer = Informer(
                self.client,
                kind.path,
                kind.view,
                partial(self._changed, kind),
                partial(listed, kind),
                key=kind.key,
                optional=kind in served,
            )
            self.informers[kind.path] = informer
            if self._tasks is not None:
                self._tasks.create_task(informer.run())

    def _listed(self, known: ClusterEvent) -> None:
        """Report that some kinds were listed; `Synced` after devices that pods need, so that none is refused before."""
        if isinstance(known, Synced) and Watch.DEVICES in self._demanded and not self._devices_listed:
            limit = _DEVICES_LIMIT if self.translator.needs_devices else _CLASSES_LIMIT
            self._synced_at = asyncio.get_running_loop().call_later(limit, self._synced)
            return
        self._sink([known])
        if isinstance(known, DevicesKnown):
            self._devices_listed = True
            self._synced()

    def _synced(self) -> None:
        if self._synced_at is not None:
            self._synced_at.cancel()
            self._synced_at = None
            self._sink([Synced()])

    def _changed(self, kind: Kind[Any], changes: list[Change[Any]]) -> None:
        if kind is RESOURCE_CLAIM:
            self._claims.note(changes)
        events = self.translator.translate(kind, changes)
        if kind is SLICE:
            self._claims.note_slices(events)
        if events:
            self._sink(events)
        self._watch_demanded()

    def _watch_demanded(self) -> None:
        """Kinds that few clusters need are watched from the first pod on that needs them."""
        for demand in sorted(self.translator.demands - self._demanded, key=lambda each: each.value):
            self._demanded.add(demand)
            self._watch(demand, _KNOWN.get(demand))

    async def _await_slices(self) -> None:
        """Devices are watched from the first slice on, too: nodes, pools and percentages have them before any pod has a claim."""
        while Watch.DEVICES not in self._demanded:
            # Where the API group is not served, or the right to read it is missing, it may be later.
            with contextlib.suppress(ApiError, Unreachable, msgspec.DecodeError):
                found = msgspec.json.decode(await self.client.get(SLICE.path, limit="1"), type=views.RawList)
                if found.items and Watch.DEVICES not in self._demanded:
                    self.translator.demands.add(Watch.DEVICES)
                    self._watch_demanded()
                    return
            await asyncio.sleep(_SLICES_EVERY)

    async def current(self) -> None:
        """Return once all that a scheduler wrote before the call has been delivered."""
        informers = [self.informers[kind.path] for kind in _WRITTEN]
        await asyncio.gather(*(informer.current() for informer in informers))

    def relist(self) -> None:
        """List every kind again, as after a 410."""
        for informer in self.informers.values():
            informer.relist()

    # -- writes --------------------------------------------------------------------------------

    def _pod_written(self, view: views.Pod) -> None:
        """The status of a pod was written: it is bound in that version, if nothing else has changed."""
        if self.translator.unchanged(view):
            self.translator.versions[view.metadata.uid] = view.metadata.resource_version

    async def bind(self, binding: Binding, epoch: int | None) -> tuple[Outcome, str]:
        """Bind one pod under its UID and the version last seen, marked with our epoch.

        Where only its status was written meanwhile, as often as not by ourselves, it is bound in its new version.
        """
        pod = binding.pod
        metadata: dict[str, Any] = {"name": pod.name, "uid": pod.uid}
        if epoch is not None:
            metadata["annotations"] = {names.EPOCH_ANNOTATION: str(epoch), **self._fenced_by}
        if binding.partner:
            metadata.setdefault("annotations", {})[names.GPU_PARTNER_ANNOTATION] = binding.partner
        message = ""
        for _ in range(_BIND_TRIES):
            version = self.translator.versions.get(pod.uid)
            if version:
                metadata["resourceVersion"] = version
            body = encode({"metadata": metadata, "target": {"kind": "Node", "name": binding.node}})
            outcome, message = await _outcome(self.client.post(f"{pod_path(pod)}/binding", body))
            if outcome is Outcome.DONE and binding.claims:
                self._claims.note_bound(binding)
            if outcome is not None:
                return outcome, message
            seen = await self._read(pod)
            if seen is None:
                return Outcome.GONE, message
            if seen.spec.node_name == binding.node and binding.claims:
                self._claims.note_bound(binding)
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
        path, sent = f"{pod_path(pod)}/eviction", encode(body)
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
        """Write the target into the job's PodGroup, made first where it has none."""
        namespace, _, name = job.group.partition("/")
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups"
        if job.made:
            outcome, message = await _outcome(self.client.post(path, encode(targets.group_for(job))))
            if outcome is Outcome.REFUSED or outcome is Outcome.GONE:
                return Outcome.REFUSED, message
        owner = job.owners[0][1] if job.made else ""
        return await write_target(self.client, f"{path}/{name}", targets.suspended(job), owner)

    async def resume(self, job: Resume) -> tuple[Outcome, str]:
        """Write the target into the job's PodGroup."""
        namespace, _, name = job.group.partition("/")
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{name}"
        return await write_target(self.client, path, targets.running(job))

    async def _whether_leaving(self, pod: PodRef, message: str) -> tuple[Outcome, str]:
        """The outcome of a deletion whose answer left it open."""
        seen = await self._read(pod)
        if seen is None:
            return Outcome.GONE, message
        if seen.metadata.deletion_timestamp is not None:
            return Outcome.DONE, ""
        return Outcome.REFUSED, message

    async def preempt(self, pod: PodRef, *, grace: int | None = None) -> tuple[Outcome, str]:
        """Condition DisruptionTarget, then DELETE, as kube-scheduler does."""
        await self._statuses.disrupted(pod)
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self._removed(pod, lambda: self.client.delete(pod_path(pod), encode(options)))

    async def _read(self, pod: PodRef) -> views.Pod | None:
        """The pod as it is now, None if it is gone; asks until there is an answer, for nothing may be assumed before."""
        wait = 0.1
        while True:
            try:
                seen = msgspec.json.decode(await self.client.get(pod_path(pod)), type=views.Pod)
                return seen if seen.metadata.uid == pod.uid else None
            except ApiError as error:
                if error.code == 404:
                    return None
            except (Unreachable, msgspec.DecodeError):
                pass
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)

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


async def _outcome(write: Awaitable[object]) -> tuple[Outcome | None, str]:
    """The outcome of a write; None where only a read of the object decides: no answer, a fault of the server, or a 409.

    A 409 may mean another object of that name, or only another write at the same time.
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
