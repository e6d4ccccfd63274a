"""The loop that reconfigures idle nodes through mig-manager: it observes, decides by `fairlead.core.mig`, and writes nodes.

Each step takes every node with a record one step on (`reconfiguration.decide`), then searches nodes to reconfigure for what
has waited for long enough (`demand.propose`). Every write on a node carries the version that was
read, so what changed meanwhile makes it fail, and the step is repeated. All state is on the nodes: a restarted operator, or
one that takes over, goes on from there. Nodes and pods are watched from the first pool with a policy on, or the first
record of an earlier time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.kubernetes.listing import list_all
from fairlead.cluster.translate import Change
from fairlead.core.mig import demand
from fairlead.core.mig.demand import Offer, Partitions, Proposal, Wish
from fairlead.core.mig.planner import ConfigState
from fairlead.core.mig.reconfiguration import (
    CORDONED,
    IN_TROUBLE,
    Decision,
    Outcome,
    Phase,
    Record,
    Seen,
    Times,
    begin,
    decide,
    rests,
)
from fairlead.operator.faults import About, Faults
from fairlead.operator.mig import observed, pools
from fairlead.operator.mig.observed import PodFacts, Pods, label, record_of
from fairlead.operator.mig.pools import Pool
from fairlead.operator.mig.writer import Writer
from fairlead.operator.releases import Serves, everything

log = structlog.get_logger("mig")

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
_POOLS = f"/apis/{names.API_VERSION}/nodepools"
_NODE = About("v1", "Node")
_PAUSE = 1.0  # seconds between two steps
_PLAN_EVERY = 5.0  # seconds between two plans
_UNCHANGED = 300.0  # seconds after which is planned again though nothing changed
_RETRY = 5.0  # seconds after which a write that failed is tried again
_PRODUCT = "nvidia.com/gpu.product"
_MOST_FAILURES = 2  # nodes on which a configuration has failed, from which on it is not tried on others
_NO_TIMES = Times()


class MigReconfiguration:
    """Reconfigures nodes while it runs. outcomes: what became of reconfigurations. speed: of the client's clock against
    the loop's. serves: whether this release does so for the pods of a queue.
    """

    def __init__(self, client: Client, *, speed: float = 1.0, faults: Faults | None = None, serves: Serves = everything) -> None:
        self.client = client
        self.speed = speed
        self.faults = faults or Faults(client, speed=speed)
        self.outcomes: Counter[str] = Counter()
        self.pods = Pods()
        self.nodes: dict[str, views.Node] = {}
        self.pools: dict[str, Pool] = {}
        self._serves = serves
        self._writer = Writer(client, speed)
        self._due = asyncio.Event()
        self._planned, self._plan_again, self._news = 0.0, 0.0, True  # news: something changed since the last plan
        self._dirty: set[str] = set()  # nodes that changed, or whose pods did
        self._again: dict[str, float] = {}  # nodes at which something is due, and when
        self._cordoned: set[str] = set()
        self._products: dict[str, set[str]] = {}  # pool -> products of its nodes, for its condition
        self._missing = {"pools", "nodes", "pods"}
        self._needed = False  # nodes and pods are watched
        self._closed, self._busy = False, asyncio.Lock()
        self._reported: dict[str, tuple[bool, str]] = {}

        def of(what: str, path: str, view: type[Any], take: Callable[[Change[Any]], None], kind: About) -> Informer[Any]:
            taken = self.faults.each("mig.observed", take, kind)
            name = (lambda metadata: metadata.key) if what == "pods" else (lambda metadata: metadata.name)
            return Informer(client, path, view, taken, lambda: self._listed(what), key=name)

        self.informers = {
            "pools": of("pools", _POOLS, views.NodePool, self._pool_changed, About(names.API_VERSION, "NodePool")),
            "nodes": of("nodes", _NODES, views.Node, self._node_changed, _NODE),
            "pods": of("pods", _PODS, views.Pod, self._pod_changed, About("v1", "Pod")),
        }

    # -- what is observed ----------------------------------------------------------------------

    def _listed(self, what: str) -> None:
        self._missing.discard(what)
        self._change(*self.nodes)

    def _change(self, *nodes: str) -> None:
        """Nodes are to be checked, and there is news for a plan."""
        self._dirty.update(nodes)
        self._news = True
        self._due.set()

    def hands_changed(self) -> None:
        """It is known which pods are served, or others are."""
        self._change()

    def _pool_changed(self, change: Change[views.NodePool]) -> None:
        if change.view is None:
            self.pools.pop(change.key, None)
            self._reported.pop(change.key, None)
        elif change.error:
            log.error("NodePool cannot be read", pool=change.key, error=change.error)
            return
        else:
            self.pools[change.key] = pools.read(change.view)
        self._products.clear()
        self._change(*self.nodes)

    def _node_changed(self, change: Change[views.Node]) -> None:
        if change.view is None:
            self.nodes.pop(change.key, None)
            self._again.pop(change.key, None)
            self._cordoned.discard(change.key)
        elif not change.error:
            self._take(change.view)
        self._change(change.key)

    def _take(self, node: views.Node) -> None:
        """A node as it was observed or written, unless a later version is known."""
        name, record = node.metadata.name, record_of(node)
        old = self.nodes.get(name)
        if old is not None and _older(node.metadata, old.metadata):
            return
        self.nodes[name] = node
        if old is None or label(old, _PRODUCT) != label(node, _PRODUCT):
            self._products.clear()
        if record is not None and record.phase in CORDONED:
            self._cordoned.add(name)
        else:
            self._cordoned.discard(name)

    def _pod_changed(self, change: Change[views.Pod]) -> None:
        before = self.pods.by_key.get(change.key)
        # One that cannot be read is as it was before: what it holds, it holds.
        if change.view is not None and not change.error:
            now = observed.facts(change.view)
        else:
            now = before if change.view is not None else None
        self.pods.set(change.key, now)
        if (before is None or not (before.wants or before.busy)) and (now is None or not (now.wants or now.busy)):
            return
        places = {each for pod in (before, now) if pod is not None for each in (pod.node, pod.nominated)}
        self._change(*(places - {""}), *self._cordoned)

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Reconfigure until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.faults.kept("mig.watch", self.informers["pools"].run))
            while "pools" in self._missing:
                await self._waits(None)
            self._needed = await self._earlier()
            while not (self._needed or any(pool.policy for pool in self.pools.values())):
                await self._waits(None)
            self._needed = True
            log.info("watching nodes and pods for reconfigurations")
            for what in ("nodes", "pods"):
                group.create_task(self.faults.kept("mig.watch", self.informers[what].run))
            while self._missing:
                await self._waits(None)
            while True:
                async with self._busy:
                    again = await self._step() if not self._closed else None
                await asyncio.sleep(_PAUSE / self.speed)
                await self._waits(again)

    async def _waits(self, seconds: float | None) -> None:
        """Until something changed, or for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds / self.speed if seconds is not None else None):
                await self._due.wait()
        self._due.clear()

    async def drain(self) -> None:
        """Begin nothing more, and return once what is being written is."""
        self._closed = True
        async with self._busy:
            return

    async def _earlier(self) -> bool:
        """Whether nodes have records of a time when a pool had a policy."""
        try:
            return bool(await list_all(self.client, _NODES, views.OnlyMetadata, selector=names.MIG_PHASE_LABEL))
        except ApiError as error:
            log.warning("nodes not listed", error=str(error)[:300])
            return True

    async def _step(self) -> float | None:
        """Take every node one step on, and begin what a plan asks for; seconds until the next step is due."""
        now = self.client.clock()
        for name in sorted(self.pools):
            await self._report(self.pools[name])
        due = self._dirty | {name for name, at in self._again.items() if at <= now}
        self._dirty = set()
        for name in sorted(due & self.nodes.keys()):
            try:
                wait = await self._advance(name, now)
            except (ApiError, Unreachable) as error:
                log.warning("not written on the node", node=name, error=str(error)[:300])
                wait = _RETRY
            except Exception as error:  # noqa: BLE001 - one node's fault stops no other node
                self.faults.note("mig.node", name, error, _NODE)
                wait = 60.0
            if wait is None:
                self._again.pop(name, None)
            else:
                self._again[name] = now + wait
        again = list(self._again.values())
        if self.pods.waiting:
            again.append(await self._plan(now))
        return max(0.0, min(again) - now) if again else None

    # -- one node ------------------------------------------------------------------------------

    def pool_of(self, node: views.Node) -> Pool | None:
        """The first pool that selects a node, if it has a policy that can be acted on."""
        labels = node.metadata.labels or {}
        found = next((self.pools[name] for name in sorted(self.pools) if self.pools[name].selects(labels)), None)
        return found if found is not None and found.policy and not found.mistake else None

    def seen(self, node: views.Node, record: Record | None) -> Seen:
        """A node as `decide` needs it."""
        name, pool = node.metadata.name, self.pool_of(node)
        config = label(node, names.MIG_CONFIG_LABEL)
        known = pool.configs.get(config) if pool is not None else None
        settling = record is not None and record.phase == Phase.SETTLING
        return Seen(
            config=config,
            state=label(node, names.MIG_STATE_LABEL),
            idle=not self.pods.busy(name),
            allowed=pool is not None and (record is None or not settling or record.to in pool.configs),
            wanted=record is not None and any(pod in self.pods.waiting for pod in record.pods),
            offers=None if known is None else observed.offered(node) == dict(known),
            quarantined=bool(label(node, names.QUARANTINED_LABEL)),
            cordoned=observed.is_cordoned(node),
        )

    def _times(self, node: views.Node) -> Times:
        pool = self.pool_of(node)
        return pool.times if pool is not None else _NO_TIMES

    async def _advance(self, name: str, now: float) -> float | None:
        """One step of one node; seconds until the next is due."""
        node = self.nodes[name]
        record, pool = record_of(node), self.pool_of(node)
        if record is None and pool is None and not observed.is_cordoned(node):
            return None
        decision = decide(record, self.seen(node, record), self._times(node), now)
        if decision.record is record:
            return decision.again
        if decision.apply and await self._writer.busy(name):
            # What the watch has not delivered yet: the label is not written.
            before, last = (record.before, record.last) if record is not None else ("", 0.0)
            abandoned = Record(Phase.DONE, before, since=now, last=last)
            decision = Decision(abandoned, outcome=Outcome.ABANDONED, message="a pod was placed on its GPUs a moment ago")
        return await self._write(node, record, decision)

    async def _write(self, node: views.Node, before: Record | None, decision: Decision) -> float:
        written = await self._writer.write(node, decision)
        if written is None:
            return _RETRY
        self._take(written)
        if decision.outcome is not None:
            self.outcomes[decision.outcome] += 1
        started = before is not None and before.phase == Phase.SETTLING
        log.info(
            "reconfiguration", node=node.metadata.name, phase=decision.record and decision.record.phase, why=decision.message
        )
        await self._writer.report(node, decision, label_written=started and decision.apply)
        return 0.0

    # -- the plan ------------------------------------------------------------------------------

    async def _plan(self, now: float) -> float:
        """Begin the reconfigurations that a plan asks for; when the next plan is due, by the clock."""
        if now < self._planned + _PLAN_EVERY:
            return self._planned + _PLAN_EVERY
        if not self._news and now < self._plan_again:
            return self._plan_again
        self._planned, self._news, self._plan_again = now, False, now + _UNCHANGED
        try:
            self._plan_again = await self._plan_now(now)
        except Exception as error:  # noqa: BLE001 - what is under way goes on without a plan
            self.faults.note("mig.plan", "", error)
        return self._plan_again

    async def _plan_now(self, now: float) -> float:
        """Plan; until when that need not be repeated while nothing changes."""
        policies = {name: pool for name, pool in self.pools.items() if pool.policy and not pool.mistake}
        if not policies:
            return now + _UNCHANGED
        mine = [key for key in self.pods.waiting if self._is_served(self.pods.by_key[key])]
        spans = {pool.pending_for for pool in policies.values()}
        counts = [self.pods.by_key[key].waits_since + span for key in mine for span in spans]
        again = min((at for at in counts if at > now), default=now + _UNCHANGED)
        waiting = self.pods.queue_order(now, min(spans), mine)
        if not waiting:
            return again
        offers, configs, wishes, at_work = self._problem(waiting, policies, now)
        proposal = demand.propose(offers, configs, wishes)
        await self._begin(proposal, policies, at_work, now)
        rest = [rests(record, self._times(node), now) for node in self.nodes.values() if (record := record_of(node)) is not None]
        return min([again, *(now + each for each in rest if each > 0)])

    def _is_served(self, pod: PodFacts) -> bool:
        return not pod.nominated and self._serves(pod.key.partition("/")[0], pod.queue or None)

    def _problem(
        self, waiting: list[PodFacts], policies: dict[str, Pool], now: float
    ) -> tuple[list[Offer], dict[str, dict[str, Partitions]], list[Wish], Counter[str]]:
        """What `demand.propose` takes, and how many nodes of each pool are being reconfigured."""
        wishes, shapes = observed.wishes(waiting)
        failed: Counter[tuple[str, str]] = Counter()
        at_work: Counter[str] = Counter()
        of: dict[str, Pool | None] = {name: self.pool_of(node) for name, node in self.nodes.items()}
        for name, node in self.nodes.items():
            pool, record = of[name], record_of(node)
            if pool is None:
                continue
            if label(node, names.MIG_STATE_LABEL) == ConfigState.FAILED or (record and record.phase in IN_TROUBLE):
                failed[pool.name, label(node, names.MIG_CONFIG_LABEL)] += 1
            elif record is not None and record.phase in CORDONED:
                at_work[pool.name] += 1
        configs: dict[str, dict[str, Partitions]] = {}
        offers = []
        for name, node in sorted(self.nodes.items()):
            pool = of[name]
            allowed: dict[str, Partitions] = {}
            if pool is not None:
                # Nodes of one pool that have different products may get different configurations.
                product = label(node, _PRODUCT)
                usable = pools.usable(pool, product)
                allowed = {each: found for each, found in usable.items() if failed[pool.name, each] < _MOST_FAILURES}
                configs.setdefault(f"{pool.name} {product}", allowed)
            found = observed.offer(node, pool, allowed, self.pods, shapes, now)
            if found is not None and pool is not None:
                found = msgspec.structs.replace(found, pool=f"{pool.name} {label(node, _PRODUCT)}")
            offers += [found] if found is not None else []
        return offers, configs, wishes, at_work

    async def _begin(self, proposal: Proposal, policies: dict[str, Pool], at_work: Counter[str], now: float) -> None:
        """Cordon the nodes of a plan, so many at a time as their pools allow."""
        for change in proposal.changes:
            node = self.nodes.get(change.node)
            pool = self.pool_of(node) if node is not None else None
            if node is None or pool is None or pool.name not in policies or self._closed:
                continue
            if pool.most and at_work[pool.name] >= pool.most:
                continue
            pods = [self.pods.by_key[key] for key in change.pods if key in self.pods.waiting]
            if not any(now >= pod.waits_since + pool.pending_for for pod in pods):
                continue
            record = record_of(node)
            changed = label(node, names.MIG_CONFIG_LABEL) != change.before or self.pods.busy(change.node)
            if changed or rests(record, pool.times, now) > 0 or observed.is_cordoned(node):
                continue  # while the plan was made
            last = record.last if record is not None else 0.0
            made = begin(change.config, change.before, change.pods, now, last)
            message = f"{change.before!r} becomes {change.config!r} for {', '.join(change.pods[:3])}"
            message += f" and {len(change.pods) - 3} more" if len(change.pods) > 3 else ""
            try:
                await self._write(node, record, Decision(made, message=message))
            except (ApiError, Unreachable) as error:
                log.warning("node not cordoned", node=change.node, error=str(error)[:300])
                continue
            at_work[pool.name] += 1
            await self._writer.event_on_pods(
                change.node, made, {key: self.pods.by_key[key].uid for key in change.pods if key in self.pods.by_key}
            )

    # -- what is reported ----------------------------------------------------------------------

    async def _report(self, pool: Pool) -> None:
        """Whether a pool's policy can be acted on, as a condition of it."""
        if not pool.policy and pool.name not in self._reported:
            return
        now = (not pool.mistake, pool.mistake or self._described(pool)) if pool.policy else (False, "")
        if self._reported.get(pool.name) == now:
            return
        try:
            await self._writer.condition(pool.name, now if pool.policy else None)
        except (ApiError, Unreachable) as error:
            log.warning("condition not written", pool=pool.name, error=str(error)[:300])
            return
        self._reported[pool.name] = now

    def _described(self, pool: Pool) -> str:
        """How many configurations a pool allows, and which of them the products of its nodes cannot have."""
        if pool.name not in self._products:
            mine = [node for node in self.nodes.values() if self.pool_of(node) is pool]
            self._products[pool.name] = {label(node, _PRODUCT) for node in mine} - {""}
        wrong = [
            f"{name!r} is not possible on {product}: {why}"
            for product in sorted(self._products[pool.name])
            for name, layout in sorted(pool.layouts.items())
            if (why := pools.impossible(layout, product))
        ]
        return "; ".join([f"{len(pool.configs)} configurations", *wrong])

    def phases(self) -> dict[str, int]:
        """How many nodes are in each phase in which they are cordoned or need attention."""
        found = dict.fromkeys((str(each) for each in sorted(CORDONED | IN_TROUBLE)), 0)
        for node in self.nodes.values():
            record = record_of(node)
            if record is not None and record.phase in found:
                found[record.phase] += 1
        return found


def _older(one: views.Metadata, other: views.Metadata) -> bool:
    """Whether one is an earlier version of the same object than the other."""
    first, second = one.resource_version, other.resource_version
    return one.uid == other.uid and first.isdigit() and second.isdigit() and int(first) < int(second)
