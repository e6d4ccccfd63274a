"""A history of many jobs, written at once, and how long it takes to list them and to add up what they cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from fairlead.observability.history import Job, Run, State, Stay, Wanted
from fairlead.observability.ledger import ledger_with_days
from fairlead.observability.store import History

DAY = 86_400.0
NOW = 1_800_000_000.0
_DAYS = 400.0  # as long as an operator keeps ended jobs
_USERS, _QUEUES, _NAMESPACES, _NAMES = 200, 20, 20, 5000
_GPUS = 8  # of a node
_LASTED = 4 * 3600.0  # seconds, of a run
_STATES = (State.SUCCEEDED, State.SUCCEEDED, State.SUCCEEDED, State.FAILED, State.CANCELLED)
_AT_ONCE = 50_000  # jobs in a transaction
_REPEATS = 5


class HistoryBench(msgspec.Struct):
    """The result: the median of five times each, in seconds; jobs lie evenly in 400 days. list: the slowest of `lists`, which has
    every kind of list; those of a name, and of a user; cost: of 30 days, by queue.

    write_seconds: to write all; add_up_seconds: to add up all days, which the operator does as they end; size_mb: of the file.
    """

    jobs: int
    list_seconds: float
    cost_seconds: float
    by_name_seconds: float
    by_user_seconds: float
    write_seconds: float
    add_up_seconds: float
    size_mb: float
    lists: dict[str, float]


def write(history: History, jobs: int, days: float) -> None:
    """Jobs of one GPU, evenly in so many days, on as many nodes as hold them."""
    nodes = max(1, round(jobs * _LASTED / (days * DAY) / _GPUS * 1.25))
    begun = NOW - days * DAY
    history.write((), (), stays=[_stay(number, begun) for number in range(nodes)])
    for first in range(0, jobs, _AT_ONCE):
        some = range(first, min(jobs, first + _AT_ONCE))
        made = [job(number, begun + (number + 1) * days * DAY / jobs) for number in some]
        history.write(made, [run(each, number, number // _GPUS % nodes) for number, each in zip(some, made, strict=True)])


def job(number: int, submitted: float) -> Job:
    """A job that is over, or goes on."""
    ended = submitted + _LASTED
    return Job(
        uid=f"{number:08d}-6a5e-4e1c-9d0b-2f6f6b7f3a10",
        namespace=f"team-{number % _NAMESPACES}",
        kind="AIJob",
        name=f"train-{number % _NAMES}",
        queue=f"queue-{number % _QUEUES}",
        user=f"user-{number % _USERS}",
        state=_STATES[number % 5] if ended <= NOW else State.RUNNING,
        submitted_at=submitted,
        started_at=submitted,
        ended_at=ended if ended <= NOW else None,
    )


def run(of: Job, number: int, node: int) -> Run:
    """Its pod."""
    return Run(
        uid=f"{number:08d}-1b7c-4d2e-8f4a-77aa0c5d9e21",
        job=of.uid,
        namespace=of.namespace,
        name=f"{of.name}-worker-0-0",
        queue=of.queue,
        service_class=of.service_class,
        user=of.user,
        node=f"node-{node:05d}",
        gpus=1.0,
        cpus=8.0,
        started_at=of.submitted_at,
        ended_at=of.ended_at,
        used=0.5 * _LASTED,
        measured=_LASTED,
    )


def _stay(number: int, since: float) -> Stay:
    name = f"node-{number:05d}"
    return Stay(
        uid=name,
        node=name,
        node_uid=name,
        pool="h100",
        gpus=float(_GPUS),
        cpus=128.0,
        price=32_000_000 if number % 10 else 12_345_678,
        currency="USD",
        kind="Reserved",
        started_at=since,
    )


def lists() -> dict[str, Wanted]:
    """Every kind of list. Lists of few jobs among many cost most: no order leads to them."""
    month, first = NOW - 30 * DAY, NOW - _DAYS * DAY
    return {
        "all": Wanted(),
        "latest 20": Wanted(limit=20),
        "name": Wanted(name="train-7"),
        "namespace, name": Wanted(namespace="team-7", name="train-7"),
        "namespace": Wanted(namespace="team-1"),
        "user": Wanted(user="user-7"),
        "user, 30 days": Wanted(user="user-7", since=month),
        "user, namespace, first days": Wanted(user="user-7", namespace="team-7", until=first + 10 * DAY),
        "no job": Wanted(user="-"),
        "queue": Wanted(queue="queue-7"),
        "queue, none of the namespace": Wanted(namespace="team-1", queue="queue-2"),
        "queue, state": Wanted(queue="queue-7", states=["Failed", "Cancelled"]),
        "state": Wanted(states=["Failed"]),
        "running": Wanted(states=["Running"]),
        "running, namespace": Wanted(namespace="team-1", states=["Running"]),
        "no job of a state": Wanted(states=["Lost"]),
        "last hour": Wanted(since=NOW - 3600.0),
        "7 days": Wanted(since=NOW - 7 * DAY),
        "30 days": Wanted(since=month),
        "first day": Wanted(until=first + DAY),
        "first day, state": Wanted(since=first + DAY / 2, until=first + DAY, states=["Failed"]),
    }


def costs(history: History, since: float) -> object:
    """What was held and idle since then, by queue."""
    return ledger_with_days(*history.held_by_days(since, NOW), since, NOW, lambda each: each.queue, NOW)


def measure(jobs: int = 1_000_000) -> HistoryBench:
    """Write a history, and ask it."""
    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        file = Path(folder) / "history.db"
        history = History(f"sqlite:///{file}")
        begun = time.perf_counter()
        write(history, jobs, _DAYS)
        written = time.perf_counter() - begun
        while history.add_up(NOW - _DAYS * DAY, NOW):
            pass
        added_up = time.perf_counter() - begun - written
        took = {name: _median(partial(history.jobs, wanted, NOW)) for name, wanted in lists().items()}
        cost = _median(partial(costs, history, NOW - 30 * DAY))
        history.close()
        return HistoryBench(
            jobs=jobs,
            list_seconds=max(took.values()),
            cost_seconds=cost,
            by_name_seconds=took["name"],
            by_user_seconds=took["user"],
            write_seconds=round(written, 2),
            add_up_seconds=round(added_up, 2),
            size_mb=round(file.stat().st_size / 1e6, 1),
            lists=took,
        )


def _median(ask: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        ask()
        times.append(time.perf_counter() - begun)
    return round(sorted(times)[_REPEATS // 2], 4)
