"""What a replay of jobs measured, from what became of each: waits, utilization, queues, finish-time fairness."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from fairlead.simulation.charges import Run
from fairlead.simulation.foretold import ExpectedStarts, expected_starts
from fairlead.simulation.traces import TraceJob

_DAY = 86_400.0
_TOUCHES = 1e-6
_WORST = 10


class Spread(msgspec.Struct):
    """Mean, median and 99th percentile (the value at index floor(0.99 n)) and the longest, in seconds."""

    mean: float
    p50: float
    p99: float
    max: float


class Rho(msgspec.Struct):
    """Finish-time fairness: time in the system / run time with an equal part of the GPUs. above_one: part of the jobs."""

    worst: float
    mean: float
    p99: float
    above_one: float


class JobResult(msgspec.Struct):
    """One job, by its finish-time fairness; times in seconds, submitted and started since the first submission."""

    job: str
    queue: str
    gpus: int
    duration_seconds: float
    submitted: float
    started: float
    wait_seconds: float
    suspensions: int
    rho: float


class QueueResult(msgspec.Struct):
    """One queue. quota_gpus: its part of the pool, None without `--queues`; gpu_hours: of work, done by the end.

    held: the part of all GPU time that it held in the window; due: what it should have held, where that is known.
    """

    name: str
    quota_gpus: float | None
    held: float
    due: float | None
    jobs: int
    gpu_hours: float
    suspensions: int
    wait_seconds: Spread
    rho: Rho


class JobsResult(msgspec.Struct):
    """What a replay measured.

    wait: completion - submission - run time, so that waits after a suspension count, too. utilization: useful GPU time / GPU
    time, over `window_days` from the first submission; without a window to the last completion.
    lost_gpu_hours: work done twice and pauses, the price of suspensions. share_error_points: the largest difference between what
    a queue held and its deserved share, in hundredths of all GPU time of the window; None where no share is known.
    worst_jobs: the ten jobs with the worst finish-time fairness, the worst first.
    comparisons: the same of other policies on the same jobs.
    """

    policy: str
    durations: str
    gpus: int
    jobs: int
    wait_seconds: Spread
    jct_seconds: Spread
    utilization: float
    window_days: float
    makespan_seconds: float
    never_started: int
    suspensions: int
    lost_gpu_hours: float
    share_error_points: float | None
    rho: Rho
    worst_jobs: list[JobResult]
    queues: list[QueueResult]
    expected_starts: list[ExpectedStarts]
    comparisons: list[JobsResult] = []


def summarize(
    jobs: Sequence[TraceJob],
    runs: Sequence[Run],
    *,
    policy: str,
    durations: str,
    gpus: int,
    window_days: float = 0.0,
    quotas: Mapping[str, float] | None = None,
    deserved: Mapping[str, float] | None = None,
) -> JobsResult:
    """The figures of a replay. runs: in the order of jobs; quotas: queue -> GPUs; deserved: queue -> its part of all GPU time."""
    done = [index for index, run in enumerate(runs) if run.finished >= 0]
    makespan = max((runs[index].finished for index in done), default=0.0)
    until = window_days * _DAY or makespan
    fairness = rhos(jobs, runs, gpus)
    by_queue: dict[str, list[int]] = {name: [] for name in quotas or ()}
    for index in done:
        by_queue.setdefault(jobs[index].queue, []).append(index)

    held = dict.fromkeys(by_queue, 0.0)
    for job, run in zip(jobs, runs, strict=True):
        held[job.queue] = held.get(job.queue, 0.0) + run.held_before(until) * job.gpus / (gpus * until or 1.0)

    def waits(indices: Sequence[int]) -> Spread:
        return spread([runs[index].finished - jobs[index].submitted - jobs[index].duration for index in indices])

    return JobsResult(
        policy=policy,
        durations=durations,
        gpus=gpus,
        jobs=len(jobs),
        wait_seconds=waits(done),
        jct_seconds=spread([runs[index].finished - jobs[index].submitted for index in done]),
        utilization=sum(run.useful(until) for run in runs) / (gpus * until) if until else 0.0,
        window_days=until / _DAY,
        makespan_seconds=makespan,
        never_started=sum(run.started < 0 for run in runs),
        suspensions=sum(run.suspensions for run in runs),
        lost_gpu_hours=sum((runs[index].held - jobs[index].duration) * jobs[index].gpus for index in done) / 3600,
        share_error_points=max(abs(held.get(name, 0.0) - due) * 100 for name, due in deserved.items()) if deserved else None,
        rho=_rho([fairness[index] for index in done if index in fairness]),
        worst_jobs=_worst(jobs, runs, fairness),
        queues=[
            QueueResult(
                name,
                (quotas or {}).get(name),
                held[name],
                (deserved or {}).get(name),
                len(indices),
                sum(jobs[index].duration * jobs[index].gpus for index in indices) / 3600,
                sum(runs[index].suspensions for index in indices),
                waits(indices),
                _rho([fairness[index] for index in indices if index in fairness]),
            )
            for name, indices in sorted(by_queue.items())
        ],
        expected_starts=expected_starts(jobs, runs),
    )


def rhos(jobs: Sequence[TraceJob], runs: Sequence[Run], gpus: int) -> dict[int, float]:
    """Finish-time fairness of each job that has ended and runs for some time, by index.

    Alone, a job would have an equal part of the GPUs: all of them / the mean number of jobs in the system while it was
    there. Where that is less than it asks for, its run time is stretched in proportion (Mahajan et al., Themis, NSDI 2020).
    """
    changes = sorted(
        change
        for job, run in zip(jobs, runs, strict=True)
        if run.finished >= 0
        for change in ((job.submitted, 1), (run.finished, -1))
    )
    times, areas, area, present, last = [], [], 0.0, 0, 0.0
    for at, by in changes:
        area += present * (at - last)
        last = at
        present += by
        times.append(at)
        areas.append((area, present))

    def until(at: float) -> float:
        place = bisect_right(times, at) - 1
        if place < 0:
            return 0.0
        before, there = areas[place]
        return before + there * (at - times[place])

    found = {}
    for index, (job, run) in enumerate(zip(jobs, runs, strict=True)):
        there = run.finished - job.submitted
        if run.finished < 0 or job.duration <= 0 or there <= 0:
            continue
        competing = (until(run.finished) - until(job.submitted)) / there
        found[index] = there / (job.duration * max(1.0, job.gpus * competing / gpus))
    return found


def _worst(jobs: Sequence[TraceJob], runs: Sequence[Run], fairness: Mapping[int, float]) -> list[JobResult]:
    return [
        JobResult(
            job.name,
            job.queue,
            job.gpus,
            job.duration,
            job.submitted,
            run.started,
            run.finished - job.submitted - job.duration,
            run.suspensions,
            fairness[index],
        )
        for index in sorted(fairness, key=lambda index: (-fairness[index], index))[:_WORST]
        for job, run in ((jobs[index], runs[index]),)
    ]


def _rho(values: list[float]) -> Rho:
    ordered = sorted(values)
    if not ordered:
        return Rho(0.0, 0.0, 0.0, 0.0)
    above = sum(value > 1 + _TOUCHES for value in ordered) / len(ordered)
    return Rho(ordered[-1], sum(ordered) / len(ordered), ordered[int(0.99 * len(ordered))], above)


def spread(values: list[float]) -> Spread:
    """A list of times in four numbers."""
    ordered = sorted(values)
    if not ordered:
        return Spread(0.0, 0.0, 0.0, 0.0)
    return Spread(sum(ordered) / len(ordered), ordered[len(ordered) // 2], ordered[int(0.99 * len(ordered))], ordered[-1])
