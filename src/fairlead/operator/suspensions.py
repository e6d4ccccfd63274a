"""Suspensions without a target state: what Fairlead suspended is resumed once no PodGroup's target suspends it.

A PodGroup may be deleted, made anew or lose its target while a job is suspended for it; that of a RayJob's cluster goes with the
cluster when the RayJob is suspended; and a request of an operator that has lost its lease may be carried out after everything
else is over. So a suspended object names its PodGroup, and carries a label by which it is found however it came about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.discovery import until_served
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.targets import SUSPENDED
from fairlead.cluster.translate import Change
from fairlead.operator.faults import About, Faults
from fairlead.operator.releases import Releases
from fairlead.operator.targets import Counters
from fairlead.operator.workloads.base import POLICY, Manifest, Workload
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("suspensions")

_MERGE = "application/merge-patch+json"


class Suspensions:
    """Watches what is suspended by us. counters: those of `Targets`. releases: what others schedule is theirs."""

    def __init__(
        self,
        client: Client,
        kinds: Iterable[Workload],
        counters: Counters,
        *,
        speed: float = 1.0,
        faults: Faults | None = None,
        releases: Releases | None = None,
    ) -> None:
        self.client = client
        self._releases = releases
        self.speed = speed
        self.counters = counters
        self.faults = faults or Faults(client, speed=speed)
        self.queue = WorkQueue(self._reconcile, site="suspensions", report=self._fault)
        self._kinds = {f"{each.api_version} {each.plural}": each for each in kinds if each.suspend_at}
        self._groups: dict[str, str] = {}  # `version plural namespace/name` -> the PodGroup that it is suspended for
        self._suspended: dict[str, set[str]] = {}  # PodGroup -> what is suspended for it

    def _fault(self, site: str, key: str, error: Exception) -> None:
        named, _, where = key.rpartition(" ")
        self.faults.note(site, where, error, About(self._kinds[named].api_version, self._kinds[named].kind))

    async def run(self) -> None:
        """Watch the kinds that are served, and those that come to be, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run())
            for kind in self._kinds.values():
                group.create_task(self.faults.kept("suspensions.watch", partial(self._watch, kind)))

    async def _watch(self, kind: Workload) -> None:
        await until_served(self.client, kind.api_version, kind.plural, speed=self.speed)
        await self.informer(kind).run()

    def informer(self, kind: Workload) -> Informer[views.OnlyMetadata]:
        """Of what is suspended of a kind."""
        prefix = "/api/v1" if kind.api_version == "v1" else f"/apis/{kind.api_version}"
        take = self.faults.each("suspensions.observed", partial(self._observed, kind), About(kind.api_version, kind.kind))
        label = f"{names.SUSPENDED_BY_LABEL}={POLICY}"
        return Informer(self.client, f"{prefix}/{kind.plural}", views.OnlyMetadata, take, lambda: None, selector=label)

    def _observed(self, kind: Workload, change: Change[views.OnlyMetadata]) -> None:
        key = f"{kind.api_version} {kind.plural} {change.key}"
        known = self._groups.pop(key, "")
        if known:
            self._suspended[known].discard(key)
            if not self._suspended[known]:
                del self._suspended[known]
        if change.view is None:
            return
        metadata = change.view.metadata
        group = f"{metadata.namespace}/{(metadata.annotations or {}).get(names.SUSPENDED_FOR_ANNOTATION, '')}"
        self._groups[key] = group
        self._suspended.setdefault(group, set()).add(key)
        self.queue.add(key)

    def hands_changed(self) -> None:
        """It is known which releases there are, or others are."""
        for key in sorted(self._groups):
            self.queue.add(key)

    def untargeted(self, group: str) -> None:
        """A PodGroup, `namespace/name`, is gone, or its target no longer suspends anything."""
        for key in sorted(self._suspended.get(group, ())):
            self.queue.add(key)

    async def _reconcile(self, key: str) -> None:
        """Resume an object unless its PodGroup's target suspends it now."""
        kind = self._kinds[key.rpartition(" ")[0]]
        namespace, _, name = key.rpartition(" ")[2].partition("/")
        path = kind.path(namespace, name)
        body = await self._read(path)
        if body is None:
            return
        manifest: Manifest = msgspec.json.decode(body)
        patch = kind.to_resume(manifest)
        if patch is None or self._is_of_another(kind, manifest):
            return
        metadata = manifest["metadata"]
        wanted = (metadata.get("annotations") or {}).get(names.SUSPENDED_FOR_ANNOTATION, "")
        if wanted and await self._is_suspended(namespace, wanted):
            return
        patch["metadata"]["resourceVersion"] = metadata["resourceVersion"]
        await self.client.patch(path, encode(patch), _MERGE)
        self.counters.resumed += "spec" in patch
        log.warning("resumed, since no PodGroup suspends it", workload=f"{kind.kind}/{namespace}/{name}", group=wanted)

    def _is_of_another(self, kind: Workload, manifest: Manifest) -> bool:
        """Whether another release schedules its pods, and so resumes it."""
        releases = self._releases
        return releases is not None and not (releases.synced and (releases.sole or kind.ours(manifest)))

    async def _is_suspended(self, namespace: str, name: str) -> bool:
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{name}"
        body = await self._read(path)
        status = msgspec.json.decode(body, type=views.PodGroup).status if body is not None else None
        target = status.target if status is not None else None
        return target is not None and target.state == SUSPENDED

    async def _read(self, path: str) -> bytes | None:
        try:
            return await self.client.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
