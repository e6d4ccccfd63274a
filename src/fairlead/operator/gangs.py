"""PodGroups for workloads whose pods start together though nobody wrote one: JobSets, PyTorchJobs, RayClusters and their like.

Each kind that is served is watched; for each object whose pods Fairlead schedules, a PodGroup is made that the object owns, so
that it goes with it. A PodGroup of that name which somebody else made is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.grouping import is_upstream
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.discovery import served
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.translate import Change
from fairlead.operator.faults import About, Faults
from fairlead.operator.jobs.members import provisioning, stamp
from fairlead.operator.workloads.base import Manifest, Workload
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("gangs")

_ASK_AGAIN = 60.0  # seconds until it is asked anew which kinds are served
_MERGE = "application/merge-patch+json"


class _Object(msgspec.Struct, rename="camel"):
    """Any object; the parts that count are looked at as they are."""

    metadata: views.Metadata
    spec: dict[str, Any] = {}

    def manifest(self) -> Manifest:
        """As the kinds' own files read it."""
        return {"metadata": {"name": self.metadata.name}, "spec": self.spec}


class Gangs:
    """Makes PodGroups. made: how many. speed: of the client's clock against the loop's."""

    def __init__(self, client: Client, kinds: Iterable[Workload], *, speed: float = 1.0, faults: Faults | None = None) -> None:
        self.client = client
        self.speed = speed
        self.made = 0
        self.faults = faults or Faults(client, speed=speed)
        self.queue = WorkQueue(self._look, site="gangs", report=self._fault)
        self._kinds = {f"{each.api_version} {each.plural}": each for each in kinds if each.gangs is not None}
        self._objects: dict[str, _Object] = {}  # `version plural namespace/name` -> object

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
        heard = self.faults.each("gangs.heard", partial(self._heard, kind), About(kind.api_version, kind.kind))
        return Informer(self.client, path, _Object, heard, lambda: None)

    def _heard(self, kind: Workload, change: Change[_Object]) -> None:
        key = f"{kind.api_version} {kind.plural} {change.key}"
        if change.view is None:
            self._objects.pop(key, None)  # its PodGroups go with it
        elif change.error:
            log.error("it cannot be read", kind=kind.kind, key=change.key, error=change.error)
        else:
            self._objects[key] = change.view
            self.queue.add(key)

    async def _look(self, key: str) -> None:
        kind, found = self._kinds[key.rpartition(" ")[0]], self._objects.get(key)
        if found is None or kind.gangs is None:
            return
        manifest = found.manifest()
        if kind.ours(manifest):
            for name, needed in kind.gangs(manifest).items():
                await self._ensure(kind, found.metadata, name, needed)

    async def _ensure(self, kind: Workload, owner: views.Metadata, name: str, needed: int) -> None:
        path = f"/apis/{names.API_VERSION}/namespaces/{owner.namespace}/podgroups"
        labels = owner.labels or {}
        spec: Manifest = {"minMember": needed}
        if labels.get(names.QUEUE_LABEL):
            spec["queue"] = labels[names.QUEUE_LABEL]
        if labels.get(names.SERVICE_CLASS_LABEL):
            spec["serviceClass"] = labels[names.SERVICE_CLASS_LABEL]
        reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": owner.name, "uid": owner.uid, "controller": True}
        metadata: Manifest = {"name": name, "namespace": owner.namespace, "ownerReferences": [reference]}
        metadata["annotations"] = {**provisioning(owner.annotations), **stamp(owner.annotations)}
        marks = {names.UPSTREAM_LABEL: "true"} if is_upstream(f"{owner.namespace}/{name}") else {}
        metadata["labels"] = marks
        body = {"apiVersion": names.API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": spec}
        try:
            await self.client.post(path, encode(body))
            self.made += 1
            return
        except ApiError as error:
            if error.code != 409:
                raise
        group = msgspec.json.decode(await self.client.get(f"{path}/{name}"), type=views.PodGroup)
        whose = [each.uid for each in group.metadata.owner_references or ()]
        asks = group.spec.min_member, group.spec.queue or "", {**(group.metadata.labels or {}), **marks}
        if owner.uid in whose and asks != (needed, spec.get("queue", ""), group.metadata.labels or {}):
            changed = {"resourceVersion": group.metadata.resource_version, "labels": marks}
            patch = {"metadata": changed, "spec": {"queue": None, **spec}}
            await self.client.patch(f"{path}/{name}", encode(patch), _MERGE)
