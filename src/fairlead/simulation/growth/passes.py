"""What a pass costs that takes from many, or that plans ahead: time slicing, large gangs, suspended jobs, forecasts."""

from __future__ import annotations

import random

from fairlead.core.forecast import forecast
from fairlead.core.model.groups import Group, Member, Target
from fairlead.core.model.pods import Pod
from fairlead.core.model.service_classes import ServiceClass
from fairlead.simulation.growth.cluster import LATE, empty, full, pod
from fairlead.simulation.machines import GPUS_PER_NODE, queue

_LEVELS = (900.0, 3600.0, 14400.0, 57600.0, 230400.0)
_MOST_ENDS = 20_000  # as the scheduler's own forecasts
_DAY = 90_000.0


class Ticks:
    """A minute passes on a cluster whose jobs share devices by attained service; the unit is a time slice that ends.

    With twice as many running jobs, twice as many reach a checkpoint in a minute.
    """

    def __init__(self, running: int) -> None:
        draw = random.Random(1)
        queues = [f"q{number}" for number in range(10)]
        self._cluster = empty(running // GPUS_PER_NODE, [queue(name, running // 10) for name in queues])
        self._cluster.upsert(
            ServiceClass("shared", levels=_LEVELS, checkpoint_interval=1800.0, max_loss=60.0, express=1, mode="Suspend")
        )

        def job(name: str, number: int, age: float, shape: int = 0, node: str = "") -> Pod:
            created = 1e6 - draw.random() * age
            return pod(
                name,
                queue=queues[number % 10],
                shape=shape,
                node=node,
                created=created,
                started=created if node else None,
                service_class="shared",
                user=f"user-{number % 40}",
            )

        self._cluster.upsert(*[job(f"run-{number}", number, _DAY, node=_node(number)) for number in range(running)])
        self._cluster.upsert(*[job(f"wait-{number}", number, _DAY / 10, number % 5) for number in range(running // 2)])
        self._cluster.decide()

    def prepare(self, round_: int) -> None:
        """A minute passes."""
        self._cluster.now += 60

    def run(self, round_: int) -> int:
        """The pass."""
        before = self._cluster.loop.counters.preempted
        self._cluster.decide()
        return max(1, self._cluster.loop.counters.preempted - before)


def _node(number: int) -> str:
    return f"node-{number // GPUS_PER_NODE:06d}"


class Hero:
    """A gang of 8-GPU pods takes half of a cluster; the unit is a victim. A round_ needs a cluster of its own."""

    def __init__(self, running: int) -> None:
        self._nodes = running // GPUS_PER_NODE

    def prepare(self, round_: int) -> None:
        """One queue holds everything, and the gang of another waits that deserves half."""
        half = self._nodes * GPUS_PER_NODE // 2
        self._cluster = full(self._nodes, [queue("guest", half), queue("owner", half)], fill=["guest"])
        self._cluster.upsert(Group("bench", "hero", min_member=self._nodes // 2, created=LATE))
        self._cluster.upsert(
            *[
                pod(f"hero-{member}", gpus=GPUS_PER_NODE, queue="owner", group="hero", created=LATE)
                for member in range(self._nodes // 2)
            ]
        )

    def run(self, round_: int) -> int:
        """The pass that evicts for it."""
        before = self._cluster.loop.counters.preempted
        self._cluster.decide()
        return max(1, self._evicted() - before)

    def _evicted(self) -> int:
        return self._cluster.loop.counters.preempted


class Suspended:
    """The first pass with so many suspended jobs; the unit is a job. A round_ needs a cluster of its own."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def prepare(self, round_: int) -> None:
        """The cluster is full, and the suspended jobs are known."""
        self._cluster = full(200, [queue("q")])
        for number in range(self._jobs):
            member = Member(2, pod(f"member-{number}", group=f"job-{number}", created=LATE, owner=f"own-{number}"))
            target = Target("Suspended", 1, (f"own-{number}",), (member,))
            self._cluster.upsert(Group("bench", f"job-{number}", min_member=2, created=LATE, target=target))

    def run(self, round_: int) -> int:
        """The pass."""
        self._cluster.decide()
        return self._jobs


class Forecasts:
    """A forecast over so many classes that wait on a full cluster; the unit is a class."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._cluster = full(500, [queue("q")])
        self._cluster.upsert(*[pod(f"wait-{number}", shape=number, created=LATE + number) for number in range(classes)])
        self._cluster.decide()

    def prepare(self, round_: int) -> None:
        """Nothing."""

    def run(self, round_: int) -> int:
        """The forecast."""
        forecast(self._cluster.state, self._cluster.now, _MOST_ENDS)
        return self._classes
