"""Census: the jobs of each user, kept where a queue limits how many there may be at all, waiting or running.

Who has no more jobs than every limit allows has none beyond one, whichever of them come first. So only the jobs of other users
are counted one by one, and only if pods of theirs have come, gone, or got or lost a place since the last count. It is made of
all tasks at the first count, and again after the limits, or the tree of queues, have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fairlead.core.pods.tasks import Task
from fairlead.core.queues.meters import submitted_limits
from fairlead.core.queues.queues import Queues


class _Entry(NamedTuple):
    """As what a task is counted."""

    user: str
    queue: str
    job: str


class Applicants:
    """Tasks that wait to be counted, and those of jobs beyond a limit."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Task]] = {}  # user -> uid -> task
        self._user: dict[str, str] = {}  # uid -> user

    def __contains__(self, uid: str) -> bool:
        return uid in self._user

    def __bool__(self) -> bool:
        return bool(self._user)

    def add(self, task: Task) -> None:
        """A task is one of them."""
        self.discard(task.pod.uid)
        self._user[task.pod.uid] = task.user
        self._of.setdefault(task.user, {})[task.pod.uid] = task

    def discard(self, uid: str) -> None:
        """A task is none of them."""
        user = self._user.pop(uid, None)
        if user is not None:
            theirs = self._of[user]
            del theirs[uid]
            if not theirs:
                del self._of[user]

    def of(self, user: str) -> Iterator[Task]:
        """Those of a user."""
        return iter(self._of.get(user, {}).values())


class Census:
    """active: whether it is kept now; then each change of a task is noted."""

    def __init__(self, tasks: Mapping[str, Task], queues: Queues) -> None:
        self._all = tasks
        self._queues = queues
        self.applicants = Applicants()
        self.active = False
        self._limits: dict[str, tuple[int | None, int | None]] = {}  # queue -> jobs of each user, of all together
        self._entries: dict[str, _Entry] = {}  # uid of a task
        self._tasks: dict[str, dict[str, Task]] = {}  # user -> uid -> task
        self._jobs: dict[str, dict[str, Counter[str]]] = {}  # user -> queue -> job -> its tasks
        self._users: dict[str, Counter[str]] = {}  # job -> user -> tasks
        self._shared: set[str] = set()  # jobs of several users
        self._together: Counter[str] = Counter()  # queue with a limit for all together -> jobs
        self._touched: dict[str, None] = {}  # users of whom anything changed since the last count

    # -- what changes --------------------------------------------------------------------------

    def drop(self) -> None:
        """Limits or queues have changed, or it is not known what else: it is made anew at the next count."""
        self.active = False

    def touch(self, task: Task) -> None:
        """A task came, or may count otherwise than before."""
        if not task.pod.ours or not task.number:
            return  # it is not, or not any more, a pod that is known
        uid, now = task.pod.uid, _Entry(task.user, task.queue, task.job)
        if self._entries.get(uid) != now:
            self.leave(uid)
            self._entries[uid] = now
            self._join(now)
        self._tasks.setdefault(now.user, {})[uid] = task
        self._touched[now.user] = None

    def leave(self, uid: str) -> None:
        """A task is gone."""
        known = self._entries.pop(uid, None)
        if known is None:
            return
        self._touched[known.user] = None
        theirs = self._tasks[known.user]
        del theirs[uid]
        if not theirs:
            del self._tasks[known.user]
        queues = self._jobs[known.user]
        if _one_less(queues[known.queue], known.job):
            self._add(known.queue, -1)
            if not queues[known.queue]:
                del queues[known.queue]
                if not queues:
                    del self._jobs[known.user]
        users = self._users[known.job]
        if _one_less(users, known.user):
            self._note_shared(known.job)
            if not users:
                del self._users[known.job]

    def _join(self, now: _Entry) -> None:
        jobs = self._jobs.setdefault(now.user, {}).setdefault(now.queue, Counter())
        jobs[now.job] += 1
        if jobs[now.job] == 1:
            self._add(now.queue, 1)
        self._users.setdefault(now.job, Counter())[now.user] += 1
        self._note_shared(now.job)

    def _note_shared(self, job: str) -> None:
        (self._shared.add if len(self._users[job]) > 1 else self._shared.discard)(job)

    def _add(self, queue: str, more: int) -> None:
        for name in self._limiting(queue):
            if self._limits[name][1] is not None:
                self._together[name] += more

    def _limiting(self, queue: str) -> Iterator[str]:
        """The queues on the path of one that limit jobs."""
        node = self._queues.queues.get(queue)
        return (each.name for each in node.path if each.name in self._limits) if node is not None else iter(())

    # -- counting ------------------------------------------------------------------------------

    def due(self) -> tuple[list[Task], list[Task]]:
        """The tasks that must be counted job by job; and applicants that are within all limits, whichever jobs come first."""
        touched = self._touched
        if not self.active:
            self._make()
        elif not self._shared and not self._full():
            self._touched = {}
            crowded = [user for user in touched if self._is_crowded(user)]
            counted = [task for user in crowded for task in self._tasks[user].values()]
            return counted, [task for user in touched.keys() - set(crowded) for task in self.applicants.of(user)]
        self._touched = {}
        return [task for theirs in self._tasks.values() for task in theirs.values()], []

    def _full(self) -> bool:
        """Whether some queue has, or may have, more jobs than may be there together."""
        return any(most is not None and self._together[name] > most for name, (_, most) in self._limits.items())

    def _is_crowded(self, user: str) -> bool:
        """Whether a user has, or may have, more jobs than a queue allows."""
        jobs: Counter[str] = Counter()
        for queue, theirs in self._jobs.get(user, {}).items():
            for name in self._limiting(queue):
                jobs[name] += len(theirs)
        return any((most := self._limits[name][0]) is not None and count > most for name, count in jobs.items())

    def _make(self) -> None:
        for kept in (self._limits, self._entries, self._tasks, self._jobs, self._users, self._shared, self._together):
            kept.clear()
        for node in self._queues.queues.values():
            per_user, together = submitted_limits(node.policy)
            if per_user is not None or together is not None:
                of_all = together.submitted if together is not None else None
                self._limits[node.name] = per_user.submitted if per_user is not None else None, of_all
        for task in self._all.values():
            self.touch(task)
        self.active = bool(self._limits)

    def problems(self) -> list[str]:
        """What is kept and is not so."""
        if not self.active:
            return []
        kept = self._entries, self._jobs, self._users, self._shared, +self._together
        again = Census(self._all, self._queues)
        again._make()
        anew = again._entries, again._jobs, again._users, again._shared, +again._together
        return ["the census of jobs is not what all tasks make"] if kept != anew else []


def _one_less(counts: Counter[str], key: str) -> bool:
    """Count one less; whether it was the last."""
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True
