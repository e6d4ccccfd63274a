"""Spare places: what a gang with `topology.spares` keeps beside its members, for those of them that are replaced.

A spare is a task that no pod of the cluster stands for (`Pod.spare`). Until its gang starts it waits with the members that are
needed, and has a place in the same unit: so quotas, shares, reservations, victims and moves count it as they count a member. From
the start on it holds its place and is charged as a bound pod is, and is evicted with the needed members, never alone. It is no
member: `Gang.placed` does not have it.

Three states of a gang, by who has places:

- none: as many spares as are asked for wait with the members, made anew when these change;
- members: those spares that have places keep them. What is missing is placed at the end of a pass (`actions/spares.py`);
- spares only: all members have gone, as when a job starts its next attempt. Its places stay reserved for a while, and this start
  needs no further spares: the places are there for it.

Followers are pods that a controller creates once a member, their leader, has a node (`Group.followers`). Their places are spares
of their leader: they wait with it, are kept in its domain while it has a place, and go with it. Once followers have places, by
those that are handed over to them or by others, nothing is reserved for any of them. Nor is it once the time is over in which the
leader's gang is to start, counted from when the leader got its place: unless its followers come only when it is ready.

The nodes are written to the PodGroup's status, from where a scheduler that starts anew takes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from fairlead.core.model.agenda import Agenda
from fairlead.core.model.groups import Followers, Group
from fairlead.core.model.pods import DeviceUse, Pod, on_paper
from fairlead.core.pods.followers import leaders, leads_others, place_for
from fairlead.core.pods.members import role_of
from fairlead.core.pods.tasks import PLACED, Gang, Task, TaskState
from fairlead.core.state.in_flight import KEPT_FOR
from fairlead.core.state.parts import Parts
from fairlead.core.state.pods import Pods
from fairlead.core.state.starts import placed_at
from fairlead.core.state.suspended import Suspended
from fairlead.core.state.tables import Tables


class Spares:
    """Makes spares, and gives up those that serve nothing any more.

    asking: keys of gangs that ask for spares; keys: of those that have some, waiting or with a place. changed: keys of those
    whose places may have changed since that was asked last.
    """

    def __init__(self, tables: Tables, parts: Parts, pods: Pods, suspended: Suspended) -> None:
        self._tables = tables
        self._placement = parts.placement
        self._starts = parts.starts
        self._pods = pods
        self._suspended = suspended
        self.asking: set[str] = set()
        self.keys: set[str] = set()
        self.changed: set[str] = set()
        self._made: dict[str, Pod] = {}  # UID -> what a spare was made as
        self._recorded: dict[str, tuple[str, ...]] = {}  # group -> nodes that a scheduler before this one wrote
        self._leads: dict[str, tuple[str, ...]] = {}  # group -> the gangs of its followers
        self._followed_by: Agenda[str] = tables.timers.agenda("followers")  # group -> when the next leader has waited long enough
        self._ends: Agenda[str] = tables.timers.agenda("spares")  # group without members -> until when its places are kept

    # -- questions -----------------------------------------------------------------------------

    def wanted(self, gang: Gang) -> int:
        """How many spares a gang asks for: for members that are replaced, and for followers that have no places yet."""
        return _asked(gang.group) + len(self._for_followers(gang, _THERE))

    @staticmethod
    def kept(gang: Gang) -> list[Task]:
        """The spares of a gang that keep places, by UID."""
        return sorted(
            (task for task in gang.spares_of() if task.row >= 0 and task.state is TaskState.BOUND), key=lambda task: task.pod.uid
        )

    def own(self, gang: Gang) -> list[Task]:
        """Those of them that are for its members."""
        return [task for task in self.kept(gang) if not task.pod.leader]

    def for_followers(self) -> Iterator[tuple[Gang, list[Task]]]:
        """The gangs of followers that have no places yet, each with what keeps places for it."""
        for key in sorted({each for group in self.keys & self._leads.keys() for each in self._leads[group]}):
            gang = self._tables.gangs.get(key)
            if gang is not None and gang.tasks:
                places = [task for task in self._places(key) if task.row >= 0 and task.state is TaskState.BOUND]
                if places:
                    yield gang, places

    def _places(self, key: str) -> list[Task]:
        """Spares for the followers in one gang, by UID: of leaders that have places."""
        found = []
        for group in sorted(each for each in self.keys & self._leads.keys() if key in self._leads[each]):
            gang = self._tables.gangs.get(group)
            if gang is not None:
                led = {task.pod.uid for task, each in leaders(gang, PLACED) if each.gang == key}
                found += sorted((task for task in gang.spares_of() if task.pod.leader in led), key=lambda task: task.pod.uid)
        return found

    def nodes(self, gang: Gang) -> tuple[str, ...]:
        """The nodes where places are reserved for a gang, one for each place."""
        return tuple(self._tables.nodes.names[task.row] for task in self.kept(gang))

    def missing(self, gang: Gang) -> list[Pod]:
        """What is to be placed so that a gang has all of its spares again; none unless all that it needs have places."""
        if self._ceases(gang) or len(gang.placed()) < max(1, gang.needed):
            return []
        return [pod for pod in (*_pods(gang), *self._for_followers(gang, PLACED)) if pod.uid not in gang.tasks]

    def _for_followers(self, gang: Gang, states: frozenset[TaskState]) -> list[Pod]:
        """Places for followers that have none yet, of those leaders that are in certain states."""
        if not leads_others(gang.group):
            return []
        may_use = self._tables.admission.may_use
        return [
            place_for(task.pod, each, _pod(task.pod, gang, task.pod.uid, number), partial(may_use, task=task))
            for task, each in leaders(gang, states)
            if not self._has_started(each.gang) and self._awaited_until(gang, task, each) > self._tables.services.now
            for number in range(each.count)
        ]

    def _awaited_until(self, gang: Gang, leader: Task, followers: Followers) -> float:
        """Until when the followers of a leader are waited for: those that have all come get their places in the next pass."""
        since, following = placed_at(leader), self._tables.gangs.get(followers.gang)
        if followers.ready or not since or leader.state is not TaskState.BOUND:
            return math.inf
        if following is not None and following.tasks and len(following.tasks) >= following.needed:
            return math.inf
        return since + self._starts.limit(gang, leader)

    def _has_started(self, key: str) -> bool:
        """Whether a gang of followers has places, or has ended."""
        gang = self._tables.gangs.get(key)
        return gang is not None and (gang.needed <= 0 or bool(gang.placed()))

    def take_changed(self) -> set[str]:
        """The gangs whose places may have changed since this was asked last."""
        changed, self.changed = self.changed, set()
        return changed

    # -- events --------------------------------------------------------------------------------

    def upsert(self, group: Group, *, first: bool) -> None:
        """A PodGroup came or changed. first: nothing was known of it; its status has the nodes that were reserved for it."""
        leads = tuple(dict.fromkeys(each.gang for each in group.followers))
        if _asked(group) or leads:
            self.asking.add(group.key)
        else:
            self.asking.discard(group.key)
        if leads:
            self._leads[group.key] = leads
        else:
            self._leads.pop(group.key, None)
        if first and group.spares:
            self._recorded[group.key] = group.spares
            self.changed.add(group.key)

    def gone(self, key: str) -> None:
        """A PodGroup is gone."""
        self.asking.discard(key)
        self._leads.pop(key, None)
        self.release(key)

    def followed(self, key: str) -> None:
        """A gang has places: nothing is reserved for it with its leaders."""
        for task in self._places(key):
            self.remove(task)

    def release(self, key: str) -> None:
        """A gang ends, is evicted, or its PodGroup is gone: nothing is reserved for it."""
        self._recorded.pop(key, None)
        self._ends.drop(key)
        self._followed_by.drop(key)
        gang = self._tables.gangs.get(key)
        for task in gang.spares_of() if gang is not None else []:
            self.remove(task)

    def goes(self, task: Task) -> bool:
        """A task's node is gone: whether it is a spare that goes with it."""
        lost = task.pod.spare and task.state is TaskState.BOUND
        if lost:
            self.remove(task)
        return lost

    def leave(self, victims: Iterable[Task]) -> None:
        """A plan is made: spares among its victims are gone at once, as no pod of theirs has to end."""
        for task in victims:
            if task.pod.spare:
                self.remove(task)

    def keep(self, tasks: Iterable[Task]) -> None:
        """Spares have got their places."""
        for task in tasks:
            task.become(TaskState.BOUND)
            task.reported = None
            task.started = task.started or self._tables.services.now
            self._tables.queues.accounts.changes.pods[task.pod.uid] = None
            if task.gang is not None:
                self.keys.add(task.gang.key)
                self.changed.add(task.gang.key)
                self._tables.unsettle(task.gang)

    def make(self, pod: Pod) -> Task | None:
        """A spare that waits; None: there is one already."""
        task = self._pods.adopt(pod) if pod.uid not in self._tables.tasks else None
        if task is not None and task.gang is not None:
            self._made[pod.uid] = pod
            self.keys.add(task.gang.key)
        return task

    def remove(self, task: Task) -> None:
        """A spare is given up, and its place with it."""
        gang, uid = task.gang, task.pod.uid
        self._made.pop(uid, None)
        self._pods.remove(uid)
        if gang is not None:
            self.changed.add(gang.key)
            if not gang.spares_of():
                self.keys.discard(gang.key)

    # -- a pass --------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """A pass begins: recorded places are taken again, and what is kept in vain is given up."""
        recorded, self._recorded = self._recorded, {}
        for key, nodes in sorted(recorded.items()):
            gang = self._tables.gangs.get(key)
            if gang is not None and not self._ceases(gang) and not gang.spares_of():
                self._take_again(gang, nodes)
        for key in sorted(self.keys):
            gang = self._tables.gangs.get(key)
            if gang is None:
                self.keys.discard(key)
                continue
            if self.kept(gang):
                self._tend(gang, now)
            else:
                self._ends.drop(key)
                self._followed_by.drop(key)

    def _tend(self, gang: Gang, now: float) -> None:
        key, nodes, kept, wanted = gang.key, self._tables.nodes, self.own(gang), _asked(gang.group)
        if gang.placed() or not kept:
            self._ends.drop(key)
        elif (until := self._ends.at(key)) is None:
            self._ends.put(key, now + KEPT_FOR)
        elif until <= now:
            self.release(key)
            return
        if self._ceases(gang):
            self.release(key)
            return
        for task in kept[wanted:]:
            self.remove(task)
        self._note_next(gang)
        wanted_too = {pod.uid for pod in self._for_followers(gang, PLACED)}
        for task in self.kept(gang):
            if task.pod.leader and task.pod.uid not in wanted_too:
                self.remove(task)
        for task in self.kept(gang):
            row = slice(task.row, task.row + 1)
            closed = self._tables.reserved.closed_by_administrators(task)
            if not nodes.open[row].any() or not task.ranking.admitted(row).any() or (closed is not None and closed[row].any()):
                self.remove(task)  # no member could start there now

    def _note_next(self, gang: Gang) -> None:
        """When a leader will have waited long enough for its followers."""
        times = [self._awaited_until(gang, task, each) for task, each in leaders(gang, PLACED)]
        next_due = min((time for time in times if self._tables.services.now < time < math.inf), default=None)
        if next_due is None:
            self._followed_by.drop(gang.key)
        else:
            self._followed_by.put(gang.key, next_due)

    def _ceases(self, gang: Gang) -> bool:
        """Whether nothing is to be reserved for a gang: it asks for nothing, has ended, or is suspended."""
        return not (_asked(gang.group) or leads_others(gang.group)) or gang.needed <= 0 or self._is_suspended(gang.key)

    def _is_suspended(self, key: str) -> bool:
        """Whether a job is to have no pods, by its target state or its user."""
        return key in self._suspended.targets or key in self._suspended.paused

    def _take_again(self, gang: Gang, nodes: tuple[str, ...]) -> None:
        """Places that a scheduler before this one kept, as far as they are still free: others may have been bound there."""
        missing = sorted((*_pods(gang), *self._for_followers(gang, PLACED)), key=lambda pod: pod.uid)
        before = missing[:] if len(nodes) == len(missing) else [None] * len(nodes)  # which each was, as all are there
        for name, same in zip(nodes, before, strict=True):
            row = self._tables.nodes.rows.get(name)
            if row is None:
                continue
            for pod in [same, *missing] if same in missing else missing:
                task = self.make(pod)
                if task is not None and task.ranking.fits_row(row):
                    self._placement.place(task, row)
                    self.keep((task,))
                    missing.remove(pod)
                    break
                if task is not None:
                    self.remove(task)

    def settle(self) -> None:
        """Before units are made: gangs that are to start have their spares waiting, and others have none that wait."""
        for gang in list(self._tables.unsettled.values()):
            if gang.key in self.keys or gang.key in self.asking:
                spares = gang.spares_of()
                self._settle(gang, [task for task in spares if not task.pod.leader])
                self._settle_followers(gang, [task for task in spares if task.pod.leader])

    def _settle(self, gang: Gang, spares: list[Task]) -> None:
        members = bool(gang.placed())
        starts = not members and not self.own(gang)
        wanted = {pod.uid: pod for pod in _pods(gang)} if starts and gang.key not in self._suspended.paused else {}
        for task in spares:
            # Held without members: those with which it was to start are gone.
            stays = task.row >= 0 and (members or task.state is TaskState.BOUND)
            if not stays and (task.row >= 0 or self._made.get(task.pod.uid) != wanted.get(task.pod.uid)):
                self.remove(task)
        for uid, pod in wanted.items():
            if uid not in gang.tasks:
                self.make(pod)

    def _settle_followers(self, gang: Gang, spares: list[Task]) -> None:
        """Places wait with a leader that waits, and are kept beside one that has its place; others serve nothing."""
        paused = gang.key in self._suspended.paused
        waiting = {} if paused else {pod.uid: pod for pod in self._for_followers(gang, _WAITING)}
        kept = {pod.uid for pod in self._for_followers(gang, PLACED)}
        for task in spares:
            uid = task.pod.uid
            if uid not in kept if task.row >= 0 else self._made.get(uid) != waiting.get(uid):
                self.remove(task)
        for uid, pod in waiting.items():
            if uid not in gang.tasks:
                self.make(pod)


