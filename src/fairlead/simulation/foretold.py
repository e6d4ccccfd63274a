"""Foretold starts: when jobs of a replay were first expected to start, when they did, and how far the two are apart, by size.

The starts of several replays are judged together, as of one: a month has too few large jobs to judge theirs by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from fairlead.simulation.charges import Run
from fairlead.simulation.traces import TraceJob

_SIZES = (("1 GPU", 1), ("2 to 8 GPUs", 8), ("more than 8 GPUs", math.inf))
_LONG = 600.0


class ForetoldError(Exception):
    """A file of foretold starts cannot be read."""


class Start(msgspec.Struct, frozen=True):
    """The first start of one job. Times: seconds on the clock of its replay.

    expected: when it was first expected to start, -1: not known; earliest, latest: the interval that should hold 80 % of starts.
    """

    job: str
    gpus: int
    submitted: float
    started: float
    expected: float
    earliest: float
    latest: float


class ExpectedStarts(msgspec.Struct):
    """How well starts were foretold, of jobs that then waited over ten minutes for their first start.

    service_class: of how many devices its jobs are, or `all`. blank: jobs for which nothing was foretold. median_error:
    absolute, as a part of the wait; within_half: part of the jobs whose error is at most half of their wait. coverage: part
    of the starts that lie in their intervals (10th to 90th percentile), early and late: before and after them; median_width: of
    the intervals, and median_wait: of the jobs, in seconds.
    """

    service_class: str
    jobs: int
    blank: int
    median_error: float
    within_half: float
    coverage: float
    early: float
    late: float
    median_width: float
    median_wait: float


def starts_of(jobs: Sequence[TraceJob], runs: Sequence[Run]) -> list[Start]:
    """The starts of a replay that were asked about. runs: in the order of jobs."""
    return [
        Start(job.name, job.gpus, job.submitted, run.started, run.expected, run.earliest, run.latest)
        for job, run in zip(jobs, runs, strict=True)
        if run.asked and run.started >= 0
    ]


def judge(starts: Iterable[Start]) -> list[ExpectedStarts]:
    """How well starts were foretold: of all jobs, then by size."""
    waited = [each for each in starts if each.started - each.submitted > _LONG]
    found, least = [_judged("all", waited)], 0.0
    for name, most in _SIZES:
        found.append(_judged(name, [each for each in waited if least < each.gpus <= most]))
        least = most
    return found


def expected_starts(jobs: Sequence[TraceJob], runs: Sequence[Run]) -> list[ExpectedStarts]:
    """The same of one replay; empty if there were no forecasts."""
    return judge(starts_of(jobs, runs)) if any(run.asked for run in runs) else []


def write(starts: Iterable[Start], path: Path) -> None:
    """As JSON Lines. Raises `OSError`."""
    path.write_bytes(msgspec.json.Encoder().encode_lines(list(starts)))


def read(path: Path) -> list[Start]:
    """What `write` wrote. Raises `ForetoldError`."""
    try:
        return msgspec.json.Decoder(Start).decode_lines(path.read_bytes())
    except OSError as error:
        raise ForetoldError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ForetoldError(f"{path}: no starts as `simulate jobs --starts` writes them: {error}") from error


def _judged(name: str, asked: Sequence[Start]) -> ExpectedStarts:
    predicted = [each for each in asked if each.expected >= 0]
    errors = sorted(abs(each.expected - each.started) / (each.started - each.submitted) for each in predicted)
    within = sum(error <= 0.5 for error in errors) / len(errors) if errors else 1.0
    early = sum(each.started < each.earliest for each in predicted) / len(predicted) if predicted else 0.0
    late = sum(each.started > each.latest for each in predicted) / len(predicted) if predicted else 0.0
    return ExpectedStarts(
        name,
        len(asked),
        len(asked) - len(predicted),
        _median(errors),
        within,
        1.0 - early - late,
        early,
        late,
        _median([each.latest - each.earliest for each in predicted]),
        _median([each.started - each.submitted for each in asked]),
    )


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0
