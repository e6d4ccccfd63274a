"""What is written on nodes that are reconfigured: taint, labels and record in one patch, events, and the pools' conditions.

A patch names the version of the node that the decision was made on: the API server refuses it once anything else was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes import conditions, events
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.listing import list_all
from fairlead.cluster.times import timestamp
from fairlead.core.mig.planner import ConfigState
from fairlead.core.mig.reconfiguration import CORDONED, Decision, Outcome, Record
from fairlead.operator.jobs.evidence import Rules
from fairlead.operator.mig.observed import facts, label

log = structlog.get_logger("mig")

CONDITION = "MigReconfiguration"
_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
_MERGE = "application/merge-patch+json"
_MANAGER = "fairlead-mig"
_OURS = "mig-manager"  # how the reasons of our quarantines begin
_MOST_REASON = 1000
_MOST_EVENTS = 16  # pods of a reconfiguration that get an event
_BLAMED = (Outcome.FAILED, Outcome.HUNG)
_WARNED = frozenset({Outcome.FAILED, Outcome.HUNG, Outcome.MISMATCHED})
_CONFLICT, _GONE = 409, 404

Manifest = dict[str, Any]


class Writer:
    """Writes. speed: of the client's clock against the loop's."""

    def __init__(self, client: Client, speed: float = 1.0) -> None:
        self.client = client
        self.speed = speed
        self.quarantine = Rules().quarantine

    async def busy(self, node: str) -> bool:
        """Whether a pod on a node is a client of its GPUs, as the API server knows it now. Raises `ApiError`, `Unreachable`."""
        unread: list[str] = []
        found = await list_all(self.client, _PODS, views.Pod, fields=f"spec.nodeName={node}", unread=unread)
        return bool(unread) or any(pod.busy for pod in map(facts, found) if pod is not None)

    async def write(self, node: views.Node, decision: Decision) -> views.Node | None:
        """Write a decision; None: the node changed meanwhile, or is gone. Raises `ApiError`, `Unreachable`."""
        path = f"{_NODES}/{node.metadata.name}"
        try:
            raw: Manifest = msgspec.json.decode(await self.client.get(path))
            if raw["metadata"].get("resourceVersion") != node.metadata.resource_version:
                return None
            patch = _patch(node, raw, decision, self.client.clock() + self.quarantine)
            reply = await self.client.patch(path, encode(patch), _MERGE)
        except ApiError as error:
            if error.code in (_CONFLICT, _GONE):
                return None
            raise
        return msgspec.json.decode(reply, type=views.Node)

    async def report(self, node: views.Node, decision: Decision, *, label_written: bool) -> None:
        """An event on a node about a step that matters to an administrator."""
        if decision.outcome is None and not label_written:
            return
        reason = "Applying" if decision.outcome is None else str(decision.outcome)
        metadata = node.metadata
        about = {"apiVersion": "v1", "kind": "Node", "namespace": "default", "name": metadata.name, "uid": metadata.uid}
        await self._event(about, f"MigReconfiguration{reason}", decision.message, warning=decision.outcome in _WARNED)

    async def event_on_pods(self, node: str, record: Record, uids: Mapping[str, str]) -> None:
        """An event on the first pods that a node is reconfigured for. uids: by key, empty where it is not known."""
        note = f"node {node} is idle and is reconfigured from {record.before!r} to {record.to!r} for this pod"
        for key in record.pods[:_MOST_EVENTS]:
            namespace, _, name = key.partition("/")
            about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name}
            about |= {"uid": uids[key]} if uids.get(key) else {}
            await self._event(about, "NodeReconfiguring", note, warning=False)

    async def condition(self, pool: str, state: tuple[bool, str] | None) -> None:
        """Whether a pool's policy can be acted on; None: it has none."""
        made = []
        if state is not None:
            holds, message = state
            reason, since = "Allowed" if holds else "Invalid", timestamp(self.client.clock())
            made = [conditions.condition(CONDITION, holds=holds, reason=reason, message=message, since=since)]
        await conditions.apply(self.client, "nodepools", pool, made, _MANAGER)

    async def _event(self, about: Mapping[str, str], reason: str, note: str, *, warning: bool) -> None:
        who = {"controller": "fairlead.dev/operator", "instance": names.lease(names.release(), "operator")}
        await events.write(self.client, about, reason, note, action="Reconfiguring", warning=warning, **who)


def _patch(node: views.Node, raw: Manifest, decision: Decision, until: float) -> Manifest:
    """What a decision makes of a node. raw: the whole of it; until: when a quarantine that begins now ends."""
    record = decision.record
    cordoned = record is not None and record.phase in CORDONED
    labels: Manifest = {names.MIG_PHASE_LABEL: str(record.phase) if record is not None and cordoned else None}
    annotations: Manifest = {names.MIG_RECORD_ANNOTATION: encode(record).decode() if record is not None else None}
    if decision.apply and record is not None:
        # The state is of the configuration before until mig-manager begins: it is made that of this one at once.
        labels |= {names.MIG_CONFIG_LABEL: record.to, names.MIG_STATE_LABEL: str(ConfigState.PENDING)}
    why = (node.metadata.annotations or {}).get(names.QUARANTINE_REASON_ANNOTATION, "")
    quarantined = bool(label(node, names.QUARANTINED_LABEL))
    if decision.outcome in _BLAMED and not quarantined:
        labels[names.QUARANTINED_LABEL] = "true"
        annotations[names.QUARANTINED_UNTIL_ANNOTATION] = timestamp(until)
        annotations[names.QUARANTINE_REASON_ANNOTATION] = decision.message[:_MOST_REASON]
    elif not cordoned and quarantined and why.startswith(_OURS):
        labels[names.QUARANTINED_LABEL] = None
        annotations |= dict.fromkeys((names.QUARANTINED_UNTIL_ANNOTATION, names.QUARANTINE_REASON_ANNOTATION))
    # The list is replaced whole: other taints stay with all of their fields.
    kept = [each for each in raw.get("spec", {}).get("taints") or () if each.get("key") != names.MIG_TAINT]
    if record is not None and cordoned:
        kept.append({"key": names.MIG_TAINT, "value": record.to[:63], "effect": "NoSchedule"})
    return {
        "metadata": {"resourceVersion": node.metadata.resource_version, "labels": labels, "annotations": annotations},
        "spec": {"taints": kept or None},
    }
