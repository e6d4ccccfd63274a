"""Neighbours: what a pod's class of service and its pressure ask of those beside it, as part of its shape.

A class with `isolation: Node` makes the pods of a job share no node with other jobs' pods that have GPUs; `isolation: GPU`
keeps them off GPUs that are shared among replicas (parts of GPUs it does not admit at all: `queues/admission`). Where pods run
their class decides what is counted, so that others keep off.
With `sharing: Pairs` a pod that asks for one whole GPU has half of one, and may share it with one other such pod
(`core/nodes/partners`); speeds that were measured teach which.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.api.names import AI_PROFILE, ALONE
from fairlead.core.mig.parts import WHOLE as GPU
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.contention import KEPT
from fairlead.core.nodes.partners import HALF
from fairlead.core.pairs.speeds import AT_START, LEARNS, PATIENCE, SETTLED
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.state.pending import Pending
from fairlead.core.state.placement import Placement
from fairlead.core.state.pressures import kinds_of
from fairlead.core.state.tables import Tables

_EVERY = 60.0  # seconds


class Neighbours:
    """Writes into specs what follows from classes and pressures, and counts anew what has places."""

    def __init__(self, tables: Tables, placement: Placement, pending: Pending) -> None:
        self._tables = tables
        self._placement = placement
        self._pending = pending
        self._asked_at = 0.0  # when it was asked last which pods have waited long for a partner
        self._shares = False  # whether any class ever let jobs share GPUs
        tables.nodes.partners.leaving_on = self._leaving_on
        self._asked = False  # whether any class, or any pod, ever asked something of neighbours

    def _leaving_on(self, row: int) -> list[Task]:
        """The victims that still run on a row though its place there is given away."""
        tables = self._tables
        return [tables.tasks[uid] for uid, where in tables.in_flight.lingering.items() if where == row and uid in tables.tasks]

    # -- specs ---------------------------------------------------------------------------------

    def applied(self, pod: Pod, task: Task | None) -> Pod:
        """A pod with what its class and its pressure ask. task: what is known of it."""
        if not self._asked:
            asks = pod.spec.pressure or pod.measured or pod.spec.isolated or pod.spec.own_gpus or pod.partner or pod.spec.paired
            if not asks:
                return pod
            self._asked = True
        spec = self._spec(pod, task)
        return pod if spec is pod.spec or spec == pod.spec else msgspec.structs.replace(pod, spec=spec)

    def _spec(self, pod: Pod, task: Task | None) -> PodSpec:
        spec, classes = pod.spec, self._tables.services.classes
        if self._shares or spec.paired or pod.partner:
            paired = self._pairs_up(pod, task)
            if paired != bool(spec.paired):
                spec = _halved(pod) if paired else _whole(spec)
            if paired:
                self._tables.nodes.partners.active = True
        if classes or spec.isolated or spec.own_gpus:
            service = classes.get(self._class_of(pod, task)) if pod.ours else None
            isolation = service.isolation if service is not None else "None"
            isolated = _job(pod) if isolation == "Node" else ""
            own = isolation == "GPU" and any(self._tables.nodes.is_gpu(resource) for resource, _ in spec.requests)
            if (isolated, own) != (spec.isolated, spec.own_gpus):
                spec = msgspec.structs.replace(spec, isolated=isolated, own_gpus=own)
            if isolated:
                self._placement.isolate_nodes()
        if not spec.pressure:
            pressure = self._pressure(pod, task)
            if pressure:
                spec = msgspec.structs.replace(spec, pressure=pressure)
        if spec.pressure:
            self._tables.nodes.contention.activate()
        return spec

    def _pairs_up(self, pod: Pod, task: Task | None) -> bool:
        """Whether a pod has half a GPU, and may share it: where it is, as it was placed; else by its class."""
        if task is not None and task.pod.uid == pod.uid and _placed(task):
            return bool(task.shape.spec.paired)
        if pod.node or not pod.ours:
            return bool(pod.partner) and pod.ours and pod.spec.gpus == 1 and pod.spec.gpu_milli == HALF
        if pod.placeholder:
            return bool(pod.spec.paired)
        service = self._tables.services.classes.get(self._class_of(pod, task))
        if service is None or service.sharing != "Pairs" or pod.profile != AI_PROFILE:
            return False
        gang = self._tables.gangs.get(f"{pod.namespace}/{pod.group}") if pod.group else None
        several = bool(pod.group) and (gang is None or gang.group is None or gang.group.min_member > 1)
        return bool(pod.spec.paired or _one_gpu(pod.spec)) and not (several or pod.elastic or pod.claims)

    def _class_of(self, pod: Pod, task: Task | None) -> str:
        if task is not None and task.pod.uid == pod.uid and _placed(task):
            return task.service_class  # as it was admitted
        gang = self._tables.gangs.get(f"{pod.namespace}/{pod.group}") if pod.group else None
        group = gang.group if gang is not None else None
        return (group.service_class if group is not None else "") or pod.service_class

    def _pressure(self, pod: Pod, task: Task | None) -> tuple[int, ...]:
        """Of a pod that declares nothing: as it was measured, or as its kind was."""
        if pod.measured and self._tables.pressures.now <= pod.measured_at + KEPT:
            return _bounded(pod.measured)
        if task is not None and task.row >= 0:
            return task.shape.spec.pressure  # nothing newer is known
        return self._tables.pressures.of(pod)

    # -- pairs ---------------------------------------------------------------------------------

    def partner_of(self, task: Task) -> str:
        """As the binding of a pod states it: beside which one it is to run. Others may join it from now on."""
        nodes = self._tables.nodes
        nodes.partners.bound_at[task.pod.uid] = self._tables.pressures.now
        nodes.changes.touch(task.row)
        nodes.gained.add(task.row)
        mate = nodes.partners.mate(task, task.row)
        if mate is not None:
            return mate.pod.uid
        nodes.partners.alone(task, self._tables.pressures.now + LEARNS)
        return ALONE

    def _sped(self, pod: Pod, task: Task) -> None:
        """The speed of a pod that may share its GPU was measured: what is known of its kind, and of its pair."""
        partners, begun = self._tables.nodes.partners, _begun(pod)
        if not (begun and task.row >= 0 and task.shape.spec.paired):
            return
        mate, names = partners.mate(task, task.row), task.shape.spec.paired
        partners.reporting = True
        since = max(begun, partners.parted.get(pod.uid, 0.0) if mate is None else _begun(mate.pod)) + SETTLED
        if pod.speed_at < since:
            return
        changed = False
        if mate is None:
            changed = partners.speeds.alone(names, pod.speed)
            changed |= partners.learning.pop(pod.uid, None) is not None
        elif _begun(mate.pod) and mate.pod.speed_at >= since:
            speeds = pod.speed, mate.pod.speed
            fast, changed = partners.speeds.together(names, mate.shape.spec.paired, speeds)
            if not fast:
                partners.due.add(_later(pod, mate.pod))
        if changed:
            self._judge_again()

    def ended(self, pod: Pod, task: Task) -> None:
        """A pod has ended. One that fails soon after it met another shows that they do not run together."""
        partners = self._tables.nodes.partners
        mate = partners.mate(task, task.row) if task.shape.spec.paired and task.row >= 0 else None
        if mate is None or pod.succeeded or pod.terminating or not _begun(pod) or not _begun(mate.pod):
            return
        # Where the clock is ahead of the API server's, starts lie in the past by it: what it noted itself counts, too.
        bound = (partners.bound_at.get(each, 0.0) for each in (pod.uid, mate.pod.uid))
        if self._tables.pressures.now <= max(_begun(pod), _begun(mate.pod), *bound) + AT_START:
            partners.speeds.stop(task.shape.spec.paired, mate.shape.spec.paired)
            self._judge_again()

    def leaves(self, task: Task) -> None:
        """A pod with a part of a GPU is gone: its partner is alone, and what its place was given to may be beside others."""
        nodes = self._tables.nodes
        partners, row = nodes.partners, self._tables.in_flight.lingering.get(task.pod.uid)
        if row is not None:
            nodes.changes.touch(row)
            nodes.gained.add(row)
        mate = partners.mate(task, task.row)
        if mate is not None:
            partners.parted[mate.pod.uid] = self._tables.pressures.now
            partners.alone(mate, self._tables.pressures.now + LEARNS)
        partners.parted.pop(task.pod.uid, None)
        partners.bound_at.pop(task.pod.uid, None)
        partners.due.discard(task.pod.uid)
        partners.learning.pop(task.pod.uid, None)

    def hurry(self, now: float) -> None:
        """The kind of the pod that has waited longest, if that is long, takes any partner beside which it is fast enough.

        One at a time: on a cluster that is full for days all have waited long, and to choose would end. If it finds none for as
        long again, a GPU is reserved for it: none of the others joins the pods there, and once they have ended it is free.
        """
        partners, oldest = self._tables.nodes.partners, None
        if self._asked_at <= now < self._asked_at + _EVERY:
            return
        self._asked_at = now
        for queue in self._tables.queues.queues.values():
            for pending_class in queue.pending_classes.values():
                unit = pending_class.first()
                if unit is not None and unit.tasks[0].shape.spec.paired and now >= unit.since + PATIENCE:
                    oldest = min(oldest or unit, unit, key=lambda each: (each.since, each.tasks[0].pod.key))
        task = oldest.tasks[0] if oldest is not None else None
        urgent = task.shape.spec.paired if task is not None else ()
        keeps = task is not None and oldest is not None and now >= oldest.since + 2 * PATIENCE
        over = [uid for uid, (_, until) in partners.learning.items() if until <= now]
        for uid in over:
            del partners.learning[uid]
        before = partners.urgent, partners.kept
        if urgent != partners.urgent or not keeps:
            partners.kept = None
        partners.urgent = urgent
        if keeps and task is not None and partners.kept is None:
            partners.kept = partners.soonest(task.ranking.admits, _begun)
        if over or before != (partners.urgent, partners.kept):
            self._judge_again()

    def _judge_again(self) -> None:
        """Something else may share a GPU: rows with such pods are scored anew, and what waits for them is tried again."""
        nodes = self._tables.nodes
        for row in nodes.partners.rows:
            nodes.changes.touch(row)
            nodes.gained.add(row)

    # -- changes -------------------------------------------------------------------------------

    def measured(self, pod: Pod) -> None:
        """A pod was measured: others of its kind that wait are thought to be like it."""
        if not pod.ours or not self._tables.pressures.learn(pod):
            return
        alike = self._tables.by_queue.get(pod.queue, {}).values()
        self.renew([task for task in alike if task.row < 0 and not task.pod.node and task.pod.namespace == pod.namespace])

    def class_changed(self, name: str) -> None:
        """A class of service came, changed or went."""
        service = self._tables.services.classes.get(name)
        self._shares = self._shares or (service is not None and service.sharing != "None")
        self._asked = self._asked or self._shares or (service is not None and service.isolation != "None")
        self.renew([task for task in self._tables.tasks.values() if task.pod.ours and task.service_class == name])

    def begin(self, now: float, *, first: bool) -> None:
        """A pass begins. first: before it everything was believed as it was, classes that pods may not use, too."""
        tables = self._tables
        tables.pressures.now = now
        tables.nodes.contention.begin(now, tables.nodes.rows)
        if first and tables.nodes.tenants.active:
            self.renew([task for task in tables.tasks.values() if task.pod.ours and task.shape.spec.isolated])

    def lodged(self, task: Task) -> None:
        """A pod came that has a node; it may have lost a class that it may not use."""
        if task.shape.spec.isolated:
            self.renew((task,))
        if task.pod.speed_at and task.shape.spec.paired:
            self._sped(task.pod, task)

    def seen(self, task: Task, pod: Pod) -> None:
        """A newer view of a pod that has a node: it counts there by its pressure now, and its speed may teach something."""
        if pod.speed_at != task.pod.speed_at and task.shape.spec.paired:
            self._sped(pod, task)
        if task.row >= 0 and task.pod.node and pod.spec.pressure != task.pod.spec.pressure:
            spec = msgspec.structs.replace(task.pod.spec, pressure=pod.spec.pressure)
            self.recount(task, msgspec.structs.replace(task.pod, spec=spec))

    def renew(self, tasks: Iterable[Task]) -> None:
        """Write anew what follows from classes and pressures for some tasks, and count them by it."""
        for task in tasks if self._asked else ():
            if task.pod.placeholder or task.pod.unsized:
                continue
            # What was learned, and not declared, is asked again.
            pod = self.applied(_undeclared(task), task)
            if pod.spec != task.pod.spec:
                self.recount(task, pod)

    def recount(self, task: Task, pod: Pod) -> None:
        """A task counts, where it is and waits, by what its spec asks of its neighbours now."""
        tables, old, shape = self._tables, task.ranking, task.shape
        spec = msgspec.structs.replace(
            shape.spec,
            pressure=pod.spec.pressure,
            isolated=pod.spec.isolated,
            own_gpus=pod.spec.own_gpus,
        )
        if task.row < 0 and pod.spec.paired != spec.paired:
            asked = pod.spec
            spec = msgspec.structs.replace(
                spec,
                requests=asked.requests,
                gpu_milli=asked.gpu_milli,
                paired=asked.paired,
            )
        task.pod = pod
        if spec == shape.spec:
            return
        row = self._placement.counted_on(task)
        if row >= 0:
            self._count(task, row, -1)
        task.reshape(tables.shapes.intern(spec, tables.pairs.label_set(pod.namespace, pod.labels), pod.profile))
        if row >= 0:
            self._count(task, row, 1)
            tables.nodes.changes.touch(row)
            tables.nodes.gained.add(row)
        elif task.unit is not None and task.state is TaskState.WAITING:
            self._pending.wait_again(task)
        tables.shapes.release(old)

    def _count(self, task: Task, row: int, by: int) -> None:
        tables = self._tables
        tables.pairs.add(task.shape, row, by, leaving=task.pod.terminating)
        if tables.nodes.tenants.active:
            tables.nodes.tenants.add(task.shape, row, by)
        if task.row >= 0 and task.shape.spec.pressure:
            self._placement.press(task.shape, row, by)


def _job(pod: Pod) -> str:
    """Whose pods may share a node: those of one gang, else of one controller, else one pod."""
    return f"{pod.namespace}/{pod.group}" if pod.group else pod.owner or pod.uid


def _placed(task: Task) -> bool:
    return task.row >= 0 or bool(task.pod.node)


def _undeclared(task: Task) -> Pod:
    pod = task.pod
    if pod.spec.pressure and not pod.declares and task.row < 0:
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, pressure=()))
    return pod


def _bounded(measured: tuple[int, ...]) -> tuple[int, ...]:
    found = tuple(min(WHOLE, amount) for amount in measured)
    return found if any(found) else ()


def _one_gpu(spec: PodSpec) -> bool:
    """Whether a pod asks for one whole GPU as a device plugin counts them, and for nothing that is part of one."""
    return spec.gpus == 1 and spec.gpu_milli == WHOLE and (GPU, 1) in spec.requests and not spec.devices


def _halved(pod: Pod) -> PodSpec:
    """What a pod that may share its GPU asks for."""
    spec = pod.spec
    return msgspec.structs.replace(
        spec,
        requests=tuple(each for each in spec.requests if each[0] != GPU),
        gpu_milli=HALF,
        paired=tuple("/".join((kind, pod.namespace, pod.user, *rest)) for kind, *rest in kinds_of(pod)),
    )


def _whole(spec: PodSpec) -> PodSpec:
    """What it asks for where it may not."""
    return msgspec.structs.replace(
        spec,
        requests=tuple(sorted({*spec.requests, (GPU, 1)})),
        gpu_milli=WHOLE,
        paired=(),
    )


def _begun(pod: Pod) -> float:
    """When a pod began to run, 0: that is not known."""
    return pod.started or pod.bound


def _later(pod: Pod, other: Pod) -> str:
    """Which of two pods came later to their GPU: the one whose binding names the other."""
    if pod.partner == other.uid:
        return pod.uid
    if other.partner == pod.uid:
        return other.uid
    return max((_begun(each), each.uid) for each in (pod, other))[1]
