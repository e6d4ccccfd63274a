"""The port on a simulated API server, without a wire: objects in, verbs out, no bytes between.

For many lifecycles a second. Faults of the network do not exist here; for those, use the Kubernetes
adapter on `SimulatedTransport`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.api.reasons import Reason
from fairlead.cluster import claim_status, targets, views
from fairlead.cluster.kinds import KINDS, POD, POD_GROUP, QUEUE, RESERVATION, RESOURCE_CLAIM, Kind
from fairlead.cluster.port import (
    Allocated,
    ClusterEvent,
    DevicesKnown,
    Gone,
    GroupReport,
    Outcome,
    QueueReport,
    Sink,
    StorageKnown,
    Synced,
    Upsert,
)
from fairlead.cluster.reported import (
    forecasts_shown,
    group_shown,
    run_times_shown,
    shown,
    usage_shown,
    waiting_condition,
    why_waiting,
)
from fairlead.cluster.simulated import extended_claims, store
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import PODS
from fairlead.cluster.simulated.store import Object
from fairlead.cluster.translate import Change, Translator
from fairlead.core.model.pods import Pod
from fairlead.core.model.transactions import Binding, DeviceChoice, PodRef, Resume, Suspension
from fairlead.core.pairs.learned import LearnedSpeeds

_ENDED = ("Succeeded", "Failed")
_QUEUES, _GROUPS, _RESERVATIONS = QUEUE.table, POD_GROUP.table, RESERVATION.table
_KINDS = {kind.table: kind for kind in KINDS}
_RESOURCE_CLAIMS = RESOURCE_CLAIM.table
_CLAIMS, _VOLUMES = "persistentvolumeclaims", "persistentvolumes"


class SimulatedCluster:
    """A simulated API server behind the port."""

    def __init__(self, api: ApiServer, *, schedulers: Mapping[str, str] = names.SCHEDULERS) -> None:
        self.api = api
        self.translator = Translator(schedulers)
        self._sink: Sink = lambda _: None
        self._pending: list[ClusterEvent] = []
        self._pods: dict[str, Pod] = {}  # what the core knows

    # -- watches -------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        """Deliver what exists, then `Synced`, then every change, until cancelled."""
        self._sink = sink
        for table, kind in _KINDS.items():
            changes = [_change(key, record.object, kind) for key, record in self.api.store.sorted(table)]
            if changes and (events := self.translator.translate(kind, changes)):
                sink(events)
        sink([StorageKnown(), DevicesKnown(), Synced()])
        for table in _KINDS:
            self.api.store.listen(table, self._changed)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for table in _KINDS:
                self.api.store.deafen(table, self._changed)

    def _changed(self, change: store.Change) -> None:
        body = None if change.kind == "DELETED" else change.record.object
        if change.table == PODS and body is not None:
            if change.before is not None and _same_to_us(change.before.object, body):
                return
            if body["status"].get("phase") in _ENDED:
                body = None  # it holds nothing any more, as if it were gone
            elif change.before is not None and (bound := self._only_bound(change.before.object, body)) is not None:
                self._deliver([Upsert(bound)])
                return
        kind = _KINDS[change.table]
        events = self.translator.translate(kind, [_change(change.key, body, kind, gone=change.record.object)])
        for event in events:
            if isinstance(event, Upsert) and isinstance(event.object, Pod):
                self._pods[event.object.uid] = event.object
            elif isinstance(event, Gone) and event.kind == POD.name:
                self._pods.pop(event.key, None)
        self._deliver(events)

    def _only_bound(self, before: Object, after: Object) -> Pod | None:
        """The pod as the core knows it, on its node, if a binding is all that happened to it."""
        node = after["spec"].get("nodeName")
        known = self._pods.get(after["metadata"]["uid"])
        if not node or known is None or known.node or after["metadata"].get("deletionTimestamp"):
            return None
        spec = {name: value for name, value in after["spec"].items() if name != "nodeName"}
        if spec != before["spec"] or before["metadata"].get("labels") != after["metadata"].get("labels"):
            return None
        bound = self._pods[known.uid] = msgspec.structs.replace(known, node=node)
        return bound

    def _deliver(self, events: list[ClusterEvent]) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending += events

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self._sink(pending)

    # -- writes --------------------------------------------------------------------------------

    async def bind(self, binding: Binding, epoch: int | None) -> tuple[Outcome, str]:
        """Bind one pod."""
        pod = binding.pod
        metadata: Object = {"name": pod.name, "uid": pod.uid}
        if epoch is not None:
            metadata["annotations"] = {names.EPOCH_ANNOTATION: str(epoch)}
        try:
            self.api.bind(pod.namespace, pod.name, {"metadata": metadata, "target": {"kind": "Node", "name": binding.node}})
        except StatusError as error:
            if error.code == 404:
                return Outcome.GONE, error.message
            seen = self.api.store.get(PODS, (pod.namespace, pod.name))
            if seen is None or seen.object["metadata"]["uid"] != pod.uid:
                return Outcome.GONE, error.message
            if error.code == 409 and seen.object["spec"].get("nodeName") == binding.node:
                return Outcome.DONE, ""
            return Outcome.REFUSED, str(error)
        return Outcome.DONE, ""

    async def bind_volumes(self, binding: Binding) -> tuple[Outcome, str]:
        """Bind, or make, volumes at once, as the controllers of a real cluster would in a while."""
        for choice in binding.volumes:
            namespace, _, name = choice.claim.partition("/")
            record = self.api.store.get(_CLAIMS, (namespace, name))
            if record is None:
                return Outcome.REFUSED, f"claim {choice.claim} is gone"
            claim = record.object
            volume = choice.volume or f"pvc-{claim['metadata']['uid']}"
            held = self.api.store.get(_VOLUMES, ("", volume))
            made: Object = held.object if held is not None else _made(volume, claim)
            reference = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
            bound = {**made, "metadata": dict(made["metadata"]), "spec": {**made["spec"], "claimRef": reference}}
            self.api.store.put(_VOLUMES, ("", volume), {**bound, "status": {"phase": "Bound"}})
            annotations = {**(claim["metadata"].get("annotations") or {}), "pv.kubernetes.io/bind-completed": "yes"}
            metadata = {**claim["metadata"], "annotations": annotations}
            spec = {**claim["spec"], "volumeName": volume}
            self.api.store.put(
                _CLAIMS, (namespace, name), {**claim, "metadata": metadata, "spec": spec, "status": {"phase": "Bound"}}
            )
        return Outcome.DONE, ""

    async def allocate_claims(self, binding: Binding, settled: Callable[[], None] = lambda: None) -> Allocated:
        """Write what claims are allocated, and reserve them, at once."""
        written: list[tuple[Object, tuple[str, str]]] = []
        own = [each for each in binding.claims if each.extended is None]
        for choice in own:
            namespace, _, name = choice.claim.partition("/")
            record = self.api.store.get(_RESOURCE_CLAIMS, (namespace, name))
            refused = "is gone" if record is None else _not_to_be_had(choice, record.object)
            if record is None or refused:
                for before, key in written:
                    self.api.store.put(_RESOURCE_CLAIMS, key, before)
                return Allocated(Outcome.REFUSED, f"resourceclaim {choice.claim} {refused}")
            claim = record.object
            status = dict(claim.get("status") or {})
            if choice.decided and choice.allocation is not None and not status.get("allocation"):
                status["allocation"] = claim_status.allocation(choice.allocation)
            users = [each for each in status.get("reservedFor") or () if each["uid"] != binding.pod.uid]
            status["reservedFor"] = [*users, claim_status.consumer(binding.pod)]
            finalizers = {**dict.fromkeys(claim["metadata"].get("finalizers") or ()), claim_status.FINALIZER: None}
            metadata = {**claim["metadata"], "finalizers": list(finalizers)}
            written.append((claim, (namespace, name)))
            self.api.store.put(_RESOURCE_CLAIMS, (namespace, name), {**claim, "metadata": metadata, "status": status})
        for choice in binding.claims:
            if choice.extended is not None and (
                refused := extended_claims.create(self.api, choice.extended, choice.allocation, binding.pod)
            ):
                for before, key in written:
                    self.api.store.put(_RESOURCE_CLAIMS, key, before)
                return Allocated(Outcome.REFUSED, refused)
        return Allocated(Outcome.DONE)

    async def release_claims(self, binding: Binding) -> None:
        """Take a pod's reservations back, and allocations that were for it alone."""
        for choice in binding.claims:
            if choice.extended is not None:
                extended_claims.take_back(self.api, binding.pod)
                continue
            if choice.removed:
                extended_claims.delete(self.api, choice.claim, choice.uid)
                continue
            namespace, _, name = choice.claim.partition("/")
            record = self.api.store.get(_RESOURCE_CLAIMS, (namespace, name))
            if record is None:
                continue
            status = dict(record.object.get("status") or {})
            users = [each for each in status.get("reservedFor") or () if each["uid"] != binding.pod.uid]
            status["reservedFor"] = users
            wanted = choice.allocation
            if not users and choice.decided and wanted is not None:
                there = claim_status.devices_of(status.get("allocation"))
                if there == claim_status.devices_of(claim_status.allocation(wanted)):
                    status.pop("allocation", None)
            metadata = dict(record.object["metadata"])
            self.api.store.put(_RESOURCE_CLAIMS, (namespace, name), {**record.object, "metadata": metadata, "status": status})

    async def evict(self, pod: PodRef, *, dry_run: bool, grace: int | None = None) -> tuple[Outcome, str]:
        """Evict one pod, if no disruption budget forbids it."""
        options: Object = {"preconditions": {"uid": pod.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.api.evict(pod.namespace, pod.name, {"metadata": {"name": pod.name}, "deleteOptions": options}, dry_run=dry_run)
        except StatusError as error:
            return (Outcome.GONE if error.code in (404, 409) else Outcome.REFUSED), str(error)
        return Outcome.DONE, ""

    async def suspend(self, job: Suspension) -> tuple[Outcome, str]:
        """Write the target into the job's PodGroup, made first where it has none."""
        namespace, _, name = job.group.partition("/")
        if job.made:
            found = self.api.store.get(_GROUPS, (namespace, name))
            if found is None:
                self.api.create(self.api.served(names.API_VERSION, "podgroups"), namespace, targets.group_for(job))
            elif all(each.get("uid") != job.owners[0][1] for each in found.object["metadata"].get("ownerReferences") or ()):
                return Outcome.REFUSED, f"PodGroup {name} exists and belongs to another object"
        return self._set_target(job.group, targets.suspended(job))

    async def resume(self, job: Resume) -> tuple[Outcome, str]:
        """Write the target into the job's PodGroup."""
        return self._set_target(job.group, targets.running(job))

    def _set_target(self, group: str, target: Object) -> tuple[Outcome, str]:
        namespace, _, name = group.partition("/")
        record = self.api.store.get(_GROUPS, (namespace, name))
        if record is None:
            return Outcome.GONE, "there is no such PodGroup"
        status = dict(record.object.get("status") or {})
        stands = status.get("target") or {}
        if stands.get("epoch", 0) >= target["epoch"]:
            if (stands["state"], stands["epoch"]) == (target["state"], target["epoch"]):
                return Outcome.DONE, ""
            return Outcome.REFUSED, f"a later target state is in place: {stands['state']}, epoch {stands['epoch']}"
        merged = {**stands, **target}
        status["target"] = {key: value for key, value in merged.items() if value is not None}
        obj = {**record.object, "metadata": dict(record.object["metadata"]), "status": status}
        self.api.store.put(_GROUPS, (namespace, name), obj)
        return Outcome.DONE, ""

    async def preempt(self, pod: PodRef, *, grace: int | None = None) -> tuple[Outcome, str]:
        """Mark a pod as disrupted by preemption and delete it, asking no disruption budget."""
        record = self.api.store.get(PODS, (pod.namespace, pod.name))
        if record is None or record.object["metadata"]["uid"] != pod.uid:
            return Outcome.GONE, "it is gone"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "lastTransitionTime": self.api.clock.text(),
        }
        self._set_status(pod, {}, condition)
        options: Object = {"preconditions": {"uid": pod.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.api.delete(self.api.served("v1", "pods"), pod.namespace, pod.name, options)
        except StatusError as error:
            return (Outcome.GONE if error.code in (404, 409) else Outcome.REFUSED), str(error)
        return Outcome.DONE, ""

    async def nominate(self, pod: PodRef, node: str, reason: Reason | None = None) -> None:
        """Write for which node a pod waits while its victims leave."""
        condition = waiting_condition(reason, self.api.clock.text()) if reason is not None else None
        self._set_status(pod, {"nominatedNodeName": node}, condition)

    def _set_status(self, pod: PodRef, fields: Object, condition: Object | None) -> None:
        record = self.api.store.get(PODS, (pod.namespace, pod.name))
        if record is None or record.object["metadata"]["uid"] != pod.uid:
            return
        obj = record.object
        status = {**(obj.get("status") or {}), **fields}
        if condition is not None:
            others = [each for each in status.get("conditions") or () if each["type"] != condition["type"]]
            status["conditions"] = [*others, condition]
        self.api.store.put(PODS, (pod.namespace, pod.name), {**obj, "metadata": dict(obj["metadata"]), "status": status})

    async def refuse(self, pod: PodRef, reason: Reason, *, withdraw: bool = False) -> None:
        """Write why a pod waits into its conditions."""
        report = why_waiting(reason)
        record = self.api.store.get(PODS, (pod.namespace, pod.name))
        if record is None or record.object["metadata"]["uid"] != pod.uid:
            return
        if self.translator.reported.get(pod.uid) == report and not withdraw:
            return
        self.translator.reported[pod.uid] = report
        self._set_status(pod, {"nominatedNodeName": ""} if withdraw else {}, waiting_condition(reason, self.api.clock.text()))

    async def group_status(self, group: str, status: GroupReport) -> None:
        """Write where a pod group stands."""
        namespace, _, name = group.partition("/")
        record = self.api.store.get(_GROUPS, (namespace, name))
        if record is None:
            return
        obj = record.object
        merged = {**(obj.get("status") or {}), **group_shown(status)}
        merged = {key: value for key, value in merged.items() if value is not None}
        self.api.store.put(_GROUPS, (namespace, name), {**obj, "metadata": dict(obj["metadata"]), "status": merged})

    async def condition(self, regarding: PodRef | str, kind: str, reason: str, message: str) -> None:
        """Write that a condition holds of a pod or a pod group."""
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        condition["lastTransitionTime"] = self.api.clock.text()
        if isinstance(regarding, PodRef):
            self._set_status(regarding, {}, {**condition, "type": f"{names.GROUP}/{kind}"})
            return
        namespace, _, plain = regarding.partition("/")
        record = self.api.store.get(_GROUPS, (namespace, plain))
        if record is not None:
            status = record.object.get("status") or {}
            others = [each for each in status.get("conditions") or () if each["type"] != kind]
            status = {**status, "conditions": [*others, condition]}
            obj = {**record.object, "metadata": dict(record.object["metadata"]), "status": status}
            self.api.store.put(_GROUPS, (namespace, plain), obj)

    async def queue_status(self, queue: str, status: QueueReport) -> None:
        """Write where a queue stands."""
        record = self.api.store.get(_QUEUES, ("", queue))
        if record is None:
            return
        merged: Object = {**(record.object.get("status") or {}), "pending": status.pending}
        merged |= {"allocated": shown(status.allocated), "fairShare": shown(status.fair_share)}
        if status.usage is not None:
            merged["usage"] = usage_shown(status.usage)
        if status.run_times:
            merged["runTimes"] = run_times_shown(status.run_times)
        if status.forecasts:
            merged["forecasts"] = forecasts_shown(status.forecasts)
        merged.pop("reason", None)
        merged.pop("foreign", None)
        if status.foreign:
            merged["foreign"] = shown(status.foreign)
        if status.reason is not None:
            merged["reason"] = {"code": str(status.reason.code), "message": status.reason.message}
        self.api.store.put(_QUEUES, ("", queue), {**record.object, "metadata": dict(record.object["metadata"]), "status": merged})

    async def verdict(self, kind: str, name: str, *, accepted: bool, reason: str, message: str) -> None:
        """Condition Accepted of a policy."""
        table = f"{names.GROUP}/{kind}"
        record = self.api.store.get(table, ("", name))
        if record is None or self.translator.verdicts.get((kind, name)) == (accepted, reason, message):
            return
        condition = {"type": "Accepted", "status": "True" if accepted else "False", "reason": reason, "message": message}
        condition["lastTransitionTime"] = self.api.clock.text()
        obj: Object = {**record.object, "metadata": dict(record.object["metadata"])}
        obj["status"] = {**(obj.get("status") or {}), "conditions": [condition]}
        self.api.store.put(table, ("", name), obj)

    async def reservation_status(self, name: str, phase: str, nodes: Sequence[str]) -> None:
        """Write where a reservation stands and which nodes it keeps."""
        record = self.api.store.get(_RESERVATIONS, ("", name))
        if record is not None:
            status = {**(record.object.get("status") or {}), "phase": phase, "nodes": list(nodes)}
            obj = {**record.object, "metadata": dict(record.object["metadata"]), "status": status}
            self.api.store.put(_RESERVATIONS, ("", name), obj)

    async def keep_speeds(self, speeds: LearnedSpeeds) -> None:
        """Nothing: there is no Lease, and no scheduler that leads next."""

    async def event(self, regarding: PodRef | str, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """One event on a pod, on the pod group `namespace/name`, or on a node by its name."""
        if isinstance(regarding, PodRef):
            about = {"kind": "Pod", "namespace": regarding.namespace, "name": regarding.name, "uid": regarding.uid}
        elif "/" not in regarding:
            about = {"kind": "Node", "namespace": "default", "name": regarding}
        else:
            namespace, _, name = regarding.partition("/")
            about = {"kind": "PodGroup", "namespace": namespace, "name": name}
        body: Object = {
            "metadata": {"generateName": f"{about['name'][:50]}-"},
            "involvedObject": about,
            "reason": reason,
            "message": note,
            "type": "Warning" if warning else "Normal",
            "eventTime": self.api.clock.text(),
            "reportingComponent": names.SCHEDULER_NAME,
            "action": action or ("Binding" if reason == "Scheduled" else "Scheduling"),
        }
        try:
            self.api.create(self.api.served("v1", "events"), about["namespace"], body)
        except StatusError:
            return


def _made(name: str, claim: Object) -> Object:
    """A volume provisioned for a claim."""
    spec = claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "capacity": {"storage": (spec.get("resources") or {}).get("requests", {}).get("storage", "1Gi")},
            "accessModes": spec.get("accessModes") or [],
            "storageClassName": spec.get("storageClassName", ""),
        },
    }


def _same_to_us(before: Object, after: Object) -> bool:
    """Whether only what no decision rests on has changed. Specs are never changed in place: the same one is the same."""
    old, new = before["metadata"], after["metadata"]
    return (
        before["spec"] is after["spec"]
        and after["status"].get("phase") not in _ENDED
        and old.get("labels") == new.get("labels")
        and old.get("annotations") == new.get("annotations")
        and old.get("deletionTimestamp") == new.get("deletionTimestamp")
        and old.get("ownerReferences") == new.get("ownerReferences")
    )


def _change(key: store.Key, body: Object | None, kind: Kind[Any], gone: Object | None = None) -> Change[Any]:
    metadata = (body if body is not None else gone or {}).get("metadata") or {}
    name = metadata.get("uid", "") if kind is POD else f"{key[0]}/{key[1]}" if key[0] else key[1]
    if body is None:
        return Change(name, None)
    try:
        return Change(name, msgspec.convert(body, kind.view))
    except msgspec.ValidationError as error:
        bare = kind.view()
        bare.metadata = msgspec.convert(metadata, views.Metadata)
        return Change(name, bare, str(error))


def _not_to_be_had(choice: DeviceChoice, claim: Object) -> str:
    """Why what was decided for a claim cannot be written; empty: it can."""
    if choice.allocation is None:
        return "has no devices that could be decided"
    there = (claim.get("status") or {}).get("allocation")
    if choice.decided and there:
        wanted = claim_status.allocation(choice.allocation)
        return "" if claim_status.devices_of(there) == claim_status.devices_of(wanted) else "was allocated other devices"
    return "" if choice.decided or there else "was deallocated"
