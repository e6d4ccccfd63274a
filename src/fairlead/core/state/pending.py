"""Pending: tasks without a node, and how they come to wait in line: counted, admitted, made units of their gangs.

A task waits in a queue's line as part of a unit, waits for the time of its next try, is counted among jobs beyond a limit, or is
set aside with a reason. What changes any of that asks for it here.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.agenda import Agenda
from fairlead.core.pods.tasks import Gang, Task, TaskState, Unit
from fairlead.core.queues.services import LATE
from fairlead.core.state.isolation import Isolation
from fairlead.core.state.placement import Placement
from fairlead.core.state.starts import Starts
from fairlead.core.state.tables import Tables

_number = attrgetter("number")
_RAN = frozenset({TaskState.BOUND, TaskState.EVICTING})


class Pending:
    """Lets tasks wait, and takes them out of their lines.

    queueless: name of a queue that is not known -> tasks that name it, by UID. overdue: tasks that have waited longer than their
    class allows, and of which that was not reported yet. faulty: keys of gangs that have lost members. Before the next decision
    all must be settled if a pass has begun since it was (stale), if jobs must be counted anew (uncounted), or if a gang is
    unsettled.
    """

    def __init__(self, tables: Tables, placement: Placement, isolation: Isolation, starts: Starts) -> None:
        self._tables = tables
        self._census = tables.census
        self._placement = placement
        self._isolation = isolation
        self._starts = starts
        self.queueless: dict[str, dict[str, Task]] = {}
        self.overdue: list[Task] = []
        self.faulty: set[str] = set()
        self.stale = True
        self.uncounted = False
        self._delayed: Agenda[str] = tables.timers.agenda("delays")  # uids: when a task is tried again after a write that failed
        self._nearing: Agenda[str] = tables.timers.agenda("urgency")  # uids: when a task that waits becomes more urgent
        tables.timers.derive("graces", self._first_grace)

    # -- coming to wait ------------------------------------------------------------------------

    def wait(self, task: Task, *, counted: bool = False) -> None:
        """Let a task without a node wait, or report why it cannot. counted: its job was counted among others already."""
        tables, pod = self._tables, task.pod
        self._census.applicants.discard(pod.uid)
        if self._census.active:
            self._census.touch(task)
        task.waits_since = 0.0 if task.state in _RAN else task.waits_since
        task.become(TaskState.WAITING)
        task.level = tables.services.of(task).level(tables.services.attained.before(task))
        if not pod.placeholder:  # whose age is that of a job which ran: how long that waited in all is not known
            task.urgency = tables.services.urgency(task)
            if (due := tables.services.next_urgency(task)) is not None:
                self._nearing.put(pod.uid, due)
        if pod.error is not None:
            self._set_aside(task, pod.error)
        elif (fault := self._isolation.why(pod.uid)) is not None:
            self._set_aside(task, fault)
        elif pod.gated:
            self._set_aside(task, Reason(ReasonCode.GATED, "the pod has scheduling gates"))
        elif wrong := next((each for each in pod.spec.mistakes if not each.scoring), None):
            self._set_aside(task, Reason(ReasonCode.INVALID_SPEC, f"{wrong.plugin} cannot read the pod: {wrong.message}"))
        elif not tables.queues.tree.knows(task.queue):
            self.queueless.setdefault(task.queue, {})[pod.uid] = task
            self._set_aside(task, tables.admission.unknown_queue(task))
        elif (refused := tables.admission.not_allowed(task)) is not None:
            self._set_aside(task, refused)
        elif not counted and tables.admission.counts(task.queue):
            self._census.applicants.add(task)
            self.uncounted = True
        elif task.gang is not None:
            tables.unsettle(task.gang)
        else:
            self._push(Unit((task,), 1).adopt())

    def wait_again(self, task: Task) -> None:
        """A task that was set aside waits in line again, or it is reported why it cannot."""
        self.withdraw(task)
        self.wait(task)

    def _set_aside(self, task: Task, reason: Reason) -> None:
        task.become(TaskState.UNUSABLE)
        if task.gang is not None:
            self._tables.unsettle(task.gang)  # had it a place until now, its gang may have too few members
        self._tables.notices.add((task,), reason)

    def _push(self, unit: Unit) -> None:
        services = self._tables.services
        unit.express = unit.level < services.of(unit.tasks[0]).express
        if any(task.pod.attained or task.pod.suspended for task in unit.tasks):
            # It ran before, and is created when it came first. Formed anew it waits no longer and no shorter than its members.
            for task in unit.tasks:
                task.waits_since = task.waits_since or min(task.pod.suspended or services.now, services.now)  # clocks are set
            unit.since = max(unit.since, min(task.waits_since for task in unit.tasks))
        self._tables.queues.waiting.push(unit.tasks[0].queue, unit)

    def delay(self, task: Task, now: float) -> None:
        """A write for a task failed: it waits before it is tried again, longer after each failure."""
        task.faults += 1
        task.not_before = now + self._tables.policy.write_rest(task.faults)
        self._delayed.put(task.pod.uid, task.not_before)

    def resume_delay(self, task: Task, before: Task) -> None:
        """A pod that failed has changed, and is known anew: it waits as long as it would have."""
        task.faults, task.not_before = before.faults, before.not_before
        self._delayed.put(task.pod.uid, task.not_before)

    # -- leaving its line ----------------------------------------------------------------------

    def withdraw(self, task: Task) -> None:
        """A task that waits leaves its line."""
        if task.unit is not None:
            unit = task.unit
            unit.retire()
            if unit.gang is not None and len(unit.tasks) > 1:
                self._tables.unsettle(unit.gang)

    def find_queue(self, task: Task) -> None:
        """A task no longer waits for its queue to be made."""
        others = self.queueless.get(task.queue)
        if others is not None and others.pop(task.pod.uid, None) is not None and not others:
            del self.queueless[task.queue]

    def forget(self, task: Task) -> None:
        """A task is gone."""
        self.find_queue(task)
        self._census.applicants.discard(task.pod.uid)
        self.uncounted = self.uncounted or bool(self._census.applicants)

    # -- what may wait where -------------------------------------------------------------------

    def change_queue(self, task: Task, queue: str) -> None:
        """A task waits, or runs, in another queue from now on."""
        self.find_queue(task)
        queues = self._tables.queues
        if (task.row >= 0 or self._placement.is_stray(task)) and task.pod.ours:
            queues.charge(task, -1, task.row)
            self._tables.move(task, queue)
            queues.charge(task, 1, task.row)
        self._tables.move(task, queue)
        if task.state in (TaskState.WAITING, TaskState.UNUSABLE) and not task.pod.terminating:
            self.withdraw(task)  # else it stays in the line of a queue that it is in no more
            self.wait(task)

    def admit_again(self, concerned: Iterable[Task]) -> None:
        """Which queues and classes may be used has changed: which of these wait is judged anew. What runs goes on."""
        for task in sorted(concerned, key=_number):
            if task.row >= 0 or not task.pod.ours or task.pod.terminating:
                continue
            if task.state is TaskState.WAITING or (task.state is TaskState.UNUSABLE and task.pod.error is None):
                with self._isolation.guard("admission", task):
                    self.withdraw(task)
                    self.find_queue(task)
                    self.wait(task)

    def queue_came(self, name: str) -> None:
        """Tasks that named a queue which is there now are admitted or refused again."""
        for task in list(self.queueless.pop(name, {}).values()):
            with self._isolation.guard("admission", task):
                task.reported = None
                self.wait(task)

    def queue_gone(self, name: str) -> None:
        """Those that wait in a queue wait for its return."""
        for task in sorted(self._tables.by_queue.get(name, {}).values(), key=_number):
            if task.state is TaskState.WAITING:
                with self._isolation.guard("admission", task):
                    if task.unit is not None:
                        task.unit.retire()
                    self.wait(task)

    def _count_jobs(self) -> None:
        """Where jobs are counted: what is within the limits waits in line, the others until one of those is done."""
        self.uncounted = False
        admission = self._tables.admission
        some, within = self._census.due()
        tasks = sorted(filter(self._counts, some), key=_number)
        try:
            beyond = admission.beyond(tasks)
        except Exception as error:  # noqa: BLE001 - isolation finds the task at fault
            found = self._isolation.blame("admission", tasks, lambda task: admission.beyond([task]), error)
            tasks = [task for task in tasks if task not in found]
            beyond = admission.beyond(tasks)
        for task in sorted((*tasks, *filter(self._counts, within)), key=_number):
            uid = task.pod.uid
            if task.row >= 0 or task.pod.node:
                continue
            if uid in beyond and task.state is TaskState.WAITING:
                self.withdraw(task)
                self._census.applicants.add(task)
                self._set_aside(task, beyond[uid])
            elif uid not in beyond and uid in self._census.applicants:
                task.reported = None
                self.wait(task, counted=True)

    def _counts(self, task: Task) -> bool:
        """Whether a task's job is one of those that are counted."""
        pod, tables = task.pod, self._tables
        if not pod.ours or pod.terminating or not tables.queues.tree.knows(task.queue) or not tables.admission.counts(task.queue):
            return False
        return task.state is not TaskState.UNUSABLE or pod.uid in self._census.applicants

    # -- order in line -------------------------------------------------------------------------

    def _become_urgent(self, now: float) -> None:
        """Those whose longest wait draws near go up in their line."""
        services = self._tables.services
        for uid in self._nearing.due(now):
            task = self._tables.tasks.get(uid)
            if task is None or task.state is not TaskState.WAITING or services.urgency(task) == task.urgency:
                continue
            before = task.urgency
            with self._isolation.guard("settle", task):
                self.withdraw(task)
                self.wait(task, counted=True)
                if before < task.urgency == LATE:
                    self.overdue.append(task)

    def rerank(self, task: Task) -> None:
        """What its job has attained was not known when it came to wait."""
        services = self._tables.services
        level = services.of(task).level(services.attained.before(task))
        if task.state is TaskState.WAITING and task.level != level and not task.pod.placeholder:
            self.withdraw(task)
            self.wait(task, counted=True)

    # -- before the next decision --------------------------------------------------------------

    def _first_grace(self) -> float | None:
        """When the first grace of a gang that lacks members ends."""
        gangs = (gang for key in self.faulty if (gang := self._tables.gangs.get(key)) is not None)
        return min(((gang.fault_at or 0.0) + self._tables.policy.gang_grace for gang in gangs), default=None)

    def settle(self, now: float) -> None:
        """Urgent tasks go up, jobs are counted, and delayed tasks wait again."""
        self.stale = False
        self._tables.nodes.name_ranks.settle()
        with self._isolation.guard("settle"):
            self._become_urgent(now)
        if self.uncounted:
            with self._isolation.guard("admission"):
                self._count_jobs()
        for uid in self._delayed.due(now):
            task = self._tables.tasks.get(uid)
            if task is not None and task.state is TaskState.WAITING and task.unit is None and task.not_before <= now:
                with self._isolation.guard("settle", task):
                    self.wait(task)

    def settle_gangs(self, now: float) -> None:
        """Make the units of gangs that changed."""
        gangs = list(self._tables.unsettled.values())
        self._tables.unsettled.clear()
        for gang in gangs:
            with self._isolation.guard("settle", gang):
                self._settle_gang(gang, now)

    def _settle_gang(self, gang: Gang, now: float) -> None:
        notices = self._tables.notices
        units, reason = gang.units(now, self._starts.waits(gang, now))
        if reason is not None:
            waiting = tuple(task for task in gang.tasks.values() if task.state is TaskState.WAITING)
            notices.add(waiting, reason)
        gang.reason = reason or self._isolation.why_of(gang)
        later = gang.later(now) if units else ()
        for unit in units:
            unit.later = later
            self._push(unit)
        if later:
            message = f"elastic replica of gang {gang.key}: it is placed after the members that the gang needs"
            notices.add(later, Reason(ReasonCode.GANG_INCOMPLETE, message))
        placed = len(gang.placed())
        if not placed or placed >= gang.needed:
            gang.fault_at = None  # whole, or gone: a later fault has a grace of its own
        elif gang.fault_at is None:
            gang.fault_at = now
        if gang.broken():
            self.faulty.add(gang.key)
