"""Bad hardware: nodes that are lost, and nodes on which jobs fail again and again.

A node that is not Ready for some seconds, or was there and is gone, counts as lost: its pods' jobs do not wait for the minutes
after which Kubernetes takes them. Each failure of a member is noted on its node, in an annotation that outlives the operator.
When several within a window are noted, of more than one user's jobs, the node gets a label that keeps gangs off, until its time
is over or somebody takes the label away. One user's failures alone never suffice, a job without GPUs says nothing of a node with
GPUs, and at most a tenth of a pool is quarantined at a time (one node of a smaller pool, none of a pool of one). That a node was
lost counts once, however many jobs it took with it.
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
from fairlead.core.pools import labelled
from fairlead.operator.faults import About, Faults
from fairlead.operator.workqueue import WorkQueue

log = structlog.get_logger("hardware")

_NODES = "/api/v1/nodes"
_MERGE = "application/merge-patch+json"
_ABOUT = About("v1", "Node")
_MOST_NOTED = 20  # failures on one node
_MOMENT = 1.0  # seconds that a clock may be behind a timer
_SAME_LOSS = 60.0  # seconds within which all jobs that a node took with it lost it at once
LOST = "(lost)"


class Rules(msgspec.Struct, frozen=True):
    """When a node counts as lost, and when it is quarantined. Seconds, and failures.

    doubt: for so long a pod that was made after its node was lost is thought to run: whoever bound it there had heard of it.
    """

    lost_after: float = 10.0
    doubt: float = 120.0
    failures: int = 3
    jobs: int = 2
    users: int = 2
    most: float = 0.1  # of a pool
    window: float = 3600.0
    quarantine: float = 6 * 3600.0


class _NodeStatus(msgspec.Struct):
    conditions: list[views.Condition] = []
    allocatable: dict[str, str | int] = {}


class _Node(msgspec.Struct):
    metadata: views.Metadata
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    @property
    def ready(self) -> bool:
        """Whether its kubelet is heard of; one that never said anything is not lost."""
        said = next((each.status for each in self.status.conditions if each.type == "Ready"), "True")
        return said == "True"

    @property
    def gpus(self) -> bool:
        """Whether it has any."""
        return any(self.status.allocatable.get(each, "0") not in ("0", 0) for each in names.GPU_RESOURCES)


class Failure(msgspec.Struct, frozen=True):
    """One failure that is noted on a node: when, of which job (`namespace/name`), or that the node was lost (`LOST`).

    user: whose job it was; empty: its namespace is its user.
    """

    at: float
    job: str
    user: str = ""

    @property
    def who(self) -> str:
        """The user."""
        return self.user or self.job.partition("/")[0]


def noted(annotation: str) -> list[Failure]:
    """What a node's annotation says; what cannot be read is left out."""
    found = []
    for part in annotation.split(","):
        time, _, rest = part.strip().partition(" ")
        job, _, user = rest.partition(" ")
        if job and (at := seconds(time)):
            found.append(Failure(at, job, user.replace("%2C", ",").replace("%25", "%")))
    return found


def shown(failures: Sequence[Failure]) -> str:
    """The annotation that says so."""
    return ",".join(f"{timestamp(each.at)} {each.job} {_quoted(each.user)}".rstrip() for each in failures[-_MOST_NOTED:])


def _quoted(user: str) -> str:
    return user.replace("%", "%25").replace(",", "%2C")


def quarantines(failures: Sequence[Failure], now: float, rules: Rules) -> bool:
    """Whether these are enough to keep gangs off a node."""
    late = [each for each in failures if now - each.at <= rules.window]
    different = {each.at if each.job == LOST else each.job for each in late}
    users = {each.at if each.job == LOST else each.who for each in late}
    return len(late) >= rules.failures and len(different) >= rules.jobs and len(users) >= rules.users


