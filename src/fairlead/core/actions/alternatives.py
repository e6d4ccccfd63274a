"""Alternatives: a job that waits takes the first of the forms that it names in which it can start now, without evictions.

Each form is tried as its pods would be, by the rules for all pods (quotas, limits, reservations, topology, who may reclaim),
and all is taken back. Jobs are tried in the order in which they are served; what one would get the next does not find free.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.api.names import INDEX_LABEL
from fairlead.core.allocation import allocate
from fairlead.core.model.groups import Choice, Chosen, Group
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.transactions import Choose, Transaction
from fairlead.core.model.units import WHOLE
from fairlead.core.numa.model import ContainerNeed
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Gang, Task, TaskState, Unit
from fairlead.core.preemption.reclaimable import reclaimer
from fairlead.core.queues.entitlement import beyond_quota
from fairlead.core.queues.queue_node import pending_class_of
from fairlead.core.state.cluster import ClusterState

_Kind = tuple[object, ...]


def choose_alternatives(state: ClusterState, now: float) -> Iterator[Transaction]:
    """A form for each job that waits and could start in another one."""
    if not state.alternatives.groups:
        return
    waiting = [(unit, gang) for gang in state.alternatives.may_choose() if (unit := _unschedulable(state, gang)) is not None]
    chosen: list[tuple[Gang, Choice, int]] = []
    in_vain: dict[_Kind, int] = {}  # members -> what was tried and has no place while others take theirs
    rankings: list[Ranking] = []
    mark = state.log.mark()
    for unit, gang in sorted(waiting, key=lambda each: each[0].rank):
        with state.isolation.guard("alternatives", unit) as served:
            found = _first(state, unit, gang, in_vain, rankings)
            if found is not None:
                chosen.append((gang, found, unit.tasks[0].pod.attempt))
        if served.failed:
            break  # all that was tried is taken back already; the others are tried in the next pass
    else:
        state.log.rollback(mark)
    for ranking in rankings:
        state.shapes.release(ranking)
    for gang, choice, attempt in chosen:
        decided = Chosen(choice.index, choice.pool, attempt)
        state.alternatives.choose(gang.key, decided, now)
        yield Choose(gang.key, decided, _message(choice))


def _message(choice: Choice) -> str:
    form = f"alternative {choice.index}" if choice.index else "its role as it is written"
    pool = f" in pool {choice.pool}" if choice.pool else ""
    return f"it can start now with {form}: {choice.replicas} members with {choice.amount} {choice.resource} each{pool}"


def _unschedulable(state: ClusterState, gang: Gang) -> Unit | None:
    """The unit of a gang of which no member has a place, and which was refused."""
    group = gang.group
    if group is None or not group.ours or gang.key in state.suspended.targets:
        return None
    tasks = list(gang.tasks.values())
    if not tasks or any(task.row >= 0 or task.pod.node or task.pod.terminating or task.pod.placeholder for task in tasks):
        return None
    unit = tasks[0].unit
    pending_class = pending_class_of(unit) if unit is not None else None
    if unit is None or pending_class is None or pending_class.unschedulable is None:
        return None
    return unit


def _first(state: ClusterState, unit: Unit, gang: Gang, in_vain: dict[_Kind, int], rankings: list[Ranking]) -> Choice | None:
    """The first form other than the present one in which a unit can start; its places stay taken."""
    group = gang.group
    sample = unit.tasks[0]
    current = _current(group) if group is not None else None
    if group is None or current is None:
        return None
    alike = _alike(state, sample)
    for choice in group.choices:
        if choice == current:
            continue
        spec = changed(sample.pod.spec, current, choice)
        kind = (spec, *alike)
        if choice.replicas >= in_vain.get(kind, choice.replicas + 1):
            continue
        if _starts(state, gang, sample, spec, choice.replicas, rankings):
            return choice
        in_vain[kind] = choice.replicas
    return None


def _alike(state: ClusterState, sample: Task) -> _Kind:
    """What decides besides a form's pods; how long a job may run, and is thought to, decides what is reserved against it."""
    runtimes = state.reserved.runtimes
    lasts = (runtimes.services.limits.of(sample), runtimes.total(sample))
    return (sample.queue, sample.pod.priority, sample.user, sample.service_class, *lasts)


