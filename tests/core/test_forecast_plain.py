"""Forecasts are what a plain replay of the same rules gives, which looks at every line and every row each time."""

import random

import msgspec
import numpy as np
import pytest

from fairlead.core import forecast
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.capacity import Capacity
from fairlead.core.pods.tasks import TaskState
from tests.builders import cluster, group, node, pod, queue, run

MOST = 10_000


class PlainCapacity(Capacity):
    """Counts all rows anew each time."""

    counted = 0

    def count(self, rankings):
        self._rankings = list(rankings)
        self.demands = [self.demand_of(ranking.shape) for ranking in rankings]

    def keep(self, shapes):
        raise AssertionError("nothing is left out")

    def _on(self, number, row, gone=()):
        ranking = self._rankings[number]
        if not ranking.admitted(slice(row, row + 1))[0] or not self._nodes.open[row]:
            return 0
        free = [line.item(row) for line in self._free]
        for demand in gone:
            for column, amount in demand:
                free[column] += amount
        return min((max(0, free[column]) // amount for column, amount in self.demands[number]), default=1 << 40)

    @property
    def total(self):
        return self.total_with({})

    @total.setter
    def total(self, _):
        pass

    def total_with(self, gone):
        numbers, rows = range(len(self._rankings)), range(self._rows)
        return np.array([sum(self._on(number, row, gone.get(row, ())) for row in rows) for number in numbers], np.int64)

    def change(self, row, demand, sign):
        for column, amount in demand:
            self._free[column, row] += sign * amount

    def place(self, needs):
        before, places = self._free.copy(), []
        for number, needed in needs:
            demand = self.demands[number]
            if needed == 1:
                rows = sorted((row for row in range(self._rows) if self._on(number, row)), key=lambda row: self._on(number, row))
            else:
                rows = sorted(range(self._rows), key=lambda row: -self._on(number, row))
            chosen = [row for row in rows for _ in range(self._on(number, row))][:needed]
            if len(chosen) < needed:
                self._free[:] = before
                return None
            for row in chosen:
                places.append((row, demand))
                self.change(row, demand, -1)
        return places


class PlainLines:
    """Looks at all lines."""

    counted = 0

    def __init__(self, lines):
        self.lines = list(lines)
        for line in lines:
            line.ranks.extend(line.queue.unit_key(unit) for unit in line.units)

    @property
    def waiting(self):
        return len(self.waiting_lines())

    def waiting_lines(self):
        return [line for line in self.lines if line.units]

    def worn(self):
        return False

    def line(self, number):
        return self.lines[number]

    def fitting(self, capacity, without=()):
        fits = (
            number
            for number, line in enumerate(self.lines)
            if line.units and number not in without and all(capacity[shape] >= count for shape, count in line.needs)
        )
        return np.array(list(fits), np.int64)

    def next(self, fitting, share, limited):
        lines = [(number, self.lines[number]) for number in fitting.tolist()]
        may = [((share(line.queue), line.ranks[0]), number) for number, line in lines if not limited(line)]
        return min(may)[1] if may else None

    def start(self, line):
        line.units.popleft()
        line.ranks.popleft()


def world(rnd):
    names = ["a", "b", "c", "d"][: rnd.randint(1, 4)]
    parents = ["", "top"] if rnd.random() < 0.5 else [""]
    queues = [queue("top", quota=8)] if "top" in parents else []
    for name in names:
        quota, limit = rnd.choice([None, 0, 4, 8]), rnd.choice([None, None, 2, 9])
        made = queue(name, quota=quota, limit=limit, priority=0, parent=rnd.choice(parents))
        queues.append(made)
    nodes = [
        node(f"n{number}", gpus=rnd.choice([0, 4, 8]), cpu=rnd.choice([8000, 64_000])) for number in range(rnd.randint(1, 5))
    ]
    state = cluster(nodes, queues, reservations=rnd.choice([0, 2]), moves_per_minute=0)
    levels = ServiceClass("sliced", levels=(600.0, 3600.0), checkpoint_interval=300.0, max_loss=60.0, mode="Suspend")
    for each in (levels, ServiceClass("never", mode="Never"), ServiceClass("wide", scope="Cluster", levels=(100.0,))):
        state.upsert_class(each)
    for number in range(rnd.randint(5, 60)):
        more = {
            "queue": rnd.choice(names),
            "gpus": rnd.choice([0, 1, 1, 2, 4, 8]),
            "cpu": rnd.choice([1000, 1000, 2000, 9000]),
            "created": float(rnd.randint(0, 50)),
            "priority": rnd.choice([0, 0, 0, 5]),
            "user": rnd.choice(["ann", "ben"]),
            "service_class": rnd.choice(["", "", "sliced", "never", "wide"]),
            "expected": rnd.choice([0.0, 60.0, 600.0]),
        }
        if more["gpus"] == 1 and rnd.random() < 0.2:
            more["milli"] = 500
        if rnd.random() < 0.2:
            members = rnd.randint(2, 4)
            state.upsert_group(group(f"g{number}", members, more["queue"]))
            for member in range(members):
                state.upsert_pod(pod(f"g{number}-{member}", group=f"g{number}", **more | {"gpus": rnd.choice([1, 2])}))
        else:
            state.upsert_pod(pod(f"p{number}", **more))
        if rnd.random() < 0.2:
            run_all(state, rnd, 100.0 + number)
    run_all(state, rnd, 200.0)
    return state


def run_all(state, rnd, now):
    for _ in range(2):
        run(state, now)
        for task in list(state.tasks.values()):
            if task.state is TaskState.EVICTING:
                state.remove_pod(task.pod.uid)
            elif task.state is TaskState.ASSUMED and rnd.random() < 0.9:
                bound = msgspec.structs.replace(task.pod, node=state.nodes.names[task.row], started=now)
                state.upsert_pod(bound)


@pytest.mark.parametrize("seed", range(60))
def test_a_forecast_is_what_a_plain_replay_gives(seed, monkeypatch):
    state = world(random.Random(f"forecast {seed}"))
    for now in (200.0, 500.0):
        found = forecast.forecast(state, now, MOST)
        with monkeypatch.context() as plainly:
            plainly.setattr(forecast, "Capacity", PlainCapacity)
            plainly.setattr(forecast, "Lines", PlainLines)
            assert forecast.forecast(state, now, MOST) == found


def test_some_of_the_worlds_have_forecasts_that_differ_by_job():
    starts = [set(forecast.forecast(world(random.Random(f"forecast {seed}")), 200.0).values()) for seed in range(10)]
    assert sum(len(each) > 2 for each in starts) >= 5


def test_a_forecast_ends_once_it_has_compared_so_much(monkeypatch):
    state = world(random.Random("forecast 3"))
    whole = forecast.forecast(state, 200.0)
    monkeypatch.setattr(forecast, "_MOST_COUNTED", 0)
    assert len(forecast.forecast(state, 200.0)) < len(whole)
