"""Isolation: an exception while one unit is served is that unit's, and the pass goes on.

Every step that one object's data can reach runs under a guard that names its subject. On an exception everything that was tried
is rolled back, whatever the depth, the subject leaves its line and every place that it has half taken, and waits `UNUSABLE` with
the reason `InternalError`. It is tried again when its object changes, and after a pause that doubles, on the pass's clock.

Recovery asks the subject for nothing that it does not have to. Where that fails, too, the subject is cut out of the state's
tables and everything derived is reckoned anew (`recount`). Only if even that fails does the exception leave the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.agenda import Agenda
from fairlead.core.model.backoff import backoff
from fairlead.core.model.transactions import Fault
from fairlead.core.pods.tasks import Gang, Task, TaskState, Unit
from fairlead.core.pods.waits import awaited_by
from fairlead.core.queues.queue_node import PendingClass, pending_class_of
from fairlead.core.state.tables import Tables

Subject = Unit | PendingClass | Gang | Task | list[Task] | str
"""Whose data a step processes: work that waits, or the name of something else, such as `reservation/maintenance`."""

_PAUSE, _LONGEST = 60.0, 3600.0  # seconds until it is tried again: at first, at most
_FORGET = 2 * _LONGEST  # seconds without a fault after which the pauses begin anew
_ALIKE = 3  # so many faults of one pending class in one pass, and all of it is set aside: its units are identical
# Modules that only read the state, apart from caches that are derived anew after every fault. An exception that went through no
# other module cannot have left amounts half counted.
_READ_ONLY = (
    "fairlead.core.actions.",
    "fairlead.core.allocation",
    "fairlead.core.preemption.",
    "fairlead.core.pods.colocation",
    "fairlead.core.nodes.devices",
    "fairlead.core.explain",
    "fairlead.core.pods.filters.",
    "fairlead.core.schedule",
    "fairlead.core.pods.scores.",
    "fairlead.core.model.selectors",
    "fairlead.core.queues.attained",
    "fairlead.core.queues.services",
    "fairlead.core.queues.time_limits",
    "fairlead.core.pods.ranking",
    "fairlead.core.pods.shapes",
    "fairlead.core.pods.node_terms",
    "fairlead.core.nodes.tallies",
    "fairlead.core.nodes.topology",
    "fairlead.core.gang_topology",
)


def gang_subject(key: str) -> str:
    """The name of a gang among subjects."""
    return f"gang/{key}"


class Caught(NamedTuple):
    """A fault and its exceptions, for the log: what was raised, and what was raised by the recovery."""

    fault: Fault
    errors: tuple[Exception, ...]


class _Record:
    """One subject's faults. until: when it is tried again; open: whether that time has not come yet."""

    __slots__ = ("count", "open", "reason", "until")

    def __init__(self) -> None:
        self.count = 0
        self.until = 0.0
        self.open = True
        self.reason: Reason | None = None


class Guard:
    """Stands around a step. failed: whether the step raised; then everything is as if the step had not begun."""

    __slots__ = ("failed", "isolation", "site", "subject")

    def __init__(self, isolation: Isolation, site: str, subject: Subject) -> None:
        self.isolation = isolation
        self.site = site
        self.subject = subject
        self.failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self.failed = True
        self.isolation.contain(self.site, self.subject, error)
        return True


class Recovery(Protocol):
    """How the state is made whole after a fault: it reaches every part, so it stands above all of them."""

    def cut_out(self, tasks: Iterable[Task]) -> None:
        """Take tasks that wait, or have half taken a place, out of every table that serves them."""

    def expel(self, uid: str) -> None:
        """Forget a pod wherever it is listed."""

    def recount(self) -> None:
        """Reckon everything derived anew."""

    def distrust(self) -> None:
        """Derive anew what is remembered only to save time."""

    def give_up(self, uid: str) -> None:
        """Give up the plan that a victim is part of."""

    def wait_again(self, task: Task) -> None:
        """Let a task that was set aside wait in line again."""

    def is_returning(self, uid: str) -> bool:
        """Whether a place is reserved for a pod that replaces one that was moved."""
        ...


