"""From target states to workloads: the object that owns a job is brought to the state in `PodGroup.status.target`.

Reconciling a PodGroup does what is missing and may be repeated at any time. Every write names the version that was read, so it
never overwrites a user's concurrent edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.pod_group import TargetOwner
from fairlead.cluster import grouping, views
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.targets import RUNNING, SUSPENDED
from fairlead.cluster.translate import Change
from fairlead.operator.faults import About, Faults
from fairlead.operator.jobs.controller import Jobs
from fairlead.operator.releases import Serves, everything
from fairlead.operator.workloads.base import Manifest, Workload
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("operator")

_GROUPS = f"/apis/{names.API_VERSION}/podgroups"
_MERGE = "application/merge-patch+json"
_ABOUT = About(names.API_VERSION, "PodGroup")


class Counters(msgspec.Struct):
    """What was done, read by the metrics."""

    suspended: int = 0
    resumed: int = 0
    reconciles: int = 0


class Targets:
    """Watches PodGroups and acts on their targets. synced: whether all have been listed.

    untargeted: called with each PodGroup that is gone or whose target does not suspend anything; gone: with those that are gone.
    serves: whether this release acts on the PodGroups of a queue.
    """

    def __init__(
        self,
        client: Client,
        jobs: Jobs,
        workloads: Mapping[tuple[str, str], Workload],
        faults: Faults | None = None,
        *,
        serves: Serves = everything,
    ) -> None:
        self._serves = serves
        self.client = client
        self.workloads = workloads
        self.jobs = jobs
        self.counters = Counters()
        self.synced = False
        self.untargeted: Callable[[str], None] = lambda _: None
        self.gone: Callable[[str], None] = lambda _: None
        self._groups: dict[str, views.PodGroup] = {}
        self.faults = faults or Faults(client)
        self.queue = WorkQueue(self._reconcile, site="targets", report=self._fault)
        take = self.faults.each("targets.observed", self._changed, _ABOUT)
        self.informer = Informer(client, _GROUPS, views.PodGroup, take, self._listed)

    def _fault(self, site: str, key: str, error: Exception) -> None:
        group = self._groups.get(key)
        self.faults.note(site, key, error, _ABOUT, group.metadata.uid if group is not None else "")

    def _listed(self) -> None:
        self.synced = True
        log.info("synced", groups=len(self._groups))
        self.jobs.groups_listed()

    def hands_changed(self) -> None:
        """It is known which PodGroups are served, or others are."""
        for key, group in self._groups.items():
            if group.status is not None and group.status.target is not None:
                self.queue.add(key)

    def _changed(self, change: Change[views.PodGroup]) -> None:
        if change.view is None:
            self._groups.pop(change.key, None)
            self.jobs.group_changed(change.key, None)
            self.untargeted(change.key)
            self.gone(change.key)
        elif change.error:
            log.error("PodGroup cannot be read", group=change.key, error=change.error)
        else:
            self._groups[change.key] = change.view
            self.jobs.group_changed(change.key, change.view)
            target = change.view.status.target if change.view.status is not None else None
            if target is not None:
                self.queue.add(change.key)
            if target is None or target.state != SUSPENDED:
                self.untargeted(change.key)

    async def _reconcile(self, key: str) -> None:
        """Bring the objects that own one PodGroup's pods to its target state."""
        group = self._groups.get(key)
        target = group.status.target if group is not None and group.status is not None else None
        if group is None or target is None or not self._serves(group.metadata.namespace, group.spec.queue):
            return
        self.counters.reconciles += 1
        for owner in target.owners or ():
            await self._act(group, owner, target)
        if target.state == RUNNING and not target.nodes and names.MADE_FOR_LABEL in (group.metadata.labels or {}):
            await self._discard(group)

    async def _act(self, group: views.PodGroup, owner: TargetOwner | views.OwnerReference, target: views.GroupTarget) -> None:
        if (owner.api_version, owner.kind) == (names.API_VERSION, "AIJob"):
            return  # its own controller acts on the target
        workload = self.workloads.get((owner.api_version, owner.kind))
        if workload is None or not workload.suspend_at:
            log.error("this kind cannot be suspended", group=group.metadata.key, kind=f"{owner.api_version} {owner.kind}")
            return
        path = workload.path(group.metadata.namespace, owner.name)
        manifest = await self._read(path)
        if manifest is None or owner.uid not in (manifest["metadata"].get("uid"), grouping.uid_by_name(owner.kind, owner.name)):
            return  # it is gone, and its PodGroup goes with it
        above = next((each for each in manifest["metadata"].get("ownerReferences") or () if each.get("controller")), None)
        if above is not None and (above.get("apiVersion"), above.get("kind")) in self.workloads:
            # The object that made it would resume it: that one is suspended instead.
            higher = views.OwnerReference(
                api_version=above["apiVersion"], kind=above["kind"], name=above["name"], uid=above["uid"], controller=True
            )
            await self._act(group, higher, target)
            return
        suspends = target.state == SUSPENDED
        patch = workload.to_suspend(manifest, target.epoch, group.metadata.name) if suspends else workload.to_resume(manifest)
        if patch is None:
            if suspends and not workload.suspendable(manifest):
                log.warning("this object cannot be suspended", workload=f"{owner.kind}/{group.metadata.namespace}/{owner.name}")
            return
        patch["metadata"]["resourceVersion"] = manifest["metadata"]["resourceVersion"]
        await self.client.patch(path, encode(patch), _MERGE)
        if "spec" in patch:
            self.counters.suspended += suspends
            self.counters.resumed += not suspends
            log.info("suspended" if suspends else "resumed", workload=f"{owner.kind}/{group.metadata.namespace}/{owner.name}")

    async def _read(self, path: str) -> Manifest | None:
        try:
            manifest: Manifest = msgspec.json.decode(await self.client.get(path))
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return manifest

    async def _discard(self, group: views.PodGroup) -> None:
        """Delete a PodGroup that was made to store a target state and is no longer needed.

        While it names places it is: a scheduler that starts anew reserves them again.
        """
        metadata = group.metadata
        path = f"/apis/{names.API_VERSION}/namespaces/{metadata.namespace}/podgroups/{metadata.name}"
        conditions = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        try:
            await self.client.delete(path, encode(body))
        except ApiError as error:
            if error.code not in (404, 409):  # gone already, or it changed: then it is reconciled again
                raise
