"""Bad hardware: nodes that are lost, and nodes that are blamed and kept free of gangs for a while.

A node that is not Ready for some seconds, or was there and is gone, counts as lost: its pods' jobs do not wait for the minutes
after which Kubernetes takes them. What speaks against a node (`evidence.py`; failures of members are weighed by `runs.py`) is
noted on it, in an annotation that outlives the operator. When it is enough, the node gets a label that keeps gangs off, until its
time is over or the label is removed, which forgets what was noted. At most a tenth of a pool is quarantined at a time
(one node of a smaller pool, none of a pool of one).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes import events
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.times import seconds, timestamp
from fairlead.cluster.translate import Change
from fairlead.core.mig.parts import counts
from fairlead.core.model.charges import labelled
from fairlead.observability.prometheus import Prometheus
from fairlead.operator.faults import About, Faults
from fairlead.operator.jobs import device_errors, evidence
from fairlead.operator.jobs.evidence import CONDITION, DEVICE, LOST, RAN_ELSEWHERE, REFUSED, Failure, Rules
from fairlead.operator.jobs.pods import PodSeen
from fairlead.operator.jobs.runs import News, Run, Runs
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("hardware")

_NODES = "/api/v1/nodes"
_MERGE = "application/merge-patch+json"
_ABOUT = About("v1", "Node")
_MOMENT = 1.0  # seconds that a clock may be behind a timer
_SAME_LOSS = 60.0  # seconds within which all jobs that a node took with it lost it at once
_TICK = 15.0  # seconds between two checks of failures of which nothing is known yet
_MOST_REASON = 1000  # characters of a reason
_LIKE = ("node.kubernetes.io/instance-type", "kubernetes.io/arch", "nvidia.com/gpu.product", "amd.com/gpu.product-name")
"""Labels in which nodes that are compared agree, beside their pool and how many GPUs they have."""

CONDITIONS = (
    *("KernelDeadlock=True", "ReadonlyFilesystem=True", "XfsShutdown=True", "CperHardwareErrorFatal=True"),
    *("CorruptDockerOverlay2=True", "FrequentKubeletRestart=True", "FrequentContainerdRestart=True"),
    *("GPUMissing=True", "XIDErrors=True", "NVLinkStatusInactive=True", "UnhealthyNvidiaDevicePlugin=True"),
    *("AcceleratedHardwareReady=False", "KernelReady=False", "StorageReady=False", "ContainerRuntimeReady=False"),
)
"""Conditions that report a broken node: those of node-problem-detector and of providers' agents."""


class _NodeStatus(msgspec.Struct):
    conditions: list[views.Condition] = []
    allocatable: dict[str, str | int] = {}


class _Node(msgspec.Struct):
    metadata: views.Metadata
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    @property
    def ready(self) -> bool:
        """Whether its kubelet reports; a node whose kubelet never reported is not lost."""
        status = next((each.status for each in self.status.conditions if each.type == "Ready"), "True")
        return status == "True"

    @property
    def gpus(self) -> bool:
        """Whether it has any, or partitions or replicas of some."""
        return any(self._offers(each) for each in (*names.GPU_RESOURCES, *self._parts))

    @property
    def _parts(self) -> list[str]:
        """Resources that count as parts of a GPU."""
        return sorted(
            each for each in self.status.allocatable if each not in names.GPU_RESOURCES and counts(each, names.GPU_PARTS)
        )

    def _offers(self, resource: str) -> str:
        amount = str(self.status.allocatable.get(resource, "0"))
        return "" if amount == "0" else amount

    @property
    def group(self) -> str:
        """Equal for nodes that are alike, as far as can be seen."""
        labels = self.metadata.labels or {}
        offers = [self._offers(each) for each in names.GPU_RESOURCES]
        parts = [f"{each}={self._offers(each)}" for each in self._parts]
        return "/".join([labelled(labels), *(labels.get(each, "") for each in _LIKE), *offers, *parts])

    @property
    def quarantined(self) -> bool:
        """Whether it has the label."""
        return names.QUARANTINED_LABEL in (self.metadata.labels or {})

    def annotation(self, name: str) -> str:
        """An annotation; empty where it is not there."""
        return (self.metadata.annotations or {}).get(name, "")


