"""Conditions of upstream's PodGroups: the state of the gang that represents one is written to it, in upstream's terms.

`PodGroupScheduled` is True once as many members as are needed have nodes, False with the reason while they wait;
`DisruptionTarget` reports that the gang was preempted, and for which job. The group's maker (a Job's or a JobSet's controller)
reads them as if kube-scheduler had written them. Source of the contract: `scheduling.k8s.io/v1alpha2`, Kubernetes 1.36.
"""

from __future__ import annotations

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.common import Condition
from fairlead.api.reasons import ReasonCode
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.times import timestamp
from fairlead.cluster.translate import Change
from fairlead.operator.faults import About, Faults
from fairlead.operator.releases import Serves, everything
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("upstream")

SCHEDULED, DISRUPTED = "PodGroupScheduled", "DisruptionTarget"
_MANAGER = "fairlead"
_ABOUT = About(names.API_VERSION, "PodGroup")
_MOST_TEXT = 32768  # bytes of a message, as its definition has it
_ERRORS = (ReasonCode.INVALID_SPEC, ReasonCode.UNKNOWN_QUEUE, ReasonCode.OTHER_SCHEDULER, ReasonCode.UNKNOWN_CLASS)


class _Reason(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    phase: str = "Pending"
    scheduled: int = 0
    succeeded: int = 0
    reason: _Reason | None = None
    conditions: list[Condition] = []


class _Spec(msgspec.Struct, rename="camel"):
    min_member: int = 1
    queue: str | None = None


class Gang(msgspec.Struct):
    """A PodGroup of ours, as far as it counts here."""

    metadata: views.Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Theirs(msgspec.Struct):
    metadata: views.Metadata
    status: _Status = msgspec.field(default_factory=_Status)


def conditions_of(gang: Gang) -> list[Condition]:
    """The conditions of a gang, without times: the writer sets them. A gang that has run to its end has none."""
    found: list[Condition] = []
    status = gang.status
    if status.phase == "Scheduled":
        message = f"{status.scheduled} of {gang.spec.min_member} members have nodes"
        if status.succeeded:
            message += f", {status.succeeded} succeeded"
        found.append(Condition(type=SCHEDULED, status="True", reason="Scheduled", message=message))
    elif status.reason is not None and not status.scheduled:
        reason = "SchedulerError" if status.reason.code in _ERRORS else "Unschedulable"
        message = f"{status.reason.code}: {status.reason.message}"[:_MOST_TEXT]
        found.append(Condition(type=SCHEDULED, status="False", reason=reason, message=message))
    found += [each for each in status.conditions if each.type == DISRUPTED]
    return found


class Upstream:
    """Writes them while it runs. written: how often. serves: whether this release does so for the gangs of a queue."""

    def __init__(self, client: Client, faults: Faults | None = None, *, serves: Serves = everything) -> None:
        self._serves = serves
        self.client = client
        self.written = 0
        self.faults = faults or Faults(client)
        self.queue = WorkQueue(self._reconcile, site="upstream", report=self._fault)
        path, take = f"/apis/{names.API_VERSION}/podgroups", self.faults.each("upstream.observed", self._observed, _ABOUT)
        self.informer = Informer(client, path, Gang, take, lambda: None, selector=names.UPSTREAM_LABEL)
        self._gangs: dict[str, Gang] = {}

    def _fault(self, site: str, key: str, error: Exception) -> None:
        gang = self._gangs.get(key)
        self.faults.note(site, key, error, _ABOUT, gang.metadata.uid if gang is not None else "")

    def hands_changed(self) -> None:
        """It is known which gangs are served, or others are."""
        for key in self._gangs:
            self.queue.add(key)

    def _observed(self, change: Change[Gang]) -> None:
        if change.view is None:
            self._gangs.pop(change.key, None)
        elif change.error:
            log.error("PodGroup cannot be read", group=change.key, error=change.error)
        else:
            self._gangs[change.key] = change.view
            self.queue.add(change.key)

    async def _reconcile(self, key: str) -> None:
        """Write the conditions of the group that one gang represents."""
        gang = self._gangs.get(key)
        if gang is None or not (wanted := conditions_of(gang)) or not self._serves(gang.metadata.namespace, gang.spec.queue):
            return
        owner = next((each for each in gang.metadata.owner_references or () if each.controller), None)
        if owner is None:
            return
        path = f"/apis/{owner.api_version}/namespaces/{gang.metadata.namespace}/podgroups/{owner.name}"
        try:
            theirs = msgspec.json.decode(await self.client.get(path), type=_Theirs)
            if theirs.metadata.uid == owner.uid:
                await self._write(path, owner, theirs, wanted)
        except ApiError as error:
            if error.code not in (404, 409):  # gone, and ours goes with it; or a new one of its name
                raise

    async def _write(self, path: str, owner: views.OwnerReference, theirs: _Theirs, wanted: list[Condition]) -> None:
        old = {each.type: each for each in theirs.status.conditions}
        now = timestamp(self.client.clock())
        current = []
        for each in wanted:
            before = old.get(each.type)
            since = before.last_transition_time if before is not None and before.status == each.status else now
            current.append(msgspec.structs.replace(each, last_transition_time=since))
        if all(old.get(each.type) == each for each in current):
            return
        # A condition of ours that is not written now stays: a server-side apply names all fields that its manager owns.
        kept = [
            each for kind, each in old.items() if kind in (SCHEDULED, DISRUPTED) and kind not in {new.type for new in current}
        ]
        metadata = {"name": owner.name, "namespace": theirs.metadata.namespace, "uid": owner.uid}
        body = {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "metadata": metadata,
            "status": {"conditions": [*current, *kept]},
        }
        await self.client.apply(f"{path}/status", encode(body), _MANAGER)
        self.written += 1
