"""Invariants of a whole simulated run: what the API server must never show, and what must hold once settled.

Every binding is judged when it is written. A node above its allocatable, or a queue above its limit,
counts against the scheduler only if what it did not know was older than a watch may be late: an
outsider's pod, a shrunken node or an edited limit are known to it only by the watch.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from fairlead.api import names
from fairlead.api.reasons import ReasonCode
from fairlead.cluster import translate
from fairlead.cluster.kinds import POD_GROUP, QUEUE, Watch, watched
from fairlead.cluster.port import ClusterEvent, DevicesKnown, Synced
from fairlead.cluster.simulated.kubelet import amounts
from fairlead.cluster.simulated.resources import NODES, PODS
from fairlead.cluster.simulated.store import Change, Key, Object
from fairlead.cluster.translate import Translator
from fairlead.core import invariants
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Binding, Place, Preempt
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.preemption.search import preempt
from fairlead.core.queues.queue_node import pending_class_of
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.snapshot import snapshot
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import Output
from fairlead.simulation.neighbours.agents import HALF, held_by, partner_of
from fairlead.simulation.workload import RULE_LABEL
from fairlead.simulation.world import GPU, REPLICAS_LABEL, Process, World
from fairlead.simulation.writes import Writes

LATE = 270.0
"""Seconds: a stalled watch is given up after 90, a partition that begins just then lasts up to 150, and the next attempt is up to
15 later."""
_QUEUES, _GROUPS = QUEUE.table, POD_GROUP.table
_ENDED = ("Succeeded", "Failed")


class Auditor:
    """Watches a world's store. `violations` fills as things go wrong; `digest` sums up everything written."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: list[str] = []
        self._walks: WeakKeyDictionary[object, invariants.Walk] = WeakKeyDictionary()  # by core
        self.judges: list[Callable[[ClusterState], Iterable[str]]] = []  # asked of the live state, and of one rebuilt
        self.bindings = 0
        self.changed_at = 0.0  # when something other than a lease or an event was written
        self._store = world.api.store
        self._hash = hashlib.sha256()
        self._bound: dict[str, str] = {}  # uid -> node
        self._used: dict[str, Counter[str]] = defaultdict(Counter)
        self._held: dict[str, tuple[str, tuple[tuple[str, int], ...], str, int]] = {}  # uid -> node, requests, queue, its charge
        self._outside: dict[str, float] = {}  # node -> when an outsider changed it
        self._edited: dict[str, float] = {}  # queue -> when its limit was edited
        self._queue_used: Counter[str] = Counter()
        self.writes = Writes(self._store, world.clock.now, self.wrong)
        for table in (PODS, NODES, _QUEUES, _GROUPS):
            self._store.listen(table, self._changed)

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return self._hash.hexdigest()

    def watch(self, *tables: str) -> None:
        """Writes of these tables count, too: for the digest, and before the cluster is called settled."""
        for table in tables:
            self._store.listen(table, self._changed)

    def disturbed(self, node: str) -> None:
        """An outsider changed what a node holds or offers."""
        self._outside[node] = self.world.clock.now()

    def calm(self, node: str) -> bool:
        """Whether what the scheduler knows of a node cannot be older than what an outsider changed there."""
        return self.world.clock.now() - self._outside.get(node, -LATE) >= LATE

    def edited(self, queue: str) -> None:
        """An administrator edited a queue's limit."""
        self._edited[queue] = self.world.clock.now()

    def wrong(self, message: str) -> None:
        """Something is violated, in words."""
        if len(self.violations) < 100:
            self.violations.append(f"{self.world.clock.text()} {message}")

    def _changed(self, change: Change) -> None:
        self.changed_at = self.world.clock.now()
        self._hash.update(f"{change.version} {change.kind} {change.table} {change.key}".encode())
        if change.table == PODS:
            self._pod(change)
        elif change.table == NODES and change.before is not None and change.kind != "MODIFIED":
            self.disturbed(change.key[1])

    def _pod(self, change: Change) -> None:
        pod = change.record.object
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName", "")
        self._hash.update(node.encode())
        if change.kind == "DELETED" or pod["status"].get("phase") in _ENDED:
            self._free(uid)
            if change.kind == "DELETED":
                self._bound.pop(uid, None)
            return
        if not node:
            return
        before = self._bound.get(uid)
        if before is None:
            self._bind(change.key, pod, node)
        elif before != node:
            self.wrong(f"pod {change.key} moved from {before} to {node}")

    def _free(self, uid: str) -> None:
        held = self._held.pop(uid, None)
        if held is not None:
            node, requests, queue, charge = held
            for resource, amount in requests:
                self._used[node][resource] -= amount
            self._queue_used[queue] -= charge

    def _bind(self, key: Key, pod: Object, node: str) -> None:
        uid = pod["metadata"]["uid"]
        requests = held_by(pod)
        ours = pod["spec"].get("schedulerName") in names.SCHEDULERS
        queue = (pod["metadata"].get("labels") or {}).get(names.QUEUE_LABEL, key[0]) if ours else ""
        self._bound[uid] = node
        charge = self._charge(pod, node, requests) if ours else 0
        self._held[uid] = (node, requests, queue, charge)
        for resource, amount in requests:
            self._used[node][resource] += amount
        self._queue_used[queue] += charge
        if not ours:
            self.disturbed(node)
            return
        self.bindings += 1
        self._judge_node(key, node, requests)
        self._judge_rule(key, pod, node)
        self._judge_queue(key, queue, charge)

    def _charge(self, pod: Object, node: str, requests: tuple[tuple[str, int], ...]) -> int:
        """Thousandths of GPUs that its queue is charged: half of one that it may share, and of a replica its part."""
        record = self._store.get(NODES, ("", node))
        labels = (record.object["metadata"].get("labels") or {}) if record is not None else {}
        whole = WHOLE // int(labels.get(REPLICAS_LABEL, 1)) * dict(requests).get(GPU, 0)
        return whole + (HALF if partner_of(pod) else 0)

    def _judge_node(self, key: Key, node: str, requests: tuple[tuple[str, int], ...]) -> None:
        if not self.calm(node):
            return
        record = self._store.get(NODES, ("", node))
        if record is None:
            self.wrong(f"pod {key} bound to {node}, which does not exist")
            return
        offered = amounts(record.object["status"].get("allocatable"))
        for resource, _ in requests:
            if self._used[node][resource] > offered.get(resource, 0):
                self.wrong(f"pod {key} takes {node} to {self._used[node][resource]} of {offered.get(resource, 0)} {resource}")

    def _judge_rule(self, key: Key, pod: Object, node: str) -> None:
        """Pods that keep apart, of one team, and pods that want the same port, are never two on a node."""
        rule = (pod["metadata"].get("labels") or {}).get(RULE_LABEL)
        if rule not in ("apart", "port"):
            return
        for (namespace, name), record in self._store.records(PODS):
            other = record.object
            if (
                (namespace, name) != key
                and other["spec"].get("nodeName") == node
                and other["status"].get("phase") not in _ENDED
                and (other["metadata"].get("labels") or {}).get(RULE_LABEL) == rule
                and (rule == "port" or namespace == key[0])
            ):
                self.wrong(f"pod {key} is bound to {node} beside {namespace}/{name}, against rule {rule!r}")

    def _judge_queue(self, key: Key, queue: str, charge: int) -> None:
        record = self._store.get(_QUEUES, ("", queue))
        if record is None or self.world.clock.now() - self._edited.get(queue, -LATE) < LATE:
            return
        if not charge:
            return
        for each in record.object["spec"].get("resources") or ():
            limit = each.get("limit")
            if each["name"] == GPU and isinstance(limit, int) and self._queue_used[queue] > limit * WHOLE:
                self.wrong(f"pod {key} takes queue {queue} to {self._queue_used[queue] / WHOLE:g} of {limit} GPUs")

    # -- the core, after every step ------------------------------------------------------------

    def walk(self, process: Process) -> None:
        """The core's own invariants."""
        for message in self._walks.setdefault(process.core, invariants.Walk()).violations(process.core.state):
            self.wrong(f"in the core: {message}")

    # -- once settled --------------------------------------------------------------------------

    def settled(self, process: Process) -> None:
        """Everything that must hold when no fault has happened for long and nothing is on its way."""
        self._gangs()
        self._nodes()
        self._known(process)
        fresh = self._fresh(process)
        self._same(process.core.state, fresh.state)
        for judge in self.judges:
            for what, state in (("", process.core.state), ("rebuilt: ", fresh.state)):
                for message in judge(state):
                    self.wrong(f"settled: {what}{message}")
        self._conserves(process.core.state, fresh, process.client.clock())

    def _gangs(self) -> None:
        bound: Counter[Key] = Counter()
        over: Counter[Key] = Counter()
        loose: set[Key] = set()
        going: set[Key] = set()  # of one that has come to its end pods may be deleted one by one
        for key, record in self._store.records(PODS):
            pod = record.object
            group = (pod["metadata"].get("labels") or {}).get(names.POD_GROUP_LABEL)
            if group and pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                ended = pod["status"].get("phase") in _ENDED
                (over if ended else bound)[key[0], group] += 1
                if not ended:
                    going.add((key[0], group))
                if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ()):
                    loose.add((key[0], group))
        for key, count in sorted(bound.items()):
            record = self._store.get(_GROUPS, key)  # type: ignore[assignment]
            if record is None or key not in going - loose:
                continue
            # Members that succeeded count, also those whose pods are gone: these are in the gang's status.
            runs = count + max(over[key], (record.object.get("status") or {}).get("succeeded", 0))
            if runs < record.object["spec"]["minMember"]:
                self.wrong(f"settled: gang {key} runs {runs} of {record.object['spec']['minMember']}")

    def _nodes(self) -> None:
        for key, record in self._store.records(NODES):
            offered = amounts(record.object["status"].get("allocatable"))
            running: Counter[str] = Counter()
            for node, requests, *_ in self._held.values():
                if node == key[1]:
                    for resource, amount in requests:
                        running[resource] += amount
            for resource, amount in running.items():
                if amount > offered.get(resource, 0):
                    self.wrong(f"settled: {key[1]} holds {amount} of {offered.get(resource, 0)} {resource}")

    def _known(self, process: Process) -> None:
        tasks = process.core.state.tasks
        for key, record in self._store.records(PODS):
            pod = record.object
            if pod["spec"].get("schedulerName") not in names.SCHEDULERS or pod["status"].get("phase") in _ENDED:
                continue
            task = tasks.get(pod["metadata"]["uid"])
            if task is None:
                self.wrong(f"settled: pod {key} is not known to the scheduler")
            elif bool(pod["spec"].get("nodeName")) != (task.state in (TaskState.BOUND, TaskState.EVICTING)):
                self.wrong(
                    f"settled: pod {key} is {task.state.value} in the core, on {pod['spec'].get('nodeName')!r} in the cluster"
                )

    def _fresh(self, process: Process) -> CoreLoop:
        """A core that has just listed everything."""
        core = CoreLoop(Policy(), lambda _: None)
        core.apply([*everything(self.world), Synced()], process.client.clock())
        core.state.begin(process.client.clock())  # in whose stead others wait is seen when a pass begins
        return core

    def _same(self, live: ClusterState, fresh: ClusterState) -> None:
        ours, theirs = _comparable(live), _comparable(fresh)
        for kept in live.in_flight.kept.values():
            if kept.placeholder.row >= 0 and kept.placeholder.charged:
                for above in live.queues.queues[kept.placeholder.queue].path:
                    used = ours["queues"][above.name]
                    for resource, amount in live.queues.tree.charge_at(kept.placeholder.shape, kept.placeholder.row):
                        used[resource] = used.get(resource, 0) - amount
                    ours["queues"][above.name] = {resource: amount for resource, amount in used.items() if amount}
        ours["queues"] = {name: used for name, used in ours["queues"].items() if used}
        # Pods that were moved and have not come back have reserved places: a core that begins knows nothing of them.
        for kept in (*live.in_flight.kept.values(), *live.in_flight.returning.values()):
            for each in (ours, theirs) if kept.placeholder.row >= 0 else ():
                each["nodes"].pop(live.nodes.names[kept.placeholder.row], None)
        # So have jobs that resume, until their pods come: only their target state, Running, is written.
        for task in live.suspended.kept:
            for each in (ours, theirs):
                each["tasks"].pop(task.pod.uid, None)
                each["nodes"].pop(live.nodes.names[task.row], None)
                for node in live.queues.queues[task.queue].path:
                    each["queues"].pop(node.name, None)
        for part in ours:
            if ours[part] != theirs[part]:
                differing = {
                    name: (ours[part].get(name), theirs[part].get(name))
                    for name in {*ours[part], *theirs[part]}
                    if ours[part].get(name) != theirs[part].get(name)
                }
                shown = dict(sorted(differing.items())[:3])
                self.wrong(f"settled: the live state differs from one rebuilt (live, rebuilt) in {part}: {shown}")

    @staticmethod
    def _fits(live: ClusterState, binding: Binding, victims: Sequence[Binding] = ()) -> bool:
        """Whether the live core sees that place, too, with these gone."""
        task, row = live.tasks.get(binding.pod.uid), live.nodes.rows.get(binding.node)
        if task is None or row is None:
            return True
        if task.pod.elastic and task.gang is not None and len(task.gang.placed()) < task.gang.needed:
            return False  # those that its gang needs come first, and what is learned of speeds may keep these off
        mark = live.log.mark()
        _leave(live, victims)
        fits = task.ranking.fits_row(row)
        live.log.rollback(mark)
        return fits

    @staticmethod
    def _rests(live: ClusterState, beneficiary: Binding, now: float) -> bool:
        """Whether the live core only rests: it searched in vain too often of late, and would find victims if it searched now."""
        task = live.tasks.get(beneficiary.pod.uid)
        unit = task.unit if task is not None else None
        pending_class = pending_class_of(unit) if unit is not None else None
        if unit is None or pending_class is None or pending_class.search.backoff_until <= now:
            return False
        mark = live.log.mark()
        live.pass_caches.drop()
        found = any(preempt(live, unit, enforce_quota=pressing, waited=pressing) is not None for pressing in (False, True))
        live.log.rollback(mark)
        for each in unit.tasks:
            each.become(TaskState.WAITING)
        live.pass_caches.drop()
        return found

    @staticmethod
    def _kept(live: ClusterState, bindings: Sequence[Binding], victims: Sequence[Binding] = ()) -> bool:
        """Whether the live core reserves one of these places, or what their queue may hold, for another job.

        They get their places one after the other, with the victims gone: two members may hold together what is reserved.
        """
        mark, kept, placed = live.log.mark(), False, list[Task]()
        _leave(live, victims)
        for each in bindings:
            task, row = live.tasks.get(each.pod.uid), live.nodes.rows.get(each.node)
            if task is None or row is None:
                continue
            closed = live.reserved.closed(task)
            kept = closed is not None and closed.item(row)
            if kept or task.row >= 0 or not live.placement.takes(task, row):
                break
            live.placement.place(task, row)
            live.reserved.take(task, row)
            placed.append(task)
        live.log.rollback(mark)
        for task in placed:
            task.become(TaskState.WAITING)
        return kept

    @staticmethod
    def _lacks_share(live: ClusterState, binding: Binding) -> bool:
        """Whether a job waits for what its queue may hold, so that what others of its queue or its siblings get decides."""
        task = live.tasks.get(binding.pod.uid)
        pending_class = pending_class_of(task.unit) if task is not None and task.unit is not None else None
        why = pending_class.unschedulable if pending_class is not None else None
        return why is not None and why.code is ReasonCode.FAIR_SHARE

    def _conserves(self, live: ClusterState, fresh: CoreLoop, now: float) -> None:
        """A core that knows nothing of what was tried would start no other job. now: by the clock of the live one."""
        outputs: list[Output] = []
        fresh.deliver = outputs.extend
        for _ in range(3):
            fresh.decide(now)
        # A job in a place that the live core reserves changes what its queue holds: what is reclaimable, and who may start.
        differs = False
        for each in outputs:
            places = each.bindings if isinstance(each, Place) else each.beneficiaries if isinstance(each, Preempt) else ()
            if self._kept(live, places, each.victims if isinstance(each, Preempt) else ()):
                differs = True
                continue
            if differs and isinstance(each, Place) and self._lacks_share(live, each.bindings[0]):
                continue
            # Which device a pod got is predicted: a core that has just begun may lay fractions out better than they came.
            if isinstance(each, Place):
                if any(self._fits(live, binding) for binding in each.bindings):
                    self.wrong(f"settled: {each.bindings[0].pod.key} waits though it fits on {each.bindings[0].node}")
                # What is learned of speeds keeps it from its place: its queue holds less, and may claim, where it waits.
                differs = differs or any(binding.partner for binding in each.bindings)
            elif (
                isinstance(each, Preempt)
                and not each.moves
                and not differs
                and any(self._fits(live, binding, each.victims) for binding in each.beneficiaries)
                and not self._rests(live, each.beneficiaries[0], now)
            ):
                self.wrong(f"settled: {each.beneficiaries[0].pod.key} waits though it may preempt {each.victims[0].pod.key}")
            elif isinstance(each, Preempt):
                differs = True  # the live core searches for it later: until then that job may reclaim what others would borrow


