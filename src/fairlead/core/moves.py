"""Moves: places kept for pods that are evicted to make room elsewhere, until their replacements come.

A pod cannot be moved; it is evicted and its controller makes another. Its new place was chosen before, so it is kept by a
stand-in until a pod of the same owner, queue, group and shape comes to wait, which then gets it at once. If none comes
in time, the place is free again. How many pods are moved is bounded by a budget that fills up with time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.core.model import Pod
from fairlead.core.tasks import Task, TaskState

if TYPE_CHECKING:
    from fairlead.core.state import ClusterState

_KEPT_FOR = 120.0  # seconds
_REFILL = 60.0

Key = tuple[str, str, str, str, int]


@dataclass(slots=True)
class Kept:
    """A place for the replacement of a victim. until: when it is given up, seconds since the epoch."""

    victim: str
    key: Key
    stand_in: Task
    until: float


def movable(state: ClusterState, task: Task) -> bool:
    """Whether a pod may be evicted only to run elsewhere: its own, with a controller, whose class lets it fall and be moved.

    And which does not ask to be left alone, as autoscalers are asked.
    """
    services = state.services
    return (
        task.state is TaskState.BOUND
        and task.pod.ours
        and task.pod.controlled
        and not task.pod.terminating
        and not task.pod.stays
        and (task.gang is None or task.gang.group is None)
        and not task.shape.relations
        and services.of(task).movable
        and services.may_fall(task)
    )


class Moves:
    """Places that are kept, and the budget of further moves."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.kept: dict[str, Kept] = {}  # victim uid -> its new place
        self.returning: dict[str, Kept] = {}  # uid of a replacement -> the place it gets
        self.refills_at = 0.0  # when moves that were refused may be tried again
        self.defragments_at: float | None = None  # when nodes are emptied next
        self._left = 0.0
        self._at: float | None = None

    def allowed(self, now: float, count: int) -> bool:
        """Whether so many pods may be moved now; a plan that is larger than the whole budget needs all of it."""
        most = float(self.state.policy.moves_per_minute)
        if self._at is None:
            self._left = most
        else:
            self._left = min(most, self._left + max(0.0, now - self._at) * most / 60.0)
        self._at = now
        enough = most > 0 and self._left >= min(float(count), most)
        self.refills_at = 0.0 if enough else now + _REFILL
        return enough

    def spend(self, count: int) -> None:
        """So many are moved."""
        self._left -= count

    def stand_in(self, victim: Task) -> Task:
        """Something that holds on a row what a victim's replacement will."""
        spec = victim.shape.spec
        pod = Pod(f"moved/{victim.pod.uid}", "", f"moved-{victim.pod.uid}", spec, queue=victim.queue, ours=False)
        made = Task(pod, self.state.shapes.intern(spec))
        made.state = TaskState.EVICTING  # nobody's victim
        return made

    def keep(self, victim: Task, stand_in: Task, now: float) -> None:
        """The stand-in is on its row: remember for whom."""
        kept = Kept(victim.pod.uid, _key(victim), stand_in, now + _KEPT_FOR)
        self.state.log.insert(self.kept, victim.pod.uid, kept)

    def arrived(self, task: Task) -> None:
        """A pod came to wait: perhaps it replaces one that was moved."""
        if not self.kept or task.pod.uid in self.returning:
            return
        key = _key(task)
        for uid, kept in sorted(self.kept.items()):
            victim = self.state.tasks.get(uid)
            if kept.key == key and (victim is None or victim.pod.terminating or victim.state is TaskState.EVICTING):
                del self.kept[uid]
                self.returning[task.pod.uid] = kept
                return

    def drop(self, uid: str) -> None:
        """The victim stays, or nobody came: its new place is free."""
        kept = self.kept.pop(uid, None)
        if kept is not None:
            self.vacate(kept)

    def vacate(self, kept: Kept) -> None:
        """Take a stand-in off its row."""
        if kept.stand_in.row >= 0:
            self.state.unassign(kept.stand_in)
        self.state.shapes.release(kept.stand_in.shape)

    def expire(self, now: float) -> None:
        """Give up what was kept in vain."""
        for uid in [uid for uid, kept in self.kept.items() if kept.until <= now]:
            self.drop(uid)
        for uid in [uid for uid, kept in self.returning.items() if kept.until <= now or uid not in self.state.tasks]:
            self.vacate(self.returning.pop(uid))

    @property
    def next_due(self) -> float | None:
        """When a place is given up."""
        times = [kept.until for kept in (*self.kept.values(), *self.returning.values())]
        times += [self.defragments_at] if self.defragments_at is not None else []
        return min(times, default=None)


def _key(task: Task) -> Key:
    pod = task.pod
    return pod.namespace, pod.owner, task.queue, pod.group, task.shape.number
