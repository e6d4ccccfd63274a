"""A stream of jobs by kinds: each kind presses on memory bandwidth, PCIe, network and disks in its own way.

Users send sweeps: several jobs of one kind at once, differing in a number. A job holds its GPUs for its time, whatever slows it
down, so that two schedulers have the same jobs at the same times. Some are services of a class that isolates nodes.
"""

from __future__ import annotations

import random
from string import ascii_lowercase

import msgspec

from fairlead.api.pressure import KINDS

GPUS = 8
_KINDS = 24  # of jobs
_SIZES = ((1, 0.70), (2, 0.20), (4, 0.08), (8, 0.02))
_SWEEP = 12  # most jobs of a sweep
_SERVICES = 0.04  # of the sweeps
_SHORTEST, _MEAN = 600.0, 7200.0  # seconds
_MAIN = (0.4, 0.6)  # of a node's capacity, for each GPU of a job: what a kind presses on most
_OTHER = 0.03


class Job(msgspec.Struct, frozen=True):
    """One job of one pod. pressure: thousandths of a node's capacity by kind; service: it shares no node with others' GPUs."""

    name: str
    user: str
    gpus: int
    pressure: tuple[int, ...]
    arrives: float
    lasts: float
    service: bool


class _Kind(msgspec.Struct, frozen=True):
    name: str
    user: str
    each: tuple[float, ...]


def jobs(seed: int, count: int, *, gpus: int, load: float) -> list[Job]:
    """So many jobs, in the order in which they arrive, which ask for `load` of so many GPUs in the mean."""
    rnd = random.Random(seed)
    kinds = [_kind(rnd, number) for number in range(_KINDS)]
    found: list[Job] = []
    now = 0.0
    mean_sweep, mean_gpus = (1 + _SWEEP) / 2, sum(size * share for size, share in _SIZES)
    rate = load * gpus / (mean_sweep * mean_gpus * (_SHORTEST + _MEAN))
    while len(found) < count:
        now += rnd.expovariate(rate)
        kind, service = rnd.choice(kinds), rnd.random() < _SERVICES
        size = rnd.choices([size for size, _ in _SIZES], [share for _, share in _SIZES])[0]
        pressure = tuple(min(1000, round(1000 * size * share)) for share in kind.each)
        for _ in range(min(rnd.randint(1, _SWEEP), count - len(found))):
            name = f"{kind.name}-{len(found)}"
            found.append(Job(name, kind.user, size, pressure, now, _SHORTEST + rnd.expovariate(1 / _MEAN), service))
    return found


def _kind(rnd: random.Random, number: int) -> _Kind:
    main = number % len(KINDS)
    each = tuple(rnd.uniform(*_MAIN) if kind == main else rnd.uniform(0, _OTHER) for kind in range(len(KINDS)))
    first, second = divmod(number, len(ascii_lowercase))
    return _Kind(f"train-{ascii_lowercase[first]}{ascii_lowercase[second]}", f"user-{number % 7}", each)
