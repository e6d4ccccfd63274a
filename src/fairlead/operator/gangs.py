"""PodGroups for workloads whose pods start together, where the user wrote none: JobSets, PyTorchJobs, RayClusters and so on.

Each kind that is served is watched; for each object whose pods Fairlead schedules, a PodGroup is made that the object owns, so
that it goes with it. A PodGroup of that name which a user wrote is left alone; an event names one that belongs to another object.
One that an earlier version made under another name stays the object's (`fairlead.cluster.serving`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.common import LONGEST_LEVEL, Topology
from fairlead.cluster import grouping, views
from fairlead.cluster.followers import Form, written
from fairlead.cluster.grouping import is_upstream
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.discovery import served
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.translate import Change
from fairlead.operator.faults import About, Faults
from fairlead.operator.jobs.members import provisioning, stamp
from fairlead.operator.releases import Releases
from fairlead.operator.workloads.base import Manifest, Workload
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("gangs")

_ASK_AGAIN = 60.0  # seconds until it is asked anew which kinds are served
_MERGE = "application/merge-patch+json"


class _Object(msgspec.Struct, rename="camel"):
    """Any object; its spec is read as it is."""

    metadata: views.Metadata
    spec: dict[str, Any] = {}

    def manifest(self) -> Manifest:
        """As the kinds' own files read it."""
        return {"metadata": {"name": self.metadata.name, "annotations": self.metadata.annotations or {}}, "spec": self.spec}


