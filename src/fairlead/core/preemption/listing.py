"""Victims by kind of work, kept from pass to pass: a search asks about kinds, and touches the victims that it takes.

A kind is what decides whether and why work may be preempted, and nothing else (`_traits`): queue, priority, level of attained
service, class, whether a time slice and the shortest run time are over; user and size where users reclaim from each other. Each
kind has its victims in order of value. What differs from one to the next all the same (members that their gang can do without,
gangs of unlike members) has lists in which each is asked about.

What leaves together is derived together: a pod, a gang, or the pods of a job that is suspended as a whole. Such a group is
derived anew when `Changes` has noted one of its pods, when its pods become preemptible, and, where the time decides what is lost
or on which level it is, in every pass that searches. A trial that derives groups leaves them noted; the next pass derives
them once more before anything is tried (`catch_up`), since searches are trials as a rule.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.members import first_to_go, index_of
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.preemption.victim import Kind, Order, Victim
from fairlead.core.queues.attained import begun

if TYPE_CHECKING:
    from fairlead.core.queues.queue_node import QueueNode
    from fairlead.core.state.cluster import ClusterState

_MOST_MEMBERS = 1 << 30
_FEW = 16
"""From one change in so many victims of a kind on its list is sorted anew; fewer are put in and taken out one by one."""

Group = str | tuple[str] | tuple[str, str]
"""What leaves together: the UID of a pod, the key of a gang, or queue and owner of a job's pods."""


Groups = dict[Group, None]


class _Reversed:
    """Orders victims as their lists do: the cheapest last."""

    __slots__ = ("order",)

    def __init__(self, victim: Victim) -> None:
        self.order: Order = victim.order

    def __lt__(self, other: _Reversed) -> bool:
        return other.order < self.order


