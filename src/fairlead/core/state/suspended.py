"""Suspended jobs: they hold nothing, and keep their place in line.

To suspend a job the scheduler writes the target state to its PodGroup (`status.target`, made where there is none), with a record
of its pods; the operator acts on the job's object, whose controller deletes the pods. Once they are gone, placeholders made
from that record wait in their stead, with the rank that the job had: they are served, reserved for and explained like
pods. When they get places, the target state becomes Running, the places are kept, and each pod that the controller makes takes
one. All of that can be read from the PodGroup, the places and what the job has attained, too, so nothing is lost with the
scheduler: the next one reserves the places again for those pods of the job that have none yet.

An AIJob begins another attempt when it resumes: members that have succeeded before come back with the others, and need places.
Its roles may be edited meanwhile. Then nothing waits in its stead any more: the target is withdrawn, pods of the new roles wait
like any others, what the job attained counts on, and places that are reserved for pods of the old roles are free.

There may be no operator: if pods are still there after a while they are evicted, and the target is withdrawn. It is withdrawn,
too, when its user resumes the job, and when nothing is recorded of its pods; again and again until the PodGroup shows it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from fairlead.api.names import KUBERNETES_PROFILE, ROLES_LABEL, fitting
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.agenda import Agenda
from fairlead.core.model.groups import Group, Target
from fairlead.core.model.pods import Pod
from fairlead.core.model.transactions import Binding, Evict, Resume, Suspension, Transaction
from fairlead.core.pods.owned import GroupOwners
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.state import stand_ins
from fairlead.core.state.in_flight import KEPT_FOR
from fairlead.core.state.parts import Parts
from fairlead.core.state.pods import Pods
from fairlead.core.state.tables import Tables

_PATIENCE = 60.0  # seconds for the operator, beyond what the pods take to end


class Suspended:
    """Target states, placeholders, and the places reserved for jobs that resume."""

    def __init__(self, tables: Tables, parts: Parts, pods: Pods) -> None:
        self._tables = tables
        self._placement = parts.placement
        self._departures = parts.departures
        self._pending = parts.pending
        self._moves = parts.moves
        self._places_before = parts.places_before
        self._events = pods
        self.targets: dict[str, Target] = {}  # group -> a target state that is not Running
        self._owners = GroupOwners(tables.log)
        self._placeholders: dict[str, list[str]] = {}  # group -> UIDs of those that wait or have places
        self._changed: set[str] = set()  # groups whose placeholders may be due
        self._leaving: Agenda[str] = tables.timers.agenda("suspensions")  # group -> when its pods should be gone
        self._coming: Agenda[str] = tables.timers.agenda("resumes")  # group -> until when places are kept
        self._epochs: dict[str, int] = {}  # group -> the last one; of groups that are gone the highest is kept, as `_floor`
        self._floor = 0
        self._over: set[str] = set()  # groups of which something has ended: perhaps no target applies any more
        self._withdrawn: set[str] = set()
        self._unconfirmed: Agenda[str] = tables.timers.agenda("withdrawals")  # group -> when once more, unless it was observed
        self._resuming: set[str] = set()  # groups whose target states name places
        self._recorded: dict[str, Target] = {}  # group -> places that a scheduler before this one reserved
        self._served: dict[str, tuple[str, ...]] = {}  # group -> owners whose jobs carry on what they attained
        self._roles: dict[str, str] = {}  # group -> digest of the roles that its job has now
        self.paused: set[str] = set()  # groups whose jobs their users have suspended, too
        self._recalled: set[str] = set()  # owners whose attained service changed since the last pass

    # -- events --------------------------------------------------------------------------------

    def upsert(self, group: Group) -> None:
        """A PodGroup came or changed."""
        key, target = group.key, group.target
        if group.roles and self._roles.get(key) != group.roles:
            self._roles[key] = group.roles
            self._changed.add(key)
        if target is None:
            if key in self.targets:
                self.remove(key)  # it was taken out of the group
            return
        if target.nodes and target.epoch > self._epochs.get(key, 0):
            self._recorded[key] = target
        else:
            self._recorded.pop(key, None)
        if target.epoch >= self._epochs.get(key, 0):
            self._epochs[key] = target.epoch
            self._unconfirmed.drop(key)
        for owner in target.owners:
            self._owners.put(owner, key)
        if target.state != "Suspended":
            self._resume(key, target)
        elif key not in self._unconfirmed and self.targets.get(key) != target:
            if key not in self.targets:
                self._coming.drop(key)
                self._drop(key)  # places of pods that had not come when it was resumed last: none come now
            self.targets[key] = target
            self._changed.add(key)
            self._moves.give_up(target.owners)
        if group.paused:
            self._pause(key)
        elif key in self.paused:
            self.paused.discard(key)
            self._changed.add(key)

    def _pause(self, key: str) -> None:
        """Its user suspends it, too: until the user resumes it nothing waits in its stead, and no places are reserved."""
        self.paused.add(key)
        self._coming.drop(key)
        self._drop(key)

    @property
    def kept(self) -> list[Task]:
        """The placeholders that hold the places of jobs that resume."""
        return [task for key in self._placeholders for task in self._of(key) if task.row >= 0]

    def awaits(self, key: str) -> bool:
        """Whether places are reserved for pods of a job that have not come yet."""
        return any(task.row >= 0 for task in self._of(key))

    def remove(self, key: str) -> None:
        """A PodGroup is gone, and its target state with it."""
        self._end(key)
        self._leaving.drop(key)
        self._withdrawn.discard(key)
        self._unconfirmed.drop(key)
        self.paused.discard(key)
        self._recorded.pop(key, None)
        self._resuming.discard(key)
        self._roles.pop(key, None)
        self._drop(key, waiting_only=True)
        owners = self._served.pop(key, ())
        for owner in owners:
            self._tables.services.attained.carried.pop(owner, None)
        self._recalled.update(owners)
        if key not in self._coming:
            self._owners.forget(key)
        self._over.add(key)

    def arrived(self, task: Task) -> None:
        """A pod of a job that is, or was, suspended came to wait: it takes the place that is reserved for it."""
        if task.pod.uid in self._tables.in_flight.returning:
            return  # it has changed since it came
        key = self._owners.group_of(task.pod.owner)
        placed = [each for each in self._of(key) if each.row >= 0]
        alike = next((each for each in placed if stand_ins.alike(each, task)), None)
        if alike is not None:
            row, devices, until = alike.row, alike.devices, self._coming.at(key)
            self._remove(key, alike)
            self._moves.reserve(task, row, devices, self._tables.services.now if until is None else until)
        elif not placed and self._placeholders.get(key):
            self._withdraw(key)  # it was resumed by others

    def begin(self, now: float) -> None:
        """A pass begins: placeholders come once a job's pods are gone, and go when no pod came to their places."""
        left, self._events.left = self._events.left, set()
        self._changed.update(key for owner in left if (key := self._owners.group_of(owner)) in self.targets)
        if self._recalled:
            recalled, self._recalled = self._recalled, set()
            for task in list(self._tables.owned.of(sorted(recalled))):
                if task.row >= 0:
                    self._tables.services.watch(task)
                else:
                    self._pending.rerank(task)
        recorded, self._recorded = self._recorded, {}
        for key, target in sorted(recorded.items()):
            self._resuming.add(key)
            if now < target.until and key not in self.paused:
                self._reserve_again(key, target, min(target.until, now + KEPT_FOR))
        for key in self._coming.passed(now):
            self._coming.drop(key)
            self._drop(key)
            self._over.add(key)
            self._changed.add(key)
        changed, self._changed = self._changed, set()
        for key in sorted(changed):
            self._drop_outdated(key)
        for key in sorted(changed & set(self.targets)):
            if key not in self._coming and not self._placeholders.get(key):
                self._await(key, now)
        if self._over:
            self._forget_over()

    def _await(self, key: str, now: float) -> None:
        """Placeholders for a suspended job, once its pods are gone."""
        if any(self._pods(key)):
            if key not in self._leaving:
                self._leaving.put(key, now + _PATIENCE)
            # So also of a scheduler that was not there when the target was written.
            for task in self._pods(key):
                if task.row >= 0 or task.pod.node:
                    self._departures.dismiss(task.pod.uid)
            return
        self._leaving.drop(key)
        if key not in self.paused:
            target = self.targets[key]
            for pod in stand_ins.of_members(key, target.members, self._places_before.held_for(key, target.epoch, now)):
                if (waits := self._made(key, pod)) is not None:
                    self._pending.wait(waits)
            self._drop_outdated(key)
            if key not in self._withdrawn and not self._placeholders.get(key):
                self._withdraw(key)  # nothing is recorded of it: nothing would ever wait in its stead

    def _drop_outdated(self, key: str) -> None:
        """Placeholders of roles that their job has no more give way to its own pods."""
        roles = self._roles.get(key)
        if roles and any(label == ROLES_LABEL and value != roles for task in self._of(key) for label, value in task.pod.labels):
            if key in self.targets and key not in self._coming:
                self._withdraw(key)
            else:
                self._drop(key)

    def _withdraw(self, key: str) -> None:
        """Its placeholders give way to the job's own pods; what it attained is carried on."""
        self._carry_on(key)
        self._drop(key)
        self._withdrawn.add(key)

    def _resume(self, key: str, target: Target) -> None:
        """A job is to run again: what waits in its stead goes, unless it has a place already."""
        if target.attained:
            self._carry(key, target.owners, target.attained, target.since)
        self._over.add(key)
        if key in self.targets:
            self._end(key)
            self._leaving.drop(key)
            self._drop(key, waiting_only=True)

    def _end(self, key: str) -> None:
        """A target state does not suspend its job any more: pods that are still there stay."""
        if self.targets.pop(key, None) is not None:
            for task in self._pods(key):
                self._departures.recall(task.pod.uid)

    def _carry(self, key: str, owners: Iterable[str], attained: float, since: float) -> None:
        """What a job had attained counts for its pods from now on; those that are there are ranked again in the next pass."""
        carried = self._tables.services.attained.carried
        news = {owner for owner in owners if carried.get(owner) != (attained, since)}
        self._served[key] = tuple(owners)
        self._recalled |= news
        carried.update(dict.fromkeys(news, (attained, since)))

    def _carry_on(self, key: str) -> tuple[float, float]:
        """The same of a job whose placeholders give way to pods: what it attained, and when it came first."""
        placeholders = self._of(key)
        attained = max((0.0, *(task.pod.attained for task in placeholders)))
        since = float(int(min((task.pod.created for task in placeholders), default=0.0)))  # as a PodGroup holds it
        if attained and key in self.targets:
            self._carry(key, self.targets[key].owners, attained, since)
        return attained, since

    def _forget_over(self) -> None:
        """Forget the owners of groups whose targets apply no more, and the epochs of groups that are gone.

        A job's object may remember the epoch of its last target longer than its PodGroup lives, and heeds only later ones: the
        next epoch of a forgotten group is above all epochs that were.
        """
        over, self._over = self._over, set()
        timers = (self._leaving, self._coming, self._unconfirmed)
        used: tuple[Container[str], ...] = (self.targets, self._placeholders, self._withdrawn, *timers)
        over = {key for key in over if not any(key in each for each in used)}
        for key in over:
            self._owners.forget(key)
            gang = self._tables.gangs.get(key)
            if gang is None or gang.group is None:
                self._floor = max(self._floor, self._epochs.pop(key, 0))

    def _next_epoch(self, key: str) -> int:
        return max(self._epochs.get(key, 0), self._floor) + 1

    def _made(self, key: str, pod: Pod) -> Task | None:
        """A placeholder comes; None: it does not wait."""
        self._placeholders.setdefault(key, []).append(pod.uid)
        return self._events.upsert(pod)

    def _reserve_again(self, key: str, target: Target, until: float) -> None:
        """A job resumes, for which a scheduler before this one reserved places: those that no pod of it has taken yet.

        What is not free any more is not reserved. until: that of the target, but no longer than a scheduler reserves any: the
        clock of the one that wrote it may have been ahead.
        """
        kept: list[tuple[Task, str]] = []
        for pod, name in zip(stand_ins.of_members(key, target.members), target.nodes, strict=False):
            task = self._made(key, pod) if name else None
            if task is not None:
                kept.append((task, name))
        pods = sorted(self._pods(key), key=lambda task: task.pod.uid)
        taken = [task.pod for task in pods if task.row >= 0 and not task.pod.terminating]
        left = stand_ins.without(kept, [*taken, *stand_ins.ended_since(target.members, self._tables.gangs.get(key))])
        for task, _ in kept:
            if all(task is not each for each, _ in left):
                self._remove(key, task)
        for task, name in left:
            row = self._tables.nodes.rows.get(name)
            if row is not None and self._placement.takes(task, row):
                self._placement.place(task, row)
                task.become(TaskState.ASSUMED)
                task.started = self._tables.services.now
            else:
                self._remove(key, task)
        if self._of(key):
            self._coming.put(key, until)
        for task in pods:
            if task.state is TaskState.WAITING:
                self.arrived(task)

    def _drop(self, key: str, *, waiting_only: bool = False) -> None:
        for task in list(self._of(key)):
            if task.row < 0 or not waiting_only:
                self._remove(key, task)

    def _remove(self, key: str, task: Task) -> None:
        self._placeholders[key].remove(task.pod.uid)
        if not self._placeholders[key]:
            del self._placeholders[key]
            if key not in self.targets:
                self._coming.drop(key)
            self._over.add(key)
        self._events.remove(task.pod.uid)

    def _of(self, key: str) -> list[Task]:
        return [self._tables.tasks[uid] for uid in self._placeholders.get(key, ()) if uid in self._tables.tasks]

    def _pods(self, key: str) -> Iterator[Task]:
        """The pods that a job still has."""
        return (task for task in self._tables.owned.of(self._owners.of(key)) if not task.pod.placeholder)

    # -- decisions -----------------------------------------------------------------------------

    def suspendable(self, task: Task) -> bool:
        """Whether its job is suspended when it is preempted, and not evicted."""
        return (
            bool(task.pod.root)
            and task.pod.profile != KUBERNETES_PROFILE
            and self._tables.services.of(task).mode == "Suspend"
            and not task.pod.placeholder
            and not self._is_elsewhere(task)
        )

    def _is_elsewhere(self, task: Task) -> bool:
        """Whether another release of Fairlead has its PodGroup, or its queue, since it was placed."""
        group = task.gang.group if task.gang is not None else None
        return (group is not None and not group.ours) or task.queue in self._tables.queues.tree.elsewhere

    def ask(self, victims: Iterable[Task], now: float) -> tuple[Suspension, ...]:
        """What must be written so that victims go, instead of evicting them; they are marked as such already.

        Those that are only moved have a place already to which others of their jobs come at once.
        """
        jobs: dict[str, list[Task]] = {}
        for task in victims:
            if (
                self.suspendable(task)
                and task.pod.uid not in self._tables.in_flight.kept
                and not task.pod.terminating
                and (task.gang is None or len(task.gang.placed()) < task.gang.needed)
            ):
                jobs.setdefault(_group_of(task), []).append(task)
        found = []
        for key, tasks in sorted(jobs.items()):
            first = tasks[0]
            if first.gang is not None and first.gang.group is not None and len(tasks) < first.gang.needed:
                continue  # one of them is on its way out: it is started again anyway, and half a gang could never resume
            log, services, epoch = self._tables.log, self._tables.services, self._next_epoch(key)
            log.insert(self._epochs, key, epoch)
            log.call(self._leaving.restore, (key, self._leaving.at(key)))
            self._leaving.put(key, now + _PATIENCE)
            for task in tasks:
                self._owners.put(task.pod.owner, key)
            # Its start may lie ahead of a clock that was set back.
            attained = max(0.0, services.attained.of_evicted(tasks, services.now))
            found.append(
                Suspension(
                    key,
                    epoch,
                    tuple(sorted({(task.pod.root, task.pod.owner) for task in tasks})),
                    stand_ins.members_of(self._tables, tasks, attained, now),
                    tuple(sorted(task.pod.uid for task in tasks)),
                    made=first.gang is None or first.gang.group is None,
                    queue=first.queue,
                    service_class=first.service_class,
                )
            )
        return tuple(found)

    def resume(self, tasks: list[Task], now: float) -> Resume:
        """Placeholders got places: their job may run again."""
        key = tasks[0].gang.key if tasks[0].gang is not None else ""
        self._resuming.add(key)
        self._coming.put(key, now + KEPT_FOR)
        epoch = self._epochs[key] = self._next_epoch(key)
        names = self._tables.nodes.names
        nodes = tuple(names[task.row] for task in tasks)
        places = stand_ins.places(self._of(key), names)
        carried = self._carry_on(key)
        return Resume(key, epoch, tuple(task.ref for task in tasks), nodes, *carried, places, now + KEPT_FOR)

    def unanswered(self, now: float) -> Iterator[Transaction]:
        """Where no operator acts on a target its pods are evicted; targets that are overtaken are withdrawn."""
        for key in self._leaving.passed(now):
            self._leaving.drop(key)
            self._over.add(key)
            pods = list(self._pods(key))
            if pods and all(task.pod.terminating for task in pods):
                self._leaving.put(key, now + _PATIENCE)  # they take long to end
                continue
            asked = [task for task in pods if task.state is TaskState.EVICTING and not task.pod.terminating]
            if asked:
                message = f"no operator suspended the job within {_PATIENCE:g} s; its pods are evicted"
                reason = Reason(ReasonCode.SUSPENDED, message)
                graces = self._departures.graces(asked)
                yield Evict(tuple(Binding(task.ref, task.pod.node) for task in asked), key, reason, graces)
            if pods:
                self._withdrawn.add(key)
        for key in [key for key in self._resuming if not self._awaits_any(key)]:
            self._resuming.discard(key)
            gang = self._tables.gangs.get(key)
            if gang is not None and gang.group is not None and key not in self.targets and _is_to_go(gang.group, now):
                self._withdrawn.add(key)
        withdrawn, self._withdrawn = self._withdrawn.union(self._unconfirmed.passed(now)), set()
        for key in sorted(withdrawn):
            gang = self._tables.gangs.get(key)
            if gang is not None and gang.group is not None:
                self._unconfirmed.put(key, now + _PATIENCE)
            epoch = self._epochs[key] = self._next_epoch(key)
            self._end(key)
            self._over.add(key)
            yield Resume(key, epoch, (), (), *self._known(key))

    def _awaits_any(self, key: str) -> bool:
        """Whether a job that resumes has places that its pods have not come to for good."""
        returning, on_their_way = self._tables.in_flight.returning, (TaskState.ASSUMED, TaskState.HELD)
        return bool(self._placeholders.get(key)) or any(
            task.state in on_their_way or task.pod.uid in returning for task in self._pods(key)
        )

    def _known(self, key: str) -> tuple[float, float]:
        """What is carried on of a job."""
        return next((self._tables.services.attained.carried[owner] for owner in self._served.get(key, ())), (0.0, 0.0))


