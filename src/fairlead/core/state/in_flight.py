"""What is remembered of evictions in flight: who waits for which victims, and which places are reserved until they are gone.

These tables change together when a plan is made, a victim is gone or stays, a replacement comes, or a task ends. This object
alone writes them: others read them as mappings, which mypy checks.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.undo import UndoLog
from fairlead.core.pods.tasks import Placeholder, Task, TaskState
from fairlead.core.pods.waits import Wait

KEPT_FOR = 120.0
"""Seconds in which pods must come to the places that are reserved for them, at least."""

Key = tuple[str, str, str, str, Hashable]
"""What a replacement has in common with the pod that it replaces: namespace, owner, queue, group, shape."""


class GivenUp(NamedTuple):
    """A place that is not reserved any more, and the UIDs of the victims that may still fill it."""

    spec: PodSpec
    row: int
    devices: tuple[int, ...]
    victims: tuple[str, ...]


@dataclass(slots=True)
class Kept:
    """A place for the replacement of a victim. until: when it is given up, seconds since the epoch.

    after: UIDs of the victims that must be gone before the place is free. pod: the victim, as it was when its move was decided at
    `since`; None: the place is reserved for a pod that has come.
    """

    victim: str
    key: Key
    placeholder: Placeholder
    until: float
    after: tuple[str, ...] = field(default=())
    pod: Pod | None = None
    since: float = 0.0

    def given_up(self) -> GivenUp:
        """Its place, while the placeholder is still on its row."""
        placeholder = self.placeholder
        return GivenUp(placeholder.shape.spec, placeholder.row, placeholder.devices, self.after)


class InFlight:
    """Tables by UID, and `Task.waits`. The places and charges that belong to the entries are the callers' concern.

    waits: victim -> the waits of which it is one. plans: victim -> all victims of its plan, which go together or not at all.
    freed: tasks for which the last victim is gone. lingering: victim -> the row where it still is, though its place is given
    away. closed: victim -> placeholders of what it fills beyond what its beneficiaries take. kept: victim that moves -> its new
    place. returning: replacement -> the place that it gets.
    """

    def __init__(self, log: UndoLog, tasks: Mapping[str, Task]) -> None:
        self._log = log
        self._tasks = tasks
        self._waits: dict[str, tuple[Wait, ...]] = {}
        self._plans: dict[str, frozenset[str]] = {}
        self._freed: dict[str, Task] = {}
        self._lingering: dict[str, int] = {}
        self._closed: dict[str, list[Placeholder]] = {}
        self._kept: dict[str, Kept] = {}
        self._returning: dict[str, Kept] = {}
        self.waits: Mapping[str, tuple[Wait, ...]] = self._waits
        self.plans: Mapping[str, frozenset[str]] = self._plans
        self.freed: Mapping[str, Task] = self._freed
        self.lingering: Mapping[str, int] = self._lingering
        self.closed: Mapping[str, list[Placeholder]] = self._closed
        self.kept: Mapping[str, Kept] = self._kept
        self.returning: Mapping[str, Kept] = self._returning

    # -- waits ---------------------------------------------------------------------------------

    def plan(self, uid: str, victims: frozenset[str]) -> None:
        """A victim is part of a plan: all of these go, or none."""
        self._log.insert(self._plans, uid, victims)

    def wait(self, victims: Collection[str], tasks: list[Task]) -> None:
        """Tasks wait for victims, which others may wait for, too."""
        wait = Wait(victims, (task.pod.uid for task in tasks))
        for uid in victims:
            self._log.insert(self._waits, uid, (*self._waits.get(uid, ()), wait))
        for task in tasks:
            self._log.set(task, "waits", (wait,))

    @staticmethod
    def join(task: Task, waits: tuple[Wait, ...]) -> None:
        """A task waits with others for their victims, too."""
        task.waits = (*task.waits, *(wait for wait in waits if wait not in task.waits))
        for wait in waits:
            wait.tasks[task.pod.uid] = None

    @staticmethod
    def leave(task: Task) -> None:
        """A task waits for no victim any more."""
        for wait in task.waits:
            wait.tasks.pop(task.pod.uid, None)
        task.waits = ()

    def waiting_for(self, uid: str) -> list[str]:
        """UIDs of the tasks that wait for a victim to go."""
        return list(dict.fromkeys(task for wait in self._waits.get(uid, ()) for task in wait.tasks))

    def all_waits(self, victims: Iterable[str]) -> list[Wait]:
        """The waits of which any of these victims is one, each once."""
        return list({id(wait): wait for uid in victims for wait in self._waits.get(uid, ())}.values())

    def take_freed(self) -> list[Task]:
        """The tasks for which the last victim is gone, in the order of their UIDs, once."""
        tasks = [task for _, task in sorted(self._freed.items())]
        self._freed.clear()
        return tasks

    # -- victims that are gone, or stay --------------------------------------------------------

    def gone(self, uid: str) -> None:
        """A pod is gone. Its plan is remembered until all victims of it are gone: that it failed may still be reported."""
        self._freed.pop(uid, None)
        if uid not in self._plans and uid not in self._waits:
            return  # it ended by itself, as most do
        tasks, plan = self._tasks, self._plans.get(uid, frozenset())
        if not any(other in tasks and tasks[other].state is TaskState.EVICTING for other in plan):
            for other in plan:
                self._plans.pop(other, None)
        self._free(uid)

    def _free(self, uid: str) -> None:
        """Nothing waits for a victim any more: it is gone. Tasks that waited for no other may be bound."""
        tasks = self._tasks
        for wait in self._waits.pop(uid, ()):
            wait.victims.discard(uid)
            for beneficiary in wait.tasks if not wait.victims else ():
                held = tasks.get(beneficiary)
                if held is not None and not held.waits_for and held.state is TaskState.HELD:
                    self._freed[beneficiary] = held

    def stays(self, uid: str) -> None:
        """Nothing waits for a victim any more, and its plan is given up: it stays."""
        self._waits.pop(uid, None)
        for other in self._plans.pop(uid, ()):
            if other not in self._tasks:
                self._plans.pop(other, None)  # gone before, and remembered for the others' sake

    # -- where victims still are ---------------------------------------------------------------

    def linger(self, uid: str, row: int) -> None:
        """A victim is still on a row, though its place is given away."""
        self._log.insert(self._lingering, uid, row)

    def part(self, uid: str) -> int | None:
        """A victim lingers no longer; returns the row where it did."""
        return self._lingering.pop(uid, None)

    def close(self, victims: Iterable[str], placeholder: Placeholder) -> None:
        """A placeholder is on its row until these victims are gone."""
        for uid in victims:
            self._log.insert(self._closed, uid, [*self._closed.get(uid, ()), placeholder])

    def reopen(self, uid: str) -> list[Placeholder]:
        """The placeholders that stood for a victim and for no other; they are forgotten, and still on their rows."""
        gone = self._closed.pop(uid, [])
        return [each for each in gone if not any(each in others for others in self._closed.values())]

    # -- places of pods that move --------------------------------------------------------------

    def keep(self, kept: Kept) -> None:
        """A place is reserved for the replacement of a victim."""
        self._log.insert(self._kept, kept.victim, kept)

    def drop(self, victim: str) -> Kept:
        """No replacement of a victim gets the place that was reserved for one."""
        return self._kept.pop(victim)

    def replace(self, uid: str, victim: str) -> Kept:
        """A pod came that replaces a victim: the place is reserved for it."""
        kept = self._returning[uid] = self._kept.pop(victim)
        return kept

    def reserve(self, uid: str, kept: Kept) -> None:
        """A place is reserved for a pod that has come."""
        self._returning[uid] = kept

    def pass_on(self, uid: str, to: str) -> None:
        """The place that is reserved for a pod is reserved for another one instead."""
        self._returning[to] = self._returning.pop(uid)

    def take(self, uid: str) -> Kept:
        """A pod takes the place that is reserved for it, or needs it no more."""
        return self._returning.pop(uid)

    # -- after a fault -------------------------------------------------------------------------

    def cut_out(self, task: Task) -> Kept | None:
        """A task waits for nothing, and no place is reserved for it; returns the place that was."""
        uid = task.pod.uid
        self.leave(task)
        self._freed.pop(uid, None)
        return self._returning.pop(uid, None)

    def expel(self, uid: str) -> list[Placeholder]:
        """A pod is forgotten: what waits for it waits no longer. Returns the placeholders that are still on their rows for it."""
        self._freed.pop(uid, None)
        self._lingering.pop(uid, None)
        self._plans.pop(uid, None)
        self._free(uid)
        for waits in self._waits.values():
            for wait in waits:
                wait.tasks.pop(uid, None)
        kept = self._kept.pop(uid, None)
        return [*self.reopen(uid), *((kept.placeholder,) if kept is not None else ())]
