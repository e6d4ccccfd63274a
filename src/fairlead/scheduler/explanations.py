"""Explanations: where a job stands, who is ahead of it, what stands in its way, and when it is expected to start.

The leader makes them from its state as it is, deciding nothing (`live`), `fairlead explain` from a snapshot of the
cluster. The order is that of `core.queue_position`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Any

import msgspec

from fairlead.api import names, quantity
from fairlead.api.names import JOB_LABEL
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster.times import timestamp
from fairlead.core.explain import own
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Gang, Task, TaskState, Unit
from fairlead.core.queue_position import Ahead, Term, ahead_of, blocked_by, line, terms
from fairlead.core.queues.queue_node import QueueNode, pending_class_of
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.foretold import Expected
from fairlead.core.state.suspended import made_before, made_for
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.others import without_others

SHOWN = 5
"""So many of the jobs ahead are listed."""

ADVICE = {
    "Resources": "It starts when enough capacity is free; jobs with a lower priority in its queue may be preempted for it.",
    "NodeClosed": "Nodes are closed by objects whose size cannot be read: correct or delete the objects named in the message.",
    "TooLarge": "The request exceeds the whole cluster: request less, or add nodes.",
    "NodeAffinity": "No node has the requested labels: check nodeSelector and affinity.",
    "Taints": "The nodes it could use are tainted: add a toleration, or wait until they are ready.",
    "LimitExceeded": "It starts when its queue holds less, or when the limit of the queue is raised (see `fairlead share`).",
    "QuotaExceeded": "Wait for other non-preemptible jobs to end, raise the quota of its queue, or use a preemptible class.",
    "Topology": "Pod affinity or topology spread excludes every node, or no domain of the network holds its whole gang. It "
    "starts when pods that are in the way end; or relax the rule.",
    "PreferredTopology": "It starts when enough is free in fewer domains, or when the time that the message states is over.",
    "Volumes": "No node has access to its volumes: use another storage class, or a volume in another zone.",
    "UserLimit": "It starts when other jobs of its user in the queue end, or when the perUser limits of the queue are raised.",
    "AdmittedStays": "Undo the change, or submit the job again: a placed job keeps the values that it was admitted with.",
    "NotAllowed": "Ask an administrator: the queue or the ServiceClass does not admit its namespace, user or class.",
    "UnknownServiceClass": "Create the ServiceClass, or name another: in spec.serviceClass of an AIJob or PodGroup, else in "
    "the label fairlead.dev/service-class.",
    "Reservation": "Set expectedDuration or timeLimit: a job that ends before the reservation begins may start now.",
    "GangIncomplete": "Create the PodGroup or the pods that are missing, or lower minMember.",
    "UnknownQueue": "Create the queue, or name another: in spec.queue of an AIJob or PodGroup, else in the label "
    "fairlead.dev/queue.",
    "OtherScheduler": "Name a queue of its own scheduler in the label fairlead.dev/queue, or the scheduler of its queue.",
    "InvalidSpec": "Correct the object: it cannot be scheduled as it is.",
    "InternalError": "It is retried automatically, and when it changes. The scheduler's log has the traceback: please report it.",
    "Gated": "Its scheduling gates must be removed by the user or controller that set them.",
    "Devices": "Claims: other pods end, or ask for other devices (`fairlead devices --claim NAME` shows why, node by node). "
    "GPU fractions need nodes whose label fairlead.dev/gpu-sharing names an agent of gpuSharing.agents in the "
    "configuration.",
    "DisruptionBudget": "It starts when the budget allows disruptions or its pods end. The owner of the budget can change it.",
    "WaitingForVictims": "It starts when these pods have ended, or on other nodes if those are free earlier.",
    "SharedResources": "It starts when pods of the pool end, or are preempted, that take of what its nodes share. Ask for less, "
    "or ask an administrator for the names and amounts in `sharedResources` of NodePools.",
    "Dependency": "It starts when the jobs in its spec.dependsOn have ended as required there.",
    "DependencyMissing": "Submit the job that is missing, and this one waits for it; or cancel this one.",
    "DependencyCycle": "Remove one of these dependencies, or cancel one of the jobs.",
    "WrongIndexes": "Correct spec.array.indexes, or cancel the job and submit it again.",
    "PodsRefused": "Correct in its template what the message names; it is tried again.",
    "Suspended": "It continues when it is resumed: by its user (`fairlead resume`), or by the scheduler when capacity is free.",
    "Backoff": "It failed, or a binding was refused, a moment ago; it is retried soon.",
}


_QUARANTINED = (
    "Nodes that it could use are quarantined (annotation fairlead.dev/quarantine-reason). It starts when the quarantine ends "
    "(fairlead.dev/quarantined-until), or when an administrator removes the label fairlead.dev/quarantined from a sound node."
)


_RECONFIGURED = (
    "An idle node is being reconfigured through mig-manager (taint fairlead.dev/mig-reconfiguring); it takes pods again within "
    "minutes, with the partitions of its new configuration."
)


_BEYOND_LIMIT = (
    "It asks for more than the limit allows while nothing else runs: request less, or ask an administrator to raise the limit."
)
_SMALLER = "Request less in each pod, or add larger nodes."


def advice_of(reason: Reason) -> str | None:
    """What helps against a reason, if that is known."""
    if names.MIG_TAINT in reason.message:
        return _RECONFIGURED
    numbers = reason.numbers
    if reason.code in (ReasonCode.LIMIT_EXCEEDED, ReasonCode.USER_LIMIT) and numbers.get("requested", 0) > numbers.get(
        "limit", 0
    ):
        return _BEYOND_LIMIT
    return _QUARANTINED if numbers.get("quarantined") else ADVICE.get(str(reason.code))


def advice_for(state: ClusterState, waiting: Iterable[Task], reason: Reason) -> str | None:
    """What helps against a reason for which these pods wait: nothing that ends helps one that no node is large enough for."""
    if reason.code is ReasonCode.RESOURCES:
        for spec in dict.fromkeys(task.pod.spec for task in waiting):
            for resource, amount in spec.requests:
                most = max((node.allocatable.get(resource, 0) for node in state.nodes.objects if node is not None), default=0)
                if 0 < most < amount:
                    asked, has = quantity.show(resource, amount), quantity.show(resource, most)
                    return f"No node is large enough: a pod asks for {asked} {resource}, the largest node has {has}. " + _SMALLER
    return advice_of(reason)


class GpuRequest(msgspec.Struct, frozen=True):
    """What a job requests that is less than a GPU. count: how many, by all its pods; gpus: the part of a GPU that each is."""

    resource: str
    count: int
    gpus: float


class Explanation(msgspec.Struct, frozen=True):
    """One job. position: 1 is next in its queue; ahead: the first of those before it, and why; null once it is placed.

    rank: the terms that decide who is next, the first that differs counts. expected_start: if all runs as long as it is thought
    to, RFC 3339; earliest_start, latest_start: it starts between them in eight cases of ten. message: why it waits now, numbers:
    those of the message; reported: the message in the object's conditions; would_start_on: where a pass that began now would
    place it; would_evict: its victims there. quarantined: nodes that are kept from it, until when and why. reconfigured: nodes
    that get another configuration of MIG for it. blocked_by: the pending job that would preempt it at once, so that it
    evicts no pod. gpu_parts: of `gpus` what partitions and replicas are.
    spares: how many spare places it asks for; spare_nodes: the node of each that is kept.
    """

    object: str
    queue: str
    state: str
    pods: int
    placed: int
    gpus: float
    priority: int
    waiting_seconds: float | None
    nodes: list[str]
    position: int | None
    queued: int
    ahead: list[Ahead]
    rank: list[Term]
    user: str
    service_class: str
    expected_start: str | None
    expected_wait_seconds: float | None
    code: str | None
    message: str | None
    numbers: dict[str, int]
    reported: str | None = None
    advice: str | None = None
    would_start_on: list[str] = []
    would_evict: list[str] = []
    preempted: str | None = None
    preempted_at: str | None = None
    quarantined: list[str] = []
    reconfigured: list[str] = []
    blocked_by: Ahead | None = None
    earliest_start: str | None = None
    latest_start: str | None = None
    gpu_parts: list[GpuRequest] = []
    spares: int = 0
    spare_nodes: list[str] = []


def bare(name: str, **known: Any) -> Explanation:
    """An explanation of which no more is known than this: no position, and no job ahead."""
    required = Explanation.__struct_fields__[: -len(Explanation.__struct_defaults__)]
    nothing: dict[str, Any] = dict.fromkeys(required)
    nothing |= {"object": name, "queue": "", "pods": 0, "placed": 0, "gpus": 0.0, "priority": 0, "queued": 0}
    nothing |= {"nodes": [], "ahead": [], "rank": [], "numbers": {}, "user": "", "service_class": "", **known}
    return Explanation(**{**nothing, "advice": ADVICE.get(str(nothing["code"]))})


class PendingJob(msgspec.Struct, frozen=True):
    """One job that waits. kind: `podgroup` or `pod`; position: 1 is next in its queue."""

    kind: str
    name: str
    queue: str
    position: int
    priority: int
    pods: int
    code: str
    message: str
    expected_start: str | None


def foretold(expected: Expected | None, now: float) -> dict[str, Any]:
    """When a job is expected to start, as fields of an `Explanation`."""
    if expected is None:
        return dict.fromkeys(("expected_start", "expected_wait_seconds", "earliest_start", "latest_start"))
    return {
        "expected_start": timestamp(expected.start),
        "expected_wait_seconds": max(0.0, expected.start - now),
        "earliest_start": timestamp(expected.earliest),
        "latest_start": timestamp(expected.latest),
    }


def explained(
    state: ClusterState, tasks: list[Task], gang: Gang | None, name: str, now: float, start: Expected | None
) -> Explanation:
    """The explanation of a job by the state. start: when it is expected to start."""
    tasks = [task for task in tasks if not task.pod.spare]
    queue = tasks[0].queue if tasks else _queue_of(state, gang)
    waiting = [task for task in tasks if task.state in (TaskState.WAITING, TaskState.UNUSABLE, TaskState.HELD)]
    placed = [task for task in tasks if task.state is TaskState.BOUND]
    unit = next((task.unit for task in waiting if task.unit is not None), None)
    node = state.queues.queues.get(queue)
    position, queued, ahead = place_of(state, node, unit, now) if node is not None else (None, 0, [])
    suspended = gang is not None and gang.key in state.suspended.targets
    reason = why_it_waits(state, waiting, gang) or unread_of(tasks)
    return Explanation(
        object=name,
        queue=queue,
        state=_state(tasks, waiting, gang, suspended=suspended),
        pods=len(tasks),
        placed=len(placed),
        gpus=sum(map(state.queues.tree.parts.of, tasks)) / WHOLE,
        priority=max((task.pod.priority for task in tasks), default=0),
        waiting_seconds=max(0.0, now - min(task.pod.created for task in tasks)) if waiting else None,
        nodes=sorted({task.pod.node for task in placed}),
        position=position,
        queued=queued,
        ahead=ahead,
        rank=terms(state, unit, now) if unit is not None else [],
        user=tasks[0].user if tasks else "",
        service_class=tasks[0].service_class if tasks else "",
        **foretold(start, now),
        code=str(reason.code) if reason is not None else None,
        message=reason.message if reason is not None else _empty(gang) if not tasks and not suspended else None,
        numbers=reason.numbers if reason is not None else {},
        advice=advice_for(state, waiting, reason) if reason is not None else None,
        blocked_by=blocked_by(state, unit) if unit is not None else None,
        gpu_parts=_gpu_parts(state, tasks),
        spares=state.spares.wanted(gang) if gang is not None else 0,
        spare_nodes=list(state.spares.nodes(gang)) if gang is not None else [],
    )


def _queue_of(state: ClusterState, gang: Gang | None) -> str:
    """The queue of a gang without pods: the one that it names, else its namespace's."""
    group = gang.group if gang is not None else None
    return (group.queue or state.belonging.default_queue(group.namespace)) if group is not None else ""


