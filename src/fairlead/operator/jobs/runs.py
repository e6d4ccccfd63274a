"""Runs of members, and which of their failures distinguish a node from the job: those of work that ran elsewhere for longer.

Pure: observations of members go in, failures that count against a node come out. A failure counts once the same member of the
same job ran, in another attempt and on another node like it, for more than twice as long as it had when it failed, or to its end.
It counts no more once the job fails by itself on another node, too, or runs on that very node. Of a gang only the member that
failed first counts; if several nodes' members ended within one second, it is not known which that was.

With each failure goes the part of comparable runs that its node had: what the chance is that it comes to pass there if all nodes
are alike. Comparable are the latest runs that asked for nodes in the same way, on nodes like it, and lasted as long, of jobs that
had not failed before: those that have are tried elsewhere, and do better for no merit of the node. A job on a node counts once,
however many members, elements and attempts of it were there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

import msgspec

from fairlead.operator.jobs.evidence import RAN_ELSEWHERE, Failure

_REMEMBERED, _OF_A_KIND, _KINDS = 20_000, 5_000, 1_000  # runs that ended; of one kind; kinds
_PER_NODE = 4  # of the latest runs so many times as many as there are nodes are compared
_LONGER = 2.0  # times as long as it had run when it failed ...
_MARGIN = 60.0  # ... and some seconds
_PRIOR = 20.0  # runs that a user's own habits must outweigh
_SAME_INCIDENT = 60.0  # seconds within which what failed on a node failed of one cause


class Run(msgspec.Struct, frozen=True):
    """One member of one attempt on a node. kind: how it asked for nodes; only equal kinds are compared.

    ended: seconds since the epoch, 0 while it runs. outcome: Succeeded, Failed (by its own exit code), Stopped, or empty.
    """

    job: str
    user: str
    kind: str
    element: int
    role: str
    index: int
    attempt: int
    node: str
    started: float
    ended: float = 0.0
    outcome: str = ""

    @property
    def key(self) -> tuple[int, str, int, int]:
        """Which of its job's runs it is."""
        return self.element, self.role, self.index, self.attempt

    def reached(self, now: float) -> float:
        """How long it has run, seconds."""
        return max(0.0, (self.ended or now) - self.started)


class News(NamedTuple):
    """What came out: failures that count now, and those (node, job) that do not any more."""

    counted: list[tuple[str, Failure]]
    void: list[tuple[str, str]]


class _Job:
    def __init__(self) -> None:
        self.running: dict[tuple[int, str, int, int], Run] = {}
        self.over: dict[tuple[int, str, int, int], Run] = {}
        self.failed: dict[int, set[int]] = {}  # element -> attempts that failed by themselves
        self.void: set[int] = set()  # elements that no longer count
        self.counted: dict[str, int] = {}  # node -> the element whose failure counts against it

    def first(self, run: Run) -> bool:
        """Whether it had not failed by itself before."""
        return all(each >= run.attempt for each in self.failed.get(run.element, ()))

    def runs(self, element: int) -> Iterator[Run]:
        for each in (*self.running.values(), *self.over.values()):
            if each.element == element:
                yield each


