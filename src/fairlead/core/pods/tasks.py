"""Tasks, units and gangs: a pod and its place, what is placed together, pods of which all that are needed run, or none.

A gang makes units of its waiting members: one unit of all that are needed while too few are
placed, single units for the others once enough are; these come after all that wait with their priority,
so that each gang gets its minimum before any gets more. What cannot be a unit yet has a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Protocol

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.charges import Charge, sum_of
from fairlead.core.model.groups import Group
from fairlead.core.model.pods import Pod
from fairlead.core.model.starts import FailedStarts
from fairlead.core.model.transactions import PodRef, ref_of
from fairlead.core.model.undo import UndoLog
from fairlead.core.pods.completions import Completions
from fairlead.core.pods.members import first_to_start
from fairlead.core.pods.rank import Rank
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.waits import Wait, awaited_by

ELASTIC_LEVEL = 1_000
"""The level of members that their gang can do without: beyond every level of attained service."""


class TaskState(Enum):
    """The state of a task.

    waiting: has no node. held: a node is reserved for it until its victims are gone. assumed: its
    binding is being written, or its job's resumption. bound: observed in the cluster. evicting: its place is given away and it
    is on its way out. unusable: its object has an error, or it is gated. placeholder: it is no pod,
    and holds a place on a row until it is removed.
    """

    WAITING = "waiting"
    HELD = "held"
    ASSUMED = "assumed"
    BOUND = "bound"
    EVICTING = "evicting"
    UNUSABLE = "unusable"
    PLACEHOLDER = "placeholder"


TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    # bound: it was found on a node
    TaskState.WAITING: frozenset({TaskState.HELD, TaskState.ASSUMED, TaskState.BOUND, TaskState.UNUSABLE}),
    TaskState.HELD: frozenset({TaskState.ASSUMED, TaskState.WAITING, TaskState.UNUSABLE}),
    # held: its place is not free yet; waiting: it is given up, or was only tried
    TaskState.ASSUMED: frozenset({TaskState.BOUND, TaskState.HELD, TaskState.WAITING, TaskState.UNUSABLE}),
    TaskState.BOUND: frozenset({TaskState.EVICTING, TaskState.UNUSABLE}),
    # bound: the eviction was refused, or what it was for waits no longer
    TaskState.EVICTING: frozenset({TaskState.BOUND, TaskState.UNUSABLE}),
    TaskState.UNUSABLE: frozenset({TaskState.WAITING, TaskState.BOUND}),
    TaskState.PLACEHOLDER: frozenset(),
}
"""Which states follow which; each may be set again. To unusable from everywhere: a fault of the scheduler sets a task aside."""

PLACED = frozenset({TaskState.HELD, TaskState.ASSUMED, TaskState.BOUND})


class Task:
    """One pod and its place: `row` of its node (-1: none) and the `devices` counted for it there."""

    __slots__ = (
        "beyond",
        "devices",
        "faults",
        "gang",
        "instead_of",
        "level",
        "nominated",
        "not_before",
        "number",
        "paid_for",
        "pod",
        "queue",
        "ranking",
        "reported",
        "row",
        "shape",
        "started",
        "state",
        "unit",
        "urgency",
        "waits",
        "waits_since",
    )

    def __init__(self, pod: Pod, ranking: Ranking) -> None:
        self.pod = pod
        self.ranking = ranking
        self.shape = ranking.shape
        self.queue = pod.queue if pod.ours else ""  # of others: see `core.belonging`
        self.number = 0  # in which place it came to be known
        self.row = -1
        self.devices: tuple[int, ...] = ()
        self.state = TaskState.WAITING
        self.gang: Gang | None = None
        self.level = 0  # of attained service, when it came to wait
        self.beyond = False  # it waits though its gang has as many members as it needs
        self.urgency = 0  # quarters of its longest wait that are over
        self.unit: Unit | None = None
        self.reported: ReasonCode | None = None
        self.faults = 0
        self.nominated = False  # a place was held for it, and perhaps is no more: its node may be nominated
        self.not_before = 0.0
        self.started = 0.0
        self.waits: tuple[Wait, ...] = ()  # for victims, with others whose places these have
        self.waits_since = 0.0  # from when on it waits anew, of a job that ran before
        self.paid_for = False  # its node is gone, and something is charged in its stead
        self.instead_of = ""  # UID of a moved pod: while this is charged the pod is not, though it still runs

    def __repr__(self) -> str:
        return f"<Task {self.pod.key} {self.state.value} row={self.row}>"

    def reshape(self, ranking: Ranking) -> None:
        """Its pod is of another shape now."""
        self.ranking = ranking
        self.shape = ranking.shape

    def become(self, state: TaskState, log: UndoLog | None = None) -> None:
        """The one place that changes where a task stands. log: takes it back if what is tried does not work out."""
        if log is None:
            self.state = state
        else:
            log.set(self, "state", state)

    @property
    def ref(self) -> PodRef:
        """How transactions name its pod."""
        return ref_of(self.pod)

    @property
    def charged(self) -> bool:
        """Whether a queue is charged for what it holds: for pods that others placed only where they have a queue."""
        return (self.pod.ours or bool(self.queue)) and not self.paid_for

    @property
    def waits_for(self) -> AbstractSet[str]:
        """UIDs of the victims that must be gone before it starts."""
        return self.waits[0].victims if len(self.waits) == 1 else awaited_by((self,))

    @property
    def user(self) -> str:
        """Who submitted it; the namespace where that is not known."""
        return self.pod.user or self.pod.namespace

    @property
    def job(self) -> str:
        """What it is counted as part of where jobs are counted: its gang, or itself."""
        return self.gang.key if self.gang is not None else self.pod.uid

    @property
    def service_class(self) -> str:
        """The name of its class of service: its gang's, where that gives one."""
        group = self.gang.group if self.gang is not None else None
        return (group.service_class if group is not None else "") or self.pod.service_class

    @property
    def rank(self) -> Rank:
        """Its order inside its queue."""
        pod = self.pod
        level = ELASTIC_LEVEL if pod.elastic or self.beyond else self.level
        return Rank(-pod.priority, -self.urgency, level, pod.created, pod.key)


