"""ProvisioningRequests: a gang that asks for it has its nodes requested as a whole, of Cluster Autoscaler, and not pod by pod.

A PodGroup with the annotation `fairlead.dev/provisioning-class` that waits for capacity (not for quota or queue order) gets a
ProvisioningRequest of that class for the pods it needs, made of PodTemplates like them; the pods are marked as its consumers, so
that nothing is scaled up for them twice. What becomes of it is a condition of the PodGroup. A request that failed, or whose
capacity is gone again, is made anew after a while, as long as the gang waits. All of it belongs to the PodGroup and goes with it.
Only classes of an administrator's list are asked for: the policies refuse others, but not on objects older than themselves.

Source of the contract: Cluster Autoscaler's API `autoscaling.x-k8s.io/v1` and its annotations.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.common import Condition
from fairlead.api.reasons import CAPACITY_CODES
from fairlead.cluster import grouping, views
from fairlead.cluster.kubernetes import conditions, events
from fairlead.cluster.kubernetes.client import ApiError, Client, create, delete, encode
from fairlead.cluster.kubernetes.discovery import until_served
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.times import seconds, timestamp
from fairlead.cluster.translate import Change
from fairlead.operator.faults import About, Faults
from fairlead.operator.releases import Serves, everything
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("provisioning")

API = "autoscaling.x-k8s.io/v1"
PROVISIONED = "Provisioned"
_PLURAL = "provisioningrequests"
_GROUPS = f"/apis/{names.API_VERSION}/podgroups"
_CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
_OF_CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
_NOT_ALLOWED = "ClassNotAllowed"
_SPENT = ("Failed", "BookingExpired", "CapacityRevoked")
_MANAGER = "fairlead-provisioning"
_ABOUT = About(names.API_VERSION, "PodGroup")
_RETRY = 600.0  # seconds after which what came to nothing is asked for again
_MOST_KINDS = 32  # pod sets in a request, as its definition has it
_AT_ONCE = 16
_LONGEST_LABEL = 63
_INDEXES = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-group-index",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "ray.io/ray-worker-replica-index",
    "statefulset.kubernetes.io/pod-name",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
)
_OF_ITS_JOB = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
    "jobset.sigs.k8s.io/job-key",
)
"""Labels that differ between the Jobs of one workload; they count where terms of pods may select by them."""
_OF_THE_POD = ("nodeName", "priority", "preemptionPolicy", "hostname")
_OF_THE_API_SERVER = re.compile(r"^kube-api-access-")

Manifest = dict[str, Any]


class _Reason(msgspec.Struct):
    code: str = ""


class _GroupStatus(msgspec.Struct):
    phase: str = "Pending"
    scheduled: int = 0
    reason: _Reason | None = None
    conditions: list[Condition] = []


class _GroupSpec(msgspec.Struct, rename="camel"):
    min_member: int = 1
    queue: str | None = None


class _Group(msgspec.Struct):
    """A PodGroup, as far as it counts here."""

    metadata: views.Metadata
    spec: _GroupSpec = msgspec.field(default_factory=_GroupSpec)
    status: _GroupStatus = msgspec.field(default_factory=_GroupStatus)

    @property
    def asked(self) -> str:
        """The class of its request, if it is to have one."""
        return (self.metadata.annotations or {}).get(names.PROVISIONING_CLASS_ANNOTATION, "")

    @property
    def waits(self) -> bool:
        """Whether more nodes could let it start."""
        reason = self.status.reason
        return (
            self.status.phase == "Pending" and not self.status.scheduled and reason is not None and reason.code in CAPACITY_CODES
        )


class _RequestStatus(msgspec.Struct):
    conditions: list[Condition] = []


class _RequestSpec(msgspec.Struct, rename="camel"):
    pod_sets: list[Manifest] = []


class _Request(msgspec.Struct):
    metadata: views.Metadata
    spec: _RequestSpec = msgspec.field(default_factory=_RequestSpec)
    status: _RequestStatus = msgspec.field(default_factory=_RequestStatus)

    def condition(self, *kinds: str) -> Condition | None:
        """The first of these that holds."""
        return next((each for each in self.status.conditions if each.type in kinds and each.status == "True"), None)


class Provisioning:
    """Makes the requests while it runs. made: how many. speed: of the client's clock against the loop's.

    classes: those that may be asked for. serves: whether this release does so for the PodGroups of a queue.
    """

    def __init__(
        self,
        client: Client,
        *,
        classes: Collection[str] = (),
        speed: float = 1.0,
        faults: Faults | None = None,
        serves: Serves = everything,
    ) -> None:
        self.client = client
        self._serves = serves
        self.classes = classes
        self.speed = speed
        self.made = 0
        self.faults = faults or Faults(client, speed=speed)
        self.queue = WorkQueue(self._reconcile, site="provisioning", report=self._fault)
        self._groups: dict[str, _Group] = {}
        self._requests: dict[str, dict[str, _Request]] = {}  # group's key -> request's name -> request
        self._of: dict[str, str] = {}  # request's key -> group's key
        self._missing = {"groups", "requests"}
        take = self.faults.each("provisioning.observed", self._groups_changed, _ABOUT)
        self.groups = Informer(client, _GROUPS, _Group, take, lambda: self._listed("groups"))
        self.requests = Informer(
            client,
            f"/apis/{API}/{_PLURAL}",
            _Request,
            self.faults.each("provisioning.requests", self._requests_changed, About(API, "ProvisioningRequest")),
            lambda: self._listed("requests"),
            selector=names.POD_GROUP_LABEL,
        )

    def _fault(self, site: str, key: str, error: Exception) -> None:
        group = self._groups.get(key)
        self.faults.note(site, key, error, _ABOUT, group.metadata.uid if group is not None else "")

    async def run(self) -> None:
        """Once the kind is served, until cancelled."""
        await until_served(self.client, API, _PLURAL, speed=self.speed)
        log.info("watching", kind="ProvisioningRequest")
        async with asyncio.TaskGroup() as group:
            for each in (self.groups.run, self.requests.run, self.queue.run):
                group.create_task(self.faults.kept("provisioning.watch", each))

    # -- what is observed ----------------------------------------------------------------------

    def _listed(self, what: str) -> None:
        self._missing.discard(what)
        for key in self._groups if not self._missing else ():
            self._again(key)

    def hands_changed(self) -> None:
        """It is known which PodGroups are served, or others are."""
        for key in self._groups:
            self._again(key)

    def _again(self, key: str) -> None:
        group = self._groups.get(key)
        if not self._missing and group is not None and group.asked:
            self.queue.add(key)

    def _groups_changed(self, change: Change[_Group]) -> None:
        if change.view is None:
            self._groups.pop(change.key, None)
        elif change.error:
            log.error("PodGroup cannot be read", group=change.key, error=change.error)
        else:
            self._groups[change.key] = change.view
            self._again(change.key)

    def _requests_changed(self, change: Change[_Request]) -> None:
        namespace, _, name = change.key.partition("/")
        if change.view is not None:
            owners = change.view.metadata.owner_references or ()
            group = next((each.name for each in owners if each.kind == "PodGroup"), "")
            self._of[change.key] = f"{namespace}/{group}"
        key = self._of.get(change.key, "")
        known = self._requests.setdefault(key, {})
        if change.view is None:
            self._of.pop(change.key, None)
            known.pop(name, None)
        elif not change.error:
            known[name] = change.view
        self._again(key)

    # -- what is done --------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        group = self._groups.get(key)
        if group is None or not group.asked or not self._serves(group.metadata.namespace, group.spec.queue):
            return
        if group.asked not in self.classes:
            await self._refuse(group)
            return
        uid = group.metadata.uid
        mine = [
            each
            for each in self._requests.get(key, {}).values()
            if any(owner.uid == uid for owner in each.metadata.owner_references or ())
        ]
        latest = max(mine, key=lambda each: _number(each.metadata.name), default=None)
        if latest is not None:
            await self._report_request(group, latest)
        if not group.waits:
            return
        spent = latest.condition(*_SPENT) if latest is not None else None
        if latest is not None and spent is None:
            # It is under way, or its nodes are coming up; members that came since then are its consumers, too.
            fresh = [each for each in await self._waiting(group) if _CONSUMES not in (each["metadata"].get("annotations") or {})]
            await self._consume(fresh, latest.metadata.name, group.asked)
            return
        if spent is not None:
            left = seconds(spent.last_transition_time) + _RETRY - self.client.clock()
            if left > 0:
                asyncio.get_running_loop().call_later(left / self.speed, self._again, key)
                return
        await self._request(group, _number(latest.metadata.name) + 1 if latest is not None else 1)
        for each in mine:
            await delete(self.client, f"/apis/{API}/namespaces/{group.metadata.namespace}/{_PLURAL}/{each.metadata.name}")
            for kind in each.spec.pod_sets:
                await delete(
                    self.client, f"/api/v1/namespaces/{group.metadata.namespace}/podtemplates/{kind['podTemplateRef']['name']}"
                )

    async def _report_request(self, group: _Group, request: _Request) -> None:
        """The state of a request as a condition of the PodGroup; when it changed, as an event, too."""
        spent, done = request.condition(*_SPENT), request.condition(PROVISIONED)
        found = spent or done
        holds = spent is None and done is not None
        reason = found.type if found is not None else "Requested"
        message = f"ProvisioningRequest {request.metadata.name}"
        message += f": {found.message or found.reason}" if found is not None and (found.message or found.reason) else ""
        await self._write_condition(group, holds=holds, reason=reason, message=message, warning=spent is not None)

    async def _refuse(self, group: _Group) -> None:
        """No request is made: its class is not in the administrator's list."""
        allowed = ", ".join(sorted(self.classes)) or "none"
        message = f"provisioning class {group.asked[:253]} is not allowed; allowed: {allowed}"
        await self._write_condition(group, holds=False, reason=_NOT_ALLOWED, message=message, warning=True)

    async def _write_condition(self, group: _Group, *, holds: bool, reason: str, message: str, warning: bool) -> None:
        """Write the condition, and an event, if they changed."""
        known = next((each for each in group.status.conditions if each.type == PROVISIONED), None)
        current = (holds, reason, message[: events.NOTE_LIMIT])
        if known is not None and (known.status == "True", known.reason, known.message) == current:
            return
        since = timestamp(self.client.clock())
        condition = conditions.condition(PROVISIONED, holds=holds, reason=reason, message=message, since=since)
        metadata = group.metadata
        try:
            await conditions.apply(self.client, "podgroups", metadata.key, [condition], _MANAGER)
        except ApiError as error:
            if error.code != 404:
                raise
            return
        about = {"apiVersion": names.API_VERSION, "kind": "PodGroup", "uid": metadata.uid}
        about |= {"namespace": metadata.namespace, "name": metadata.name}
        who = {"controller": _MANAGER, "instance": _MANAGER}
        await events.write(self.client, about, reason, message, action="Provisioning", warning=warning, **who)

    async def _request(self, group: _Group, number: int) -> None:
        """Request the nodes of the pods that it needs, once all of them exist."""
        metadata, needed = group.metadata, group.spec.min_member
        pending = await self._waiting(group)
        waiting = pending[:needed]
        if len(waiting) < needed:
            return  # its reason changes when they come, and it is reconciled again
        kinds: dict[bytes, tuple[Manifest, int]] = {}
        for each in waiting:
            template = _template(each)
            known = encode(template)
            kinds[known] = (template, kinds.get(known, (template, 0))[1] + 1)
        name = f"{metadata.name[:200]}-{number}"
        if len(kinds) > _MOST_KINDS:
            log.warning("too many kinds of pods for one request", group=metadata.key, kinds=len(kinds), most=_MOST_KINDS)
            return
        owner = {"apiVersion": names.API_VERSION, "kind": "PodGroup", "name": metadata.name, "uid": metadata.uid}
        # By the label they are found; whose they are, their owner names: a PodGroup's name may be longer than a label.
        labels = {names.POD_GROUP_LABEL: metadata.name[:_LONGEST_LABEL].rstrip("-.")}
        ours = {"namespace": metadata.namespace, "labels": labels, "ownerReferences": [owner]}
        sets = []
        for place, (template, count) in enumerate(kinds.values()):
            made = {**ours, "name": f"{name}-{place}"}
            body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": made, "template": template}
            await create(self.client, f"/api/v1/namespaces/{metadata.namespace}/podtemplates", body)
            sets.append({"podTemplateRef": {"name": made["name"]}, "count": count})
        spec: Manifest = {"provisioningClassName": group.asked, "podSets": sets}
        prefix, annotations = names.PROVISIONING_PARAMETER_PREFIX, metadata.annotations or {}
        parameters = {key.removeprefix(prefix): value for key, value in annotations.items() if key.startswith(prefix)}
        if parameters:
            spec["parameters"] = parameters
        body = {"apiVersion": API, "kind": "ProvisioningRequest", "metadata": {**ours, "name": name}, "spec": spec}
        await self._consume(pending, name, group.asked)
        if await create(self.client, f"/apis/{API}/namespaces/{metadata.namespace}/{_PLURAL}", body):
            self.made += 1
            log.info("requested", group=metadata.key, request=name, kind=group.asked, pods=len(waiting))

    async def _waiting(self, group: _Group) -> list[Manifest]:
        """Its pods that have no node, those that it cannot do without first."""
        pods = f"/api/v1/namespaces/{group.metadata.namespace}/pods"
        served = self._served(group.metadata.namespace)
        listed = msgspec.json.decode(await self.client.get(pods, **_selector(group)))
        return sorted(
            (
                each
                for each in listed["items"]
                if not each["spec"].get("nodeName")
                and not each["metadata"].get("deletionTimestamp")
                and _group_of(each, served) == group.metadata.name
            ),
            key=lambda each: (each["metadata"]["labels"].get(names.ELASTIC_REPLICA_LABEL, ""), each["metadata"]["name"]),
        )

    def _served(self, namespace: str) -> Mapping[str, str]:
        """What PodGroups of a namespace serve besides the gangs of their names -> the PodGroup, as in `cluster.serving`."""
        found: dict[str, str] = {}
        for group in self._groups.values():
            if group.metadata.namespace == namespace:
                for each in grouping.serves(group.metadata):
                    found[each] = min(found.get(each, group.metadata.name), group.metadata.name)
        return found

    async def _consume(self, pods: list[Manifest], request: str, kind: str) -> None:
        """Mark pods as those that the nodes are for; the autoscaler then leaves them to the request."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(pod: Manifest) -> None:
            metadata = pod["metadata"]
            patch = {"metadata": {"uid": metadata["uid"], "annotations": {_CONSUMES: request, _OF_CLASS: kind}}}
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            async with slots:
                try:
                    await self.client.patch(path, encode(patch), "application/merge-patch+json")
                except ApiError as error:
                    if error.code not in (404, 409):  # it is gone, or another by now
                        raise

        await asyncio.gather(*(one(each) for each in pods))


def _selector(group: _Group) -> dict[str, str]:
    """Of its pods: they name the PodGroup, or the object for which it was made."""
    owner = next((each for each in group.metadata.owner_references or () if each.controller), None)
    if owner is None or owner.kind == "AIJob":
        return {"labelSelector": f"{names.POD_GROUP_LABEL}={group.metadata.name}"}
    label = grouping.label_of(owner.kind)
    return {"labelSelector": f"{label}={owner.name}"} if label else {}


def _group_of(pod: Manifest, served: Mapping[str, str]) -> str:
    """The PodGroup of a pod. served: what others serve than the gangs of their names."""
    labels = pod["metadata"].get("labels") or {}
    if named := labels.get(names.POD_GROUP_LABEL):
        return str(named)
    owner = next((each["kind"] for each in pod["metadata"].get("ownerReferences") or () if each.get("controller")), "")
    upstream = views.SchedulingGroup((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")
    gang = grouping.group_of(labels, upstream, owner)
    keys = (*(grouping.part(gang, each) for each in grouping.parts_of(labels.items())), gang)
    return next((served[each] for each in keys if each in served), gang)


def _number(name: str) -> int:
    suffix = name.rpartition("-")[2]
    return int(suffix) if suffix.isdigit() else 0


def _template(pod: Manifest) -> Manifest:
    """A pod as a template: without what the API server added for this one."""
    spec = {
        name: value for name, value in pod["spec"].items() if name not in ("nodeName", "priority", "preemptionPolicy", "hostname")
    }
    added = {each["name"] for each in spec.get("volumes", ()) if _OF_THE_API_SERVER.match(each["name"])}
    if added:
        spec["volumes"] = [each for each in spec["volumes"] if each["name"] not in added]
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [_plain(each, added) for each in spec[part]]
    # What distinguishes members from each other does not affect which node they need.
    own: tuple[str, ...] = (names.ATTEMPT_LABEL, names.ELEMENT_LABEL, names.INDEX_LABEL, *_INDEXES)
    affinity = spec.get("affinity") or {}
    if not (affinity.get("podAffinity") or affinity.get("podAntiAffinity") or spec.get("topologySpreadConstraints")):
        own = (*own, *_OF_ITS_JOB)
    labels = {name: value for name, value in (pod["metadata"].get("labels") or {}).items() if name not in own}
    return {"metadata": {"labels": labels}, "spec": spec}


def _plain(container: Manifest, added: set[str]) -> Manifest:
    """A container without its own name's environment: members differ in it, and nodes do not care."""
    mounts = [each for each in container.get("volumeMounts", ()) if each["name"] not in added]
    kept = {name: value for name, value in container.items() if name not in ("env", "volumeMounts")}
    return kept | ({"volumeMounts": mounts} if mounts else {})