def _is_to_go(group: Group, now: float) -> bool:
    """Whether a record of places that nothing waits for is taken out of a group.

    So if the group is there for the sake of these alone; and if it is of a clock that was ahead: schedulers that begin later
    would reserve them again until that time.
    """
    return group.made or (group.target is not None and group.target.until > now + KEPT_FOR)


def _group_of(task: Task) -> str:
    """The PodGroup that holds a job's target state: its own, or one that is made for it."""
    if task.gang is not None and task.gang.group is not None:
        return task.gang.key
    return made_for(task.pod.namespace, task.pod.root)


def made_for(namespace: str, root: str) -> str:
    """The PodGroup, `namespace/name`, that is made for a workload which has none. root: its `apiVersion/kind/name`.

    Its name is `KIND-GROUP.NAME`, such as `job-batch.train`, and no other workload's: no AIJob has a dot in its name, dots of the
    API group are dashes, and dashes are doubled.
    """
    version, kind, name = root.rsplit("/", 2)
    parts = [each.replace("-", "--").replace(".", "-") for each in (kind.lower(), version.rpartition("/")[0]) if each]
    return f"{namespace}/{fitting('-'.join(parts) + '.' + name)}"


def made_before(namespace: str, kind: str, name: str) -> str:
    """The same as earlier versions called it; an AIJob may have that name, so it is believed only if it was made for this."""
    return f"{namespace}/{kind.lower()}-{name}"[:317]