def _leave(live: ClusterState, victims: Sequence[Binding]) -> None:
    """In a trial: victims leave their rows."""
    for each in victims:
        if (victim := live.tasks.get(each.pod.uid)) is not None:
            live.placement.unassign(victim)


def _comparable(state: ClusterState) -> dict[str, dict[str, Any]]:
    """What a rebuilt state must share: which device of a node a pod holds is a guess of its own.

    Of a claim that members of a gang use each is charged a part, by how many there were when it got its place: that is left out.
    """
    found = snapshot(state)
    for task in state.tasks.values():
        if (
            task.charged
            and (task.row >= 0 or state.placement.is_stray(task))
            and any(not use.template for use in task.pod.claims)
        ):
            for node in state.queues.queues[task.queue].path:
                used = found["queues"].get(node.name, {})
                used[GPU] = used.get(GPU, 0) - task.shape.claimed_milli
    return {
        "nodes": {name: (_without_zeros(each["free"]), sorted(each["pods"])) for name, each in found["nodes"].items()},
        "queues": {name: used for name, used in found["queues"].items() if used},
        "tasks": {uid: (state_, node) for uid, (state_, node, _) in found["tasks"].items()},
    }


def _without_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    """A resource that pods only request, or requested, is known to one core and not to another."""
    return {name: amount for name, amount in amounts.items() if amount}


def everything(world: World) -> list[ClusterEvent]:
    """All objects of a world, in the events by which the scheduler would receive them."""
    translator, events = Translator(), list[ClusterEvent]()
    for kind in (*watched(Watch.DEVICES), *watched(Watch.ALWAYS)):
        found = [msgspec.convert(record.object, kind.view) for _, record in world.api.store.sorted(kind.table)]
        events += translator.translate(kind, [translate.Change(kind.key(each.metadata), each) for each in found])
    return [DevicesKnown(), *events]