class Runs:
    """All that is known of runs. `node` adds nodes; runs on a node without a group are never compared."""

    def __init__(self) -> None:
        self.groups: dict[str, str] = {}
        self._jobs: dict[str, _Job] = {}
        self._open: set[str] = set()  # jobs with a failure of which nothing is known yet, or that counts and may be void
        self._fresh: set[str] = set()  # of these, those with an observation since they were judged
        self._ended: deque[Run] = deque(maxlen=_REMEMBERED)
        self._kinds: dict[str, deque[Run]] = {}  # the same by kind, the one that ended last at the end
        self._incidents: dict[str, float] = {}  # node -> when the last failure that counts came to pass
        self._passed: dict[str, set[str]] = {}  # node with failures that count -> jobs that ran well there since
        self._since: dict[
            str, tuple[float, float]
        ] = {}  # node -> when the first of its failures came to pass, and the longest run
        self._thin: dict[
            str, dict[str, tuple[Run, int]]
        ] = {}  # node -> job -> what failed, and with how many runs it was compared

    @property
    def waits(self) -> bool:
        """Whether time alone may bring news."""
        return bool(self._open)

    def node(self, name: str, group: str | None) -> None:
        """A node, and those that it is like; None: it is gone."""
        if group is None:
            self.groups.pop(name, None)
        else:
            self.groups[name] = group

    # -- what is observed ----------------------------------------------------------------------

    def observed(self, run: Run) -> None:
        """A member that has begun, or its end."""
        job = self._jobs.setdefault(run.job, _Job())
        self._fresh.add(run.job)
        if not run.outcome:
            if run.key not in job.over:
                job.running[run.key] = run
            return
        job.running.pop(run.key, None)
        if run.key not in job.over:
            job.over[run.key] = run
            if job.first(run):
                self._remember(run)
                if run.node in self._since and self._well(run, run.ended):
                    self._passed[run.node].add(run.job)
        if run.outcome == "Succeeded" and run.element >= 0 and run.element not in job.failed:
            for key in [each.key for each in job.runs(run.element)]:
                job.over.pop(key, None)  # an element is done with; of its job there may be a hundred thousand

    def _remember(self, run: Run) -> None:
        self._ended.append(run)
        same = self._kinds.pop(run.kind, None)
        self._kinds[run.kind] = same if same is not None else deque(maxlen=_OF_A_KIND)
        self._kinds[run.kind].append(run)
        if len(self._kinds) > _KINDS:
            del self._kinds[next(iter(self._kinds))]

    def gone(self, job: str, key: tuple[int, str, int, int], now: float) -> None:
        """A member was taken down, or its node."""
        known = self._jobs.get(job)
        run = known.running.get(key) if known is not None else None
        if run is not None:
            self.observed(msgspec.structs.replace(run, ended=now, outcome="Stopped"))

    def failed(self, job: str, element: int, attempt: int) -> None:
        """An attempt failed by itself."""
        known = self._jobs.setdefault(job, _Job())
        known.failed.setdefault(element, set()).add(attempt)
        self._fresh.add(job)
        if element not in known.void:
            self._open.add(job)

    def over(self, job: str, now: float) -> News:
        """A job has come to its end, or is gone: nothing is learnt of it any more."""
        news = News([], [])
        if job in self._open:
            self._settle(job, now, news)
        self._open.discard(job)
        known = self._jobs.get(job)
        if known is not None:
            for key in list(known.running):
                self.gone(job, key, now)
            del self._jobs[job]
        return news

    def forget(self, node: str) -> None:
        """What was on a node until now no longer counts for or against it."""
        self._incidents.pop(node, None)
        self._thin.pop(node, None)
        self._since.pop(node, None)
        self._passed.pop(node, None)
        for job in [self._jobs[name] for name in self._open]:
            for element in set(job.failed) - job.void:
                if any(each.node == node and each.attempt in job.failed[element] for each in job.runs(element)):
                    job.void.add(element)
            job.counted.pop(node, None)

    # -- what comes of it ----------------------------------------------------------------------

    def settle(self, now: float) -> News:
        """What has become known since the last time."""
        news = News([], [])
        for name in sorted(self._open):
            if name in self._fresh or self._jobs[name].running:
                self._settle(name, now, news)
        self._fresh.clear()
        return news

    def _settle(self, name: str, now: float, news: News) -> None:
        job = self._jobs[name]
        for element in sorted(set(job.failed) - job.void):
            culprits = [self._first(job, element, attempt) for attempt in sorted(job.failed[element])]
            known = [each for each in culprits if each is not None]
            if len(known) < len(culprits) or len({each.node for each in known}) != 1:
                self._void(name, job, element, news)  # it fails wherever it is, or it is not known where
                continue
            culprit = max(known, key=lambda each: (each.reached(now), each.started))
            enough = _LONGER * culprit.reached(now) + _MARGIN
            others = [each for each in job.runs(element) if each.attempt not in job.failed[element]]
            lasted = [each for each in others if each.outcome == "Succeeded" or each.reached(now) > enough]
            if any(each.node == culprit.node for each in lasted):
                self._void(name, job, element, news)  # it runs there as well
            elif culprit.node not in job.counted and any(self._vouches(each, culprit) for each in lasted):
                self._count(job, element, culprit, now, news)
        if set(job.failed) <= job.void:
            self._open.discard(name)

    def _first(self, job: _Job, element: int, attempt: int) -> Run | None:
        """The member that failed first in an attempt; None if that is not known, or its node cannot be compared."""
        failed = [
            each for each in job.over.values() if (each.element, each.attempt, each.outcome) == (element, attempt, "Failed")
        ]
        if not failed:
            return None
        began = min(int(each.ended) for each in failed)
        first = [each for each in failed if int(each.ended) == began]
        return first[0] if len({each.node for each in first}) == 1 and first[0].node in self.groups else None

    def _vouches(self, run: Run, culprit: Run) -> bool:
        """Whether a run shows that the job is not what failed."""
        same = (run.role, run.index) == (culprit.role, culprit.index)
        return same and run.node != culprit.node and self.groups.get(run.node) == self.groups[culprit.node]

    def _void(self, name: str, job: _Job, element: int, news: News) -> None:
        job.void.add(element)
        for node in [node for node, its in job.counted.items() if its == element]:
            del job.counted[node]
            self._thin.get(node, {}).pop(name, None)
            news.void.append((node, name))

    def _count(self, job: _Job, element: int, culprit: Run, now: float, news: News) -> None:
        job.counted[culprit.node] = element
        if abs(culprit.ended - self._incidents.get(culprit.node, 0.0)) < _SAME_INCIDENT:
            return  # what took several jobs with it at once is one failure of the node
        self._incidents[culprit.node] = culprit.ended
        share, compared = self._share(culprit, now)
        self._thin.setdefault(culprit.node, {})[culprit.job] = culprit, compared
        since, longest = self._since.get(culprit.node, (culprit.ended, 0.0))
        self._since[culprit.node] = since, max(longest, _LONGER * culprit.reached(now) + _MARGIN)
        self._passed.setdefault(culprit.node, set())
        failure = Failure(culprit.ended, culprit.job, culprit.user, RAN_ELSEWHERE, share, self.passed(culprit.node, now))
        news.counted.append((culprit.node, failure))

    # -- who ran well on a node -----------------------------------------------------------------

    def _well(self, run: Run, now: float) -> bool:
        """Whether a run on a node with failures shows that it does not fail: it lasted longer than those, or to its end."""
        since, longest = self._since[run.node]
        lasted = run.reached(now)
        return run.started + lasted > since and run.outcome != "Failed" and (run.outcome == "Succeeded" or lasted > longest)

    def passed(self, node: str, now: float) -> int:
        """How many jobs ran well on a node since the first failure that counts; 0 while there is none."""
        if node not in self._since:
            return 0
        for job in self._jobs.values():
            for run in job.running.values():
                if run.node == node and job.first(run) and self._well(run, now):
                    self._passed[node].add(run.job)
        return len(self._passed[node])

    # -- what is compared ----------------------------------------------------------------------

    def _latest(self, group: str, ended: deque[Run], comparable: Callable[[Run], bool]) -> list[Run]:
        """The latest runs on nodes of a group, those that go on first; those of one job on one node once."""
        size = sum(each == group for each in self.groups.values())
        under_way = [each for job in self._jobs.values() for each in job.running.values() if job.first(each)]
        under_way.sort(key=lambda each: (-each.started, each.job, each.key))
        latest: dict[tuple[str, str], Run] = {}
        for each in chain(under_way, reversed(ended)):
            if self.groups.get(each.node) == group and comparable(each):
                latest.setdefault((each.job, each.node), each)
                if len(latest) >= _PER_NODE * size:
                    break
        return list(latest.values())

    def _part(self, latest: list[Run], node: str) -> float:
        """The part of runs that a node had, from 0 to 1: as counted, or with one more on each node, whichever is more."""
        size = sum(each == self.groups.get(node) for each in self.groups.values())
        here = sum(each.node == node for each in latest)
        return max(here / max(1, len(latest)), (here + 1) / max(1, len(latest) + size))

    def _share(self, culprit: Run, now: float) -> tuple[float, int]:
        """The part of runs like one that failed which was on its node, rather too large than too small; and of how many."""
        node, lasted = culprit.node, culprit.reached(now)
        ended = self._kinds.get(culprit.kind) or deque()

        def comparable(run: Run) -> bool:
            return run.kind == culprit.kind and run.reached(now) >= lasted

        latest = self._latest(self.groups.get(node, ""), ended, comparable)
        if not any((each.job, each.node) == (culprit.job, node) for each in latest):
            latest.append(culprit)
        overall = self._part(latest, node)
        own = Counter(each.node == node for each in latest if each.user == culprit.user and each.job != culprit.job)
        theirs = (own[True] + _PRIOR * overall) / (own.total() + _PRIOR)
        return min(1.0, max(overall, theirs)), len(latest)

    def shares(self, node: str, now: float) -> dict[str, float]:
        """Job -> the part that a node had of runs like the one that failed, where that has become clearer since it counted."""
        found: dict[str, float] = {}
        for job, (culprit, known) in list(self._thin.get(node, {}).items()):
            share, compared = self._share(culprit, now)
            if compared > known:
                found[job] = share
                self._thin[node][job] = culprit, compared
        return found

    def share_now(self, node: str) -> float:
        """The part of the latest runs on nodes like one that was on it."""
        return self._part(self._latest(self.groups.get(node, ""), self._ended, lambda _: True), node)
