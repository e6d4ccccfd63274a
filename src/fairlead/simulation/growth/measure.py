"""A dimension of a cluster, and what one unit of work costs at several sizes of it: CPU time, and function calls.

Function calls do not depend on the machine: the same code makes the same calls, so a test can hold them to recorded numbers
(`tests/test_calls.py`). CPU time shows in addition what happens inside numpy and msgspec.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec


class Course(Protocol):
    """A world of one size, in which the same thing happens again and again."""

    def prepare(self, round_: int) -> None:
        """What comes before the work, and is not measured."""

    def run(self, round_: int) -> int:
        """The work; returns how many units of it were done."""


@runtime_checkable
class Closing(Protocol):
    """A course that holds something until it is closed."""

    def close(self) -> None:
        """It is over."""


class Dimension(NamedTuple):
    """What grows, and what is measured.

    unit: of work, in words. build: makes a world of a size. sizes: for `bench growth`; small: for the test that counts calls.
    most: exponent that the cost of a unit may have, 0 for none at all. rounds: how often the work is timed; counted: and counted.
    """

    name: str
    unit: str
    build: Callable[[int], Course]
    sizes: tuple[int, ...]
    small: tuple[int, ...]
    most: float = 0.3
    rounds: int = 7
    counted: int = 3


class Growth(msgspec.Struct, kw_only=True):
    """One dimension. cost: microseconds of CPU time of one unit (median), calls: function calls of one, at each size.

    exponent: log of the ratio of costs by log of the ratio of sizes, from the smallest to the largest; last: of the last step.
    calls_exponent: the same of calls. target: what the exponent is to be at most.
    """

    unit: str
    sizes: list[int]
    cost: list[float]
    exponent: float
    last: float
    calls: list[float]
    calls_exponent: float
    target: float


def measure(dimension: Dimension, sizes: Sequence[int], done: Callable[[], None] | None = None) -> Growth:
    """Cost and calls at each size. done: is called after each."""
    cost, calls = [], []
    for size in sizes:
        with _built(dimension, size) as course:
            calls.append(_counted(course, dimension.counted))
            cost.append(_timed(course, dimension.counted, dimension.rounds) * 1e6)
        if done is not None:
            done()
    return Growth(
        unit=dimension.unit,
        sizes=list(sizes),
        cost=[round(each, 2) for each in cost],
        exponent=round(exponent(sizes, cost), 2),
        last=round(exponent(sizes[-2:], cost[-2:]), 2),
        calls=[round(each, 1) for each in calls],
        calls_exponent=round(exponent(sizes, calls), 2),
        target=dimension.most,
    )


def count(dimension: Dimension, sizes: Sequence[int]) -> list[float]:
    """Function calls of one unit of work at each size."""
    found = []
    for size in sizes:
        with _built(dimension, size) as course:
            found.append(_counted(course, dimension.counted))
    return found


@contextmanager
def _built(dimension: Dimension, size: int) -> Iterator[Course]:
    course = dimension.build(size)
    try:
        yield course
    finally:
        if isinstance(course, Closing):
            course.close()


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """How cost grows with size, from the first to the last: 0 not at all, 1 in proportion. 0 for less than two sizes."""
    if len(sizes) < 2 or sizes[0] == sizes[-1] or min(costs[0], costs[-1]) <= 0:
        return 0.0
    return math.log(costs[-1] / costs[0]) / math.log(sizes[-1] / sizes[0])


def _timed(course: Course, first: int, rounds: int) -> float:
    """The median of seconds of CPU time per unit."""
    gc.collect()
    gc.freeze()  # as the scheduler does once everything has been observed
    times = []
    for round_ in range(first, first + rounds):
        course.prepare(round_)
        start = time.process_time()
        units = course.run(round_)
        times.append((time.process_time() - start) / max(1, units))
    gc.unfreeze()
    return sorted(times)[rounds // 2]


def _counted(course: Course, rounds: int) -> float:
    """Calls per unit, of Python functions and of built-in ones."""
    calls = units = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    for round_ in range(rounds):
        course.prepare(round_)
        gc.disable()  # finalizers would count where they happen to run
        sys.setprofile(note)
        try:
            done = course.run(round_)
        finally:
            sys.setprofile(None)
            gc.enable()
        units += max(1, done)
        calls -= 1  # that of `sys.setprofile`
    return calls / units
