"""Bound: pods on nodes, and how they count there: by which shape, for which queue, beside which others."""

from __future__ import annotations

import msgspec

from fairlead.api.names import CLIQUE_LABEL
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.pods import Closeness, Pod, PodSpec
from fairlead.core.nodes.compute_domains import compute_domain
from fairlead.core.pods.followers import near_leader
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.slices import near_for
from fairlead.core.pods.tasks import Gang, Task, TaskState
from fairlead.core.queues.attained import begun
from fairlead.core.state.belonging import Belonging
from fairlead.core.state.pending import Pending
from fairlead.core.state.placement import Placement
from fairlead.core.state.starts import Starts
from fairlead.core.state.tables import Tables
from fairlead.core.state.unread import UnreadPods

_NOTHING = PodSpec()


class BoundPods:
    """Counts pods on the nodes that they name, and follows newer views of them."""

    def __init__(self, tables: Tables, placement: Placement, belonging: Belonging, pending: Pending, starts: Starts) -> None:
        self._tables = tables
        self._placement = placement
        self._belonging = belonging
        self._pending = pending
        self._starts = starts
        self.unread = UnreadPods()

    # -- shapes --------------------------------------------------------------------------------

    def ranking(self, pod: Pod) -> Ranking:
        """The ranking of a pod's shape. The first to speak of some labels makes pods that differ by them differ in shape."""
        pairs, spec = self._tables.pairs, _NOTHING if pod.unsized else pod.spec
        knew = pairs.active
        news = pairs.learn(spec)
        if news is not None:
            self._relabel(news if knew else None)
        return self._tables.shapes.intern(spec, pairs.label_set(pod.namespace, pod.labels), pod.profile)

    def near(self, pod: Pod, task: Task | None, members: int = 0) -> Pod:
        """A pod with what its gang and its ComputeDomain ask of its place. task: what is known of it.

        members: how many its gang needs, where that is not what its PodGroup states.
        """
        key = f"{pod.namespace}/{pod.group}" if pod.group and pod.ours else ""
        gang = self._tables.gangs.get(key) if key else None
        closeness = gang.group.closeness if gang is not None and gang.group is not None else None
        if closeness is None and key:
            placed = task is not None and (task.row >= 0 or bool(task.pod.node))
            closeness = task.pod.closeness if task is not None and placed else pod.closeness
        domain = compute_domain(pod, self._tables.device_claims) if pod.claims else ""
        if not domain and task is not None and task.row >= 0 and task.shape.spec.near is not None:
            domain = task.shape.spec.near.domain  # its claims are known no longer, and it is still there
        near = None
        if closeness is not None or domain:
            asked = closeness or Closeness()
            required = asked.required
            if domain and key and CLIQUE_LABEL not in required:
                required = (*required, CLIQUE_LABEL)
            self._tables.network.asked = True
            least = members or (gang.group.min_member if gang is not None and gang.group is not None else 0)
            near = near_for(pod, key, asked, required, domain, least)
        if gang is not None and gang.group is not None and gang.group.followers:
            near = near_leader(gang, pod, near)
            self._tables.network.asked |= near is not None
        return pod if pod.spec.near == near else msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, near=near))

    def group_changed(self, gang: Gang) -> None:
        """What a gang asks of its members' places on the network may be something else; those that have places count anew."""
        tables = self._tables
        for task in list(gang.tasks.values()):
            pod = self.near(task.pod, task)
            if pod is task.pod:
                continue
            old, shape = task.ranking, task.shape
            task.pod = pod
            if pod.unsized:
                continue
            spec = msgspec.structs.replace(shape.spec, near=pod.spec.near)
            ranking = tables.shapes.intern(spec, tables.pairs.label_set(pod.namespace, pod.labels), pod.profile)
            if task.row >= 0:
                if shape.spec.near is not None and not pod.terminating:
                    tables.network.seat(shape.spec.near, task.row, -1)
                if spec.near is not None and not pod.terminating:
                    tables.network.seat(spec.near, task.row, 1)
            row = self._placement.counted_on(task)
            if row >= 0:
                tables.pairs.add(shape, row, -1, leaving=pod.terminating)
                task.reshape(ranking)
                tables.pairs.add(task.shape, row, 1, leaving=pod.terminating)
            else:
                task.reshape(ranking)
                if task.unit is not None:
                    self._pending.wait_again(task)
            tables.shapes.release(old)

    def _relabel(self, keys: set[str] | None) -> None:
        """Labels that were not read before are from now on (None: labels at all): they become part of shapes."""
        for task in list(self._tables.tasks.values()):
            if keys is None or any(key in keys for key, _ in task.pod.labels):
                self._reshape(task)

    def _reshape(self, task: Task) -> None:
        """The labels by which others select a pod are not what they were."""
        tables, pod, old = self._tables, task.pod, task.ranking
        ranking = tables.shapes.intern(old.shape.spec, tables.pairs.label_set(pod.namespace, pod.labels), pod.profile)
        if ranking is old:
            tables.shapes.release(old)
            return
        row = self._placement.counted_on(task)
        if row >= 0:
            tables.pairs.add(task.shape, row, -1, leaving=task.pod.terminating)
            task.reshape(ranking)
            tables.pairs.add(task.shape, row, 1, leaving=task.pod.terminating)
            tables.nodes.changes.touch(row)
            tables.nodes.gained.add(row)
        else:
            task.reshape(ranking)
            if task.unit is not None:
                self._pending.wait_again(task)
        tables.shapes.release(old)

    # -- on nodes --------------------------------------------------------------------------------

    def place(self, task: Task) -> None:
        """Count a pod on the node that it names."""
        tables, placement, pod = self._tables, self._placement, task.pod
        task.become(TaskState.BOUND)
        self._belonging.take_in(task)
        if pod.unsized:
            tables.nodes.poison(pod.node, pod.uid, bad=True)
        self.unread.note(pod)
        row = tables.nodes.rows.get(pod.node)
        if row is None:
            placement.stray(task, pod.node)
            if pod.ours:
                message = f"node {pod.node!r}, which the pod names, does not exist"
                tables.notices.add((task,), Reason(ReasonCode.NODE_AFFINITY, message))
        elif placement.is_countable(task, row):
            placement.assign(task, row, placement.devices_of(task, row))
        else:
            # The others there ask for so much already that with it the sum is beyond exact integers.
            task.pod = pod = unsized(pod)
            tables.shapes.release(task.ranking)
            task.reshape(self.ranking(pod))
            self.place(task)
            return
        task.become(TaskState.BOUND)
        if pod.ours:
            tables.services.runs(task)

    def recount(self, task: Task, pod: Pod) -> None:
        """Take over a newer view of a pod that stays where it is, and by which labels it is counted there."""
        tables = self._tables
        tables.queues.accounts.changes.pods[pod.uid] = None
        self.unread.note(pod)
        if (pod.user, pod.priority) != (task.pod.user, task.pod.priority):
            pod = self._changed_hands(task, pod)
        row = self._placement.counted_on(task)
        changed = pod.terminating != task.pod.terminating or pod.labels != task.pod.labels
        near = task.shape.spec.near
        if near is not None and task.row >= 0 and pod.terminating != task.pod.terminating:
            tables.network.seat(near, task.row, -1 if pod.terminating else 1)
        if row >= 0 and changed:
            tables.pairs.add(task.shape, row, -1, leaving=task.pod.terminating)
            tables.nodes.changes.touch(row)
            tables.nodes.gained.add(row)
        other, limited = pod.service_class != task.pod.service_class, pod.time_limit != task.pod.time_limit
        preemptibility = self._preemptibility_before(task, pod)
        if task.gang is not None and (pod.bound, pod.starting, pod.terminating) != (
            task.pod.bound,
            task.pod.starting,
            task.pod.terminating,
        ):
            self._starts.touch(task.gang)
        if pod.labels != task.pod.labels:
            tables.labelled.remove(task)
            task.pod = pod
            tables.labelled.add(task)
        task.pod = pod
        if other and pod.ours:
            tables.queues.accounts.reclassify(task)
        if limited and task.state is TaskState.BOUND:
            tables.services.runs(task)
        elif preemptibility is not None:
            self._began_earlier(task, preemptibility)
        if changed:
            old = task.ranking
            task.reshape(self.ranking(pod))
            tables.shapes.release(old)
        if row >= 0 and changed:
            tables.pairs.add(task.shape, row, 1, leaving=task.pod.terminating)
        if tables.census.active:
            tables.census.touch(task)

    def _preemptibility_before(self, task: Task, pod: Pod) -> tuple[bool, bool, int] | None:
        """Who may preempt a pod, where by its newer view it began earlier than was assumed; else None."""
        if pod.started is None or pod.started == task.pod.started or pod.started >= begun(task):
            return None
        return self._tables.services.preemptibility(task)

    def _began_earlier(self, task: Task, preemptibility: tuple[bool, bool, int]) -> None:
        """By a newer view. preemptibility: who might preempt it by the one before."""
        if task.state is TaskState.BOUND:
            self._tables.services.began_earlier(task)
            if task.row >= 0 and self._tables.services.preemptibility(task) != preemptibility:
                self._tables.nodes.gained.add(task.row)

    def _changed_hands(self, task: Task, pod: Pod) -> Pod:
        """A pod that has a node is another user's, or of another priority: accounts follow; a victim's stay as they are."""
        if task.state is TaskState.EVICTING:
            return msgspec.structs.replace(pod, user=task.pod.user, priority=task.pod.priority)
        queues = self._tables.queues
        charged = task.charged and (task.row >= 0 or self._placement.is_stray(task))
        if charged:
            queues.charge(task, -1, task.row)
        task.pod = msgspec.structs.replace(task.pod, user=pod.user, priority=pod.priority)
        if charged:
            queues.charge(task, 1, task.row)
        return pod


def unsized(pod: Pod) -> Pod:
    """A pod whose amounts cannot be counted beside those of others on its node."""
    message = f"pod {pod.key}: together with other pods on node {pod.node} it requests more than can be counted"
    return msgspec.structs.replace(pod, error=Reason(ReasonCode.TOO_LARGE, message), unsized=True)
