"""Completions: the members of a gang that succeeded in its present run. They count towards `minMember` as those that run do.

A run is one life of a gang. It ends when the job starts all over:

- a member of a higher attempt comes (AIJobs, JobSets);
- a member without a node comes, of an owner that this run does not know, after enough have succeeded and none is left (a
  PodGroup that is used again, as by each Job of a CronJob);
- `minMember` members are there that were all made after the last success, and no pod of a member that succeeded is left (a
  controller that deletes all pods and makes all anew). Whatever succeeded before is not needed then: the gang can start whole.

What a scheduler before this one counted is in the PodGroup's status: how many, and when the last of them ended. Of the pods that
are found at a restart, those that ended later are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.core.model.groups import Completed
from fairlead.core.model.pods import Pod


class _Ended(msgspec.Struct):
    """A member that succeeded and whose pod is still there. recorded: a scheduler before this one counted it."""

    pod: Pod
    recorded: bool = False
    watched: bool = False
    counts: bool = False


class Completions:
    """Of one gang. total: how many members count. attempt: of the present run; since: when its first pod was made.

    until: when the last member ended that counts, seconds since the epoch; 0: none.
    """

    __slots__ = ("_came", "_ended", "_names", "_owners", "_recorded_until", "attempt", "since", "total", "until")

    def __init__(self) -> None:
        self.attempt = 0
        self.since = 0.0
        self.total = 0
        self.until = 0.0
        self._ended: dict[str, _Ended] = {}
        self._names: set[str] = set()  # of members that count, as far as they were seen
        self._owners: set[str] = set()
        self._recorded_until = 0.0
        self._came = 0  # members made after the last success: at most so many

    def __len__(self) -> int:
        return len(self._ended)

    def read(self, record: Completed) -> None:
        """What the PodGroup's status held when it was observed first."""
        if (record.attempt, record.since) < (self.attempt, self.since):
            return
        if (record.attempt, record.since) > (self.attempt, self.since):
            known, owners, came = list(self._ended.values()), set(self._owners), self._came
            self._begin(record.attempt, record.since)
            self._owners |= owners
            self._came = came
            for ended in known:
                self._count(ended)
        self._recorded_until = record.until
        self.total += record.count
        self.until = max(self.until, record.until)
        for ended in self._ended.values():
            self._check_recorded(ended)

    def add(self, pod: Pod, *, watched: bool) -> None:
        """A member succeeded. watched: it ran until now; else it is observed for the first time."""
        if pod.attempt > self.attempt:
            self._begin(pod.attempt, 0.0)
        ended = self._ended[pod.uid] = _Ended(pod, watched=watched)
        self._count(ended)
        self._check_recorded(ended)

    def _count(self, ended: _Ended) -> None:
        """It counts if it is of this run."""
        pod = ended.pod
        ended.counts = pod.attempt == self.attempt and pod.created >= self.since
        if ended.counts:
            self._made_again(pod)
            self._names.add(pod.name)
            self._owners.add(pod.owner)
            self.total += 1
            self.until = max(self.until, pod.succeeded)

    def _check_recorded(self, ended: _Ended) -> None:
        if ended.counts and not ended.watched and not ended.recorded and ended.pod.succeeded <= self._recorded_until:
            ended.recorded = True
            self.total -= 1  # it is in the record

    def comes(self, pod: Pod, *, others: bool, least: int) -> None:
        """A pod came that has not ended. others: whether there are more such members; least: the gang's `min_member`."""
        if pod.attempt > self.attempt:
            self._begin(pod.attempt, 0.0)
        elif pod.attempt < self.attempt or pod.placeholder:
            return  # a placeholder is no member, whatever its name
        elif not pod.node and not others and self.total >= least and pod.owner not in self._owners:
            self._begin(pod.attempt, pod.created)
        self._made_again(pod)
        self._owners.add(pod.owner)
        self._came += pod.created >= self.until

    def may_start_over(self, least: int) -> bool:
        """Whether all members may have been made anew. least: the gang's `min_member`."""
        return self.total > 0 and self._came >= least and not any(ended.counts for ended in self._ended.values())

    def start_over(self, members: Iterable[Pod], least: int) -> None:
        """All members were made anew if enough of those that are there were made after the last success."""
        new = [pod for pod in members if pod.attempt == self.attempt and not pod.terminating and pod.created >= self.until]
        self._came = len(new)
        if len(new) >= least:
            self._begin(self.attempt, min(pod.created for pod in new))
            self._owners.update(pod.owner for pod in new)

    def remove(self, uid: str) -> None:
        """The pod of a member that succeeded was deleted: it counts on."""
        self._ended.pop(uid, None)

    def _made_again(self, pod: Pod) -> None:
        """A member whose pod is made again under its name has not succeeded any more."""
        if pod.name in self._names:
            self._names.remove(pod.name)
            self.total -= 1

    def _begin(self, attempt: int, since: float) -> None:
        """A new run: no member has succeeded in it."""
        self.attempt, self.since = attempt, since
        self.total = self._came = 0
        self.until = self._recorded_until = 0.0
        self._owners.clear()
        self._names.clear()
        for ended in self._ended.values():
            ended.counts = False

    @property
    def record(self) -> Completed | None:
        """What is written to the PodGroup's status; None: nothing to write."""
        return Completed(self.total, self.attempt, self.since, self.until) if self.total or self.since else None

    def pods(self) -> list[Pod]:
        """The members that count, as far as their pods are still there."""
        return [ended.pod for ended in self._ended.values() if ended.counts]

    def uids(self) -> Iterable[str]:
        """Of the pods that are still there."""
        return self._ended
