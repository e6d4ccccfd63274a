"""Departures: victims on their way out, since when, and until when pods wait for them.

A finalizer, a lost node or a long grace period keeps a pod after its eviction. A place is held for its beneficiary until
the victim's grace and `victim_timeout` have passed; `actions/outwait.py` releases it then. A victim that did not go is not
chosen again for a pause that doubles.

A pod that its own user deleted with a longer time to end than an eviction may give counts as one that runs until it is chosen
as a victim; its eviction shortens that time, as any later delete may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.backoff import backoff
from fairlead.core.model.instants import at_time
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.pods.waits import awaited_by

if TYPE_CHECKING:
    from fairlead.core.model.policy import Policy
    from fairlead.core.queues.services import Services

REPORT_AFTER = 5.0
"""Seconds that a place is held before it is reported which victims its beneficiary waits for: most victims are gone by then."""
_LONGEST_PAUSE = 6 * 3600.0
_NAMED = 5
_HURRY_AGAIN = 60.0


class Departure(NamedTuple):
    """Asked to go at `since`, waited for until `due`, both in seconds since the epoch. deleted: it was before that, too."""

    since: float
    due: float
    deleted: bool = False


class Departures:
    """All victims that are waited for. freed: rows where something became free since held places were checked last.

    dismissed: UIDs of pods that are on their way out before they are terminating: of jobs that are suspended.
    """

    def __init__(self, policy: Policy, tasks: dict[str, Task], services: Services) -> None:
        self._policy = policy
        self._tasks = tasks
        self._services = services
        self.leaving: dict[str, Departure] = {}
        self.freed: set[int] = set()
        self.going: dict[str, float] = {}  # UID of a pod that is on its way out -> when that was observed
        self.begun = 0  # how many pods have begun to leave
        self.dismissed: set[str] = set()
        self._stayed: dict[str, tuple[int, float]] = {}  # victim uid -> how often it did not go, not chosen again before
        self._report_at: dict[str, float] = {}  # beneficiary's UID -> when it is reported that it waits
        self._hurried: dict[str, float] = {}  # victim uid -> its time to end is not shortened again before

    # -- times to end --------------------------------------------------------------------------

    def grace(self, task: Task) -> int:
        """Seconds that an eviction gives a pod to end: as its class states, or it itself, no longer than the policy allows."""
        return min(int(self._services.of(task).grace) or task.pod.grace, self._policy.max_grace)

    def graces(self, victims: Sequence[Task]) -> tuple[tuple[str, int], ...]:
        """Times to end of victims that are not to have their own.

        A pod that was deleted already keeps the time that it got then unless a delete gives less; 0 would wait for no container.
        """
        given = ((task, max(1, self.grace(task)) if task.pod.terminating else self.grace(task)) for task in victims)
        return tuple((task.pod.uid, grace) for task, grace in given if task.pod.terminating or grace != task.pod.grace)

    def stays_on(self, task: Task, now: float) -> bool:
        """Whether a pod is on its way out, but would be for longer than any eviction may take: it counts as one that runs."""
        return task.pod.terminating and task.pod.leaves > now + self._policy.max_grace

    def note(self, uid: str) -> None:
        """A pod was observed to be on its way out."""
        if uid not in self.going:
            self.going[uid] = self._services.now
            self.begun += 1

    def dismiss(self, uid: str) -> None:
        """A pod's job is to be suspended: its controller deletes it."""
        self.dismissed.add(uid)
        self.note(uid)

    def recall(self, uid: str) -> None:
        """Its job is to run after all."""
        self.dismissed.discard(uid)

    def leaving_soon(self, now: float) -> list[tuple[Task, float]]:
        """Pods that go though no plan waits for them yet, and until when they are trusted to; forgets those that are gone."""
        found = []
        for uid, since in sorted(self.going.items()):
            task = self._tasks.get(uid)
            if task is None or not (task.pod.terminating or uid in self.dismissed):
                del self.going[uid]
                self.dismissed.discard(uid)
                continue
            due = (task.pod.leaves or since + task.pod.grace) + self._policy.victim_timeout
            if task.state is TaskState.BOUND and task.row >= 0 and now < due and not self.stays_on(task, now):
                found.append((task, due))
        return found

    def trusts_others_at(self, now: float) -> float | None:
        """When other pods than now are trusted to go though nothing happens.

        One has not gone in time by then, or one that stays on has only as long left as an eviction may give.
        """
        times = [due for _, due in self.leaving_soon(now)]
        going = [self._tasks[uid] for uid in self.going]
        times += [task.pod.leaves - self._policy.max_grace for task in going if self.stays_on(task, now)]
        return min(times, default=None)

    def slow(self, now: float) -> list[Task]:
        """Victims whose containers have longer to end than their beneficiaries wait, each once in a while.

        A user or a job's controller gave them that time in a delete, since they were asked to go or just before.
        """
        found = [uid for uid, at in self._slow() if at <= now]
        for uid in found:
            self._hurried[uid] = now + _HURRY_AGAIN
        return [self._tasks[uid] for uid in sorted(found)]

    def _slow(self) -> Iterator[tuple[str, float]]:
        """Such victims, and when their time to end is to be shortened: what was asked of the server is observed by then."""
        for uid, departure in self.leaving.items():
            task = self._tasks.get(uid)
            if task is not None and task.pod.terminating and task.pod.leaves > departure.due + REPORT_AFTER:
                yield uid, max(departure.since + REPORT_AFTER, self._hurried.get(uid, 0.0))

    # -- victims -------------------------------------------------------------------------------

    def begin(self, victims: Iterable[Task], beneficiaries: Iterable[Task], now: float) -> None:
        """Victims of one plan are asked to go. All of them are waited for as long as the one with the longest grace.

        A pod that was terminating before, and may take longer than that, is waited for as long as it may take.
        """
        asked = list(victims)
        due = max((now + self.grace(task) for task in asked), default=now)
        due = max([due, *(self._left(task, now) for task in asked if task.pod.terminating)]) + self._policy.victim_timeout
        for task in asked:
            self.leaving[task.pod.uid] = Departure(now, due, task.pod.terminating)
        for task in beneficiaries:
            self._report_at[task.pod.uid] = now + REPORT_AFTER

    def _left(self, task: Task, now: float) -> float:
        """When a pod that was deleted ends, if that is trusted; else now."""
        return task.pod.leaves if task.pod.terminating and not self.stays_on(task, now) else now

    def tidy(self, now: float) -> None:
        """A pass begins: whatever is gone, or is no victim any more, is forgotten."""
        tasks = self._tasks
        for uid in [uid for uid in self.leaving if uid not in tasks or tasks[uid].state is not TaskState.EVICTING]:
            del self.leaving[uid]
        for uid in [uid for uid in self._hurried if uid not in self.leaving]:
            del self._hurried[uid]
        for uid in [uid for uid in self._report_at if uid not in tasks or tasks[uid].state is not TaskState.HELD]:
            del self._report_at[uid]
        for uid in [uid for uid in self._stayed if uid not in tasks]:
            del self._stayed[uid]
        if self.dismissed:
            self.dismissed.intersection_update(tasks)
        if not self.leaving:
            self.freed.clear()

    def late(self, now: float) -> list[Task]:
        """Victims that are waited for no longer, in the order of their UIDs."""
        return [self._tasks[uid] for uid, departure in sorted(self.leaving.items()) if departure.due <= now]

    def stays(self, task: Task, now: float) -> None:
        """A victim did not go in time: it is not chosen again before a pause that doubles each time."""
        times = self._stayed.get(task.pod.uid, (0, 0.0))[0] + 1
        pause = backoff(max(self._policy.victim_timeout, 1.0), times + 1, _LONGEST_PAUSE)
        self._stayed[task.pod.uid] = times, now + pause

    def spares(self, task: Task, now: float) -> bool:
        """Whether a task was a victim that did not go, too short a time ago to be chosen again, or has been dismissed."""
        if task.pod.uid in self.dismissed:
            return True
        return bool(self._stayed) and self._stayed.get(task.pod.uid, (0, 0.0))[1] > now

    @property
    def spares_some(self) -> bool:
        """Whether any task is not to be chosen as a victim now."""
        return bool(self._stayed or self.dismissed)

    def was_deleted(self, uid: str) -> bool:
        """Whether a victim was on its way out before it was chosen: no disruption budget counts it."""
        departure = self.leaving.get(uid)
        return departure is not None and departure.deleted

    def unreported(self, now: float) -> list[Task]:
        """Beneficiaries that have waited so long that it is reported for which victims, once each."""
        due = sorted(uid for uid, at in self._report_at.items() if at <= now)
        for uid in due:
            del self._report_at[uid]
        return [self._tasks[uid] for uid in due]

    def reason(self, held: Iterable[Task]) -> Reason | None:
        """For which victims tasks with held places wait, or None if for none."""
        victims = sorted(uid for uid in awaited_by(held) if uid in self._tasks)
        if not victims:
            return None
        known = [self.leaving[uid] for uid in victims if uid in self.leaving]
        names = [self._tasks[uid].pod.key for uid in victims[:_NAMED]]
        more = f" and {len(victims) - _NAMED} more" if len(victims) > _NAMED else ""
        deleted = any(each.deleted for each in known)
        what = "are being evicted for it or terminating" if deleted else "are being evicted for it"
        message = f"{len(victims)} pod(s) {what}: {', '.join(names)}{more}"
        if known:
            since, due = min(each.since for each in known), max(each.due for each in known)
            message += f"; since {at_time(since)}, until {at_time(due)} at the latest"
        return Reason(ReasonCode.WAITING_FOR_VICTIMS, message, {"victims": len(victims)})

    def next_due(self) -> float | None:
        """When a place must be released, a wait reported, or an eviction hastened."""
        if not self.leaving and not self._report_at:
            return None
        hurried = (at for _, at in self._slow())
        return min([*(each.due for each in self.leaving.values()), *self._report_at.values(), *hurried], default=None)