class Hardware:
    """Watches nodes.

    lost: hears of nodes that are lost. listed: called once all are known. speed: of the client's clock against the loop's.
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
    ) -> None:
        self.client = client
        self.rules = rules or Rules()
        self.speed = speed
        self.faults = faults or Faults(client, speed=speed)
        self.queue = WorkQueue(self._release, workers=1, site="nodes", report=self._fault)  # of nodes whose quarantine is over
        self._lost = lost
        self._nodes: dict[str, _Node] = {}
        self._silent: set[str] = set()  # not Ready, but not for long enough yet
        self._down: dict[str, float] = {}  # since when they count as lost
        self._doubted: set[str] = set()  # of these, with pods that were bound since
        self._noting = asyncio.Lock()  # a note is added to those that are there
        heard = self.faults.each("nodes.heard", self._changed, _ABOUT)
        self.informer = Informer(client, _NODES, _Node, heard, listed, key=lambda metadata: metadata.name)

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
            self._silent.discard(change.key)
            self._down[change.key] = self.client.clock()
            self._lost(change.key)
            return
        self._nodes[change.key] = node
        if node.ready:
            self._down.pop(change.key, None)
            self._silent.discard(change.key)
        elif change.key not in self._silent and change.key not in self._down:
            self._silent.add(change.key)
            asyncio.get_running_loop().call_later(self.rules.lost_after / self.speed, self._give_up, change.key)
        self._release_in_time(change.key, node)

    def _give_up(self, name: str) -> None:
        if name in self._silent:
            self._silent.discard(name)
            self._down[name] = self.client.clock()
            log.warning("node is lost", node=name)
            self._lost(name)

    # -- quarantine ----------------------------------------------------------------------------

    async def blame(self, name: str, job: str, why: str, *, lost: bool, user: str = "", gpus: bool = True) -> bool:
        """Note a failure on a node, and whether it is quarantined for that. That it cannot be noted is logged, no more.

        user: whose job it is; gpus: whether the member that failed had any.
        """
        async with self._noting:
            return await self._note(name, job, why, lost, user, gpus)

    def _full(self, node: _Node) -> bool:
        """Whether as many of its pool are quarantined as may be."""
        pool = labelled(node.metadata.labels or {})
        theirs = [each.metadata.labels or {} for each in self._nodes.values()]
        theirs = [labels for labels in theirs if labelled(labels) == pool]
        most = max(int(len(theirs) * self.rules.most), 1 if len(theirs) > 1 else 0)
        return sum(names.QUARANTINED_LABEL in labels for labels in theirs) >= most

    async def _note(self, name: str, job: str, why: str, lost: bool, user: str, gpus: bool) -> bool:
        node, now = self._nodes.get(name), self.client.clock()
        if node is None or (node.gpus and not gpus and not lost):
            return False
        known = noted((node.metadata.annotations or {}).get(names.FAILURES_ANNOTATION, ""))
        if lost and any(each.job == LOST and now - each.at <= _SAME_LOSS for each in known):
            return False
        failures = [each for each in known if now - each.at <= self.rules.window] + [
            Failure(now, LOST) if lost else Failure(now, job, user)
        ]
        annotations: dict[str, str] = {names.FAILURES_ANNOTATION: shown(failures)}
        labels: dict[str, str] = {}
        already = names.QUARANTINED_LABEL in (node.metadata.labels or {})
        if quarantines(failures, now, self.rules) and not already and not self._full(node):
            labels[names.QUARANTINED_LABEL] = "true"
            annotations[names.QUARANTINED_UNTIL_ANNOTATION] = timestamp(now + self.rules.quarantine)
        if not await self._patch(name, {"labels": labels, "annotations": annotations}):
            return False
        metadata = msgspec.structs.replace(
            node.metadata,
            labels={**(node.metadata.labels or {}), **labels},
            annotations={**(node.metadata.annotations or {}), **annotations},
        )
        self._nodes[name] = msgspec.structs.replace(node, metadata=metadata)  # what comes next counts this one, too
        if labels:
            jobs = ", ".join(sorted({each.job for each in failures}))
            message = f"{len(failures)} failures of {jobs} within {self.rules.window:g} s, the last: {why}; gangs are kept off"
            log.warning("node is quarantined", node=name, failures=len(failures), jobs=jobs)
            await self._tell(node, "Quarantined", message)
        return bool(labels)

    def _release_in_time(self, name: str, node: _Node) -> None:
        until = seconds((node.metadata.annotations or {}).get(names.QUARANTINED_UNTIL_ANNOTATION))
        if names.QUARANTINED_LABEL not in (node.metadata.labels or {}) or not until:
            return
        left = max(0.0, until - self.client.clock())
        asyncio.get_running_loop().call_later(left / self.speed, self.queue.add, name)

    async def _release(self, name: str) -> None:
        """Its time is over, unless it was quarantined anew or released by somebody meanwhile."""
        node = self._nodes.get(name)
        if node is None or names.QUARANTINED_LABEL not in (node.metadata.labels or {}):
            return
        until = seconds((node.metadata.annotations or {}).get(names.QUARANTINED_UNTIL_ANNOTATION))
        if not until or self.client.clock() < until - _MOMENT:
            return
        metadata = {
            "labels": {names.QUARANTINED_LABEL: None},
            "annotations": {names.QUARANTINED_UNTIL_ANNOTATION: None, names.FAILURES_ANNOTATION: None},
        }
        try:
            await self.client.patch(f"{_NODES}/{name}", encode({"metadata": metadata}), _MERGE)
        except ApiError as error:
            if error.code != 404:
                raise
            return
        await self._tell(node, "Released", "its quarantine is over", warning=False)

    async def _patch(self, name: str, metadata: Mapping[str, Any]) -> bool:
        try:
            await self.client.patch(f"{_NODES}/{name}", encode({"metadata": metadata}), _MERGE)
        except (ApiError, Unreachable) as error:
            log.warning("not noted on the node", node=name, error=str(error)[:300])
            return False
        return True

    async def _tell(self, node: _Node, reason: str, message: str, *, warning: bool = True) -> None:
        # Events about what has no namespace are kept in `default`.
        about = {"apiVersion": "v1", "kind": "Node", "namespace": "default", "name": node.metadata.name, "uid": node.metadata.uid}
        who = {"controller": "fairlead.dev/operator", "instance": "fairlead-operator"}
        await events.write(self.client, about, reason, message, action=reason, warning=warning, **who)
