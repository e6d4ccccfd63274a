"""Months of users with buggy jobs on nodes of which one is bad: whether it is found, and whether any other is blamed.

What decides is what decides in the operator (`operator/jobs/runs.py`, `evidence.py`), fed with runs as it would observe them;
what is played is the rest: users, jobs, crashes, restarts, places. Everything follows from the seed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

import msgspec

from fairlead.operator.jobs.evidence import Failure, Rules, compared, late
from fairlead.operator.jobs.runs import News, Run, Runs

_DAY = 86400.0
_GPUS = 8
_LIMIT = 3  # restarts of a job, as the default of AIJobs
_BACKOFF = 10.0  # seconds before the first restart; doubled for each after
_TICK = 60.0  # seconds
_GANG = 0.4  # of jobs
_MEDIAN, _SPREAD = 0.7, 1.2  # of the logarithm of the hours that a job runs
_QUIET_DAYS = 3.0  # after the last day, so that what began then comes to an end


class Month(msgspec.Struct, frozen=True, kw_only=True):
    """What is played. Shares from 0 to 1. jobs: a day.

    buggy: of jobs that fail everywhere, at every attempt; flaky: of jobs of which each attempt fails with a chance of one half,
    wherever it is; pinned: of jobs that run on one node only; bad: nodes that fail members; rate: with which chance they do.
    packed: jobs go to the fullest nodes instead of any; debug: all buggy and flaky jobs are pinned to the first two sound nodes.
    """

    nodes: int = 50
    days: float = 30.0
    users: int = 20
    jobs: float = 300.0
    buggy: float = 0.3
    flaky: float = 0.0
    pinned: float = 0.0
    bad: int = 1
    rate: float = 0.9
    packed: bool = False
    debug: bool = False


class Seed(msgspec.Struct):
    """One month. failures: of members of sound jobs that bad nodes failed, until these were found; of_all: of any job there."""

    seed: int
    found: int = 0
    failures: list[int] = []
    of_all: list[int] = []
    hours: list[float] = []
    falsely_blamed: int = 0
    blamed: list[str] = []
    jobs: int = 0


class Result(msgspec.Struct):
    """All months. found_by_fifth_failure: in how many every bad node was found before it failed a sixth member of sound jobs.

    falsely_blamed: how many times a sound node was quarantined, in all. failures_*, of_all_*, hours_*: of bad nodes, until they
    were found. missed: seeds in which one was found later, or not at all.
    """

    seeds: int
    month: Month
    jobs: int
    found: int
    found_by_fifth_failure: int
    falsely_blamed: int
    failures_median: float
    failures_most: int
    of_all_median: float
    of_all_most: int
    hours_median: float
    missed: list[int]


class _Job:
    def __init__(self, name: str, user: str, draw: random.Random, month: Month) -> None:
        self.name, self.user = name, user
        kind = draw.random()
        self.buggy, self.flaky = kind < month.buggy, month.buggy <= kind < month.buggy + month.flaky
        self.gang = draw.random() < _GANG
        self.members = draw.choice((2, 2, 4, 8)) if self.gang else 1
        self.gpus = draw.choice((1, 2, 4)) if self.gang else draw.choice((1, 1, 2, 4))
        self.hours = draw.lognormvariate(_MEDIAN, _SPREAD)
        self.crash = draw.lognormvariate(5.5, 1.0)  # seconds: the bug shows itself after about five minutes
        self.pinned = ""
        self.attempt = 0
        self.avoids: list[str] = []
        self.places: list[str] = []
        self.started = 0.0
        self.culprit = -1
        self.through_node = False


class _World:
    def __init__(self, seed: int, month: Month, rules: Rules) -> None:
        self.month, self.rules = month, rules
        self.draw = random.Random(seed)
        self.names = [f"n{number:03d}" for number in range(month.nodes)]
        self.bad = set(self.draw.sample(self.names, min(month.bad, month.nodes)))
        self.free = dict.fromkeys(self.names, _GPUS)
        self.runs = Runs()
        for name in self.names:
            self.runs.node(name, "alike")
        self.records: dict[str, list[Failure]] = {name: [] for name in self.names}
        self.until: dict[str, float] = {}  # node -> until when it is quarantined
        self.found = Seed(seed)
        self.seen: dict[str, list[int]] = {name: [0, 0] for name in self.bad}  # failures of sound jobs, of all
        self.known: set[str] = set()
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.waiting: dict[str, deque[_Job]] = {}  # node that they are pinned to -> jobs, in order
        self.number = 0
        self.now = 0.0
        self.checks = False

    def at(self, when: float, what: Callable[[], None]) -> None:
        self.number += 1
        heappush(self.agenda, (when, self.number, what))

    def play(self) -> Seed:
        month, draw = self.month, self.draw
        each = month.jobs / _DAY
        when, users = 0.0, [f"user-{number:02d}" for number in range(month.users)]
        while (when := when + draw.expovariate(each)) < month.days * _DAY:
            job = _Job(f"job-{self.found.jobs}", draw.choice(users), draw, month)
            self.found.jobs += 1
            if month.debug and (job.buggy or job.flaky):
                sound = [name for name in self.names if name not in self.bad]
                job.pinned, job.gang, job.members, job.gpus = draw.choice(sound[:2]), False, 1, 1
            elif draw.random() < month.pinned:
                job.pinned, job.gang, job.members = draw.choice(self.names), False, 1
            self.at(when, lambda job=job: self.arrive(job))  # type: ignore[misc]
        end = (month.days + _QUIET_DAYS) * _DAY
        while self.agenda and self.agenda[0][0] <= end:
            self.now, _, what = heappop(self.agenda)
            what()
        return self.found

    # -- jobs ----------------------------------------------------------------------------------

    def arrive(self, job: _Job) -> None:
        line = self.waiting.setdefault(job.pinned, deque())
        if line or not self.start(job):
            line.append(job)

    def start(self, job: _Job) -> bool:
        places = self.place(job)
        if not places:
            return False
        for name in places:
            self.free[name] -= job.gpus
        job.places, job.started = places, self.now
        for index in range(job.members):
            self.observe(job, index)
        lasts, job.culprit, job.through_node = self.fate(job)
        self.at(self.now + lasts, lambda: self.end(job))
        return True

    def place(self, job: _Job) -> list[str]:
        """Where its members go, not back to where one failed if it can be helped; nothing: they do not fit."""
        names = [job.pinned] if job.pinned else list(self.names)
        if job.gang:
            names = [name for name in names if self.until.get(name, 0.0) <= self.now]
        self.draw.shuffle(names)
        if self.month.packed:
            names.sort(key=lambda name: self.free[name])
        names.sort(key=lambda name: name in job.avoids)
        places: list[str] = []
        for name in names:
            fits = self.free[name] // job.gpus
            places += [name] * min(fits, job.members - len(places))
            if len(places) == job.members:
                return places
        return []

    def fate(self, job: _Job) -> tuple[float, int, bool]:
        """How long an attempt lasts, which member fails first (-1: none), and whether its node is the cause."""
        draw, lasts, culprit, node = self.draw, job.hours * 3600.0, -1, False
        if job.buggy:
            lasts, culprit = min(lasts, job.crash * draw.uniform(0.5, 1.5)), draw.randrange(job.members)
        elif job.flaky and draw.random() < 0.5:
            lasts, culprit = lasts * draw.random(), draw.randrange(job.members)
        for index, name in enumerate(job.places):
            if name in self.bad and draw.random() < self.month.rate:
                dies = draw.expovariate(1.0 / 600.0)
                if dies < lasts:
                    lasts, culprit, node = dies, index, True
        return lasts, culprit, node

    def end(self, job: _Job) -> None:
        for name in job.places:
            self.free[name] += job.gpus
        for index in range(job.members):
            outcome = "Succeeded" if job.culprit < 0 else "Failed" if index == job.culprit else "Stopped"
            self.observe(job, index, outcome)
        if job.culprit < 0:
            self.learn(self.runs.over(job.name, self.now))
        else:
            self.fail(job)
        for name in sorted({"", *job.places}):
            line = self.waiting.get(name, deque())
            while line and self.start(line[0]):
                line.popleft()

    def fail(self, job: _Job) -> None:
        node = job.places[job.culprit]
        if node in self.bad and node not in self.known:
            self.seen[node][1] += 1
            self.seen[node][0] += job.through_node and not job.buggy
        self.runs.failed(job.name, -1, job.attempt)
        job.attempt += 1
        if job.attempt > _LIMIT:
            self.learn(self.runs.over(job.name, self.now))
            return
        job.avoids.append(node)
        self.at(self.now + _BACKOFF * 2.0 ** (job.attempt - 1), lambda: self.arrive(job))
        if not self.checks:
            self.checks = True
            self.at(self.now + _TICK, self.check)

    def check(self) -> None:
        """As the operator does, while it is open what a failure means."""
        self.learn(self.runs.settle(self.now))
        self.checks = self.runs.waits
        if self.checks:
            self.at(self.now + _TICK, self.check)

    def observe(self, job: _Job, index: int, outcome: str = "") -> None:
        kind = f"gpu {job.pinned}"
        ended = self.now if outcome else 0.0
        member = (-1, "worker", index, job.attempt)
        self.runs.observed(Run(job.name, job.user, kind, *member, job.places[index], job.started, ended, outcome))

    # -- nodes ---------------------------------------------------------------------------------

    def learn(self, news: News) -> None:
        for node, job in news.void:
            self.records[node] = [each for each in self.records[node] if each.job != job]
        for node, failure in news.counted:
            self.records[node].append(failure)
            self.judge(node)

    def judge(self, node: str) -> None:
        blamed = {name for name, until in self.until.items() if until > self.now}
        if node in blamed or len(blamed) >= max(int(len(self.names) * self.rules.most), 1 if len(self.names) > 1 else 0):
            return
        clearer = self.runs.shares(node, self.now)
        mended = [msgspec.structs.replace(each, share=clearer.get(each.job, each.share)) for each in self.records[node]]
        self.records[node] = mended
        theirs = {name: late(each, self.now, self.rules) for name, each in self.records.items() if name not in blamed}
        share = self.runs.share_now(node)
        if not compared(node, theirs, share, self.runs.passed(node, self.now), len(self.names), self.now, self.rules).why:
            return
        self.until[node] = self.now + self.rules.quarantine
        self.at(self.until[node], lambda: self.release(node))
        self.found.blamed.append(node)
        if node not in self.bad:
            self.found.falsely_blamed += 1
        elif node not in self.known:
            self.known.add(node)
            self.found.found += 1
            self.found.failures.append(self.seen[node][0])
            self.found.of_all.append(self.seen[node][1])
            self.found.hours.append(round(self.now / 3600.0, 2))

    def release(self, node: str) -> None:
        self.records[node] = []
        self.runs.forget(node)


def run(seeds: Iterable[int], month: Month, report: Callable[[int, int], Any] | None = None) -> Result:
    """All seeds, one after the other."""
    chosen = list(seeds)
    found: list[Seed] = []
    for number, seed in enumerate(chosen):
        found.append(_World(seed, month, Rules()).play())
        if report is not None:
            report(number + 1, len(chosen))
    early = [all(each <= 5 for each in seed.failures) and seed.found == min(month.bad, month.nodes) for seed in found]
    return Result(
        len(found),
        month,
        sum(seed.jobs for seed in found),
        sum(seed.found for seed in found),
        sum(early),
        sum(seed.falsely_blamed for seed in found),
        *_spread([each for seed in found for each in seed.failures]),
        *_spread([each for seed in found for each in seed.of_all]),
        _spread([each for seed in found for each in seed.hours])[0],
        [seed.seed for seed, soon in zip(found, early, strict=True) if not soon],
    )


def _spread(values: list[Any]) -> tuple[float, Any]:
    ordered = sorted(values)
    return (float(ordered[len(ordered) // 2]), ordered[-1]) if ordered else (0.0, 0)