class Hardware:
    """Watches nodes.

    lost: called with each lost node. listed: called once all are known. speed: of the client's clock against the loop's.
    conditions: `TYPE=STATUS` of those that report a broken node.
    """

    def __init__(
        self,
        client: Client,
        lost: Callable[[str], None],
        listed: Callable[[], None],
        *,
        speed: float = 1.0,
        rules: Rules | None = None,
        faults: Faults | None = None,
        prometheus: Prometheus | None = None,
        conditions: Sequence[str] = CONDITIONS,
    ) -> None:
        self.client = client
        self.rules = rules or Rules()
        self.speed = speed
        self.faults = faults or Faults(client, speed=speed)
        self.queue = WorkQueue(
            self._reconcile, workers=1, site="nodes", report=self._fault
        )  # of nodes at which something is to be done
        self.runs = Runs()
        self.devices = device_errors.DeviceErrors(prometheus, self._nodes_known, self._device_failed, speed=speed)
        self.quarantined = 0
        self._news: list[News] = []  # that came of jobs which are over
        self._conditions = frozenset(conditions)
        self._lost = lost
        self._nodes: dict[str, _Node] = {}
        self._silent: set[str] = set()  # not Ready, but not for long enough yet
        self._down: dict[str, float] = {}  # since when they count as lost
        self._doubted: set[str] = set()  # of these, with pods that were bound since
        self._released: dict[str, float] = {}  # when the label was removed
        self._noting = asyncio.Lock()  # a note is added to those that are there
        take = self.faults.each("nodes.observed", self._changed, _ABOUT)
        self.informer = Informer(client, _NODES, _Node, take, listed, key=lambda metadata: metadata.name)

    def _nodes_known(self, name: str) -> bool:
        return name in self._nodes

    def _fault(self, site: str, key: str, error: Exception) -> None:
        self.faults.note(site, key, error, _ABOUT)

    def is_lost(self, node: str, made: float) -> bool:
        """Whether a pod there, made at a time, does not run any more, for all that is known."""
        since = self._down.get(node)
        if since is None:
            return False
        if made <= since or self.client.clock() >= made + self.rules.doubt:
            return True
        if node not in self._doubted:
            self._doubted.add(node)
            asyncio.get_running_loop().call_later((self.rules.doubt + _MOMENT) / self.speed, self._doubt_no_more, node)
        return False

    def _doubt_no_more(self, node: str) -> None:
        self._doubted.discard(node)
        if node in self._down:
            self._lost(node)

    def _changed(self, change: Change[_Node]) -> None:
        node = change.view
        if node is None:
            self._nodes.pop(change.key, None)
            self.runs.node(change.key, None)
            self.runs.forget(change.key)
            self._silent.discard(change.key)
            self._released.pop(change.key, None)
            self._down[change.key] = self.client.clock()
            self._lost(change.key)
            return
        old = self._nodes.get(change.key)
        if old is not None and _older(node.metadata, old.metadata):
            return  # the answer to a write was a later version
        self._nodes[change.key] = node
        self.runs.node(change.key, node.group)
        if node.ready:
            self._down.pop(change.key, None)
            self._silent.discard(change.key)
        elif change.key not in self._silent and change.key not in self._down:
            self._silent.add(change.key)
            asyncio.get_running_loop().call_later(self.rules.lost_after / self.speed, self._give_up, change.key)
        self._was_released(change.key, old, node)
        self._release_in_time(change.key, node)
        if self._broken(node):
            self.queue.add(change.key)

    def _give_up(self, name: str) -> None:
        if name in self._silent:
            self._silent.discard(name)
            self._down[name] = self.client.clock()
            log.warning("node is lost", node=name)
            self._lost(name)

    # -- members that run --------------------------------------------------------------------------

    def observed(self, run: Run, *, gpus: bool) -> None:
        """A member that runs or has ended; gpus: whether it has any: one without is no evidence about a node with GPUs."""
        node = self._nodes.get(run.node)
        if node is not None and (gpus or not node.gpus):
            self.runs.observed(run)

    def gone(self, job: str, pod: PodSeen) -> None:
        """A member is no more, or its node is lost."""
        self.runs.gone(job, (pod.element, pod.role, pod.index, pod.attempt), self.client.clock())

    def over(self, job: str) -> None:
        """A job has come to its end, or is gone."""
        self._news.append(self.runs.over(job, self.client.clock()))

    # -- what speaks against a node ------------------------------------------------------------

    async def run(self) -> None:
        """Judge failures of members until cancelled: whether the same work runs elsewhere shows only with time."""
        while True:
            await asyncio.sleep(_TICK / self.speed)
            news, self._news = self._news, []
            if self.runs.waits:
                news.append(self.runs.settle(self.client.clock()))
            for each in news:
                await self.learn(each)

    async def learn(self, news: News) -> None:
        """Failures of members that count against nodes now, and those that do not any more."""
        for name, job in news.void:
            async with self._noting:
                await self._take_back(name, job)
        for name, failure in news.counted:
            async with self._noting:
                await self._note(name, failure)

    async def blame(self, name: str, job: str, *, lost: bool, user: str = "", gpus: bool = True) -> None:
        """Note that a node was lost with a job, or that its kubelet refused a member. What cannot be noted is logged, no more.

        user: whose job it is; gpus: whether the member had any: one without is no evidence about a node with GPUs.
        """
        async with self._noting:
            node, now = self._nodes.get(name), self.client.clock()
            if node is None or (node.gpus and not gpus and not lost):
                return
            if lost and any(each.job == LOST and now - each.at <= _SAME_LOSS for each in self._failures(name)):
                return
            await self._note(name, Failure(now, LOST) if lost else Failure(now, job, user, REFUSED))

    async def _device_failed(self, name: str, what: str) -> bool:
        """A device reported an error; whether that is noted: what may be older than the release of its node is not."""
        now = self.client.clock()
        if now - device_errors.NEWS <= self._released_at(name):
            return False
        async with self._noting:
            if not any(each.job == DEVICE and each.how == what for each in self._failures(name)):
                await self._note(name, Failure(now, DEVICE, "", what))
        return True

    def _broken(self, node: _Node) -> str:
        """A condition that reports a broken node, unless it was released since; empty: there is none."""
        released = self._released_at(node.metadata.name)
        for each in node.status.conditions:
            if f"{each.type}={each.status}" in self._conditions and seconds(each.last_transition_time) > released:
                return f"condition {each.type}={each.status}" + (f": {each.message[:200]}" if each.message else "")
        return ""

    def _released_at(self, name: str) -> float:
        node = self._nodes.get(name)
        return max(
            self._released.get(name, 0.0), seconds(node.annotation(names.RELEASED_ANNOTATION)) if node is not None else 0.0
        )

    def _failures(self, name: str) -> list[Failure]:
        """What is noted on a node and was not forgotten."""
        node = self._nodes.get(name)
        if node is None:
            return []
        released = self._released.get(name, 0.0)
        return [each for each in evidence.noted(node.annotation(names.FAILURES_ANNOTATION)) if each.at > released]

    def _full(self, node: _Node) -> bool:
        """Whether as many of its pool are quarantined as may be."""
        pool = labelled(node.metadata.labels or {})
        theirs = [each for each in self._nodes.values() if labelled(each.metadata.labels or {}) == pool]
        most = max(int(len(theirs) * self.rules.most), 1 if len(theirs) > 1 else 0)
        return sum(each.quarantined for each in theirs) >= most

    def _verdict(self, name: str, failures: list[Failure], now: float) -> str:
        """Why a node is to be quarantined; empty: it is not."""
        why = evidence.direct(failures, now, self.rules)
        if why or not any(each.how == RAN_ELSEWHERE for each in failures):
            return why
        group = self._nodes[name].group
        alike = {
            other: self._failures(other)
            for other, each in self._nodes.items()
            if not each.quarantined and each.group == group and each.annotation(names.FAILURES_ANNOTATION)
        }
        alike[name] = failures
        passed = max(self.runs.passed(name, now), *(each.passed for each in failures))
        return evidence.compared(name, alike, self.runs.share_now(name), passed, len(self._nodes), now, self.rules).why

    async def _note(self, name: str, failure: Failure | None) -> None:
        """Add something to what speaks against a node, if anything, and judge it."""
        node, now = self._nodes.get(name), self.client.clock()
        if node is None or (failure is not None and failure.at <= self._released_at(name)):
            return
        clearer = self.runs.shares(name, now)
        known = [*self._failures(name), *([failure] if failure is not None else [])]
        failures = [
            msgspec.structs.replace(each, share=clearer[each.job]) if each.how == RAN_ELSEWHERE and each.job in clearer else each
            for each in evidence.late(known, now, self.rules)
        ]
        annotations: dict[str, str | None] = {names.FAILURES_ANNOTATION: evidence.shown(failures) or None}
        why = "" if node.quarantined or self._full(node) else self._verdict(name, failures, now)
        if why:
            annotations[names.QUARANTINED_UNTIL_ANNOTATION] = timestamp(now + self.rules.quarantine)
            annotations[names.QUARANTINE_REASON_ANNOTATION] = why[:_MOST_REASON]
        if failure is None and not why:
            return
        if not await self._patch(name, {"labels": {names.QUARANTINED_LABEL: "true"} if why else {}, "annotations": annotations}):
            return
        if why:
            self.quarantined += 1
            log.warning("node is quarantined", node=name, why=why)
            await self._write_event(node, "Quarantined", f"{why}; no gang of an AIJob is placed on it")

    async def _take_back(self, name: str, job: str) -> None:
        """A job's failure counts no more."""
        left = [each for each in self._failures(name) if not (each.job == job and each.how == RAN_ELSEWHERE)]
        if len(left) < len(self._failures(name)):
            await self._patch(name, {"annotations": {names.FAILURES_ANNOTATION: evidence.shown(left) or None}})

    # -- the end of a quarantine ---------------------------------------------------------------

    def _was_released(self, name: str, old: _Node | None, node: _Node) -> None:
        """The label was removed, now or while no operator ran: what was noted is forgotten."""
        before = old is not None and old.quarantined
        if not node.quarantined and (before or node.annotation(names.QUARANTINED_UNTIL_ANNOTATION)):
            self._released[name] = self.client.clock()
            self.runs.forget(name)
            self.queue.add(name)

    def _release_in_time(self, name: str, node: _Node) -> None:
        until = seconds(node.annotation(names.QUARANTINED_UNTIL_ANNOTATION))
        if node.quarantined and until:
            left = max(0.0, until - self.client.clock())
            asyncio.get_running_loop().call_later(left / self.speed, self.queue.add, name)

    async def _reconcile(self, name: str) -> None:
        """Forget what was noted on a node that was released, end a quarantine that is over, or begin one for a condition."""
        async with self._noting:
            node, now = self._nodes.get(name), self.client.clock()
            if node is None:
                return
            released = self._released.get(name, 0.0)
            if not node.quarantined and released > seconds(node.annotation(names.RELEASED_ANNOTATION)) + _MOMENT:
                await self._forget(name, {names.RELEASED_ANNOTATION: timestamp(released)})
                return
            broken = self._broken(node)
            until = seconds(node.annotation(names.QUARANTINED_UNTIL_ANNOTATION))
            if node.quarantined and until and now >= until - _MOMENT:
                if broken:
                    more = {names.QUARANTINED_UNTIL_ANNOTATION: timestamp(now + self.rules.quarantine)}
                    await self._patch(name, {"annotations": more}, strict=True)
                elif await self._forget(name, {}, labels={names.QUARANTINED_LABEL: None}):
                    self.runs.forget(name)
                    await self._write_event(node, "Released", "its quarantine is over", warning=False)
                    await self._next_in_pool(node)
            elif broken and not node.quarantined and not any(each.how == broken for each in self._failures(name)):
                await self._note(name, Failure(now, CONDITION, "", broken))

    async def _next_in_pool(self, freed: _Node) -> None:
        """As many as may be were quarantined: another of the pool may have been judged bad meanwhile."""
        pool = labelled(freed.metadata.labels or {})
        for name in sorted(self._nodes):
            node = self._nodes[name]
            if labelled(node.metadata.labels or {}) == pool and node.annotation(names.FAILURES_ANNOTATION):
                await self._note(name, None)

    async def _forget(self, name: str, kept: dict[str, str], labels: Mapping[str, None] | None = None) -> bool:
        gone = (names.QUARANTINED_UNTIL_ANNOTATION, names.QUARANTINE_REASON_ANNOTATION, names.FAILURES_ANNOTATION)
        return await self._patch(
            name, {"labels": dict(labels or {}), "annotations": {**dict.fromkeys(gone), **kept}}, strict=True
        )

    async def _patch(self, name: str, metadata: Mapping[str, Any], *, strict: bool = False) -> bool:
        """Write on a node, and know at once what it is now. strict: raises `ApiError`, `Unreachable` for another try."""
        try:
            reply = await self.client.patch(f"{_NODES}/{name}", encode({"metadata": metadata}), _MERGE)
        except (ApiError, Unreachable) as error:
            gone = isinstance(error, ApiError) and error.code == 404
            if strict and not gone:
                raise
            log.warning("not noted on the node", node=name, error=str(error)[:300])
            return False
        node = self._nodes.get(name)
        if node is not None:
            written = msgspec.json.decode(reply, type=views.OnlyMetadata).metadata
            if not _older(written, node.metadata):
                self._nodes[name] = msgspec.structs.replace(node, metadata=written)
                self._release_in_time(name, self._nodes[name])
        return True

    async def _write_event(self, node: _Node, reason: str, message: str, *, warning: bool = True) -> None:
        # Events about what has no namespace are kept in `default`.
        about = {"apiVersion": "v1", "kind": "Node", "namespace": "default", "name": node.metadata.name, "uid": node.metadata.uid}
        who = {"controller": "fairlead.dev/operator", "instance": names.lease(names.release(), "operator")}
        await events.write(self.client, about, reason, message, action=reason, warning=warning, **who)


def _older(one: views.Metadata, other: views.Metadata) -> bool:
    """Whether one is an earlier version of the same object than the other."""
    first, second = one.resource_version, other.resource_version
    return one.uid == other.uid and first.isdigit() and second.isdigit() and int(first) < int(second)