def _state(tasks: list[Task], waiting: list[Task], gang: Gang | None, *, suspended: bool) -> str:
    """Where a job stands. waiting: those of its pods that have no place."""
    if suspended:
        return "Suspended"
    if tasks:
        return "Waiting" if waiting else "Running"
    return (gang.end if gang is not None else "") or "Empty"


def _empty(gang: Gang | None) -> str | None:
    """Why a gang has no pods that count: they have ended, or there are none yet."""
    if gang is None:
        return None
    if gang.end and gang.group is not None and gang.group.ended:
        return f"its AIJob, or element, has {gang.end.lower()}"
    if gang.succeeded and not gang.needed:
        return "all pods that it needs have succeeded"
    if gang.end == "Failed":
        return f"none of its pods is left: {gang.succeeded} of the {gang.min_member} that it needs have succeeded, and it failed"
    return f"none of its pods is pending or running; it starts with {gang.needed}"


def _gpu_parts(state: ClusterState, tasks: list[Task]) -> list[GpuRequest]:
    """Partitions and replicas of a job, by resource and part."""
    counted: dict[tuple[str, int], int] = {}
    for task in tasks:
        for resource, count, milli in state.queues.tree.parts.of_each(task):
            counted[resource, milli] = counted.get((resource, milli), 0) + count
    return [GpuRequest(resource, count, milli / WHOLE) for (resource, milli), count in sorted(counted.items())]