class Isolation:
    """Who is set aside, and until when. caught: what the log has not been given yet.

    recovery: set once all parts of the state are made.
    """

    recovery: Recovery

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.caught: list[Caught] = []
        self._faults: list[Fault] = []  # not yielded yet
        self._records: dict[str, _Record] = {}
        self._due: Agenda[str] = tables.timers.agenda("isolation")  # subjects: when each is tried again
        self._ended: Agenda[str] = Agenda()  # subjects: when a record without further faults is forgotten
        self._abandoned: list[tuple[list[Task], Exception]] = []  # could not be set aside, so that the pass was given up
        self._class_faults: dict[int, int] = {}  # id of a pending class -> its faults in this pass

    # -- questions -----------------------------------------------------------------------------

    def guard(self, site: str, subject: Subject = "") -> Guard:
        """A guard for one step. site: the step's name in metrics; without a subject the step rests as a whole."""
        return Guard(self, site, subject)

    def why(self, key: str) -> Reason | None:
        """Why a subject is set aside, by a pod's UID or `kind/name`; None: it is not."""
        if not self._records:
            return None
        record = self._records.get(key)
        return record.reason if record is not None and record.open else None

    def rests(self, site: str, key: str = "") -> bool:
        """Whether a step is left out for a subject for now."""
        return bool(self._records) and self.why(key or site) is not None

    def why_of(self, gang: Gang) -> Reason | None:
        """Why members of a gang are set aside, if some are."""
        if not self._records:
            return None
        return next((why for uid in gang.tasks if (why := self.why(uid)) is not None), None)

    # -- upkeep --------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """A pass begins: whose pause has ended waits again."""
        self._class_faults.clear()
        for key in self._ended.due(now):
            record = self._records.get(key)
            if record is not None and not record.open:
                del self._records[key]
        for key in self._due.due(now):
            record = self._records.get(key)
            if record is None or not record.open:
                continue
            record.open = False
            self._ended.put(key, record.until + _FORGET)
            task = self._tables.tasks.get(key)
            if task is not None and task.state is TaskState.UNUSABLE:
                with self.guard("settle", task):
                    self.recovery.wait_again(task)

    def forget(self, key: str) -> None:
        """A subject's object has changed or is gone."""
        if self._records:
            self._records.pop(key, None)

    def group_changed(self, gang: Gang) -> None:
        """A PodGroup has changed: its members that were set aside are tried again."""
        if not self._records:
            return
        self.forget(gang_subject(gang.key))
        for uid, task in list(gang.tasks.items()):
            if self._records.pop(uid, None) is not None and task.state is TaskState.UNUSABLE:
                self.recovery.wait_again(task)

    def drain(self) -> Iterator[Fault]:
        """The faults that were not reported yet."""
        while self._faults:
            yield self._faults.pop(0)

    # -- faults --------------------------------------------------------------------------------

    def contain(self, site: str, subject: Subject, error: Exception, now: float | None = None) -> None:
        """Recover from an exception that a step raised for a subject; raises only if the state cannot be made whole."""
        tables, recovery = self._tables, self.recovery
        errors = [error, *tables.log.unwind()]
        try:
            tasks = _waiting(tables.tasks, self._widened(subject))
            awaited = [] if isinstance(subject, Unit | PendingClass) else sorted(awaited_by(tasks))
            self._set_aside(tasks, whole=len(errors) == 1 and _reads_only(error))
            for uid in awaited:
                recovery.give_up(uid)  # victims fill the places that are given up: they count where they run
        except Exception as second:  # noqa: BLE001 - the first error is handled; this one joins it
            errors.append(second)
            tasks = list(_plainly(subject))
            tables.log.unwind()
            try:
                recovery.cut_out(tasks)
                recovery.recount()
            except Exception:
                self._abandoned.append((tasks, error))
                raise
        at = tables.services.now if now is None else now
        self._note(site, subject, tasks, errors, at)
        unlisted, tables.queues.waiting.unlisted = tables.queues.waiting.unlisted, []
        for pending_class, own in unlisted:
            theirs = list(_plainly(pending_class))
            recovery.cut_out(theirs)
            self._note("next", pending_class, theirs, [own], at)

    def blame(self, site: str, tasks: list[Task], ask: Callable[[Task], object], error: Exception) -> set[Task]:
        """A question about many tasks at once has raised: those about whom it raises alone are set aside, and returned."""
        found: set[Task] = set()
        for task in tasks:
            try:
                ask(task)
            except Exception as own:  # noqa: BLE001 - the others are asked about without it
                found.add(task)
                self.contain(site, task, own)
        if not found:
            raise error
        return found

    def probe(self, error: Exception) -> None:
        """The next unit could not be determined: a unit that raises when its line is read is set aside."""
        found = False
        self._tables.log.unwind()
        for _, queue in sorted(self._tables.queues.queues.items()):
            for pending_class in list(queue.pending_classes.values()):
                left = -1
                while pending_class.waiting != left:  # each fault takes at least one unit out
                    unit, left = None, pending_class.waiting
                    try:
                        for line in list(pending_class.lines.values()):
                            unit = None
                            unit = line.first()
                            if unit is not None:
                                queue.unit_key(unit)
                        break
                    except Exception as own:  # noqa: BLE001 - the next would raise again: whose fault it is must be found
                        found = True
                        self.contain("next", unit if unit is not None else pending_class, own)
        if not found:
            raise error

    def mend(self) -> None:
        """Something that only reads has raised: what it tried is taken back, what it remembered is derived again."""
        if self._tables.log.unwind():
            self.recovery.recount()
        else:
            self.recovery.distrust()

    def half_applied(self, uid: str = "") -> None:
        """An event, or a pass, was given up: the pod that it spoke of is forgotten, and everything is reckoned anew.

        Whatever could not be set aside in the pass leaves its line and its place now, by plain assignments.
        """
        tables = self._tables
        tables.log.unwind()
        given_up, self._abandoned = self._abandoned, []
        for tasks, error in given_up:
            for task in tasks:
                if task.unit is not None:
                    task.unit.alive = False
                task.unit = None
                tables.in_flight.leave(task)
                task.become(TaskState.UNUSABLE)
                if task.row >= 0:
                    tables.nodes.pods[task.row].pop(task.pod.uid, None)
                    task.row, task.devices = -1, ()
            self._note("recovery", tasks, tasks, [error], tables.services.now)
        if uid:
            self.recovery.expel(uid)
        self.recovery.recount()

    def _widened(self, subject: Subject) -> Subject:
        """A pending class instead of one of its units once several have failed: the others are identical."""
        pending_class = pending_class_of(subject) if isinstance(subject, Unit) else None
        if pending_class is None:
            return subject
        count = self._class_faults[id(pending_class)] = self._class_faults.get(id(pending_class), 0) + 1
        return pending_class if count >= _ALIKE else subject

    def _set_aside(self, tasks: list[Task], *, whole: bool) -> None:
        """Tasks leave their lines and places. whole: nothing can be half counted, unless one of them has a place."""
        recovery = self.recovery
        placed = any(task.row >= 0 for task in tasks) or any(recovery.is_returning(task.pod.uid) for task in tasks)
        recovery.cut_out(tasks)
        if placed or not whole:
            recovery.recount()
        else:
            recovery.distrust()

    def _note(self, site: str, subject: Subject, tasks: list[Task], errors: list[Exception], now: float) -> None:
        keys = [task.pod.uid for task in tasks]
        if isinstance(subject, Gang):
            keys.append(gang_subject(subject.key))
        elif not keys:
            keys.append(subject if isinstance(subject, str) and subject else site)
        count = 1 + max((self._records[key].count for key in keys if key in self._records), default=0)
        pause = backoff(_PAUSE, count, _LONGEST)
        gang = subject if isinstance(subject, Gang) else next((task.gang for task in tasks if task.gang is not None), None)
        what = "it is set aside" if tasks else f"the step {site!r} is skipped{f' for {subject}' if subject else ''}"
        message = (
            f"an internal error of the scheduler ({type(errors[0]).__name__} in {_where(errors[0])}): {what} and retried in "
            f"{pause:g} s{', or when its object changes' if tasks else ''}; its log has the traceback"
        )
        reason = Reason(ReasonCode.INTERNAL_ERROR, message)
        for key in keys:
            record = self._records.setdefault(key, _Record())
            record.count, record.until, record.open, record.reason = count, now + pause, True, reason
            self._due.put(key, record.until)
        for task in tasks:
            task.reported = reason.code
            if task.gang is not None:
                self._tables.unsettle(task.gang)
                task.gang.reason = reason
        pods = tuple(task.ref for task in tasks)
        named = subject if isinstance(subject, str) else ""
        fault = Fault(site, pods, reason, gang.key if gang is not None and gang.group is not None else "", named)
        self._faults.append(fault)
        self.caught.append(Caught(fault, tuple(errors)))