def _current(group: Group) -> Choice | None:
    return next((each for each in group.choices if (each.index, each.pool) == group.current), None)


def changed(spec: PodSpec, now: Choice, other: Choice) -> PodSpec:
    """What pods ask for in another form than that of `spec`."""
    requests = dict(spec.requests)
    requests.pop(now.resource, None)
    requests[other.resource] = other.amount
    terms = spec.affinity if spec.affinity is not None else (SelectorTerm(),)
    affinity = tuple(
        msgspec.structs.replace(term, expressions=_without(term.expressions, now.nodes) + other.nodes) for term in terms
    )
    return msgspec.structs.replace(
        spec,
        requests=tuple(sorted(requests.items())),
        gpus=other.amount if spec.gpus else 0,
        gpu_milli=WHOLE if spec.gpus else spec.gpu_milli,
        affinity=None if affinity == (SelectorTerm(),) else affinity,
        numa=tuple(_aligned(each, now, other) for each in spec.numa),
    )


def _aligned(need: ContainerNeed, now: Choice, other: Choice) -> ContainerNeed:
    """What a container needs of NUMA nodes in another form; init containers are the same in all forms."""
    devices = dict(need.devices)
    if need.init or need.sidecar or devices.pop(now.resource, None) is None:
        return need
    return msgspec.structs.replace(need, devices=tuple(sorted({**devices, other.resource: other.amount}.items())))


def _without(expressions: tuple[Requirement, ...], gone: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    """Expressions without the last occurrence of each of some."""
    left = list(expressions)
    for each in gone:
        for place in range(len(left) - 1, -1, -1):
            if left[place] == each:
                del left[place]
                break
    return tuple(left)


def _starts(state: ClusterState, gang: Gang, sample: Task, spec: PodSpec, members: int, rankings: list[Ranking]) -> bool:
    """Whether so many members find places; they keep them then, until all is taken back."""
    tasks = []
    for number in range(members):
        pod = _member(sample.pod, f"alternative/{gang.key}/{number}", number, spec)
        pod = state.bound.near(pod, sample, members)  # its slice is by its index, and by how many there are
        rankings.append(state.bound.ranking(pod))
        task = Task(pod, rankings[-1])
        task.gang, task.queue, task.number = gang, sample.queue, sample.number
        tasks.append(task)
    unit = Unit(tuple(tasks), members, gang)
    mark = state.log.mark()
    with state.reserved.weighed(unit):
        placed = allocate(state, unit)
        if isinstance(placed, list) and not _is_reclaimed(state, unit, placed):
            state.log.commit()  # into the mark around all trials
            return True
    state.log.rollback(mark)
    for task in tasks:
        task.become(TaskState.WAITING)
    return False


def _member(pod: Pod, uid: str, number: int, spec: PodSpec) -> Pod:
    """A member of a gang in another form. pod: any of its pods."""
    labels = tuple((key, str(number) if key == INDEX_LABEL else value) for key, value in pod.labels)
    return msgspec.structs.replace(pod, uid=uid, name=f"{pod.name}-{number}", labels=labels, spec=spec, elastic=False)


def _is_reclaimed(state: ClusterState, unit: Unit, placed: list[Task]) -> bool:
    """Whether another job would reclaim from its queue at once what was just placed."""
    disputed = state.queues.fair.disputed
    if not disputed or not state.policy.reclaim or not state.policy.preempt:
        return False
    node = state.queues.queues[unit.tasks[0].queue]
    if not beyond_quota([node], list(disputed), lambda each, name: each.stays(name)):
        return False
    return reclaimer(state, unit, placed).unit is not None