def place_of(state: ClusterState, node: QueueNode, unit: Unit | None, now: float) -> tuple[int | None, int, list[Ahead]]:
    """Its position in its queue, how many wait there, and the first of those ahead. The queue is counted, not sorted."""
    units = [each for pending_class in node.pending_classes.values() for each in pending_class.units]
    if unit is None or unit not in units:
        return None, len(units), []
    mine = node.unit_key(unit)
    before = [each for each in units if each is not unit and node.unit_key(each) < mine]
    first = nsmallest(SHOWN, before, key=node.unit_key)
    return len(before) + 1, len(units), ahead_of(state, unit, first, now, SHOWN)


def why_it_waits(state: ClusterState, waiting: list[Task], gang: Gang | None) -> Reason | None:
    """Why those of a job's pods wait that do: as the last pass left it."""
    set_aside = next((why for task in waiting if (why := state.isolation.why(task.pod.uid)) is not None), None)
    return reason_of(state, waiting, gang) or set_aside or state.departures.reason(waiting)


def reason_of(state: ClusterState, waiting: list[Task], gang: Gang | None) -> Reason | None:
    """Why a job waits, as the state knows it."""
    for task in waiting:
        if task.pod.error is not None:
            return task.pod.error
        pending_class = pending_class_of(task.unit) if task.unit is not None else None
        if pending_class is not None and task.unit is not None:
            reason = pending_class.limited.get(task.unit.user) or pending_class.unschedulable
            if reason is not None:
                return own(state, task.unit, reason)
    return gang.reason if gang is not None and waiting else None