class Placeholder(Task):
    """Holds a place on a row: capacity that victims still fill, or the new place of a pod that is moved.

    It is in no table but its row's, belongs to no unit, and is never a victim. moved: its place is that of a pod that is moved.
    """

    __slots__ = ("moved",)

    def __init__(self, pod: Pod, ranking: Ranking, *, moved: bool = False) -> None:
        super().__init__(pod, ranking)
        self.state = TaskState.PLACEHOLDER
        self.moved = moved


def rankings_of(tasks: Iterable[Task]) -> list[Ranking]:
    """The ranking of each shape among tasks, once."""
    return list({task.shape.number: task.ranking for task in tasks}.values())


class Waiting(Protocol):
    """Where a unit waits: a pending class of a queue (`queues.tree.PendingClass`)."""

    def leave(self, unit: Unit) -> None:
        """One of its units waits no longer."""


class Unit:
    """What is placed together: of `tasks` at least `need` get a node, or none does.

    To make one changes no task, so a trial may make any. The unit in which tasks wait is the one that adopted them.

    alive: until it is retired. express: so small, or so new, that it goes before all shares. since: from when on it waits,
    seconds since the epoch: what ran before waits anew. overdue: others passed it for too long, nodes are reserved for it.
    later: members of its gang that come to wait once it has its places.
    """

    __slots__ = ("alive", "express", "gang", "later", "need", "overdue", "pending_class", "rank", "since", "tasks", "user")

    def __init__(self, tasks: tuple[Task, ...], need: int, gang: Gang | None = None) -> None:
        self.tasks = tasks
        self.need = need
        self.gang = gang
        self.later: tuple[Task, ...] = ()
        self.alive = True
        self.express = self.overdue = False
        self.pending_class: Waiting | None = None
        # Its first pod's user; none under upstream's rules, which know no users.
        self.user = "" if tasks[0].pod.profile == KUBERNETES_PROFILE else tasks[0].user
        self.rank: Rank
        if len(tasks) == 1:
            self.rank = tasks[0].rank
            self.since = tasks[0].pod.created
        else:
            pods = [task.pod for task in tasks]
            self.rank = Rank(
                -max(pod.priority for pod in pods),
                -max(task.urgency for task in tasks),
                max(task.level for task in tasks),
                min(pod.created for pod in pods),
                gang.key if gang else pods[0].key,
            )
            self.since = self.rank.created

    def adopt(self) -> Unit:
        """Its members are part of it until it is retired, and of no other unit."""
        for task in self.tasks:
            task.unit = self
        return self

    def core(self) -> Unit:
        """The members that it needs, as a unit for trials; they stay part of the whole."""
        return Unit(self.tasks[: self.need], self.need, self.gang)

    @property
    def key(self) -> str:
        """namespace/name of its gang, or of its pod."""
        return self.gang.key if self.gang is not None else self.tasks[0].pod.key

    @property
    def created(self) -> float:
        """When its first pod was made, seconds since the epoch."""
        return min(task.pod.created for task in self.tasks)

    def __lt__(self, other: Unit) -> bool:
        return self.rank < other.rank

    def retire(self) -> None:
        """It waits no longer: placed, changed or gone. Heaps drop it when they meet it, and its members are part of no unit."""
        if self.alive:
            self.alive = False
            if self.pending_class is not None:
                self.pending_class.leave(self)
        for task in self.tasks:
            task.unit = None

    @property
    def level(self) -> int:
        """Level of attained service; lower goes first."""
        return self.rank.level

    @property
    def priority(self) -> int:
        """Class priority; higher goes first."""
        return -self.rank.priority

    @property
    def demand(self) -> tuple[tuple[str, int], ...]:
        """What all its members ask for: (resource, base units)."""
        return demand_of(self.tasks)

    @property
    def composition(self) -> tuple[object, ...]:
        """Equal for units about which every verdict is the same."""
        first = self.tasks[0]
        if len(self.tasks) == 1:
            return (self.tasks[0].shape.number, *self.rank.precedence, first.service_class, first.pod.never_preempts)
        shapes: dict[int, int] = {}
        for task in self.tasks:
            shapes[task.shape.number] = shapes.get(task.shape.number, 0) + 1
        core: dict[int, int] = {}
        for task in self.tasks[: self.need]:
            core[task.shape.number] = core.get(task.shape.number, 0) + 1
        return (
            tuple(sorted(shapes.items())),
            tuple(sorted(core.items())),
            *self.rank.precedence,
            first.service_class,
            first.pod.never_preempts,
        )


