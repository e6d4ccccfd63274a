"""The state of the cluster as the scheduler sees it: events in, questions answered, undo.

There is no snapshot per pass: this state is the snapshot. Every event is one method; a pass
(`schedule.py`) reads and assigns through the same object under the undo log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import msgspec

from fairlead.api.names import DEFAULT_QUEUE
from fairlead.api.reasons import Reason
from fairlead.core.model.allocations import FailedDevice
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Group
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.nodes import Node, NodePool, Reservation
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.undo import new_version
from fairlead.core.nodes.storage import StorageObject
from fairlead.core.pods.tasks import Placeholder, Task, TaskState
from fairlead.core.queues.meters import submitted_limits
from fairlead.core.state.alternatives import Alternatives
from fairlead.core.state.bound import unsized
from fairlead.core.state.budgets import Budgets
from fairlead.core.state.caches import Caches
from fairlead.core.state.claims import Claims
from fairlead.core.state.foretold import Foretold
from fairlead.core.state.parts import Parts
from fairlead.core.state.pods import Pods
from fairlead.core.state.recovery import StateRecovery
from fairlead.core.state.spares import Spares
from fairlead.core.state.suspended import Suspended
from fairlead.core.state.tables import Tables


class ClusterState:
    """Everything a pass decides on. Rebuilt from the cluster's objects it is the same again."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.tables = tables = Tables(policy or Policy())
        self.policy = tables.policy
        self.log = tables.log
        self.nodes = tables.nodes
        self.pairs = tables.pairs
        self.holdings = tables.holdings
        self.storage = tables.storage
        self.device_claims = tables.device_claims
        self.network = tables.network
        self.whole_domains = tables.whole_domains
        self.numa = tables.numa
        self.shapes = tables.shapes
        self.services = tables.services
        self.runtimes = tables.runtimes
        self.queues = tables.queues
        self.reserved = tables.reserved
        self.admission = tables.admission
        self.tasks = tables.tasks
        self.gangs = tables.gangs
        self.in_flight = tables.in_flight
        self.timers = tables.timers
        self.notices = tables.notices
        self.foretold = Foretold()
        self.caches = Caches(self)
        self.pass_caches = Caches(self)

        parts = Parts(tables)
        self.placement = parts.placement
        self.isolation = parts.isolation
        self.departures = parts.departures
        self.overrides = parts.overrides
        self.starts = parts.starts
        self.belonging = parts.belonging
        self.pending = parts.pending
        self.bound = parts.bound
        self.neighbours = parts.neighbours
        self.leftovers = parts.leftovers
        self.moves = parts.moves
        self.places_before = parts.places_before
        self.evictions = parts.evictions
        self.budgets = Budgets(tables, self.departures, self.overrides, self.in_flight.waits)
        self.pods = Pods(tables, parts)
        self.claims = Claims(tables, self.pods, self.pending, self._comes_to_wait)
        self.suspended = Suspended(tables, parts, self.pods)
        self.alternatives = Alternatives(tables)
        self.spares = Spares(tables, parts, self.pods, self.suspended)
        self.isolation.recovery = StateRecovery(tables, parts, self.pods, self.pass_caches)
        self._with_gpu_quota: set[str] = set()  # queues that are guaranteed GPUs

    # -- nodes ---------------------------------------------------------------------------------

    def upsert_node(self, node: Node) -> None:
        """A node came or changed. Pods already known to be on it are charged to it."""
        nodes, placement = self.nodes, self.placement
        known = nodes.rows.get(node.name)
        self.bound.unread.note_node(nodes.objects[known] if known is not None else None, node)
        had = nodes.device_count(known) if known is not None else 0
        row = nodes.upsert(node)
        self.queues.node_changed(row)
        self.device_claims.devices.node_changed(row)
        placement.follow_devices(row, had)
        for task in list(placement.strays.get(node.name, {}).values()):
            placement.unstray(task, node.name)
            if placement.is_countable(task, row):
                placement.assign(task, row, placement.devices_of(task, row))
            else:
                self.pods.remove(task.pod.uid)
                self.pods.adopt(unsized(task.pod))
        self.numa.node_changed(node.name)  # last: of a node that comes, pods are taken in the order of their starts
        if self.network.asked:
            self.claims.release_nodes()

    def remove_node(self, name: str) -> None:
        """A node is gone. Its pods stay known, on no row, until they go or the node returns."""
        row = self.nodes.rows.get(name)
        if row is None:
            return
        placement = self.placement
        for task in list(self.nodes.pods[row].values()):
            placement.unassign(task)
            self.evictions.abandon(task)
            if isinstance(task, Placeholder) or self.spares.goes(task):
                continue  # it goes with the node
            if task.state in (TaskState.BOUND, TaskState.EVICTING):
                placement.stray(task, name)
            else:
                self.pending.wait(task)
        for uid in [uid for uid, where in self.in_flight.lingering.items() if where == row]:
            placement.fail(self.tasks[uid], name)
        self.numa.clear(row)
        self.nodes.remove(name)
        self.queues.node_changed(row)

    # -- pods ----------------------------------------------------------------------------------

    def upsert_pod(self, pod: Pod) -> None:
        """A pod came or changed."""
        if pod.finished and self.claims.detains(pod.uid, pod):
            return
        self._comes_to_wait(self.pods.upsert(pod))
        self.claims.follow()

    def remove_pod(self, uid: str) -> None:
        """A pod is gone or has finished: what it held is free, and what waited for that may start."""
        if self.claims.detains(uid, None):
            return
        self.pods.remove(uid)
        self.claims.follow()

    def bind_failed(self, uid: str, now: float, devices: Sequence[FailedDevice] = ()) -> None:
        """The binding was refused: free the place, and wait longer after each refusal. devices: those because of which."""
        for each in devices:
            self.device_claims.note_failed(each, now)
        self._comes_to_wait(self.pods.bind_failed(uid, now))
        self.claims.follow()

    def _comes_to_wait(self, task: Task | None) -> None:
        if task is not None:
            if task.pod.owner:
                self.suspended.arrived(task)
            self.pending.wait(task)

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
            self.placement.recount_pairs()
        if changed:
            self.belonging.namespace_changed(name)
        if changed and any(each.policy.namespaces for each in self.queues.queues.values()) | any(
            each.namespaces for each in self.services.classes.values()
        ):
            self.pending.admit_again(self.tables.labelled.of(name))

    def upsert_storage(self, item: StorageObject) -> None:
        """A claim, a volume, a storage class or one of their like came or changed."""
        self.storage.upsert(item)

    def storage_known(self) -> None:
        """All storage objects that exist have been listed."""
        self.storage.known = True
        self.storage.version = new_version()

    def remove_storage(self, kind: type[StorageObject], name: str) -> None:
        """One of them is gone."""
        self.storage.remove(kind, name)

    def upsert_pool(self, pool: NodePool) -> None:
        """A node pool came or changed."""
        self.queues.upsert_pool(pool)
        self.network.upsert_pool(pool)

    def remove_pool(self, name: str) -> None:
        """A node pool is gone."""
        self.queues.remove_pool(name)
        self.network.remove_pool(name)

    def upsert_reservation(self, reservation: Reservation) -> None:
        """An administrator's reservation came or changed."""
        self.reserved.upsert(reservation)

    def remove_reservation(self, name: str) -> None:
        """An administrator's reservation is gone."""
        self.reserved.remove(name)

    def upsert_budget(self, budget: DisruptionBudget) -> None:
        """A disruption budget came or changed."""
        self.budgets.upsert(budget)

    def remove_budget(self, key: str) -> None:
        """A disruption budget is gone."""
        self.budgets.remove(key)

    # -- queues, classes of service, groups ----------------------------------------------------

    def upsert_class(self, service: ServiceClass) -> None:
        """A class of service came or changed."""
        if self.services.upsert(service):
            self.neighbours.class_changed(service.name)
            self.queues.accounts.changes.everything = True
            self.queues.name_non_preemptible(self.services.non_preemptible())
            self.queues.waiting.policy_changed()
            for task in self.tasks.values():
                if task.row >= 0 and task.pod.ours and task.service_class == service.name:
                    self.services.runs(task)
                    if task.gang is not None:
                        self.starts.touch(task.gang)
            self._admit_class(service.name)

    def remove_class(self, name: str) -> None:
        """A class of service is gone: its pods are served as those without a class."""
        if self.services.remove(name):
            self.neighbours.class_changed(name)
            self.queues.accounts.changes.everything = True
            self.queues.name_non_preemptible(self.services.non_preemptible())
            self.queues.waiting.policy_changed()
            self._admit_class(name)

    def _admit_class(self, name: str) -> None:
        self.pending.admit_again(task for task in self.tasks.values() if task.service_class == name)

    def upsert_queue(self, queue: Queue) -> Reason | None:
        """A queue came or changed; returns why the change was refused, if it was."""
        if queue.elsewhere:
            self._give_away(queue.name, queue.elsewhere)
            return None
        self.queues.tree.give_away(queue.name, "")
        queue = self._restore(queue)
        known = self.queues.queues.get(queue.name)
        before = _who_may(known.policy) if known is not None else _who_may(Queue(queue.name))
        refused = self.queues.upsert(queue)
        unasked = self.queues.tree.knows(DEFAULT_QUEUE)
        self.queues.tree.see(queue.name)
        if unasked and not self.queues.tree.knows(DEFAULT_QUEUE):
            self.pending.queue_gone(DEFAULT_QUEUE)
        if refused is None and _who_may(queue) != before:
            self._judge_under(queue.name, self.queues.tree.knows)
        self.pending.queue_came(queue.name)
        self.belonging.queue_changed(queue.name)
        self._guard_gpus(queue.name)
        return refused

    def _restore(self, queue: Queue) -> Queue:
        """A queue without what a scheduler before this one has learned of it; that is taken over."""
        if queue.usage is not None:
            self.queues.fair.usage.restore(queue.name, queue.usage)
        if queue.run_times:
            self.runtimes.restore(queue.name, queue.run_times)
        if queue.forecasts:
            self.foretold.restore(queue.name, queue.forecasts)
        return msgspec.structs.replace(queue, usage=None, run_times=(), forecasts=())

    def _guard_gpus(self, name: str) -> None:
        """Headroom is kept beside free GPUs while some queue has a quota of GPUs."""
        node = self.queues.queues.get(name)
        policy = node.policy if node is not None and node.exists else Queue(name)
        gpus = self.policy.gpu_resources
        if any(each.name in gpus and (each.quota or each.quota_percent) for each in policy.resources):
            self._with_gpu_quota.add(name)
        else:
            self._with_gpu_quota.discard(name)
        self.nodes.guard_gpus(on=bool(self._with_gpu_quota))

    def _give_away(self, name: str, to: str) -> None:
        """Another release of Fairlead serves a queue: what waits in it waits until it is served here, what runs goes on."""
        if self.queues.tree.give_away(name, to):
            self._lose_queue(name)
            for each in {name: None, DEFAULT_QUEUE: None}:
                if not self.queues.tree.knows(each):
                    self.pending.queue_gone(each)
                    self.pending.queue_came(each)  # their reason is another

    def remove_queue(self, name: str) -> None:
        """A queue's object is gone: its waiting jobs wait for its return, what runs goes on."""
        self.queues.tree.give_away(name, "")
        self._lose_queue(name)

    def _lose_queue(self, name: str) -> None:
        known = self.queues.queues.get(name)
        judged = known is not None and _who_may(known.policy) != _who_may(Queue(name))
        self.queues.remove(name)
        if self.queues.tree.knows(DEFAULT_QUEUE):
            self.pending.queue_came(DEFAULT_QUEUE)
        if not self.queues.tree.knows(name):
            self.pending.queue_gone(name)
        if judged:
            self._judge_under(name, self.queues.queues.__contains__)
        self.belonging.queue_changed(name)
        self._guard_gpus(name)

    def _judge_under(self, name: str, among: Callable[[str], bool]) -> None:
        """Who may wait in a queue and those below it has changed. among: which queues are asked."""
        self.tables.census.drop()
        by_queue = self.tables.by_queue
        queues = [each for each in by_queue if among(each) and self.queues.tree.above(name, each)]
        self.pending.admit_again(task for each in queues for task in by_queue[each].values())

    def upsert_group(self, group: Group) -> None:
        """A PodGroup came or changed."""
        gang = self.tables.gang(group.namespace, group.name)
        self.spares.upsert(group, first=gang.group is None)
        if gang.group is None:
            self.pods.finished.read(gang, group)
            self.starts.read(gang, group.failed_starts)
            gang.failed = group.failed and not gang.tasks
        group = self.belonging.group(gang, group)
        before, gang.group = gang.group, group
        if before != group:
            self.isolation.group_changed(gang)
        if group.service_class != (before.service_class if before is not None else ""):
            self.services.starts += 1
            for task in gang.tasks.values():
                self.queues.accounts.reclassify(task)
            self.neighbours.renew(gang.tasks.values())
            self.pending.admit_again(gang.tasks.values())
        elif (before.min_member if before is not None else 0) != group.min_member:
            self.neighbours.renew(gang.tasks.values())
        if before is not None and before.time_limit != group.time_limit:
            for task in gang.bound():
                self.services.runs(task)
        for task in list(gang.tasks.values()):
            queue = group.queue or task.pod.queue
            if queue != task.queue and (self.belonging.believes or (task.row < 0 and not task.pod.node)):
                self.pending.change_queue(task, queue)
        asked = (before.closeness, before.followers) if before is not None else (None, ())
        if asked != (group.closeness, group.followers):
            self.bound.group_changed(gang)
        self.claims.group_changed(gang)
        self.tables.unsettle(gang)
        self.starts.touch(gang)
        self.suspended.upsert(group)
        self.alternatives.upsert(group)

    def remove_group(self, key: str) -> None:
        """A PodGroup is gone; its pods stay where they are."""
        self.suspended.remove(key)
        self.alternatives.remove(key)
        self.spares.gone(key)
        gang = self.gangs.get(key)
        if gang is None:
            return
        self.belonging.group_gone(gang)
        gang.group = None
        self.bound.group_changed(gang)
        self.pods.finished.group_gone(gang)
        if gang.tasks:
            self.tables.unsettle(gang)
        else:
            del self.gangs[key]
            self.starts.left(key)

    # -- a pass --------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """A pass begins: what depends on the time is derived again."""
        self.services.begin(now)
        self.pass_caches.drop()
        self.queues.accounts.changes.bound(len(self.tasks))
        guard = self.isolation.guard
        self.isolation.begin(now)
        if self.nodes.forget_devices():
            self.shapes.renumbered()
        first = self.belonging.believes
        self.belonging.begin()
        self.neighbours.begin(now, first=first)
        if first:
            with guard("numa"):
                self.numa.recount()  # pods were listed by name, and their kubelets took them in the order of their starts
        self.pending.stale = True
        with guard("claims"):
            self.device_claims.end_backoffs(now)
            self.claims.follow()
            self.device_claims.wants.tidy(self._specs())
        with guard("reservations"):
            self.reserved.begin(now)
        with guard("moves"):
            self.moves.expire(now)
        for site, part in (("suspended", self.suspended), ("alternatives", self.alternatives), ("spares", self.spares)):
            with guard(site):
                part.begin(now)
        with guard("overrides"):
            self.overrides.tidy(now)

    def _specs(self) -> Iterator[PodSpec]:
        """What all pods are, and placeholders on nodes."""
        for tasks in chain((self.tasks,), self.nodes.pods):
            yield from (each.shape.spec for each in tasks.values())

    def settle(self, now: float) -> None:
        """Make the units of gangs that changed, and let delayed tasks wait again, if there may be any since the last time."""
        if not (self.pending.stale or self.pending.uncounted or self.tables.unsettled):
            return
        self.pending.settle(now)
        if not self.tables.unsettled:
            return
        for group in self.belonging.ended():
            with self.isolation.guard("settle", self.gangs.get(group.key) or ""):
                self.upsert_group(group)
        with self.isolation.guard("spares"):
            self.spares.settle()
        self.pending.settle_gangs(now)

    @property
    def next_due(self) -> float | None:
        """When a pass is due although nothing happened: a backoff or a rest ends, or a gang's grace (`Timers`)."""
        return self.timers.next


def _who_may(policy: Queue) -> tuple[object, ...]:
    """The part of a queue's policy that decides what may wait in it; its parent belongs to it."""
    return policy.parent, policy.namespaces, policy.users, policy.classes, submitted_limits(policy)