def unread_of(tasks: list[Task]) -> Reason | None:
    """What of a job that runs cannot be read."""
    return next((task.pod.error for task in tasks if task.pod.error is not None), None)


def find(state: ClusterState, kind: str, namespace: str, name: str) -> tuple[list[Task], Gang | None]:
    """The pods of a job, and its gang, where they are one.

    kind: `pod`, `podgroup`, `aijob`, or `job` for a batch/v1 Job, running or suspended.
    """
    if kind == "podgroup":
        gang = state.gangs.get(f"{namespace}/{name}")
        return (list(gang.tasks.values()) if gang is not None else []), gang
    if kind == "aijob":
        return _of_ai_job(state, namespace, name)
    ours = (task for task in state.tasks.values() if task.pod.ours and task.pod.namespace == namespace and not task.pod.spare)
    if kind == "job":
        tasks = [task for task in ours if task.pod.root == f"batch/v1/Job/{name}"]
        if not tasks:
            gang = state.gangs.get(made_for(namespace, f"batch/v1/Job/{name}"))
            before = state.gangs.get(made_before(namespace, "Job", name))
            if gang is None and before is not None and before.group is not None and before.group.made:
                gang = before
            return (list(gang.tasks.values()), gang) if gang is not None and gang.tasks else ([], None)
    else:
        tasks = [task for task in ours if task.pod.name == name]
    return tasks, tasks[0].gang if tasks else None