def demand_of(tasks: tuple[Task, ...]) -> Charge:
    """What tasks ask for together at least: (resource, base units)."""
    return sum_of([task.shape.asked for task in tasks])


def note_reported(task: Task, reason: Reason) -> bool:
    """Note that this reason of the task is reported; False if it was already."""
    if task.reported == reason.code:
        return False
    task.reported = reason.code
    return True


class Gang:
    """The pods that carry one pod-group label, and the PodGroup if there is one."""

    __slots__ = ("completions", "failed", "failed_starts", "fault_at", "group", "key", "reason", "tasks")

    def __init__(self, key: str) -> None:
        self.key = key
        self.group: Group | None = None
        self.tasks: dict[str, Task] = {}
        self.fault_at: float | None = None
        self.reason: Reason | None = None
        self.completions: Completions | None = None
        self.failed_starts: FailedStarts | None = None
        self.failed = False  # a member failed, and none has come since

    def placed(self) -> list[Task]:
        """Members that have a node and stay: one that is on its way out is no member any more."""
        return [task for task in self.tasks.values() if task.state in PLACED and not task.pod.terminating and not task.pod.spare]

    def bound(self) -> list[Task]:
        """Members that the cluster runs and that stay."""
        return [
            task
            for task in self.tasks.values()
            if task.state is TaskState.BOUND and not task.pod.terminating and not task.pod.spare
        ]

    def spares_of(self) -> list[Task]:
        """Its spares, waiting or with places (`core.state.spares`)."""
        return [task for task in self.tasks.values() if task.pod.spare]

    @property
    def min_member(self) -> int:
        """How many must run together, those that have succeeded included."""
        return self.group.min_member if self.group else 1

    @property
    def forgotten(self) -> bool:
        """Whether nothing is left of it: no PodGroup, no member, no pod of one that succeeded."""
        return self.group is None and not self.tasks and not self.completions

    @property
    def succeeded(self) -> int:
        """How many members have run to their end."""
        return self.completions.total if self.completions is not None else 0

    @property
    def end(self) -> str:
        """How it has ended, `Succeeded` or `Failed`, if no member is left and it has; else empty.

        Members of an AIJob that failed may be made again: the operator reports when that has ended.
        """
        if self.group is None or len(self.tasks) != len(self.spares_of()):
            return ""
        if self.group.ended:
            return self.group.ended
        if self.succeeded and not self.needed:
            return "Succeeded"
        return "Failed" if self.failed and not self.group.roles else ""

    @property
    def needed(self) -> int:
        """How many must run together now."""
        return self.min_member if self.completions is None else max(0, self.min_member - self.completions.total)

    def spares(self) -> bool:
        """Whether it runs with more members than it needs."""
        return self.group is not None and len(self.placed()) > self.needed

    def held(self) -> list[Task]:
        """Members whose places are held until victims have left them."""
        return [task for task in self.tasks.values() if task.state is TaskState.HELD]

    def lacks_some(self, starting: Collection[Task] = (), *, without: Collection[Task] = ()) -> bool:
        """Whether it does not run with what it needs, even with these that start now, or without others: a place that is held
        is no start.
        """
        starts, left_out = set(starting), set(without)  # there may be thousands
        run = (task for task in self.placed() if task.state is not TaskState.HELD or task in starts)
        return sum(task not in left_out for task in run) < self.needed

    def broken(self) -> bool:
        """Some members run, but too few, and no write is under way."""
        bound = len(self.bound())
        return 0 < bound < self.needed and len(self.placed()) == bound

    def units(  # noqa: PLR0911 - the first of several reasons
        self, now: float, rests: Reason | None = None
    ) -> tuple[list[Unit], Reason | None]:
        """Fresh units for the waiting members, and why there are none for those left out. rests: why none is placed now."""
        waiting, spares = self._waiting()
        if not waiting:
            return [], None
        if self.group is None:
            message = (
                f"PodGroup {self.key} does not exist: create it, remove the label fairlead.dev/pod-group, or, for a workload "
                "such as a JobSet, check that `fairlead operator` is running"
            )
            return [], Reason(ReasonCode.GANG_INCOMPLETE, message)
        if rests is not None:
            return [], rests
        waiting.sort(key=lambda task: task.rank)
        ready = [task for task in waiting if task.not_before <= now]
        placed = len(self.placed())
        need = self.needed - placed
        if need <= 0:
            for place, task in enumerate(ready):  # the first take the places of members that have succeeded
                task.beyond = placed + place >= self.min_member
            return [Unit((task,), 1, self).adopt() for task in ready], None
        if len(waiting) < need and any(task.pod.placeholder for task in waiting):
            need = len(waiting)  # of a suspended job no more is known; what it needs beyond that has no place reserved for it
        if len(waiting) < need:
            members = placed + len(waiting) + self.succeeded
            message = f"PodGroup {self.key} has {members} of the {self.group.min_member} pods it needs"
            numbers = {"members": members, "min_member": self.group.min_member}
            return [], Reason(ReasonCode.GANG_INCOMPLETE, message, numbers)
        if len(ready) < need:
            return [], Reason(ReasonCode.BACKOFF, f"PodGroup {self.key} is in backoff after a failed binding")
        if len(ready) > need and any(task.pod.placeholder for task in ready):
            wanted = sum(not task.pod.elastic for task in ready)  # a job resumes once, with all that find places
            return [self._unit(ready[: max(need, wanted)], need, spares)], None
        if len(ready) > need:
            ready = first_to_start(ready)
        return [self._unit(ready[:need], need, spares)], None

    def _waiting(self) -> tuple[list[Task], list[Task]]:
        """Its members that wait, and its spares that do; none is part of a unit any more."""
        found: tuple[list[Task], list[Task]] = ([], [])
        for task in self.tasks.values():
            if task.state is TaskState.WAITING:
                if task.unit is not None:
                    task.unit.retire()
                task.beyond = False
                found[task.pod.spare].append(task)
        return found

    def _unit(self, members: list[Task], need: int, spares: list[Task]) -> Unit:
        """Members that start together, and its spares: it starts only where these have places, too."""
        return Unit((*members[:need], *spares, *members[need:]), need + len(spares), self).adopt()

    def later(self, now: float) -> tuple[Task, ...]:
        """Members that are no part of its units yet, since the others come first."""
        waiting = (task for task in self.tasks.values() if task.state is TaskState.WAITING and not task.pod.spare)
        return tuple(task for task in waiting if task.unit is None and task.not_before <= now)
