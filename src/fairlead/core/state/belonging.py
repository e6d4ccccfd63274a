"""Belonging: what is placed stays what it was admitted as, until it ends.

A pod that has a place is charged to the queue, class, user, group, priority and size that it had when it got the place,
whatever its labels and annotations are later; a PodGroup of which a member has a place keeps its queue, class and minimum. A
time limit, and a gang's minimum, may become smaller. Requests that the kubelet changed in place are followed: a tenant
cannot write those.

Before the first pass everything is believed as it is: a scheduler that has just begun knows nothing else. What runs in a
queue that does not exist, or does not admit it, is then charged to the default queue of its namespace, and keeps no class
that it may not use.

Pods that another scheduler placed are in no queue. With the policy `charge_foreign` the default queue of their namespace is
charged for them: they count in its quotas, limits and shares, wait in no line, and are never victims.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.api.names import DEFAULT_QUEUE, DEFAULT_QUEUE_LABEL
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.groups import Group
from fairlead.core.model.pods import Pod
from fairlead.core.model.transactions import Kept, ref_of
from fairlead.core.pods.tasks import Gang, Task, TaskState
from fairlead.core.state.isolation import Isolation
from fairlead.core.state.placement import Placement
from fairlead.core.state.tables import Tables

_FIXED = {
    "queue": "queue",
    "service_class": "ServiceClass",
    "group": "pod group",
    "user": "user",
    "elastic": "elastic replica",
    "priority": "priority",
    "expected": "expected duration",
}
"""Fields of a pod that stay, and what messages call them."""


class Belonging:
    """What was admitted, and what was observed since that differs from it.

    believes: nothing was decided yet, so objects count as they are.
    """

    def __init__(self, tables: Tables, placement: Placement, isolation: Isolation) -> None:
        self._tables = tables
        self._placement = placement
        self._isolation = isolation
        self.believes = True
        self._observed: dict[str, Pod] = {}  # UID of a pod that has a place -> its view, where that differs
        self._groups: dict[str, Group] = {}  # the same of groups
        self._gone: dict[str, Group] = {}  # groups as admitted that were deleted while members had places
        self._left: set[str] = set()  # of those, the ones that may have no member any more
        self._unreported: dict[str, Kept] = {}
        self._foreign: dict[str, dict[str, Task]] = {}  # namespace -> uid -> pod of another scheduler, where queues pay
        self._home: dict[str, str] = {}  # uid of such a pod -> its namespace
        self._knew_default = True  # whether there was a queue `default` at the last check
        self.payers = 0  # how often another queue was to pay for one

    # -- pods ----------------------------------------------------------------------------------

    def holds(self, task: Task) -> bool:
        """Whether a task has a place that is written, or being written, so that what it was admitted with stays."""
        return not self.believes and task.state not in (TaskState.WAITING, TaskState.UNUSABLE, TaskState.HELD)

    def view(self, task: Task, pod: Pod) -> Pod:
        """A newer view of a pod that has a place, with what stays as it was admitted."""
        old, uid = task.pod, pod.uid
        kept = {field: getattr(old, field) for field in _FIXED if getattr(old, field) != getattr(pod, field)}
        if not pod.ours:
            kept.pop("queue", None)  # it never was in one; who pays for it is another question
        named = [_FIXED[field] for field in kept if field != "priority"]
        if "elastic" in kept:
            kept["never_preempts"] = old.never_preempts
        limit = self._limit(self._tables.services.of(task).time_limit, old.time_limit, pod.time_limit)
        if limit != pod.time_limit:
            kept["time_limit"] = limit
            named.append("time limit")
        spec = pod.spec
        if _devices(old) != _devices(pod) and not old.unsized and not (old.error is not None and _milli(pod) > _milli(old)):
            spec = msgspec.structs.replace(spec, gpus=old.spec.gpus, gpu_milli=old.spec.gpu_milli)
            named.append("GPU fraction")
        if spec.shared != old.spec.shared and not old.unsized and old.error is None:
            spec = msgspec.structs.replace(spec, shared=old.spec.shared)
            named.append("shared resources")
        if spec is not pod.spec:
            kept["spec"] = spec
        if task.state is TaskState.BOUND and not pod.node:
            kept["node"] = old.node  # an older view: nothing leaves its node
        if not kept:
            self._observed.pop(uid, None)
            self._unreported.pop(uid, None)
            return pod
        if self._observed.get(uid) != pod:
            self._note(uid, pod, named)
        return msgspec.structs.replace(pod, **kept)

    def _note(self, uid: str, pod: Pod, named: list[str]) -> None:
        known = self._observed.get(uid)
        self._observed[uid] = pod
        if named and (known is None or _admission(known) != _admission(pod)):
            message = f"the pod is placed, so these values stay as admitted until it ends: {', '.join(named)}"
            self._unreported[uid] = Kept(ref_of(pod), Reason(ReasonCode.ADMITTED_STAYS, message))

    def note_assumed(self, pod: Pod) -> None:
        """The observed view of a pod whose binding is on its way: it counts should the binding be refused."""
        self._observed.setdefault(pod.uid, pod)

    def released(self, uid: str) -> Pod | None:
        """A binding was refused: the pod's latest view, where that differs from what was admitted."""
        self._unreported.pop(uid, None)
        return self._observed.pop(uid, None)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._observed.pop(uid, None)
        self._unreported.pop(uid, None)
        home = self._home.pop(uid, None)
        if home is not None:
            del self._foreign[home][uid]
            if not self._foreign[home]:
                del self._foreign[home]

    @staticmethod
    def _limit(default: float, old: float, new: float) -> float:
        """The time limit that a pod or a group gives from now on: it may become shorter. default: that of its class."""
        if new and new < (old or default or float("inf")):
            return new
        return old

    # -- groups --------------------------------------------------------------------------------

    @staticmethod
    def started(gang: Gang | None) -> bool:
        """Whether a member of a gang has a place; one that is reserved for a job that resumes does not count yet."""
        return gang is not None and any(
            (task.row >= 0 or task.pod.node) and not task.pod.placeholder for task in gang.tasks.values()
        )

    def group(self, gang: Gang, group: Group) -> Group:
        """A group as it counts: as it was admitted, once a member has a place."""
        key = group.key
        if self.believes or not self.started(gang):
            self._groups.pop(key, None)
            self._gone.pop(key, None)
            return group
        known = gang.group or self._gone.pop(key, None) or Group(group.namespace, group.name, group.min_member)
        service = self._tables.services.classes.get(known.service_class)
        kept = msgspec.structs.replace(
            group,
            queue=known.queue,
            service_class=known.service_class,
            min_member=min(known.min_member, group.min_member),
            time_limit=self._limit(service.time_limit if service is not None else 0.0, known.time_limit, group.time_limit),
            expected=known.expected,
            closeness=known.closeness,
        )
        if kept == group:
            self._groups.pop(key, None)
        else:
            self._groups[key] = group
        return kept

    def differs(self, key: str) -> Reason | None:
        """Why a group's spec is not what counts, or None."""
        observed, gang = self._groups.get(key), self._tables.gangs.get(key)
        if observed is None or gang is None or gang.group is None:
            return None
        fields = (
            ("queue", "queue"),
            ("service_class", "serviceClass"),
            ("min_member", "minMember"),
            ("time_limit", "timeLimit"),
            ("expected", "expectedDuration"),
            ("closeness", "topology"),
        )
        named = [shown for field, shown in fields if getattr(observed, field) != getattr(gang.group, field)]
        message = f"members are placed, so these fields of the spec stay as admitted until they end: {', '.join(named)}"
        return Reason(ReasonCode.ADMITTED_STAYS, message)

    def group_gone(self, gang: Gang) -> None:
        """A group is gone. Members that have places keep what it gave them."""
        group, key = gang.group, gang.key
        self._groups.pop(key, None)
        if group is None or self.believes or not self.started(gang):
            return
        self._gone[key] = group
        for task in gang.tasks.values():
            if task.row >= 0 or task.pod.node:
                given = [each for each in (group.time_limit, task.pod.time_limit) if each]
                task.pod = msgspec.structs.replace(
                    task.pod,
                    service_class=task.service_class,
                    time_limit=min(given, default=0.0),
                    expected=group.expected or task.pod.expected,
                )

    def gang_left(self, key: str) -> None:
        """A gang without a group has lost its last member. One that is only taken in anew comes back before the next pass."""
        if key in self._gone:
            self._left.add(key)

    def ended(self) -> list[Group]:
        """Groups of which no member has a place any more, as their objects are now; what was kept of others is forgotten."""
        if not self._groups and not self._gone:
            return []
        gangs = self._tables.gangs
        for key in [key for key in self._gone if not self.started(gangs.get(key))]:
            del self._gone[key]
        return [group for key, group in sorted(self._groups.items()) if not self.started(gangs.get(key))]

    # -- where what runs is charged ------------------------------------------------------------

    def begin(self) -> None:
        """A pass begins: from the first on, what is placed stays what it is."""
        for key in self._left:
            if not self.started(self._tables.gangs.get(key)):
                self._gone.pop(key, None)
        self._left.clear()
        if not self.believes:
            return
        self.believes = False
        admitted: set[tuple[str, ...]] = set()  # of most pods that run there are many alike
        for _, task in sorted(self._tables.tasks.items()):
            alike = task.queue, task.service_class, task.user, task.pod.namespace
            if task.state is TaskState.BOUND and alike not in admitted:
                with self._isolation.guard("belonging", task):
                    if self.lodge(task):
                        admitted.add(alike)

    def lodge(self, task: Task) -> bool:
        """A pod came that has a node already: it is charged only where it may be, and keeps only a class that it may use.

        Returns whether it may have the queue and the class that it names.
        """
        if self.believes or not task.pod.ours:
            return False
        tables = self._tables
        refused_class = tables.admission.refuses_class(task)
        if refused_class:
            name = task.service_class
            if task.gang is not None and task.gang.group is not None and task.gang.group.service_class == name:
                task.gang.group = msgspec.structs.replace(task.gang.group, service_class="")
            self._recharge(
                task, msgspec.structs.replace(task.pod, service_class="", priority=min(0, task.pod.priority)), task.queue
            )
            self._note_refused(task, f"{refused_class}; the pod runs and counts as one without a ServiceClass")
        if not tables.queues.tree.knows(task.queue):
            refused = f"queue {task.queue!r} does not exist"
        else:
            refused = tables.admission.refuses_queue(task)
        if refused and (queue := self.default_queue(task.pod.namespace)) != task.queue:
            self._recharge(task, msgspec.structs.replace(task.pod, queue=queue), queue)
            self._note_refused(task, f"{refused}; the pod runs and is charged to {queue!r}, the default queue of its namespace")
        return not refused and not refused_class

    def _recharge(self, task: Task, pod: Pod, queue: str) -> None:
        placed = task.row >= 0 or self._placement.is_stray(task)
        self._tables.queues.accounts.changes.pods[pod.uid] = None
        if placed and task.charged:
            self._tables.queues.charge(task, -1, task.row)
        task.pod = pod
        self._tables.move(task, queue)
        if placed and task.charged:
            self._tables.queues.charge(task, 1, task.row)

    def _note_refused(self, task: Task, message: str) -> None:
        self._unreported[task.pod.uid] = Kept(task.ref, Reason(ReasonCode.NOT_ALLOWED, message))

    def default_queue(self, namespace: str) -> str:
        """The queue of a namespace's pods that name none: that of the namespace's label, else `default`."""
        return self._tables.pairs.namespaces.get(namespace, {}).get(DEFAULT_QUEUE_LABEL) or DEFAULT_QUEUE

    # -- pods of others ------------------------------------------------------------------------

    def payer(self, task: Task) -> str:
        """The queue that is charged for a pod of another scheduler; empty: none.

        Where its namespace has no label, only devices count, and then all that goes with them: every cluster has namespaces
        of system daemons without the label, whose CPU and memory are no business of queue `default`.
        """
        tables, namespace = self._tables, task.pod.namespace
        if not tables.policy.charge_foreign:
            return ""
        labelled = tables.pairs.namespaces.get(namespace, {}).get(DEFAULT_QUEUE_LABEL)
        queue = self.default_queue(namespace) if labelled or task.shape.counted_milli else ""
        return queue if queue and tables.queues.tree.knows(queue) else ""

    def take_in(self, task: Task) -> None:
        """A pod is on a node, and counted nowhere yet: one of another scheduler is charged to the queue that pays for it."""
        if task.pod.ours or not self._tables.policy.charge_foreign:
            return
        self._enter(task)
        task.queue = self.payer(task)

    def _enter(self, task: Task) -> None:
        self._foreign.setdefault(task.pod.namespace, {})[task.pod.uid] = task
        self._home[task.pod.uid] = task.pod.namespace

    def namespace_changed(self, namespace: str) -> None:
        """Another queue may be the default one of a namespace."""
        for task in list(self._foreign.get(namespace, {}).values()):
            payer = self.payer(task)
            if payer != task.queue:
                self._recharge(task, task.pod, payer)
                self.payers += 1
                if not payer and task.row >= 0:
                    self._tables.nodes.gained.add(task.row)  # upstream's preemption may take it now

    def queue_changed(self, name: str) -> None:
        """A queue came or went; where it is the first, or the last one of all, `default` may have, too."""
        names, knows = {name}, self._tables.queues.tree.knows(DEFAULT_QUEUE)
        if knows != self._knew_default:
            self._knew_default = knows
            names.add(DEFAULT_QUEUE)
        for namespace in [each for each in self._foreign if self.default_queue(each) in names]:
            self.namespace_changed(namespace)

    def judge_anew(self) -> None:
        """All accounts are being reckoned anew: who pays for pods of others is, too."""
        self._foreign, self._home = {}, {}
        for task in self._tables.tasks.values():
            if not task.pod.ours and task.pod.node:
                task.queue = self.payer(task)
                if self._tables.policy.charge_foreign:
                    self._enter(task)
        self.payers += 1

    def outside(self) -> dict[str, int]:
        """What pods of others on nodes hold for which no queue is charged, in charged units."""
        held: dict[str, int] = {}
        for task in self._tables.tasks.values():
            if task.row >= 0 and not task.charged:
                for resource, amount in self._tables.queues.tree.parts.at(task.shape, task.row):
                    held[resource] = held.get(resource, 0) + amount
        return held

    def report(self) -> Iterator[Kept]:
        """What was not reported yet."""
        unreported, self._unreported = self._unreported, {}
        yield from unreported.values()


def _devices(pod: Pod) -> tuple[int, int]:
    return pod.spec.gpus, pod.spec.gpu_milli


def _milli(pod: Pod) -> int:
    return pod.spec.gpus * pod.spec.gpu_milli if pod.spec.gpus else 0


def _admission(pod: Pod) -> tuple[object, ...]:
    return (*(getattr(pod, field) for field in _FIXED), pod.time_limit, _devices(pod), pod.spec.shared)