class VictimLists:
    """All victims, as they stood when they were listed last.

    kinds: those that have victims. of: UID -> the victim that a pod is part of.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._changes = state.queues.accounts.changes
        self._changes.everything = True
        self.kinds: dict[tuple[object, ...], Kind] = {}
        self.of: dict[str, Victim] = {}
        self._group_of: dict[str, Group] = {}
        self._made: dict[Group, list[Victim]] = {}
        self._jobs: dict[Group, dict[str, Task]] = {}
        self._unconfirmed: set[str] = set()  # placed, and not known to run
        self._leaving: dict[str, None] = {}  # terminating
        self._timed: dict[Group, None] = {}  # what is lost with them, or their level, depends on the time
        self._young: list[tuple[float, str]] = []  # when a pod has run for as long as it must, and its UID
        self._touched: dict[int, tuple[Kind, list[Victim], list[Victim]]] = {}  # what leaves lists, and what comes to them
        self._now = 0.0
        self._in_trial = False  # listed in a trial since they were listed outside one

    # -- bringing them up to date --------------------------------------------------------------

    def refresh(self) -> None:
        """List everything as it stands now."""
        changes, now = self._changes, self._state.services.now
        groups: Groups = {}
        if changes.everything:
            self._forget()
            for node in self._state.queues.queues.values():
                self._sort(self._list_plain(node), groups)
        else:
            gangs = self._state.gangs
            uids = [uid for key in changes.gangs if key in gangs for uid in gangs[key].tasks]
            while self._young and self._young[0][0] <= now:
                uids.append(heappop(self._young)[1])
            self._sort({**changes.pods, **dict.fromkeys(uids), **self._leaving}, groups)
            groups.update(((key,), None) for key in changes.gangs)
            if now != self._now:
                groups.update(self._timed)
        self._derive(groups)
        self._now = now
        self._in_trial = bool(self._state.log.depth)
        if not self._in_trial:
            changes.clear()

    def catch_up(self) -> None:
        """What was listed in trials only is listed once outside, so that trials derive no more than has changed."""
        if self._in_trial:
            self.refresh()

    def again(self, tasks: Iterable[Task]) -> None:
        """In a trial: these have come to run. Their groups are as before when it is taken back."""
        groups: Groups = {}
        self._sort([task.pod.uid for task in tasks], groups)
        self._state.log.call(self._restore, {group: self._made.get(group, []) for group in groups})
        self._derive(groups)

    def assumed(self) -> list[Task]:
        """What is placed, and not known to run."""
        tasks = self._state.tasks
        if self._changes.everything:
            placed = [task for node in self._state.queues.queues.values() for task in node.placed.values()]
        else:
            uids = sorted(self._unconfirmed.union(self._changes.pods))
            placed = [task for uid in uids if (task := tasks.get(uid)) is not None and self._is_placed(task)]
        return [task for task in placed if task.state is TaskState.ASSUMED and task.row >= 0]

    def _forget(self) -> None:
        for each in (self.kinds, self.of, self._group_of, self._made, self._jobs, self._unconfirmed, self._leaving, self._timed):
            each.clear()
        self._young.clear()

    def _list_plain(self, node: QueueNode) -> Iterable[str]:
        """List at once what leaves alone and does not depend on the time; the UIDs of the rest.

        As `_sort` and `_derive` would, in a third of the time, since nothing is listed yet: the first search after a start
        lists all that runs.
        """
        if node.policy.users_reclaim:
            return node.placed  # its kinds are many
        rest: list[str] = []
        kinds: dict[tuple[object, ...], Kind | None] = {}  # None: not plain
        for uid, task in node.placed.items():
            pod = task.pod
            if task.gang is not None or task.state is not TaskState.BOUND or task.row < 0 or pod.terminating:
                rest.append(uid)
                continue
            same = pod.priority, task.service_class, pod.never_preempts, pod.elastic
            if same not in kinds:
                service = self._state.services.of(task)
                plain = not by_time(service) and service.mode != "Suspend"
                kinds[same] = self._kind(task.queue, self._traits(task, service), spare=False) if plain else None
            kind = kinds[same]
            if kind is None:
                rest.append(uid)
                continue
            victim = self.of[uid] = Victim((1, pod.priority, 0, 0.0, 1, -pod.created, uid), (task,), kind)
            self._group_of[uid] = uid
            self._made[uid] = [victim]
            kind.victims.append(victim)
        for kind in kinds.values():
            if kind is not None:
                kind.victims.sort(key=_order, reverse=True)
        return rest

    def _sort(self, uids: Iterable[str], groups: Groups) -> None:
        """Find the groups of pods, and note those that have changed, with those in which they were."""
        tasks, settled = self._state.tasks, not self._state.log.depth
        for uid in uids:
            task = tasks.get(uid)
            was, group = self._group_of.pop(uid, None), None
            if was is not None:
                groups[was] = None
                if was in self._jobs:
                    self._jobs[was].pop(uid, None)
            if task is None or not self._is_placed(task):
                if settled:
                    self._unconfirmed.discard(uid)
                    self._leaving.pop(uid, None)
                continue
            if task.state is not TaskState.BOUND:
                self._unconfirmed.add(uid)
            elif settled:
                self._unconfirmed.discard(uid)
            if task.pod.terminating:
                self._leaving[uid] = None
            group = self._group_of[uid] = self._group(task)
            if len(group) == 2 and not isinstance(group, str):
                self._jobs.setdefault(group, {})[uid] = task
            groups[group] = None

    def _is_placed(self, task: Task) -> bool:
        node = self._state.queues.queues.get(task.queue)
        return node is not None and node.placed.get(task.pod.uid) is task

    def _group(self, task: Task) -> Group:
        if task.pod.terminating and self._state.departures.stays_on(task, self._state.services.now):
            return task.pod.uid  # neither its gang nor its job has it any more
        gang = task.gang
        if gang is not None and gang.group is not None:
            return (gang.key,)
        if self._state.suspended.suspendable(task):
            return (task.queue, task.pod.owner)  # its job is suspended as a whole
        return task.pod.uid

    def drop(self, kind: Kind) -> None:
        """Take the cheapest of a kind out of its list: it was evicted."""
        for task in kind.victims.pop().tasks:
            self.of.pop(task.pod.uid, None)

    # -- victims of a group --------------------------------------------------------------------

    def _derive(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._replace(group, list(self._make(group)))
        self._settle()

    def _restore(self, made: dict[Group, list[Victim]]) -> None:
        for group, victims in made.items():
            self._replace(group, victims)
        self._settle()

    def _replace(self, group: Group, victims: list[Victim]) -> None:
        """The victims of a group, instead of those that it had."""
        for victim in self._made.pop(group, ()):
            for task in victim.tasks:
                if self.of.get(task.pod.uid) is victim:
                    del self.of[task.pod.uid]
            self._touch(victim.kind)[1].append(victim)
        if victims:
            self._made[group] = victims
        for victim in victims:
            for task in victim.tasks:
                self.of[task.pod.uid] = victim
            self._touch(victim.kind)[2].append(victim)

    def _touch(self, kind: Kind) -> tuple[Kind, list[Victim], list[Victim]]:
        return self._touched.setdefault(id(kind), (kind, [], []))

    def _settle(self) -> None:
        """Put into lists what has come, and take out what is gone."""
        for kind, gone, come in self._touched.values():
            victims = kind.victims
            if (len(gone) + len(come)) * _FEW < len(victims):
                for victim in gone:
                    at = bisect.bisect_left(victims, _Reversed(victim), key=_Reversed)
                    if at < len(victims) and victims[at] is victim:
                        del victims[at]
                for victim in come:
                    bisect.insort(victims, victim, key=_Reversed)
            else:
                out = {id(victim) for victim in gone}
                victims[:] = sorted([each for each in (*victims, *come) if id(each) not in out], key=_order, reverse=True)
            if victims:
                self.kinds[kind.key] = kind
            elif self.kinds.get(kind.key) is kind:
                del self.kinds[kind.key]
        self._touched.clear()

    def _make(self, group: Group) -> Iterator[Victim]:
        if isinstance(group, str):
            task = self._alone(group)
            if task is None:
                self._timed.pop(group, None)
            else:
                service = self._state.services.of(task)
                if by_time(service):
                    self._watch(group, (task,))
                elif self._timed:
                    self._timed.pop(group, None)
                yield self._single(task, service)
            return
        if len(group) == 1:
            yield from self._of_gang(group)
            return
        tasks = self._jobs.get(group)
        if not tasks:
            self._jobs.pop(group, None)
            self._timed.pop(group, None)
        elif all(_runs(task) for task in tasks.values()):
            together = tuple(sorted(tasks.values(), key=lambda task: task.pod.key))
            self._watch(group, together)
            yield self._victim(together)

    def _alone(self, uid: str) -> Task | None:
        """A pod that is a group by itself, if it runs."""
        task = self._state.tasks.get(uid)
        if task is None or self._group_of.get(uid) != uid or task.state is not TaskState.BOUND or task.row < 0:
            return None
        stays = not task.pod.terminating or self._state.departures.stays_on(task, self._state.services.now)
        return task if stays else None

    def _of_gang(self, group: tuple[str]) -> Iterator[Victim]:
        gang = self._state.gangs.get(group[0])
        members = gang.placed() if gang is not None and gang.group is not None else []
        if gang is None or not members or not all(_runs(each) for each in members):
            self._timed.pop(group, None)
            return  # some are still being placed: its fate is open
        self._watch(group, members)
        spare, needed = first_to_go(members, gang.needed)
        yield from (self._spare(each) for each in spare)
        if needed:
            yield self._victim(tuple(needed), tuple(task for task in gang.spares_of() if _runs(task)))

    def _watch(self, group: Group, tasks: Iterable[Task]) -> None:
        """Note when a group is derived anew by itself."""
        services, timed = self._state.services, False
        for task in tasks:
            service = services.of(task)
            if not by_time(service):
                continue
            timed = timed or bool(service.levels or service.checkpoint_interval)
            if service.min_runtime and services.now < (due := begun(task) + service.min_runtime):
                heappush(self._young, (due, task.pod.uid))
        if timed:
            self._timed[group] = None
        else:
            self._timed.pop(group, None)

    def _single(self, task: Task, service: ServiceClass) -> Victim:
        """One that leaves alone, as most do."""
        services, pod = self._state.services, task.pod
        level, lost = 0, 0.0
        if by_time(service):
            level = services.victim_level(task)
            lost = 0.0 if pod.terminating else services.lost_with(task)
        order = (1, pod.priority, -level, lost, 1, -pod.created, pod.uid)
        return Victim(order, (task,), self._kind(task.queue, self._traits(task, service), spare=False))

    def _victim(self, tasks: tuple[Task, ...], spares: tuple[Task, ...] = ()) -> Victim:
        """What leaves together. spares: the places that are reserved for a gang are free once it is evicted, and cost nothing."""
        if len(tasks) == 1 and not spares:
            return self._single(tasks[0], self._state.services.of(tasks[0]))
        services = self._state.services
        order = (
            1,
            max(task.pod.priority for task in tasks),
            -max(services.victim_level(task) for task in tasks),
            sum(services.lost_with(task) for task in tasks if not task.pod.terminating),
            len(tasks),
            -max(task.pod.created for task in tasks),
            min(task.pod.uid for task in tasks),
        )
        traits = self._traits(tasks[0], services.of(tasks[0]))
        if any(self._traits(task, services.of(task)) != traits for task in tasks[1:]):
            traits = None
        return Victim(order, (*tasks, *spares), self._kind(tasks[0].queue, traits, spare=False))

    def _spare(self, task: Task) -> Victim:
        """A member that its gang can do without."""
        pod, (outer, index) = task.pod, index_of(task.pod)
        place = outer * _MOST_MEMBERS + index
        services = self._state.services
        order = (0, pod.priority, -place, services.lost_with(task), 1, -pod.created, pod.uid)
        return Victim(order, (task,), self._kind(task.queue, self._traits(task, services.of(task)), spare=True))

    # -- kinds ---------------------------------------------------------------------------------

    def _kind(self, queue: str, traits: tuple[object, ...] | None, *, spare: bool) -> Kind:
        key = queue, spare, traits
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = Kind(key, queue, spare=spare, alike=traits is not None)
        return kind

    def _traits(self, task: Task, service: ServiceClass) -> tuple[object, ...] | None:
        """What decides why a task may be preempted; None where that is asked about each by itself."""
        pod, services, timed = task.pod, self._state.services, by_time(service)
        if pod.elastic and task.gang is not None:
            return None  # whether its gang can do without it changes with every other member
        reclaims = self._state.queues.queues[task.queue].policy.users_reclaim
        return (
            pod.priority,
            services.level(task) if timed else 0,
            service.name or task.service_class,
            pod.never_preempts,
            pod.elastic,
            pod.profile if task.gang is None else None,
            not timed or services.time_slice_over(task),
            services.is_preemptible(task) if timed else service.mode != "Never",
            (task.user, task.shape.device_milli, task.shape.cpu) if reclaims else None,
        )


def by_time(service: ServiceClass) -> bool:
    """Whether the time decides what is lost with work of a class, on which level it is, or from when on it may be preempted."""
    return bool(service.levels or service.checkpoint_interval or service.min_runtime)


def _order(victim: Victim) -> Order:
    return victim.order


def _runs(task: Task) -> bool:
    return task.state is TaskState.BOUND and task.row >= 0 and not task.pod.terminating