class Gangs:
    """Makes PodGroups. made: how many. speed: of the client's clock against the loop's. releases: others make theirs."""

    def __init__(
        self,
        client: Client,
        kinds: Iterable[Workload],
        *,
        speed: float = 1.0,
        faults: Faults | None = None,
        releases: Releases | None = None,
    ) -> None:
        self.client = client
        self._releases = releases
        self.speed = speed
        self.made = 0
        self.faults = faults or Faults(client, speed=speed)
        self.queue = WorkQueue(self._reconcile, site="gangs", report=self._fault)
        self._kinds = {f"{each.api_version} {each.plural}": each for each in kinds if each.gangs is not None}
        self._objects: dict[str, _Object] = {}  # `version plural namespace/name` -> object
        self._reported: dict[str, str] = {}  # UID of an object -> that of a PodGroup of its name which is another's
        self._queues: dict[str, str] = {}  # UID of an object -> its queue, where there are several releases
        self._names: dict[str, dict[str, str]] = {}  # UID of an object -> gang -> what its PodGroup is called
        self._made_for: dict[str, str] = {}  # PodGroup -> the object that it was made for, or whose name it has

    def _fault(self, site: str, key: str, error: Exception) -> None:
        named, _, where = key.rpartition(" ")
        kind, found = self._kinds[named], self._objects.get(key)
        about = About(kind.api_version, kind.kind)
        self.faults.note(site, where, error, about, found.metadata.uid if found is not None else "")

    async def run(self) -> None:
        """Watch the kinds that are served, and those that come to be, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run())
            missing = dict(self._kinds)
            while missing:
                for each, kind in list(missing.items()):
                    if await served(self.client, kind.api_version, kind.plural):
                        del missing[each]
                        log.info("watching", kind=kind.kind, version=kind.api_version)
                        group.create_task(self.faults.kept("gangs.watch", self._informer(kind).run))
                await asyncio.sleep(_ASK_AGAIN / self.speed)

    def _informer(self, kind: Workload) -> Informer[_Object]:
        path = f"/apis/{kind.api_version}/{kind.plural}"
        take = self.faults.each("gangs.observed", partial(self._observed, kind), About(kind.api_version, kind.kind))
        return Informer(self.client, path, _Object, take, lambda: None)

    def _observed(self, kind: Workload, change: Change[_Object]) -> None:
        key = f"{kind.api_version} {kind.plural} {change.key}"
        if change.view is None:
            gone = self._objects.pop(key, None)  # its PodGroups go with it
            if gone is not None:
                self._names.pop(gone.metadata.uid, None)
                self._reported.pop(gone.metadata.uid, None)
                self._queues.pop(gone.metadata.uid, None)
        elif change.error:
            log.error("it cannot be read", kind=kind.kind, key=change.key, error=change.error)
        else:
            self._objects[key] = change.view
            self.queue.add(key)

    async def _reconcile(self, key: str) -> None:
        kind, found = self._kinds[key.rpartition(" ")[0]], self._objects.get(key)
        if found is None or kind.gangs is None or found.metadata.deletion_timestamp is not None:
            return
        manifest = found.manifest()
        if kind.ours(manifest) and self._serves(kind, found, manifest):
            serves, followers = kind.serves(manifest), kind.followers(manifest)
            for gang, needed in kind.gangs(manifest).items():
                name = await self._name_of(found.metadata, gang)
                await self._ensure(kind, found, name, needed, serves.get(gang, ()), followers.get(gang, ()))

    def _serves(self, kind: Workload, found: _Object, manifest: Manifest) -> bool:
        """Whether this release serves the queue of an object. Where there are others, its PodGroups name that queue."""
        if self._releases is None or (self._releases.synced and self._releases.sole):
            self._queues.pop(found.metadata.uid, None)
            return True
        sources = [
            found.metadata.labels,
            *((each.get("metadata") or {}).get("labels") for each in kind.templates(manifest) if each),
        ]
        queue = next((labels[names.QUEUE_LABEL] for labels in sources if labels and labels.get(names.QUEUE_LABEL)), "")
        queue = queue or self._releases.default_queue(found.metadata.namespace)
        self._queues[found.metadata.uid] = queue
        return self._releases.serves(found.metadata.namespace, queue)

    def hands_changed(self) -> None:
        """It is known which queues are served, or others are."""
        for key in self._objects:
            self.queue.add(key)

    def group_gone(self, group: str) -> None:
        """A PodGroup, `namespace/name`, is gone: its object, if that is still there, needs it."""
        key = self._made_for.pop(group, None)
        if key is not None and key in self._objects:
            self.queue.add(key)

    async def _name_of(self, owner: views.Metadata, gang: str) -> str:
        """What the PodGroup of a gang is called: as it was by an earlier version, where that made it."""
        known = self._names.setdefault(owner.uid, {})
        if gang not in known:
            before = grouping.name_before(gang)
            group = await self._read(owner.namespace, before) if before else None
            is_its = group is not None and gang in grouping.serves(group.metadata) and _owned(group.metadata, owner)
            known[gang] = before if is_its else gang
        return known[gang]

    async def _read(self, namespace: str, name: str) -> views.PodGroup | None:
        try:
            body = await self.client.get(f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{name}")
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return msgspec.json.decode(body, type=views.PodGroup)

    async def _ensure(
        self, kind: Workload, found: _Object, name: str, needed: int, serves: tuple[str, ...], followers: tuple[Form, ...]
    ) -> None:
        owner = found.metadata
        path = f"/apis/{names.API_VERSION}/namespaces/{owner.namespace}/podgroups"
        labels = owner.labels or {}
        spec: Manifest = {"minMember": needed}
        if queue := labels.get(names.QUEUE_LABEL) or self._queues.get(owner.uid):
            spec["queue"] = queue
        if labels.get(names.SERVICE_CLASS_LABEL):
            spec["serviceClass"] = labels[names.SERVICE_CLASS_LABEL]
        if topology := _topology(owner.annotations, kind.level(found.manifest())):
            spec["topology"] = topology
        reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": owner.name, "uid": owner.uid, "controller": True}
        metadata: Manifest = {"name": name, "namespace": owner.namespace, "ownerReferences": [reference]}
        metadata["annotations"] = {**provisioning(owner.annotations), **stamp(owner.annotations)}
        if serves:
            metadata["annotations"][names.SERVES_ANNOTATION] = " ".join(serves)
        following = written(followers) if followers else None
        if following:
            metadata["annotations"][names.FOLLOWERS_ANNOTATION] = following
        marks = {names.UPSTREAM_LABEL: "true"} if is_upstream(f"{owner.namespace}/{name}") else {}
        metadata["labels"] = marks
        body = {"apiVersion": names.API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": spec}
        try:
            await self.client.post(path, encode(body))
            self.made += 1
            self._made_for[f"{owner.namespace}/{name}"] = f"{kind.api_version} {kind.plural} {owner.key}"
            return
        except ApiError as error:
            if error.code != 409:
                raise
        group = await self._read(owner.namespace, name)
        if group is None:
            self.queue.add(f"{kind.api_version} {kind.plural} {owner.key}")  # it went in between
            return
        self._made_for[group.metadata.key] = f"{kind.api_version} {kind.plural} {owner.key}"  # also where it must go first
        if not _owned(group.metadata, owner):
            self._report_other(kind, owner, group)
            return
        given, levels = group.spec.topology or Topology(), spec.get("topology") or {}
        asks = group.spec.min_member, group.spec.queue or "", {**(group.metadata.labels or {}), **marks}
        same = not levels or (given.required, given.preferred) == (levels.get("required"), levels.get("preferred"))
        same = same and (group.metadata.annotations or {}).get(names.FOLLOWERS_ANNOTATION) == following
        if asks != (needed, spec.get("queue", ""), group.metadata.labels or {}) or not same:
            changed = {"resourceVersion": group.metadata.resource_version, "labels": marks}
            changed["annotations"] = {names.FOLLOWERS_ANNOTATION: following}
            if levels:
                spec["topology"] = {"required": None, "preferred": None, **levels}
            patch = {"metadata": changed, "spec": {"queue": None, **spec}}
            await self.client.patch(f"{path}/{name}", encode(patch), _MERGE)

    def _report_other(self, kind: Workload, owner: views.Metadata, group: views.PodGroup) -> None:
        """Report a PodGroup that belongs to another object: pods would start, and be suspended, with that object."""
        other = next((each for each in group.metadata.owner_references or () if each.controller), None)
        if other is not None and (other.kind, other.name) == (kind.kind, owner.name):
            return  # of a deleted object of that name: the garbage collector has not come to it yet
        if other is not None and self._reported.get(owner.uid) != group.metadata.uid:
            self._reported[owner.uid] = group.metadata.uid
            message = f"its PodGroup {group.metadata.name} belongs to {other.kind} {other.name}: rename one of them"
            self.faults.write_event(owner.key, "NameTaken", message, About(kind.api_version, kind.kind), owner.uid)


def _topology(annotations: Mapping[str, str] | None, level: str) -> Manifest:
    """What a workload asks for by its spec, or by KAI's annotations, in labels of nodes; KAI's Topology objects are not read.

    level: that its spec requires; empty: none.
    """
    given = annotations or {}
    levels = (
        ("required", level or given.get(names.KAI_REQUIRED_ANNOTATION)),
        ("preferred", given.get(names.KAI_PREFERRED_ANNOTATION)),
    )
    return {field: level for field, level in levels if level and len(level) <= LONGEST_LEVEL}


def _owned(metadata: views.Metadata, owner: views.Metadata) -> bool:
    return any(each.uid == owner.uid for each in metadata.owner_references or ())