_WAITING = frozenset({TaskState.WAITING})
_THERE = PLACED | _WAITING


def _asked(group: Group | None) -> int:
    """How many spares a gang asks for, for its members."""
    asked = group.closeness if group is not None else None
    return asked.spares + sum(each.spares for _, each in asked.roles) if asked is not None else 0


def _pods(gang: Gang) -> list[Pod]:
    """The spares that a gang asks for, as pods: each like the largest of the members that it may stand in for."""
    asked = gang.group.closeness if gang.group is not None else None
    if asked is None:
        return []
    own = {role: rules.spares for role, rules in asked.roles if rules.spares}
    scopes: dict[str, list[Task]] = {}
    for task in gang.tasks.values():
        pod = task.pod
        if pod.spare or pod.terminating or task.state is TaskState.UNUSABLE or pod.elastic:
            continue
        role = role_of(pod)
        if role in own or asked.spares:
            scopes.setdefault(role if role in own else "", []).append(task)
    found = []
    for scope, tasks in sorted(scopes.items()):
        like = max(tasks, key=lambda task: (task.shape.device_milli, task.shape.cpu, task.pod.key)).pod
        found += [_pod(like, gang, scope, number) for number in range(own.get(scope, asked.spares))]
    return found


def _use(use: DeviceUse, like: Pod, gang: Gang) -> DeviceUse:
    """What a spare has of a claim of the member that it is made like: devices of its own, unless other members use that claim.

    Were it a user of the only claim of one member, it would hold no devices, and the claim could never be deallocated for a
    replacement elsewhere.
    """
    others = (task.pod for task in gang.tasks.values() if not task.pod.spare and task.pod.uid != like.uid)
    if use.template or any(use.key == each.key for other in others for each in other.claims):
        return use
    return DeviceUse(use.name, like=use.key)


def _pod(like: Pod, gang: Gang, scope: str, number: int) -> Pod:
    """One that asks for what a member does."""
    found = on_paper(like)
    return msgspec.structs.replace(
        found,
        claims=tuple(_use(use, like, gang) for use in found.claims),
        uid=f"spare/{gang.key}/{scope}/{number}",
        name="-".join(part for part in (like.group, scope, f"spare-{number}") if part),
        spec=msgspec.structs.replace(found.spec, near=None),
        bound=0.0,
        starting=None,
        placeholder=True,
        spare=True,
    )
