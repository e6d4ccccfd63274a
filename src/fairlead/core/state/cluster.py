"""The state of the cluster as the scheduler sees it: events in, questions answered, undo.

There is no snapshot per pass: this state is the snapshot. Every event is one method; a pass
(`schedule.py`) reads and assigns through the same object under the undo log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any

import msgspec

from fairlead.api.names import AI_PROFILE, DEFAULT_QUEUE, KUBERNETES_PROFILE
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.objects import (
    WHOLE,
    DisruptionBudget,
    Group,
    Namespace,
    Node,
    NodePool,
    Pod,
    PodSpec,
    Policy,
    Queue,
    Reservation,
    ServiceClass,
    stands_in,
)
from fairlead.core.model.transactions import VolumeChoice
from fairlead.core.model.undo import UndoLog, new_version
from fairlead.core.nodes.storage import Storage, StorageObject
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods import scores
from fairlead.core.pods.filters.base import Surroundings
from fairlead.core.pods.filters.volumes import VolumeBinding
from fairlead.core.pods.holdings import Holdings
from fairlead.core.pods.pairs import Pairs
from fairlead.core.pods.ranking import RankedShape, ShapeTable
from fairlead.core.pods.scores.upstream import Kubernetes
from fairlead.core.pods.tasks import PLACED, Gang, Task, TaskState, Unit
from fairlead.core.queues.admission import Admission
from fairlead.core.queues.meters import submitted_limits
from fairlead.core.queues.queues import QueueTree
from fairlead.core.queues.reservations import Reservations
from fairlead.core.queues.runtimes import RunTimes
from fairlead.core.queues.services import LATE, Services
from fairlead.core.queues.tree import room_of
from fairlead.core.state.belonging import Belonging
from fairlead.core.state.budgets import Guard, protects
from fairlead.core.state.caches import Caches
from fairlead.core.state.departures import Departures
from fairlead.core.state.finished import FinishedPods
from fairlead.core.state.foretold import Foretold
from fairlead.core.state.isolation import Isolation
from fairlead.core.state.moves import GivenUp, Moves
from fairlead.core.state.notices import Notices
from fairlead.core.state.overrides import Overrides
from fairlead.core.state.starts import Starts
from fairlead.core.state.suspended import Suspended
from fairlead.core.state.unread import UnreadPods, counted, last_readable

_NOTHING = PodSpec()
_HUGE = 1 << 50
_LEAST_FREE = -(1 << 61)
"""Amounts of one pod from which on it is looked at whether those of a node can still be counted, and the least that can be."""


class ClusterState:
    """Everything a pass decides on. Rebuilt from the cluster's objects it is the same again."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.log = UndoLog()
        self.nodes = NodeTable(self.log, self.policy)
        self.isolation = Isolation(self)
        self.strategy = scores.make(self.policy, self.nodes)
        strategies = {AI_PROFILE: self.strategy, KUBERNETES_PROFILE: Kubernetes(self.nodes, {})}
        self.pairs = Pairs(self.log, self.nodes)
        self.holdings = Holdings(self.log)
        self.storage = Storage()
        self.budgets: dict[str, DisruptionBudget] = {}
        self.budgets_version = 0
        self.woken = (0, 0, 0, 0, 0)  # how what may help the waiting stood when they were last looked at
        self.services = Services()
        self.runtimes = RunTimes(self.services)
        self.foretold = Foretold()
        self.shapes = ShapeTable(Surroundings(self.nodes, self.pairs, self.holdings, self.storage), strategies)
        self.queues = QueueTree(self.log, self.nodes, self.policy)
        self.reserved = Reservations(self.log, self.nodes, self.queues, self.runtimes)
        self.admission = Admission(self.queues, self.services, self.pairs.namespaces)
        self.tasks: dict[str, Task] = {}
        self.gangs: dict[str, Gang] = {}
        self.finished = FinishedPods()
        self.starts = Starts(self)
        self.unread = UnreadPods()
        self.belonging = Belonging(self)
        self.surplus: set[str] = set()  # pods that their gangs can do without
        self.unsettled: dict[str, Gang] = {}
        self.faulty: set[str] = set()
        self.strays: dict[str, dict[str, Task]] = {}  # node name -> tasks bound to a node not known
        self.queueless: dict[str, dict[str, Task]] = {}  # queue name -> tasks that name a queue not known
        self._with_gpu_quota: set[str] = set()  # queues that are guaranteed GPUs
        self.applicants: dict[str, Task] = {}  # where jobs are counted: tasks that wait to be, and those of jobs beyond a limit
        self._crowd = False  # whether jobs must be counted anew
        self.notices = Notices()
        self.freed_holds: dict[str, Task] = {}
        self.holds: dict[str, set[str]] = {}  # victim uid -> uids that wait for it
        self.departures = Departures(self.policy, self.tasks, self.services)
        self.overrides = Overrides(self.policy, self.tasks)
        self.caches = Caches(self)
        self.pass_caches = Caches(self)
        self.newly_bound: list[Task] = []  # since the last pass began: only from then on may they be preempted
        self.moves = Moves(self)
        self.suspended = Suspended(self)
        self.nominated: dict[str, dict[str, Task]] = {}  # node -> uid -> waiting tasks for whom it was cleared
        self.lingering: dict[str, int] = {}  # victim uid -> row: its room is given away, but it is still there
        self.plans: dict[str, frozenset[str]] = {}  # victim uid -> all victims of its plan: they go together or not at all
        self._leftovers: dict[str, list[Task]] = {}  # victim uid -> stand-ins for room it still fills, though given away
        self.queues.closing = self._leftovers
        self._delayed: list[tuple[float, str]] = []
        self._nearing: list[tuple[float, str]] = []  # when a task that waits becomes more urgent
        self.overdue: list[Task] = []  # have waited longer than their class allows, and nobody was told yet

    # -- nodes ---------------------------------------------------------------------------------

    def upsert_node(self, node: Node) -> None:
        """A node came or changed. Pods already known to be on it are charged to it."""
        known = self.nodes.rows.get(node.name)
        self.unread.note_node(self.nodes.objects[known] if known is not None else None, node)
        row = self.nodes.upsert(node)
        self.queues.node_changed(row)
        for task in list(self.nodes.pods[row].values()):
            if len(task.devices) < task.shape.gpus and len(self.nodes.devices.states[self.nodes.device.item(row)]) > len(
                task.devices
            ):
                self.unassign(task)  # it came while the node had fewer devices than it asks for
                self.assign(task, row, self._devices_of(task, row))
        for task in list(self.strays.get(node.name, {}).values()):
            self._unstray(task, node.name)
            if self._is_countable(task, row):
                self.assign(task, row, self._devices_of(task, row))
            else:
                self.remove_pod(task.pod.uid)
                self._adopt(_unsized(task.pod))

    def remove_node(self, name: str) -> None:
        """A node is gone. Its pods stay known, on no row, until they go or the node returns."""
        row = self.nodes.rows.get(name)
        if row is None:
            return
        for task in list(self.nodes.pods[row].values()):
            self.unassign(task)
            self._abandon(task)
            if task.pod.uid not in self.tasks:
                continue  # a stand-in: it goes with the node
            if task.state in (TaskState.BOUND, TaskState.EVICTING):
                self._stray(task, name)
            else:
                self._wait(task)
        for uid in [uid for uid, where in self.lingering.items() if where == row]:
            # Whoever was to have its room has none any more, but the victim still runs: it is charged again.
            self._part(self.tasks[uid])
            self.queues.repay(uid)
            self._stray(self.tasks[uid], name)
        self.nodes.remove(name)
        self.queues.node_changed(row)

    def _stray(self, task: Task, node: str) -> None:
        """A pod is bound to a node that is not known: it counts for its queue all the same."""
        self.strays.setdefault(node, {})[task.pod.uid] = task
        if task.charged:
            self.queues.charge(task, 1, -1)

    def _unstray(self, task: Task, node: str) -> None:
        if self.strays.get(node, {}).pop(task.pod.uid, None) is not None:
            if task.charged:
                self.queues.charge(task, -1, -1)
            if not self.strays[node]:
                del self.strays[node]

    # -- pods ----------------------------------------------------------------------------------

    def upsert_pod(self, pod: Pod) -> None:
        """A pod came or changed."""
        pod = counted(self.nodes, pod)
        if pod.terminating:
            self.departures.note(pod.uid)
        task = self.tasks.get(pod.uid)
        if pod.finished:
            if pod.uid not in self.finished:
                self._finish(pod, task)
            return
        if task is None:
            if pod.node or pod.ours:
                self._adopt(pod)
            return
        if pod.error is not None and pod.ours != task.pod.ours:
            pod = msgspec.structs.replace(pod, ours=task.pod.ours)  # whose it is cannot be read any more: as before
        old, heard = task.pod, pod
        keeps = self.belonging.holds(task)
        if pod.error is not None and (old.node or keeps):
            pod = last_readable(old, pod)
        if keeps:
            pod = self.belonging.view(task, pod)
        if old == pod:
            return
        if old.surplus != pod.surplus:
            self.surplus ^= {pod.uid}
        if task.state is TaskState.EVICTING:
            self._recount_one(task, pod)
            return
        if pod.node:
            self._bound_elsewhere(task, pod)
        elif task.state in (TaskState.ASSUMED, TaskState.HELD) and not pod.terminating and self._same(old, pod):
            task.pod = pod  # an older view than what was decided: the binding is on its way
        elif keeps and not pod.terminating:
            self.belonging.note_assumed(heard)
        elif self._same(old, pod) and not pod.terminating:
            task.pod = pod
            if old.nominated != pod.nominated:
                self._unnominate(old)
                if pod.nominated and pod.ours:
                    self.nominated.setdefault(pod.nominated, {})[pod.uid] = task
        else:
            self.remove_pod(pod.uid)
            self._adopt(pod)

    def _finish(self, pod: Pod, task: Task | None) -> None:
        """A pod has ended. A member of a gang that succeeded counts as one that runs."""
        ran = task is not None and task.state in PLACED
        self.remove_pod(pod.uid)
        if pod.succeeded and pod.ours and pod.group:
            gang = self._gang(pod)
            self.finished.add(gang, pod, watched=ran)
            self.unsettle(gang)

    def _gang(self, pod: Pod) -> Gang:
        key = f"{pod.namespace}/{pod.group}"
        gang = self.gangs.get(key)
        if gang is None:
            gang = self.gangs[key] = Gang(key)
        return gang

    def remove_pod(self, uid: str) -> None:
        """A pod is gone or has finished: what it held is free, and whoever waited for that may start."""
        task = self.tasks.pop(uid, None)
        if task is None:
            gang = self.finished.remove(uid)
            if gang is not None and gang.forgotten and self.gangs.get(gang.key) is gang:
                del self.gangs[gang.key]
            return
        self.surplus.discard(uid)
        self.isolation.forget(uid)
        self.services.forget(uid)
        self.starts.forget(uid)
        if task.unit is not None:
            room = room_of(task.unit)
            if room is not None and room.parked is not None and room.queue.blocked == task.unit.rank:
                self.queues.unpark(room)  # the head of the line is gone: the next may be tried
            task.unit.retire()
            self._requeue_rest(task.unit, task)
        if task.state is TaskState.BOUND and task.pod.ours and not task.pod.terminating:
            self.runtimes.ended(task, self.services.now)
        if task.row >= 0 and task.state is TaskState.HELD:
            self._vacate(task)
        elif task.row >= 0:
            self.unassign(task)
        pod = task.pod
        self._part(task)
        self._unnominate(pod)
        if pod.node:
            self._unstray(task, pod.node)
            if pod.unsized:
                self.nodes.poison(pod.node, uid, bad=False)
            self.unread.forget(uid)
        self._find_queue(task)
        self.applicants.pop(uid, None)
        self._crowd = self._crowd or bool(self.applicants)
        if task.gang is not None:
            task.gang.tasks.pop(uid, None)
            if task.gang.forgotten:
                self.gangs.pop(task.gang.key, None)
                self.belonging.gang_left(task.gang.key)
                self.starts.left(task.gang.key)
            else:
                self.unsettle(task.gang)
                self.starts.touch(task.gang)
        self.shapes.release(task.shape)
        self.freed_holds.pop(uid, None)
        self.queues.repay(uid)
        self._forget_plan(uid)
        self._release_leftovers(uid)
        for beneficiary in self.holds.pop(uid, ()):
            held = self.tasks.get(beneficiary)
            if held is not None:
                held.waits_for.discard(uid)
                if not held.waits_for and held.state is TaskState.HELD:
                    self.freed_holds[beneficiary] = held
        if task.waits_for:
            self._abandon(task)
        self.belonging.forget(uid)
        if pod.owner:
            self.suspended.left(pod.owner)

    def _unnominate(self, pod: Pod) -> None:
        others = self.nominated.get(pod.nominated)
        if others is None or others.pop(pod.uid, None) is None:
            return
        if not others:
            del self.nominated[pod.nominated]
        row = self.nodes.rows.get(pod.nominated)
        if row is not None:
            self.nodes.gained.add(row)  # it was kept for this pod: whoever waits may have it now

    def _adopt(self, pod: Pod) -> None:
        # A pod whose size cannot be known holds nothing that could be counted: its node is closed instead.
        task = Task(pod, self._shape(pod))
        self.tasks[pod.uid] = task
        if pod.surplus:
            self.surplus.add(pod.uid)
        if pod.ours and pod.group:
            gang = task.gang = self._gang(pod)
            needed = gang.needed
            self.finished.comes(gang, pod)
            gang.tasks[pod.uid] = task
            if gang.needed != needed:
                self.unsettle(gang)  # a new run: members of the one before may be too few, also if this pod cannot even wait
            if task.gang.group is not None and task.gang.group.queue:
                task.queue = task.gang.group.queue
        if pod.node:
            self._place_bound(task)
            self.belonging.lodge(task)
            if task.gang is not None:
                self.unsettle(task.gang)
                self.starts.touch(task.gang)
            return
        if pod.terminating:
            task.become(TaskState.UNUSABLE)
            return
        if pod.error is None and not pod.gated:
            self.strategy.arrived(pod.spec)
        if pod.nominated and pod.ours:
            self.nominated.setdefault(pod.nominated, {})[pod.uid] = task
        self.moves.arrived(task)
        if pod.owner:
            self.suspended.arrived(task)
        self._wait(task)

    def _shape(self, pod: Pod) -> RankedShape:
        """The shape of a pod. The first to speak of some labels makes pods that differ by them differ in shape."""
        spec = _NOTHING if pod.unsized else pod.spec
        knew = self.pairs.active
        news = self.pairs.learn(spec)
        if news is not None:
            self._relabel(news if knew else None)
        return self.shapes.intern(spec, self.pairs.label_set(pod.namespace, pod.labels), pod.profile)

    def _relabel(self, keys: set[str] | None) -> None:
        """Labels that nobody read are read from now on (None: labels at all): shapes must tell them apart."""
        for task in list(self.tasks.values()):
            if keys is None or any(key in keys for key, _ in task.pod.labels):
                self._reshape(task)

    def _reshape(self, task: Task) -> None:
        """The labels by which others select a pod are not what they were."""
        pod, old = task.pod, task.shape
        shape = self.shapes.intern(old.spec, self.pairs.label_set(pod.namespace, pod.labels), pod.profile)
        if shape is old:
            self.shapes.release(old)
            return
        row = self._counted_on(task)
        if row >= 0:
            self.pairs.add(task.shape, row, -1, leaving=task.pod.terminating)
            task.shape = shape
            self.pairs.add(task.shape, row, 1, leaving=task.pod.terminating)
            self.nodes.touch(row)
            self.nodes.gained.add(row)
        else:
            task.shape = shape
            if task.unit is not None:
                task.unit.retire()
                self._requeue_rest(task.unit, task)
                self._wait(task)
        self.shapes.release(old)

    def _place_bound(self, task: Task) -> None:
        pod = task.pod
        task.become(TaskState.BOUND)
        self.belonging.take_in(task)
        if pod.unsized:
            self.nodes.poison(pod.node, pod.uid, bad=True)
        self.unread.note(pod)
        row = self.nodes.rows.get(pod.node)
        if row is None:
            self._stray(task, pod.node)
            if pod.ours:
                message = f"node {pod.node!r}, which the pod names, does not exist"
                self.notices.add((task,), Reason(ReasonCode.NODE_AFFINITY, message))
        elif self._is_countable(task, row):
            self.assign(task, row, self._devices_of(task, row))
        else:
            # The others there ask for so much already that with it the sum is beyond exact integers.
            task.pod = pod = _unsized(pod)
            self.shapes.release(task.shape)
            task.shape = self._shape(pod)
            self._place_bound(task)
            return
        task.become(TaskState.BOUND)
        if pod.ours:
            self.services.runs(task)

    def _is_countable(self, task: Task, row: int) -> bool:
        """Whether the free amounts of a row stay exact integers with a pod on it that somebody else put there."""
        shape = task.shape
        if all(amount < _HUGE for _, amount in shape.demand) and max(shape.extra) < _HUGE:
            return True
        free = self.nodes.free
        return all(free[column].item(row) - amount > _LEAST_FREE for column, amount in shape.demand) and all(
            line.item(row) + amount < -_LEAST_FREE for line, amount in zip(self.nodes.extra, shape.extra, strict=True)
        )

    def _bound_elsewhere(self, task: Task, pod: Pod) -> None:
        """The cluster says where a pod is: confirm what was assumed, or take its word."""
        row = self.nodes.rows.get(pod.node)
        same = task.pod.spec == pod.spec and task.pod.unsized == pod.unsized and task.pod.group == pod.group
        if task.row >= 0 and row == task.row and same:
            leaving = pod.terminating and not task.pod.terminating
            if (
                pod.ours
                and pod.queue != task.pod.queue
                and not (task.gang is not None and task.gang.group is not None and task.gang.group.queue)
            ):
                self._change_queue(task, pod.queue)
            self._recount_one(task, pod)
            if leaving and task.gang is not None:
                self.unsettle(task.gang)
            if task.state is not TaskState.BOUND:
                task.become(TaskState.BOUND)
                task.faults = 0
                task.told = None
                self.newly_bound.append(task)
                self.services.runs(task)
                self._abandon(task)
                if task.gang is not None:
                    self.unsettle(task.gang)
            return
        keeps, queue = self.belonging.holds(task), task.queue
        self.remove_pod(pod.uid)
        self._adopt(pod)
        if keeps and pod.ours and self.tasks[pod.uid].queue != queue:
            self._change_queue(self.tasks[pod.uid], queue)

    def _recount_one(self, task: Task, pod: Pod) -> None:
        """Take over a newer view of a pod that stays where it is, and by which labels it is counted there."""
        self.unread.note(pod)
        if (pod.user, pod.priority) != (task.pod.user, task.pod.priority):
            pod = self._changed_hands(task, pod)
        row = self._counted_on(task)
        changed = pod.terminating != task.pod.terminating or pod.labels != task.pod.labels
        if row >= 0 and changed:
            self.pairs.add(task.shape, row, -1, leaving=task.pod.terminating)
            self.nodes.touch(row)
            self.nodes.gained.add(row)
        other, limited = pod.service_class != task.pod.service_class, pod.time_limit != task.pod.time_limit
        if task.gang is not None and (pod.bound, pod.starting, pod.terminating) != (
            task.pod.bound,
            task.pod.starting,
            task.pod.terminating,
        ):
            self.starts.touch(task.gang)
        task.pod = pod
        if other and pod.ours:
            self.queues.reclassify(task)
        if limited and task.state is TaskState.BOUND:
            self.services.runs(task)
        if changed:
            old, task.shape = task.shape, self._shape(pod)
            self.shapes.release(old)
        if row >= 0 and changed:
            self.pairs.add(task.shape, row, 1, leaving=task.pod.terminating)

    def _changed_hands(self, task: Task, pod: Pod) -> Pod:
        """A pod that has a node is another user's, or of another priority: accounts follow; a victim's stay as they are."""
        if task.state is TaskState.EVICTING:
            return msgspec.structs.replace(pod, user=task.pod.user, priority=task.pod.priority)
        charged = task.charged and (task.row >= 0 or pod.uid in self.strays.get(task.pod.node, {}))
        if charged:
            self.queues.charge(task, -1, task.row)
        task.pod = msgspec.structs.replace(task.pod, user=pod.user, priority=pod.priority)
        if charged:
            self.queues.charge(task, 1, task.row)
        return pod

    def _counted_on(self, task: Task) -> int:
        """The row where others see a task: its own, or where it lingers; -1 for none."""
        return task.row if task.row >= 0 else self.lingering.get(task.pod.uid, -1)

    def linger(self, task: Task, row: int) -> None:
        """A victim's room is given away; until it is gone, others still see it, its labels, its ports and its claims."""
        self.log.insert(self.lingering, task.pod.uid, row)
        self.pairs.add(task.shape, row, 1, leaving=task.pod.terminating)
        self.holdings.add(task.shape.spec, row, 1)

    def _part(self, task: Task) -> None:
        row = self.lingering.pop(task.pod.uid, None)
        if row is not None:
            self.pairs.add(task.shape, row, -1, leaving=task.pod.terminating)
            self.holdings.add(task.shape.spec, row, -1)
            self.nodes.touch(row)
            self.nodes.gained.add(row)

    @staticmethod
    def _same(old: Pod, new: Pod) -> bool:
        """Whether a change leaves everything a decision rests on as it was."""
        return (
            old.spec == new.spec
            and old.labels == new.labels
            and old.queue == new.queue
            and old.group == new.group
            and old.priority == new.priority
            and old.profile == new.profile
            and old.user == new.user
            and old.service_class == new.service_class
            and old.gated == new.gated
            and old.error == new.error
            and old.terminating == new.terminating
        )

    def _wait(self, task: Task, *, counted: bool = False) -> None:
        """Let a task without a node wait, or say why it cannot even wait. counted: its job was counted among others already."""
        pod = task.pod
        self.applicants.pop(pod.uid, None)
        task.become(TaskState.WAITING)
        task.level = self.services.of(task).level(self.services.before(task))
        if not stands_in(pod.uid):  # whose age is that of a job which ran: how long that waited in all is not known
            task.urgency = self.services.urgency(task)
            if (due := self.services.next_urgency(task)) is not None:
                heappush(self._nearing, (due, pod.uid))
        if pod.error is not None:
            self._set_aside(task, pod.error)
        elif (fault := self.isolation.why(pod.uid)) is not None:
            self._set_aside(task, fault)
        elif pod.gated:
            self._set_aside(task, Reason(ReasonCode.GATED, "the pod has scheduling gates"))
        elif wrong := next((each for each in pod.spec.mistakes if not each.scoring), None):
            self._set_aside(task, Reason(ReasonCode.INVALID_SPEC, f"{wrong.plugin} cannot read the pod: {wrong.message}"))
        elif not self.queues.knows(task.queue):
            self.queueless.setdefault(task.queue, {})[pod.uid] = task
            self._set_aside(task, self.admission.unknown_queue(task))
        elif (refused := self.admission.not_allowed(task)) is not None:
            self._set_aside(task, refused)
        elif not counted and self.admission.counts(task.queue):
            self.applicants[pod.uid] = task
            self._crowd = True
        elif task.gang is not None:
            self.unsettle(task.gang)
        else:
            self._push(Unit((task,), 1))

    def wait_again(self, task: Task) -> None:
        """A task that was set aside waits in line again, or says why it cannot."""
        self._withdraw(task)
        self._wait(task)

    def _set_aside(self, task: Task, reason: Reason) -> None:
        task.become(TaskState.UNUSABLE)
        if task.gang is not None:
            self.unsettle(task.gang)  # had it a place until now, its gang may have too few members
        self.notices.add((task,), reason)

    def _push(self, unit: Unit) -> None:
        unit.express = unit.level < self.services.of(unit.tasks[0]).express
        if any(task.pod.attained for task in unit.tasks):
            unit.since = max(unit.since, self.services.now)  # it ran before, and is created when it came first
        self.queues.push(unit.tasks[0].queue, unit)

    def _requeue_rest(self, unit: Unit, gone: Task) -> None:
        for task in unit.tasks:
            task.unit = None
        if unit.gang is not None and len(unit.tasks) > 1:
            self.unsettle(unit.gang)
        gone.unit = None

    # -- what pods refer to --------------------------------------------------------------------

    def upsert_namespace(self, namespace: Namespace) -> None:
        """A namespace came, or its labels changed."""
        self._set_namespace(namespace.name, dict(namespace.labels))

    def remove_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self._set_namespace(name, None)

    def _set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        changed = self.pairs.namespaces.get(name) != labels
        if self.pairs.set_namespace(name, labels):
            self.recount_pairs()
        if changed:
            self.belonging.namespace_changed(name)
        if changed and any(each.policy.namespaces for each in self.queues.queues.values()) | any(
            each.namespaces for each in self.services.classes.values()
        ):
            self._admit_again(lambda task: task.pod.namespace == name)

    def recount_pairs(self) -> None:
        """Count who is near whom anew."""

        def seen() -> Iterator[tuple[RankedShape, int, bool]]:
            there = ((task, row) for row in self.nodes.rows.values() for task in self.nodes.pods[row].values())
            lingering = ((self.tasks[uid], row) for uid, row in self.lingering.items())
            yield from ((task.shape, row, task.pod.terminating) for task, row in chain(there, lingering))

        self.pairs.recount(seen)

    def upsert_storage(self, item: StorageObject) -> None:
        """A claim, a volume, a storage class or one of their like came or changed."""
        self.storage.upsert(item)

    def storage_known(self) -> None:
        """All storage objects that exist have been said."""
        self.storage.known = True
        self.storage.version = new_version()

    def remove_storage(self, kind: type[StorageObject], name: str) -> None:
        """One of them is gone."""
        self.storage.remove(kind, name)

    def upsert_pool(self, pool: NodePool) -> None:
        """A node pool came or changed."""
        self.queues.upsert_pool(pool)

    def remove_pool(self, name: str) -> None:
        """A node pool is gone."""
        self.queues.remove_pool(name)

    def upsert_reservation(self, reservation: Reservation) -> None:
        """An administrator's reservation came or changed."""
        self.reserved.upsert(reservation)

    def remove_reservation(self, name: str) -> None:
        """An administrator's reservation is gone."""
        self.reserved.remove(name)

    def upsert_budget(self, budget: DisruptionBudget) -> None:
        """A disruption budget came or changed."""
        known = self.budgets.get(budget.key)
        if known != budget:
            self.budgets[budget.key] = budget
            self.budgets_version += 1
            if known is not None:
                self._unguard(known)

    def remove_budget(self, key: str) -> None:
        """A disruption budget is gone."""
        known = self.budgets.pop(key, None)
        self.budgets_version += 1
        if known is not None:
            self._unguard(known)

    @property
    def guarded(self) -> bool:
        """Whether anybody may be kept from eviction."""
        return bool(self.budgets) or self.overrides.any_refused

    def guard(self) -> Guard:
        """What disruption budgets allow besides what is leaving already."""
        leaving = (self.tasks[uid] for uid in self.holds if uid in self.tasks and not self.departures.was_deleted(uid))
        now = self.services.now
        return Guard(list(self.budgets.values()), leaving, lambda task: self.overrides.is_refused(task, now))

    def _unguard(self, budget: DisruptionBudget) -> None:
        """Whom a budget kept from falling may do so now: who waits for their places looks again."""
        if not self.queues.parked:
            return
        for task in self.tasks.values():
            if task.row >= 0 and task.pod.namespace == budget.namespace and protects(budget, task.pod, dict(task.pod.labels)):
                self.nodes.gained.add(task.row)

    # -- queues and groups ---------------------------------------------------------------------

    def upsert_class(self, service: ServiceClass) -> None:
        """A class of service came or changed."""
        if self.services.upsert(service):
            self.queues.name_firm(self.services.firm())
            for task in self.tasks.values():
                if task.row >= 0 and task.pod.ours and task.service_class == service.name:
                    self.services.runs(task)
                    if task.gang is not None:
                        self.starts.touch(task.gang)
            self._admit_again(lambda task: task.service_class == service.name)

    def remove_class(self, name: str) -> None:
        """A class of service is gone: its pods are served as those without a class."""
        if self.services.remove(name):
            self.queues.name_firm(self.services.firm())
            self._admit_again(lambda task: task.service_class == name)

    def _admit_again(self, concerned: Callable[[Task], bool]) -> None:
        """Who may use what has changed: those that wait are judged anew. Whoever runs goes on."""
        for task in list(self.tasks.values()):
            if task.row >= 0 or not task.pod.ours or task.pod.terminating or not concerned(task):
                continue
            if task.state is TaskState.WAITING or (task.state is TaskState.UNUSABLE and task.pod.error is None):
                with self.isolation.guard("admission", task):
                    self._withdraw(task)
                    self._find_queue(task)
                    self._wait(task)

    def _find_queue(self, task: Task) -> None:
        """A task no longer waits for its queue to be made."""
        others = self.queueless.get(task.queue)
        if others is not None and others.pop(task.pod.uid, None) is not None and not others:
            del self.queueless[task.queue]

    def _withdraw(self, task: Task) -> None:
        """A task that waits leaves its line."""
        if task.unit is not None:
            unit = task.unit
            unit.retire()
            self._requeue_rest(unit, task)

    def _count_jobs(self) -> None:
        """Where jobs are counted: whoever is within the limits waits in line, the others until one of those is done."""
        self._crowd = False
        tasks = [task for task in self.tasks.values() if self._counts(task)]
        try:
            beyond = self.admission.beyond(tasks)
        except Exception as error:
            found = self.isolation.blame("admission", tasks, lambda task: self.admission.beyond([task]), error)
            tasks = [task for task in tasks if task not in found]
            beyond = self.admission.beyond(tasks)
        for task in tasks:
            uid = task.pod.uid
            if task.row >= 0 or task.pod.node:
                continue
            if uid in beyond and task.state is TaskState.WAITING:
                self._withdraw(task)
                self.applicants[uid] = task
                self._set_aside(task, beyond[uid])
            elif uid not in beyond and uid in self.applicants:
                task.told = None
                self._wait(task, counted=True)

    def _counts(self, task: Task) -> bool:
        """Whether a task's job is one of those that are counted."""
        pod = task.pod
        if not pod.ours or pod.terminating or not self.queues.knows(task.queue) or not self.admission.counts(task.queue):
            return False
        return task.state is not TaskState.UNUSABLE or pod.uid in self.applicants

    def begin(self, now: float) -> None:
        """A pass begins: what depends on the time is looked at afresh."""
        self.services.begin(now)
        self.pass_caches.drop()
        guard = self.isolation.guard
        self.isolation.begin(now)
        if self.nodes.forget_devices():
            self.shapes.renumbered()
        self.belonging.begin()
        with guard("reservations"):
            self.reserved.begin(now)
        with guard("moves"):
            self.moves.expire(now)
        with guard("suspended"):
            self.suspended.begin(now)
        with guard("overrides"):
            self.overrides.tidy(now)

    def look_at_runtimes(self) -> None:
        """Some pods have run long enough, or attained enough, to fall for somebody: whoever waits may look at their rows."""
        for task in self.services.due(self.tasks):
            if task.state is TaskState.BOUND:
                self.nodes.gained.add(task.row)

    def upsert_queue(self, queue: Queue) -> Reason | None:
        """A queue came or changed; returns why the change was refused, if it was."""
        if queue.usage is not None:
            self.queues.fair.usage.restore(queue.name, queue.usage)
            queue = msgspec.structs.replace(queue, usage=None)
        if queue.run_times:
            self.runtimes.restore(queue.name, queue.run_times)
            queue = msgspec.structs.replace(queue, run_times=())
        if queue.forecasts:
            self.foretold.restore(queue.name, queue.forecasts)
            queue = msgspec.structs.replace(queue, forecasts=())
        known = self.queues.queues.get(queue.name)
        before = _who_may(known.policy) if known is not None else _who_may(Queue(queue.name))
        refused = self.queues.upsert(queue)
        unasked = self.queues.knows(DEFAULT_QUEUE)
        self.queues.see(queue.name)
        if unasked and not self.queues.knows(DEFAULT_QUEUE):
            self._queue_gone(DEFAULT_QUEUE)
        if refused is None and _who_may(queue) != before:
            self._admit_again(lambda task: self.queues.knows(task.queue) and self.queues.above(queue.name, task.queue))
        self._queue_came(queue.name)
        self.belonging.queue_changed(queue.name)
        self._guard_gpus(queue.name)
        return refused

    def _guard_gpus(self, name: str) -> None:
        """Room is kept beside free GPUs while some queue has a quota of GPUs."""
        node = self.queues.queues.get(name)
        policy = node.policy if node is not None and node.exists else Queue(name)
        gpus = self.policy.gpu_resources
        if any(each.name in gpus and (each.quota or each.quota_percent) for each in policy.resources):
            self._with_gpu_quota.add(name)
        else:
            self._with_gpu_quota.discard(name)
        self.nodes.guard_gpus(bool(self._with_gpu_quota))

    def _queue_came(self, name: str) -> None:
        """Those that named a queue which is there now are looked at again."""
        for task in list(self.queueless.pop(name, {}).values()):
            with self.isolation.guard("admission", task):
                task.told = None
                self._wait(task)

    def remove_queue(self, name: str) -> None:
        """A queue's object is gone: its waiting jobs wait for its return, what runs goes on."""
        known = self.queues.queues.get(name)
        judged = known is not None and _who_may(known.policy) != _who_may(Queue(name))
        self.queues.remove(name)
        if self.queues.knows(DEFAULT_QUEUE):
            self._queue_came(DEFAULT_QUEUE)
        if not self.queues.knows(name):
            self._queue_gone(name)
        if judged:
            self._admit_again(lambda task: task.queue in self.queues.queues and self.queues.above(name, task.queue))
        self.belonging.queue_changed(name)
        self._guard_gpus(name)

    def _queue_gone(self, name: str) -> None:
        """Those that wait in a queue wait for its return."""
        for task in self.tasks.values():
            if task.queue == name and task.state is TaskState.WAITING:
                with self.isolation.guard("admission", task):
                    if task.unit is not None:
                        task.unit.retire()
                        task.unit = None
                    self._wait(task)

    def upsert_group(self, group: Group) -> None:
        """A PodGroup came or changed."""
        gang = self.gangs.setdefault(group.key, Gang(group.key))
        if gang.group is None:
            self.finished.read(gang, group)
            self.starts.read(gang, group.failed_starts)
        group = self.belonging.group(gang, group)
        before, gang.group = gang.group, group
        if before != group:
            self.isolation.group_changed(gang)
        if group.service_class != (before.service_class if before is not None else ""):
            self.services.starts += 1
            for task in gang.tasks.values():
                self.queues.reclassify(task)
            self._admit_again(lambda task: task.gang is gang)
        if before is not None and before.time_limit != group.time_limit:
            for task in gang.bound():
                self.services.runs(task)
        for task in list(gang.tasks.values()):
            queue = group.queue or task.pod.queue
            if queue != task.queue and (self.belonging.believes or (task.row < 0 and not task.pod.node)):
                self._change_queue(task, queue)
        self.unsettle(gang)
        self.starts.touch(gang)
        self.suspended.upsert(group)

    def remove_group(self, key: str) -> None:
        """A PodGroup is gone; its pods stay where they are."""
        self.suspended.remove(key)
        gang = self.gangs.get(key)
        if gang is None:
            return
        self.belonging.group_gone(gang)
        gang.group = None
        self.finished.group_gone(gang)
        if gang.tasks:
            self.unsettle(gang)
        else:
            del self.gangs[key]
            self.starts.left(key)

    def _change_queue(self, task: Task, queue: str) -> None:
        self._find_queue(task)
        stray = task.pod.uid in self.strays.get(task.pod.node, {})
        if (task.row >= 0 or stray) and task.pod.ours:
            self.queues.charge(task, -1, task.row)
            task.queue = queue
            self.queues.charge(task, 1, task.row)
        task.queue = queue
        if task.state in (TaskState.WAITING, TaskState.UNUSABLE) and not task.pod.terminating:
            self._withdraw(task)  # else it stays in the line of a queue that it is in no more
            self._wait(task)

    def _become_urgent(self, now: float) -> None:
        """Those whose longest wait draws near go up in their line."""
        while self._nearing and self._nearing[0][0] <= now:
            _, uid = heappop(self._nearing)
            task = self.tasks.get(uid)
            if task is None or task.state is not TaskState.WAITING or self.services.urgency(task) == task.urgency:
                continue
            before = task.urgency
            with self.isolation.guard("settle", task):
                self._withdraw(task)
                self._wait(task, counted=True)
                if before < task.urgency == LATE:
                    self.overdue.append(task)

    def rerank(self, task: Task) -> None:
        """What its job has attained was not known when it came to wait."""
        level = self.services.of(task).level(self.services.before(task))
        if task.state is TaskState.WAITING and task.level != level and not stands_in(task.pod.uid):
            self._withdraw(task)
            self._wait(task, counted=True)

    @property
    def must_settle(self) -> bool:
        """Whether somebody must be made a unit, or counted, before the next decision."""
        return bool(self.unsettled) or self._crowd

    def unsettle(self, gang: Gang) -> None:
        """The gang's units must be made anew before the next decision."""
        self.unsettled[gang.key] = gang

    def settle(self, now: float) -> None:
        """Make the units of gangs that changed, and let delayed tasks wait again."""
        self.nodes.settle_labels()
        with self.isolation.guard("settle"):
            self._become_urgent(now)
        if self._crowd:
            with self.isolation.guard("admission"):
                self._count_jobs()
        while self._delayed and self._delayed[0][0] <= now:
            _, uid = heappop(self._delayed)
            task = self.tasks.get(uid)
            if task is not None and task.state is TaskState.WAITING and task.unit is None and task.not_before <= now:
                with self.isolation.guard("settle", task):
                    self._wait(task)
        if not self.unsettled:
            return
        for group in self.belonging.ended():
            with self.isolation.guard("settle", self.gangs.get(group.key) or ""):
                self.upsert_group(group)
        gangs, self.unsettled = self.unsettled, {}
        for gang in gangs.values():
            with self.isolation.guard("settle", gang):
                self._settle_gang(gang, now)

    def _settle_gang(self, gang: Gang, now: float) -> None:
        units, reason = gang.units(now, self.starts.waits(gang, now))
        if reason is not None:
            waiting = tuple(task for task in gang.tasks.values() if task.state is TaskState.WAITING)
            self.notices.add(waiting, reason)
        gang.reason = reason or self.isolation.why_of(gang)
        later = gang.later(now) if units else ()
        for unit in units:
            unit.later = later
            self._push(unit)
        if later:
            message = f"gang {gang.key} can do without it: it gets a place once those that it needs have theirs"
            self.notices.add(later, Reason(ReasonCode.GANG_INCOMPLETE, message))
        placed = len(gang.placed())
        if not placed or placed >= gang.needed:
            gang.fault_at = None  # whole, or gone: a later fault has a grace of its own
        elif gang.fault_at is None:
            gang.fault_at = now
        if gang.broken():
            self.faulty.add(gang.key)

    # -- outcomes of writes --------------------------------------------------------------------

    def bound(self, uid: str) -> None:
        """The binding was written."""
        task = self.tasks.get(uid)
        if task is not None and task.state is TaskState.ASSUMED:
            task.become(TaskState.BOUND)
            task.pod = msgspec.structs.replace(task.pod, node=self.nodes.names[task.row])
            task.faults = 0
            task.told = None
            self.newly_bound.append(task)
            self.services.runs(task)
            if task.gang is not None and task.gang.fault_at is not None:
                self.unsettle(task.gang)

    def bind_failed(self, uid: str, now: float) -> None:
        """The binding was refused: free the place, and wait longer after each refusal."""
        task = self.tasks.get(uid)
        if task is None or task.state is not TaskState.ASSUMED:
            return
        self.unassign(task)
        task.become(TaskState.WAITING)
        self._delay(task, now)
        if task.gang is not None:
            task.gang.fault_at = now
            self.unsettle(task.gang)
        heard = self.belonging.released(uid)
        if heard is not None:
            self.upsert_pod(heard)

    def evict_failed(self, uid: str, now: float, message: str = "") -> None:
        """An eviction was refused: the victim stays, and the plan it was part of is given up. message: what the server said."""
        if "disruption" in message.lower() and uid in self.tasks:
            self.overrides.refuse(uid, now)
        self.give_up(uid, now, rests=True)

    def give_up(self, uid: str, now: float, *, rests: bool = False) -> None:
        """The plan that a victim is part of is given up. rests: its beneficiaries wait before they are tried again."""
        victims = {uid, *self.plans.get(uid, ())}
        looked: set[str] = set()
        while waiting := {each for victim in victims for each in self.holds.get(victim, ())} - looked:
            looked |= waiting  # of those that wait, others of their gangs may wait for victims of other plans, and so on
            for beneficiary in sorted(waiting):
                victims |= self._waits_again(beneficiary, now, rests=rests)
            victims |= {other for victim in victims for other in self.plans.get(victim, ())}
        self._count_again(sorted(victims), now)

    def _waits_again(self, beneficiary: str, now: float, *, rests: bool) -> set[str]:
        """A task and its gang give up the places that are held for them; returns the victims that they waited for."""
        victims: set[str] = set()
        held = self.tasks.get(beneficiary)
        if held is None or held.state is not TaskState.HELD:
            return victims
        mates = held.gang.tasks.values() if held.gang else (held,)
        for each in list(mates):
            if each.state is TaskState.HELD:
                victims |= each.waits_for
                self.unassign(each)
                self._abandon(each)
                each.become(TaskState.WAITING)
                if rests:
                    self._delay(each, now)
                else:
                    self._wait(each, counted=True)
        if held.gang is not None:
            self.unsettle(held.gang)
        return victims

    def _forget_plan(self, uid: str) -> None:
        """A victim is gone. Its plan is remembered until all are: word that it failed may still be on its way."""
        plan = self.plans.get(uid, frozenset())
        if not any(other in self.tasks and self.tasks[other].state is TaskState.EVICTING for other in plan):
            for other in plan:
                self.plans.pop(other, None)

    def release_victims(self, tasks: list[Task], victims: list[str], given_up: Sequence[GivenUp] = ()) -> None:
        """These tasks wait for no victim any more: those who still run are counted where they do.

        given_up: the places that were held for the tasks; what victims fill of them for whom others still wait stays closed.
        """
        for task in tasks:
            self._abandon(task)
        self._count_again([uid for uid in victims if not self.holds.get(uid)], self.services.now, given_up)

    def _count_again(self, released: list[str], now: float, given_up: Sequence[GivenUp] = ()) -> None:
        """Nothing waits for these victims: they are counted where they run. No place is free that another victim still fills."""
        self._release_leftovers(*released)
        places = [*given_up, *self.moves.drop(*released)]
        for uid in released:
            self._stays(uid, now)
        for place in places:
            self.keep_closed(place)

    def keep_closed(self, place: GivenUp) -> None:
        """A place is given up: as much of it as is free stays closed until the victims that still fill its row are gone."""
        row, devices, spec = place.row, place.devices, place.spec
        still = [uid for uid in place.victims if self.lingering.get(uid) == row]
        if row < 0 or not still:
            return
        nodes = self.nodes
        free = nodes.devices.states[nodes.device.item(row)]
        left = tuple(device for device in devices if device < len(free) and free[device] >= spec.gpu_milli)
        amounts = ((name, min(amount, nodes.free[nodes.resources[name]].item(row))) for name, amount in spec.requests)
        requests = tuple((name, amount) for name, amount in amounts if amount > 0)
        if requests or left:
            self.close(PodSpec(requests, gpus=len(left), gpu_milli=spec.gpu_milli), row, left, still)

    def leftovers_of(self, victims: list[str]) -> list[Task]:
        """The stand-ins that keep closed what victims still fill beyond what was given away."""
        return list({id(each): each for uid in victims for each in self._leftovers.get(uid, ())}.values())

    def occupy(self, task: Task, row: int) -> None:
        """Count a victim on a row where it lingers."""
        self.queues.repay(task.pod.uid)
        self.assign(task, row, self._devices_of(task, row))

    def release_holds(self, tasks: list[Task]) -> None:
        """Places held for these are no good any more, though nobody is waited for: they wait in line again."""
        for task in tasks:
            self.unassign(task)
            self._wait(task)

    def _stays(self, uid: str, now: float) -> None:
        """A victim whose room is not needed any more is counted where it runs, until it is gone or for good."""
        self.holds.pop(uid, None)
        for other in self.plans.pop(uid, ()):
            if other not in self.tasks:
                self.plans.pop(other, None)  # gone before, and remembered for the others' sake
        victim = self.tasks.get(uid)
        if victim is None or victim.state is not TaskState.EVICTING:
            return
        self._part(victim)
        self.queues.repay(uid)
        self._unstray(victim, victim.pod.node)
        if victim.row >= 0:
            victim.become(TaskState.BOUND)  # its node was gone for a while
        else:
            self._place_bound(victim)
        if victim.gang is not None:
            victim.gang.fault_at = now
            self.unsettle(victim.gang)

    def _vacate(self, task: Task) -> None:
        """A place held for a task is given up. Once nobody waits for its victims they are counted where they run.

        While others of its gang wait for them they fill the room, so it stays closed; so does that of whoever only moves.
        """
        row, devices = task.row, task.devices
        self.unassign(task)
        victims = [uid for uid in sorted(task.waits_for) if uid in self.tasks]
        if any(len(self.holds.get(uid, ())) > 1 or uid in self.moves.kept for uid in victims):
            self.close(task.pod.spec, row, devices, victims)
        else:
            self.release_victims([task], victims)

    def close(self, spec: PodSpec, row: int, devices: tuple[int, ...], victims: list[str]) -> None:
        """A stand-in on a row until the victims are gone. No queue is charged for it: theirs are for them (`queues.Debt`)."""
        number = len(self._leftovers.get(victims[0], ()))
        queue, name = self.tasks[victims[0]].queue, f"leaving-{victims[0]}"
        pod = Pod(f"leaving/{victims[0]}/{number}", "", name, spec, queue=queue, ours=False)
        stand_in = Task(pod, self.shapes.intern(spec))
        self.log.call(self.shapes.release, stand_in.shape)
        stand_in.become(TaskState.EVICTING)  # nobody's victim
        self.assign(stand_in, row, devices)
        for uid in victims:
            self.log.insert(self._leftovers, uid, [*self._leftovers.get(uid, ()), stand_in])

    def hold_leftovers(self, places: dict[str, tuple[int, tuple[int, ...]]]) -> None:
        """Keep closed what victims still occupy beyond what their beneficiaries take, until they are gone.

        places: victim's UID -> its row and devices. Per row one stand-in holds the difference in amounts and
        the devices that stayed entirely free; what is left of a device that is shared has one of its own. What moved pods take
        there once the victims are gone is taken from it, too.
        """
        after = {id(kept.stand_in) for kept in self.moves.kept.values() if not places.keys().isdisjoint(kept.after)}
        by_row: dict[int, list[str]] = {}
        for uid, (row, _) in places.items():
            by_row.setdefault(row, []).append(uid)
        for row, uids in by_row.items():
            left: dict[int, int] = {}
            taken: dict[int, int] = {}  # device -> milli that victims hold of it
            for uid in uids:
                shape = self.tasks[uid].shape
                for column, amount in shape.demand:
                    left[column] = left.get(column, 0) + amount
                for device in places[uid][1]:
                    taken[device] = taken.get(device, 0) + shape.gpu_milli
            for task in self.nodes.pods[row].values():
                if (task.state is TaskState.HELD and not task.waits_for.isdisjoint(uids)) or (after and id(task) in after):
                    for column, amount in task.shape.demand:
                        left[column] = left.get(column, 0) - amount
                    for device in task.devices:
                        taken[device] = taken.get(device, 0) - task.shape.gpu_milli
            free = self.nodes.devices.states[self.nodes.device.item(row)]
            rest = {device: min(milli, free[device]) for device, milli in taken.items() if milli > 0 and device < len(free)}
            whole = tuple(sorted(device for device, milli in rest.items() if milli == WHOLE))
            amounts = {name: amount for name, column in self.nodes.resources.items() if (amount := left.get(column, 0)) > 0}
            if amounts or whole:
                self.close(PodSpec(tuple(sorted(amounts.items())), gpus=len(whole)), row, whole, uids)
            for device, milli in sorted(rest.items()):
                if 0 < milli < WHOLE:
                    self.close(PodSpec((), gpus=1, gpu_milli=milli), row, (device,), uids)

    def _release_leftovers(self, *uids: str) -> None:
        """All at once before any of these is counted where it runs: devices are chosen for it then."""
        for uid in uids:
            for stand_in in self.forget_leftovers(uid):
                self.unassign(stand_in)
                self.shapes.release(stand_in.shape)

    def forget_leftovers(self, uid: str) -> list[Task]:
        """The stand-ins that stood for a victim and for no other; they are forgotten, and still on their rows."""
        gone = self._leftovers.pop(uid, [])
        return [each for each in gone if not any(each in others for others in self._leftovers.values())]

    def _delay(self, task: Task, now: float) -> None:
        task.faults += 1
        task.not_before = now + self.policy.write_rest(task.faults)
        heappush(self._delayed, (task.not_before, task.pod.uid))

    def _abandon(self, task: Task) -> None:
        """The task no longer waits for anyone's leaving."""
        for victim in task.waits_for:
            waiting = self.holds.get(victim)
            if waiting is not None:
                waiting.discard(task.pod.uid)
            self.queues.uncredit(victim, task.pod.uid)
        task.waits_for = set()
        if task.instead_of:
            self._charge_back(task)

    @property
    def next_due(self) -> float | None:
        """When a pass is due although nothing happened: a backoff or a rest ends, or a gang's grace."""
        times = [self._delayed[0][0]] if self._delayed else []
        times += [room.rests_until for room in self.queues.resting]
        times += [self._nearing[0][0]] if self._nearing else []
        others = (
            self.reserved.next_due,
            self.moves.next_due,
            self.suspended.next_due,
            self.starts.next_due,
            self.departures.next_due,
            self.isolation.next_due,
        )
        times += [due for due in others if due is not None]
        times += self.queues.ripening.values()
        times += [self.services.next_end] if self.services.next_end is not None else []
        if self.queues.parked and (due := self.services.next_due) is not None:
            times.append(due)
        for key in self.faulty:
            gang = self.gangs.get(key)
            if gang is not None:
                times.append((gang.fault_at or 0.0) + self.policy.gang_grace)
        return min(times, default=None)

    # -- placing, under the undo log -----------------------------------------------------------

    def takes(self, task: Task, row: int) -> bool:
        """Whether a task fits a row now, and no limit is in the way there."""
        return task.shape.fits_row(row) and self.queues.over_limit(task, row=row) is None

    def place(self, task: Task, row: int) -> None:
        """Put a task on a row where it fits, on the devices there that its strategy prefers."""
        self.assign(task, row, task.shape.strategy.pick(task.shape, row))

    def assign(self, task: Task, row: int, devices: tuple[int, ...]) -> None:
        """Put a task on a row and charge everything it holds; whether it fits is the caller's concern."""
        nodes, log, shape = self.nodes, self.log, task.shape
        free = nodes.free
        state = nodes.devices.take(nodes.device.item(row), devices, shape.gpu_milli) if devices else -1
        if log.depth:
            log.call(self._reset, (task, task.row, task.devices, row))
            log.add_at(free, row, shape.demand, -1)
            if devices:
                log.put(nodes.device, row, state)
            log.insert(nodes.pods[row], task.pod.uid, task)
        else:
            task.row, task.devices = row, devices  # first: should anything raise, it is known where it was to be
            log.add_at(free, row, shape.demand, -1)
            if devices:
                nodes.device[row] = state
            nodes.pods[row][task.pod.uid] = task
        if shape.lingers:
            self._surround(task, row, 1)
        task.row = row
        task.devices = devices
        if task.charged:
            self.queues.charge(task, 1, row)
            if task.instead_of:
                self.charge_instead(task)
        nodes.touch(row)
        if nodes.room_wanted and shape.gpus:
            nodes.gained.add(row)  # fewer free GPUs: work without devices may have a place there now

    def unassign(self, task: Task) -> None:
        """Take a task off its row and give everything back."""
        nodes, log, shape, row = self.nodes, self.log, task.shape, task.row
        if row < 0:
            return
        if log.depth:
            log.call(self._reset, (task, row, task.devices, row))
        log.add_at(nodes.free, row, shape.demand, 1)
        if task.devices:
            state = nodes.devices.give(nodes.device.item(row), task.devices, shape.gpu_milli)
            log.put(nodes.device, row, state)
        log.remove(nodes.pods[row], task.pod.uid)
        if shape.lingers:
            self._surround(task, row, -1)
        task.row = -1
        task.devices = ()
        if task.charged:
            self.queues.charge(task, -1, row)
        if task.instead_of:
            self._charge_back(task)
        nodes.touch(row)
        if not log.depth:
            nodes.gained.add(row)

    def charge_instead(self, task: Task) -> None:
        """From now on it is charged in the stead of a pod that moves, if that one is still there."""
        self._charge_moved(task.instead_of, task)

    def _charge_back(self, task: Task) -> None:
        """It is charged in no other pod's stead any more: that pod is itself from now on, if it is still there."""
        uid = task.instead_of
        self.log.set(task, "instead_of", "")
        self._charge_moved(uid, None)

    def _charge_moved(self, uid: str, instead: Task | None) -> None:
        row = self.lingering.get(uid)
        if row is not None and self.tasks[uid].charged:
            self.queues.owe_moved(self.tasks[uid], row, instead)

    def _surround(self, task: Task, row: int, by: int) -> None:
        """Count what a pod means to others on a row, beyond the amounts it holds: it came (1) or left (-1)."""
        shape = task.shape
        if shape.spec.claims and not task.pod.node:
            self._reserve_volumes(task, row, by)
        if shape.labels is not None:
            self.pairs.add(task.shape, row, by, leaving=task.pod.terminating)
        if shape.holds:
            self.holdings.add(task.shape.spec, row, by)
        for line, amount in zip(self.nodes.extra, shape.extra, strict=True):
            if amount:
                self.log.put(line, row, line.item(row) + by * amount)

    def _reserve_volumes(self, task: Task, row: int, by: int) -> None:
        """Claims that wait for their first consumer get their volumes with the place of their pod, and lose them with it."""
        if by < 0:
            for use in task.shape.spec.claims:
                self.storage.release(self.log, use.key)
            return
        for relation in task.shape.relations:
            if isinstance(relation, VolumeBinding) and relation.stop() is None:
                decided = relation.decide(row)
                for each in decided if isinstance(decided, list) else ():
                    self.storage.reserve(self.log, each.claim, each.volume, self.nodes.names[row])

    def volumes_of(self, task: Task) -> tuple[VolumeChoice, ...]:
        """What was decided for the claims of a pod that is not bound yet."""
        storage = self.storage
        claims = [use.key for use in task.shape.spec.claims]
        return tuple(
            VolumeChoice(key, storage.given.get(key, "")) for key in claims if key in storage.given or key in storage.chosen
        )

    def _reset(self, saved: tuple[Task, int, tuple[int, ...], int]) -> None:
        task, old_row, devices, row = saved
        task.row, task.devices = old_row, devices
        self.nodes.touch(row)

    def _devices_of(self, task: Task, row: int) -> tuple[int, ...]:
        """The devices counted for a pod that is on a row already: the ones that would be chosen.

        The kubelet chose the real ones; where none fits any more, the freest are taken into debt.
        """
        if not task.shape.gpus:
            return ()
        self.shapes.refresh()
        return task.shape.devices_on(row)

    # -- for tests -----------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything that counts, by name and in order, free of rows: equal states are equal here."""
        nodes = self.nodes
        return {
            "nodes": {
                name: {
                    "free": {resource: nodes.free[index].item(row) for resource, index in sorted(nodes.resources.items())},
                    "devices": nodes.devices.states[nodes.device.item(row)],
                    "pods": {uid: task.devices for uid, task in sorted(nodes.pods[row].items())},
                }
                for name, row in sorted(nodes.rows.items())
            },
            "queues": {
                name: {resource: amount for resource, amount in sorted(node.used.items()) if amount}
                for name, node in sorted(self.queues.queues.items())
            },
            "tasks": {
                uid: (task.state.value, nodes.names[task.row] if task.row >= 0 else "", task.devices)
                for uid, task in sorted(self.tasks.items())
            },
        }


def _unsized(pod: Pod) -> Pod:
    """A pod whose amounts cannot be counted beside those of others on its node."""
    message = f"pod {pod.key}: together with others on node {pod.node} it asks for more than can be counted"
    return msgspec.structs.replace(pod, error=Reason(ReasonCode.TOO_LARGE, message), unsized=True)


def _who_may(policy: Queue) -> tuple[object, ...]:
    """The part of a queue's policy that says who may wait in it; its parent does, too."""
    return policy.parent, policy.namespaces, policy.users, policy.classes, submitted_limits(policy)
