"""The floors protocol: gangs of whole nodes arrive, wait in one line, and start whenever enough nodes are free anywhere.

Poisson arrivals of rate 1; exponential run times whose mean gives the offered load; seven sizes. The first quarter of the
arrivals is not counted. When gangs start does not depend on the rule, so that all rules place the same gangs at the same moments.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from fairlead.simulation.topology.fabric import Fabric
from fairlead.simulation.topology.rules import Moment, Places, Rule

ARRIVALS = 12_000
SIZES = {1: 0.45, 2: 0.2, 4: 0.15, 8: 0.1, 16: 0.06, 32: 0.03, 64: 0.01}
LEAF = 8
"""Nodes of a full leaf: a gang of n nodes needs ceil(n / 8) of them."""


@dataclass
class Run:
    """Of the gangs that are counted: leaves over the ideal, leaves by size, waiting times.

    intervals: of all gangs the size, start, end, and whether it is counted; arrivals: when these came, in the same order.
    """

    over_ideal: list[float] = field(default_factory=list)
    by_size: dict[int, list[int]] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    intervals: list[tuple[int, float, float, bool]] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean of leaves over the ideal."""
        return fmean(self.over_ideal)


@dataclass
class _World:
    fabric: Fabric
    rule: Rule
    random: Random
    life: float
    free: list[int]
    run: Run = field(default_factory=Run)
    running: list[tuple[float, int, Places]] = field(default_factory=list)
    ends: list[list[tuple[float, int]]] = field(default_factory=list)
    counted: bool = False

    def start(self, now: float, nodes: int, arrived: float) -> None:
        """A gang gets places; the rule decides first, then the run time is drawn. One that is to know it draws from a copy."""
        ahead = Random()
        ahead.setstate(self.random.getstate())
        end = now + ahead.expovariate(1 / self.life)
        places = self.rule(self.fabric, Moment(self.free, nodes, self.random, now, end, self.life, self.ends))
        if sum(places.values()) != nodes or any(not 0 < some <= self.free[leaf] for leaf, some in places.items()):
            raise ValueError(f"{places} are no {nodes} free nodes")
        end = now + self.random.expovariate(1 / self.life)
        for leaf, some in places.items():
            self.free[leaf] -= some
            self.ends[leaf].append((end, some))
        heapq.heappush(self.running, (end, len(self.run.intervals), places))
        self.run.intervals.append((nodes, now, end, self.counted))
        self.run.arrivals.append(arrived)
        if self.counted:
            self.run.over_ideal.append(len(places) / math.ceil(nodes / LEAF))
            self.run.by_size.setdefault(nodes, []).append(len(places))
            self.run.waits.append(now - arrived)

    def end(self) -> float:
        """The next gang ends; when."""
        now, _, places = heapq.heappop(self.running)
        for leaf, some in places.items():
            self.free[leaf] += some
            self.ends[leaf].remove((now, some))
        return now


def run(
    fabric: Fabric, rule: Rule, seed: int, load: float, arrivals: int = ARRIVALS, progress: Callable[[], None] | None = None
) -> Run:
    """All arrivals of one seed under one rule."""
    random = Random(seed)
    mean = sum(size * part for size, part in SIZES.items())
    world = _World(fabric, rule, random, fabric.hosts * load / mean, list(fabric.sizes), ends=[[] for _ in fabric.sizes])
    now, waiting, total = 0.0, deque[tuple[int, float]](), fabric.hosts
    for arrival in range(arrivals):
        world.counted = arrival > arrivals // 4
        now += random.expovariate(1.0)
        while world.running and world.running[0][0] <= now:
            ended = world.end()
            total = sum(world.free)
            while waiting and total >= waiting[0][0]:
                nodes, arrived = waiting.popleft()
                world.start(ended, nodes, arrived)
                total -= nodes
        nodes = random.choices(list(SIZES), list(SIZES.values()))[0]
        if not waiting and total >= nodes:
            world.start(now, nodes, now)
            total -= nodes
        else:
            waiting.append((nodes, now))
        if progress is not None and arrival % 1000 == 0:
            progress()
    return world.run