def _of_ai_job(state: ClusterState, namespace: str, name: str) -> tuple[list[Task], Gang | None]:
    """The pods of an AIJob, the next to start first: of an array those of several gangs, or of none."""
    label = (JOB_LABEL, name)
    found = [
        task
        for task in state.tasks.values()
        if task.pod.ours and task.pod.namespace == namespace and label in task.pod.labels and task.pod.controlled
    ]
    gang = state.gangs.get(f"{namespace}/{name}")
    if not found and gang is not None:  # suspended: placeholders wait for them
        found = [task for task in gang.tasks.values() if task.pod.placeholder and not task.pod.spare]
    found.sort(
        key=lambda task: (task.unit is None, task.unit.rank if task.unit is not None else (), task.pod.created, task.pod.uid)
    )
    gangs = {task.gang.key: task.gang for task in found if task.gang is not None}
    return found, next(iter(gangs.values())) if len(gangs) == 1 else None


def live(core: CoreLoop, kind: str, namespace: str, name: str, now: float) -> Explanation | None:
    """What the leader knows of a job. kind: `pod`, `podgroup`, `job` or `aijob`. None: it knows none.

    Jobs of other namespaces are counted, and compared with, but not named, not in the message either.
    """
    tasks, gang = find(core.state, kind, namespace, name)
    if not tasks and gang is None:
        return None
    state = core.state
    start = core.reports.starts.interval(tasks[0].job) if tasks else None
    found = explained(state, tasks, gang, f"{kind}/{name}", now, start)
    ahead = [_masked(each, namespace) for each in found.ahead]
    blocker = _masked(found.blocked_by, namespace) if found.blocked_by is not None else None
    message = found.message and without_others(found.message, namespace, state.pairs.namespaces)
    return msgspec.structs.replace(found, ahead=ahead, blocked_by=blocker, message=message)


def pending(core: CoreLoop, namespace: str) -> list[PendingJob]:
    """The jobs of a namespace that wait, by queue and position."""
    state, found = core.state, []
    for queue, node in sorted(state.queues.queues.items()):
        waiting = (unit for pending_class in node.pending_classes.values() for unit in pending_class.units)
        if not any(unit.tasks[0].pod.namespace == namespace for unit in waiting):
            continue
        for position, unit in enumerate(line(node), 1):
            first = unit.tasks[0]
            if first.pod.namespace != namespace:
                continue
            reason = reason_of(state, [first], unit.gang)
            start = core.reports.starts.of(first.job)
            found.append(
                PendingJob(
                    kind="podgroup" if unit.gang is not None else "pod",
                    name=unit.gang.key.partition("/")[2] if unit.gang is not None else first.pod.name,
                    queue=queue,
                    position=position,
                    priority=unit.priority,
                    pods=len(unit.tasks),
                    code=str(reason.code) if reason is not None else "",
                    message=without_others(reason.message, namespace, state.pairs.namespaces) if reason is not None else "",
                    expected_start=None if start is None else timestamp(start),
                )
            )
    return found


def _masked(ahead: Ahead, namespace: str) -> Ahead:
    if ahead.job.startswith(f"{namespace}/"):
        return ahead
    return msgspec.structs.replace(ahead, job="a job of another namespace", user="")