def _plainly(subject: Subject) -> Iterable[Task]:
    """The tasks that a subject names, asked as little as possible."""
    if isinstance(subject, Unit):
        return subject.tasks
    if isinstance(subject, PendingClass):
        return [task for line in subject.lines.values() for _, unit in line.units for task in unit.tasks if task.unit is unit]
    if isinstance(subject, Gang):
        return [task for task in subject.tasks.values() if task.state is TaskState.WAITING]
    if isinstance(subject, Task):
        return (subject,)
    return () if isinstance(subject, str) else subject


def _waiting(tasks: Mapping[str, Task], subject: Subject) -> list[Task]:
    """The tasks of a subject that can be set aside, with those of their gangs that wait with them; not what runs."""
    found: dict[str, Task] = {}
    for task in _plainly(subject):
        unit, gang = task.unit, task.gang
        mates = gang.tasks.values() if gang is not None and (unit is None or len(unit.tasks) > 1) else ()
        for each in (task, *(mate for mate in mates if mate.state is TaskState.WAITING)):
            if each.state not in (TaskState.BOUND, TaskState.EVICTING) and tasks.get(each.pod.uid) is each:
                found[each.pod.uid] = each
    return list(found.values())


def _frames(error: Exception) -> list[tuple[str, str]]:
    """(module, function) that an exception went through, outermost first."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        found.append((str(frame.f_globals.get("__name__", "")), frame.f_code.co_qualname))
        trace = trace.tb_next
    return found


def _reads_only(error: Exception) -> bool:
    """Whether an exception went through nothing that changes the state."""
    ours = [module for module, _ in _frames(error) if module.startswith("fairlead.core.")]
    return bool(ours) and all(module.startswith(_READ_ONLY) for module in ours)


def _where(error: Exception) -> str:
    """The innermost function of ours that an exception was raised in."""
    ours = [(module, function) for module, function in _frames(error) if module.startswith("fairlead.")]
    return ".".join(ours[-1]) if ours else "an unknown place"
