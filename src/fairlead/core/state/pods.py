"""Pods: events of pods, and what becomes of them in every part of the state."""

from __future__ import annotations

from functools import partial

import msgspec

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core.model.pods import DeviceNeed, Pod
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes import claim_needs
from fairlead.core.pods.tasks import PLACED, Task, TaskState
from fairlead.core.state.finished import FinishedPods
from fairlead.core.state.parts import Parts
from fairlead.core.state.tables import Tables
from fairlead.core.state.unread import counted, last_readable


class Pods:
    """Takes in pods that come, change and go.

    elastic: UIDs of pods that their gangs can do without; upstream: of those of profile `kubernetes`. nominated: node -> waiting
    tasks for which it was cleared, by UID.
    newly_bound: pods that were bound since the last pass began; only from then on may they be preempted. left: UIDs of the owners
    of pods that are gone since the last pass began.
    """

    def __init__(self, tables: Tables, parts: Parts) -> None:
        self._tables = tables
        self._placement = parts.placement
        self._isolation = parts.isolation
        self._departures = parts.departures
        self._starts = parts.starts
        self._belonging = parts.belonging
        self._pending = parts.pending
        self._bound = parts.bound
        self._moves = parts.moves
        self._neighbours = parts.neighbours
        self._evictions = parts.evictions
        self.finished = FinishedPods()
        self.elastic: set[str] = set()
        self.upstream: set[str] = set()
        self.nominated: dict[str, dict[str, Task]] = {}
        self._nominated_on: dict[str, str] = {}  # UID -> where in that
        self.newly_bound: list[Task] = []
        self.left: set[str] = set()

    # -- coming and changing -------------------------------------------------------------------

    def upsert(self, pod: Pod) -> Task | None:  # noqa: C901, PLR0912 - a case for each state that a pod is known in
        """A pod came or changed. Returns its task if it has come to wait, and does not wait in line yet."""
        pod = counted(self._tables.nodes, pod)
        if pod.terminating:
            self._departures.note(pod.uid)
        task = self._tables.tasks.get(pod.uid)
        if pod.extended:
            pod = self._tables.device_claims.extended.used(pod, self._placed(task))
        if pod.claims:
            pod = self._resolved(pod, task)
        if pod.group or pod.claims:
            pod = self._bound.near(pod, task)
        pod = self._neighbours.applied(pod, task)
        if pod.measured and (task is None or task.pod.measured_at != pod.measured_at):
            self._neighbours.measured(pod)
        if pod.finished:
            if pod.uid not in self.finished:
                self._finish(pod, task)
            return None
        if task is None:
            return self.adopt(pod) if pod.node or pod.ours else None
        if pod.error is not None and pod.ours != task.pod.ours:
            pod = msgspec.structs.replace(pod, ours=task.pod.ours)  # whose it is cannot be read any more: as before
        self._neighbours.seen(task, pod)
        old, observed = task.pod, pod
        keeps = self._belonging.holds(task)
        if pod.error is not None and (old.node or keeps):
            pod = last_readable(old, pod)
        if keeps:
            pod = self._belonging.view(task, pod)
        if old == pod:
            return None
        if old.owner != pod.owner:
            self._tables.owned.add(pod.uid, pod.owner)
        if old.elastic != pod.elastic:
            self.elastic ^= {pod.uid}
        if task.state is TaskState.EVICTING:
            self._bound.recount(task, pod)
        elif pod.node:
            self._bound_by_cluster(task, pod)
        elif task.state in (TaskState.ASSUMED, TaskState.HELD) and not pod.terminating and _same(old, pod):
            task.pod = pod  # an older view than what was decided: the binding is on its way
            self.withdraw_nomination(pod.uid)
        elif keeps and not pod.terminating:
            self._belonging.note_assumed(observed)
        elif _same(old, pod) and not pod.terminating:
            task.pod = pod
            if old.nominated != pod.nominated:
                self.withdraw_nomination(pod.uid)
                self._nominate(task)
        else:
            self.remove(pod.uid)
            return self.adopt(pod)
        return None

    @staticmethod
    def _placed(task: Task | None) -> Pod | None:
        return task.pod if task is not None and task.state not in (TaskState.WAITING, TaskState.UNUSABLE) else None

    def _resolved(self, pod: Pod, task: Task | None) -> Pod:
        """A pod with what it needs by its claims; of one that has a place this stays as it was when it got it."""
        needs: tuple[DeviceNeed, ...] = ()
        if task is not None and task.pod.claims == pod.claims and task.state not in (TaskState.WAITING, TaskState.UNUSABLE):
            needs = task.shape.spec.devices
        if not needs or any(each.missing for each in needs):
            needs = claim_needs.needs(self._tables.device_claims, pod, partial(self._sharers, pod))
        elif task is not None and task.state is TaskState.BOUND:
            needs = claim_needs.weighed(self._tables.device_claims, pod.claims, needs)
        if pod.spec.devices == needs:
            return pod
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, devices=needs))

    def _sharers(self, pod: Pod, claim: str) -> int:
        """How many pods are charged for a claim in equal parts: those of a gang that use it, as far as they start together.

        Others are charged for all of it: what else is created and names the claim makes it no cheaper. A spare is charged for
        nothing that members have: the one that it stands in for has left its part to the others, or is still there.
        """
        tables = self._tables
        gang = tables.gangs.get(f"{pod.namespace}/{pod.group}") if pod.group else None
        if gang is None or gang.group is None:
            return 1
        users = tables.device_claims.wants.users(claim)
        members = {uid for uid in users if uid in gang.tasks and not gang.tasks[uid].pod.spare}
        if pod.spare:
            return 0 if members else 1
        return max(1, min(gang.needed, len(members | {pod.uid})))

    def adopt(self, pod: Pod, before: Pod | None = None) -> Task | None:
        """A pod that is not known came. Returns its task if it has come to wait, and does not wait in line yet.

        A pod whose size cannot be known holds nothing that could be counted: its node is closed instead. before: the pod as it
        was known until now, if it has been in the same place: what it has there stays.
        """
        tables = self._tables
        if pod.extended:
            tables.device_claims.extended.join(pod)
            pod = tables.device_claims.extended.used(pod, before)
        if pod.claims:
            tables.device_claims.wants.use(pod)
            pod = self._resolved(pod, None)
        if pod.group or pod.claims:
            pod = self._bound.near(pod, None)
        pod = self._neighbours.applied(pod, None)
        task = Task(pod, self._bound.ranking(pod))
        tables.add(task)
        if pod.owner:
            tables.owned.add(pod.uid, pod.owner)
        self._note_kind(pod)
        if pod.ours and pod.group:
            self._join(task)
        if tables.census.active:
            tables.census.touch(task)
        if pod.node:
            self._bound.place(task)
            self._belonging.lodge(task)
            self._neighbours.lodged(task)
            self._part_strangers(task.row, task)
            if task.gang is not None:
                tables.unsettle(task.gang)
                self._starts.touch(task.gang)
            return None
        if pod.terminating:
            task.become(TaskState.UNUSABLE)
            return None
        if pod.error is None and not pod.gated:
            tables.shapes.arrived(pod.spec)
        self._nominate(task)
        self._moves.arrived(task)
        return task

    def _part_strangers(self, row: int, new: Task | None = None) -> None:
        """Pods that are counted on one GPU of a row, and are no partners by what is known now, are counted anew.

        new: a pod that has just come.
        """
        partners = self._tables.nodes.partners
        if row < 0 or not partners.active:
            return
        if (new is not None and partners.is_contested(new, row)) or (new is None and partners.has_strangers(row)):
            self._placement.seat_again(row)

    def _note_kind(self, pod: Pod) -> None:
        """One came that its gang can do without, or that is placed by the rules of kube-scheduler."""
        if pod.elastic:
            self.elastic.add(pod.uid)
        if pod.profile == KUBERNETES_PROFILE and pod.ours:
            self.upstream.add(pod.uid)

    def _join(self, task: Task) -> None:
        """A pod is a member of a gang."""
        pod = task.pod
        gang = task.gang = self._tables.gang(pod.namespace, pod.group)
        needed = gang.needed
        if not pod.spare:
            self.finished.comes(gang, pod)
            gang.failed = False
        gang.tasks[pod.uid] = task
        if gang.needed != needed:
            self._tables.unsettle(gang)  # a new run: members of the one before may be too few, also if this pod cannot even wait
        if gang.group is not None and gang.group.queue:
            self._tables.move(task, gang.group.queue)

    def _bound_by_cluster(self, task: Task, pod: Pod) -> None:
        """A pod is bound in the cluster: what was assumed is confirmed, or the cluster's node counts."""
        tables = self._tables
        self.withdraw_nomination(pod.uid)
        row = tables.nodes.rows.get(pod.node)
        same = task.pod.spec == pod.spec and task.pod.unsized == pod.unsized and task.pod.group == pod.group
        if task.row >= 0 and row == task.row and same:
            leaving = pod.terminating and not task.pod.terminating
            if (
                pod.ours
                and pod.queue != task.pod.queue
                and not (task.gang is not None and task.gang.group is not None and task.gang.group.queue)
            ):
                self._pending.change_queue(task, pod.queue)
            self._bound.recount(task, pod)
            if leaving and task.gang is not None:
                tables.unsettle(task.gang)
            if task.state is not TaskState.BOUND:
                self._runs(task)
                self._evictions.abandon(task)
                if task.gang is not None:
                    tables.unsettle(task.gang)
            return
        keeps, queue = self._belonging.holds(task), task.queue
        before = task.pod if row is not None and row == task.row else None
        unobserved = tables.device_claims.unobserved(pod) if before is not None else {}
        self.remove(pod.uid)
        with self._placement.deciding(unobserved):
            self.adopt(pod, before)
        if keeps and pod.ours and tables.tasks[pod.uid].queue != queue:
            self._pending.change_queue(tables.tasks[pod.uid], queue)

    def _runs(self, task: Task) -> None:
        task.become(TaskState.BOUND)
        self._tables.queues.accounts.changes.pods[task.pod.uid] = None
        task.faults = 0
        task.reported = None
        self._tables.device_claims.wants.doubt(task.pod)
        self.newly_bound.append(task)
        self._tables.services.runs(task)

    # -- outcomes of bindings ------------------------------------------------------------------

    def bound(self, uid: str) -> None:
        """The binding was written."""
        task = self._tables.tasks.get(uid)
        if task is not None and task.state is TaskState.ASSUMED:
            task.pod = msgspec.structs.replace(task.pod, node=self._tables.nodes.names[task.row])
            self._tables.device_claims.note_bound(task.pod)
            self._runs(task)
            if task.gang is not None and task.gang.fault_at is not None:
                self._tables.unsettle(task.gang)

    def bind_failed(self, uid: str, now: float) -> Task | None:
        """The binding was refused: free the place, and wait longer after each refusal.

        Returns the task if the pod has changed while its binding was on its way, and has come to wait as it is now.
        """
        task = self._tables.tasks.get(uid)
        if task is None or task.state is not TaskState.ASSUMED:
            return None
        self._placement.unassign(task)
        task.become(TaskState.WAITING)
        self._tables.device_claims.keep(task.pod)
        self._pending.delay(task, now)
        if task.gang is not None:
            task.gang.fault_at = now
            self._tables.unsettle(task.gang)
        observed = self._belonging.released(uid)
        if observed is not None:
            return self.upsert(observed)
        if task.pod.claims:
            again = self.upsert(task.pod)  # its claims may have been written
            if again is not None:
                self._pending.resume_delay(again, task)
        return None

    # -- ending --------------------------------------------------------------------------------

    def _finish(self, pod: Pod, task: Task | None) -> None:
        """A pod has ended. A member of a gang that succeeded counts as one that runs."""
        ran = task is not None and task.state in PLACED
        stopped = pod.terminating or (task is not None and (task.pod.terminating or task.state is TaskState.EVICTING))
        if task is not None and task.shape.spec.paired:
            self._neighbours.ended(pod, task)
        self.remove(pod.uid)
        if pod.succeeded and pod.ours and pod.group:
            gang = self._tables.gang(pod.namespace, pod.group)
            self.finished.add(gang, pod, watched=ran)
            self._tables.unsettle(gang)
        elif ran and task is not None and task.gang is not None and not stopped and not pod.spare:
            task.gang.failed = True

    def remove(self, uid: str) -> None:
        """A pod is gone or has finished: what it held is free, and what waited for that may start."""
        tables = self._tables
        task = tables.drop(uid)
        if task is None:
            gang = self.finished.remove(uid)
            if gang is not None and gang.forgotten and tables.gangs.get(gang.key) is gang:
                del tables.gangs[gang.key]
            return
        self.elastic.discard(uid)
        self.upstream.discard(uid)
        row, shares = task.row, tables.nodes.partners.active and task.shape.gpus and task.shape.gpu_milli < WHOLE
        if shares:
            self._neighbours.leaves(task)
        self._isolation.forget(uid)
        tables.services.forget(uid)
        self._starts.forget(uid)
        self._leave_line(task)
        if task.state is TaskState.BOUND and task.pod.ours and not task.pod.terminating and not task.pod.spare:
            tables.runtimes.ended(task, tables.services.now)
        if task.row >= 0 and task.state is TaskState.HELD:
            self._evictions.vacate(task)
        elif task.row >= 0:
            self._placement.unassign(task)
            if shares:
                self._part_strangers(row)
        self._leave_node(task)
        self._pending.forget(task)
        if task.gang is not None:
            self._leave_gang(task)
        tables.shapes.release(task.ranking)
        if task.pod.claims:
            tables.device_claims.leave(task.pod)
        if task.pod.extended:
            tables.device_claims.extended.leave(task.pod)
        self._evictions.gone(task)
        self._belonging.forget(uid)
        if task.pod.owner:
            tables.owned.drop(uid, task.pod.owner)
            self.left.add(task.pod.owner)

    def _leave_line(self, task: Task) -> None:
        if task.unit is not None:
            self._pending.withdraw(task)

    def _leave_node(self, task: Task) -> None:
        pod = task.pod
        self._placement.part(task)
        self.withdraw_nomination(pod.uid)
        if pod.node:
            self._placement.unstray(task, pod.node)
            if pod.unsized:
                self._tables.nodes.poison(pod.node, pod.uid, bad=False)
            self._bound.unread.forget(pod.uid)

    def _leave_gang(self, task: Task) -> None:
        gang, tables = task.gang, self._tables
        if gang is None:
            return
        gang.tasks.pop(task.pod.uid, None)
        if gang.forgotten:
            tables.gangs.pop(gang.key, None)
            self._belonging.gang_left(gang.key)
            self._starts.left(gang.key)
        else:
            tables.unsettle(gang)
            self._starts.touch(gang)

    # -- nominations ---------------------------------------------------------------------------

    def _nominate(self, task: Task) -> None:
        pod = task.pod
        if pod.nominated and pod.ours:
            self.nominated.setdefault(pod.nominated, {})[pod.uid] = task
            self._nominated_on[pod.uid] = pod.nominated

    def withdraw_nomination(self, uid: str) -> None:
        """A pod has a place, waits no longer, or has another nomination."""
        node = self._nominated_on.pop(uid, None)
        others = self.nominated.get(node) if node is not None else None
        if node is None or others is None or others.pop(uid, None) is None:
            return
        if not others:
            del self.nominated[node]
        row = self._tables.nodes.rows.get(node)
        if row is not None:
            self._tables.nodes.gained.add(row)  # it was reserved for this pod: others that wait may have it now


def _same(old: Pod, new: Pod) -> bool:
    """Whether a change leaves everything a decision rests on as it was."""
    return (
        old.spec == new.spec
        and old.claims == new.claims
        and old.labels == new.labels
        and old.queue == new.queue
        and old.group == new.group
        and old.priority == new.priority
        and old.profile == new.profile
        and old.user == new.user
        and old.service_class == new.service_class
        and old.gated == new.gated
        and old.never_preempts == new.never_preempts
        and old.error == new.error
        and old.terminating == new.terminating
    )
