"""Intervals of expected starts, from how far forecasts were off before."""

import math
import random

import msgspec
import pytest

from fairlead.core.model.queues import Queue
from fairlead.core.state.foretold import HIGH, LONG, LOW, Expected, Foretold, _distribution, _Error, _Line
from tests.builders import cluster, group, node, pod, queue, run

HOUR = 3600.0


class Line:
    """Jobs that come one after the other, wait side by side on a full node, and start on demand."""

    def __init__(self, gpus=1, now=1e6):
        self.state = cluster([node("n")], [queue("q")], [pod("all", queue="q", gpus=8, at="n", started=0.0)])
        self.gpus, self.now, self.count = gpus, now, 0
        run(self.state, now)

    def come(self, foretold):
        """A job comes and is foretold to start in so many seconds; returns its key and its interval, from its creation."""
        self.count += 1
        name = f"w{self.count}"
        if self.gpus > 8:
            self.state.upsert_group(group(name, 2, "q"))
            for member, size in enumerate((8, self.gpus - 8)):
                self.state.upsert_pod(pod(f"{name}-{member}", queue="q", gpus=size, group=name, created=self.now))
            key = f"ns/{name}"
        else:
            self.state.upsert_pod(pod(name, queue="q", gpus=self.gpus, created=self.now))
            key = f"uid-{name}"
        run(self.state, self.now)
        told = self.state.foretold.intervals(self.state, {key: self.now + foretold}, self.now)[key]
        return key, Expected(*(each - self.now for each in told))

    def starts(self, key, waited):
        """It starts after so many seconds; its pods go, and the clock with it."""
        self.state.foretold.started(key, self.now + waited)
        for uid in [task.pod.uid for task in self.state.tasks.values() if key in (task.job, task.pod.uid)]:
            self.state.remove_pod(uid)


@pytest.mark.parametrize("gpus", [1, 4, 12])
@pytest.mark.parametrize("seed", range(4))
def test_eight_of_ten_starts_lie_inside_though_forecasts_are_wrong(gpus, seed):
    """Forecasts four times too short, with errors of every size: the middle is put right and the interval holds."""
    draw, line, inside, off = random.Random(seed), Line(gpus), [], []
    for _ in range(500):
        foretold = draw.lognormvariate(math.log(2 * HOUR), 0.7)
        waited = max(LONG + 1, 4 * foretold * draw.lognormvariate(0, 0.5))
        key, told = line.come(foretold)
        line.starts(key, waited)
        line.now += 600
        inside.append(told.earliest <= waited <= told.latest)
        off.append(abs(told.start - waited) / waited)
    assert 0.75 <= sum(inside[100:]) / 400 <= 0.85
    assert sorted(off[100:])[200] < 0.4, "but for their noise the errors are gone"


@pytest.mark.parametrize("seed", range(3))
def test_the_levels_follow_when_the_errors_change(seed):
    """In the second half everything takes five times as long as before: after a while as many lie inside as ever."""
    draw, line, inside = random.Random(seed), Line(), []
    for number in range(900):
        foretold = draw.uniform(HOUR, 5 * HOUR)
        waited = foretold * draw.lognormvariate(0, 0.4) * (5 if number >= 300 else 1)
        key, told = line.come(foretold)
        line.starts(key, max(LONG + 1, waited))
        line.now += 600
        inside.append(told.earliest <= waited <= told.latest)
    assert 0.72 <= sum(inside[-400:]) / 400 <= 0.88


def test_jobs_that_still_wait_count_as_waits_that_are_at_least_so_long():
    line = Line()
    for _ in range(20):
        key, _ = line.come(HOUR)
        line.starts(key, HOUR)
        line.now += HOUR
    _, before = line.come(HOUR)
    assert before.latest == pytest.approx(HOUR, rel=0.05)
    kept = line.state.foretold
    for _ in range(20):
        line.come(HOUR)
        line.now += LONG + 1
    line.now += 10 * HOUR
    _, after = line.come(HOUR)
    assert after.latest > 9 * HOUR, "half of those that came wait for ten hours by now"
    for uid in [task.pod.uid for task in line.state.tasks.values() if task.row < 0 and task.pod.created < line.now]:
        line.state.remove_pod(uid)
    _, gone = line.come(HOUR)
    assert gone.latest == pytest.approx(HOUR, rel=0.05), "whoever was deleted tells nothing"
    assert kept is line.state.foretold


def test_an_interval_lies_ahead_of_what_has_been_waited_already():
    line = Line()
    for number in range(16):
        key, _ = line.come(HOUR)
        line.starts(key, (1 + number % 4) * HOUR)
        line.now += 10 * HOUR
    key, told = line.come(HOUR)
    assert (told.earliest, told.latest) == pytest.approx((HOUR, 4 * HOUR), rel=0.01)
    state, came = line.state, line.now
    for waited in (2.5 * HOUR, 3.5 * HOUR, 9 * HOUR):
        run(state, came + waited)
        later = state.foretold.intervals(state, {key: came + HOUR}, came + waited)[key]
        assert came + waited <= later.earliest <= later.start <= later.latest
    assert told.earliest <= told.start <= told.latest


@pytest.mark.parametrize("seed", range(3))
def test_what_a_burst_teaches_does_not_make_the_next_interval_narrow(seed):
    """Jobs that were submitted together start together: their forecasts are off by the same, and those of the next by something else."""
    draw, line, inside = random.Random(seed), Line(), []
    for _ in range(150):
        off, count = draw.lognormvariate(0, 0.8), draw.choice((1, 2, 12))
        jobs = [line.come(2 * HOUR) for _ in range(count)]
        waited = max(LONG + 1, 2 * HOUR * off)
        for number, (key, _) in enumerate(jobs):
            line.starts(key, waited + number)
        inside.append(jobs[0][1].earliest <= waited <= jobs[0][1].latest)
        line.now += 400 * HOUR
    assert 0.7 <= sum(inside[30:]) / 120 <= 0.9


def test_errors_that_share_a_weight_count_as_one():
    alone = [_Error(error, True, 1.0) for error in (0.0, 1.0, 2.0)]
    shared = [_Error(0.0, True, 0.1)] * 10 + alone[1:]
    values, parts = _distribution(shared)
    assert dict(zip(values, parts, strict=True)) == pytest.approx(dict(zip(*_distribution(alone), strict=True)))


def test_what_starts_within_ten_minutes_and_what_ran_before_teaches_nothing():
    line = Line()
    key, _ = line.come(HOUR)
    line.starts(key, LONG)
    line.state.upsert_pod(pod("back", queue="q", attained=HOUR, created=line.now))
    run(line.state, line.now)
    line.state.foretold.intervals(line.state, {"uid-back": line.now + HOUR}, line.now)
    line.state.foretold.started("uid-back", line.now + HOUR)
    assert not line.state.foretold.changed
    assert line.state.foretold.written("q") == ()


def test_what_was_learned_survives_a_restart_and_what_is_known_goes_before():
    line = Line(4)
    for number in range(30):
        key, _ = line.come(HOUR)
        line.starts(key, (2 + number % 2) * HOUR)
        line.now += 10 * HOUR
    written = line.state.foretold.written("q")
    assert len(written) == 20
    assert line.state.foretold.changed == {"q"}
    again = Line(4)
    again.state.upsert_queue(msgspec.structs.replace(queue("q"), forecasts=written))
    _, told = again.come(HOUR)
    assert (told.earliest, told.latest) == pytest.approx((2 * HOUR, 3 * HOUR), rel=0.01)
    line.state.upsert_queue(msgspec.structs.replace(queue("q"), forecasts=written[:1] * 20))
    assert line.state.foretold.written("q") == written, "its own"


def test_a_pass_compares_starts_with_what_was_foretold():
    state = cluster([node("n", gpus=1)], [Queue("q")], [pod("runs", queue="q", at="n", started=0.0)])
    state.upsert_pod(pod("waits", queue="q", created=10.0))
    run(state, 10.0)
    state.foretold.intervals(state, {"uid-waits": 2 * HOUR}, 10.0)
    state.remove_pod("uid-runs")
    run(state, HOUR)
    (record,) = state.foretold.written("q")
    assert (record.queue, record.devices, record.foretold, record.waited) == ("q", 1000, 7190, 3590)


def test_nothing_known_gives_a_wide_interval_around_the_forecast():
    assert (LOW, HIGH) == (0.1, 0.9)
    _, told = Line().come(4 * HOUR)
    assert told.start == pytest.approx(4 * HOUR)
    assert told.earliest < 1.5 * HOUR
    assert told.latest > 9 * HOUR
    assert Foretold().written("q") == ()


class Read(list):
    """Counts what is read of it."""

    count = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.count += len(found) if isinstance(index, slice) else 1
        return found


def line(rng, size):
    errors = [_Error(round(rng.gauss(0, 1), 1), rng.random() < 0.7, rng.choice((1.0, 0.5, 0.01))) for _ in range(size)]
    return _Line(rng.uniform(0, 1), rng.uniform(0, 3), *map(Read, _distribution(errors)), max(each.error for each in errors))


@pytest.mark.parametrize("seed", range(20))
def test_a_part_of_the_errors_is_found_as_by_a_linear_search(seed):
    rng = random.Random(seed)
    for _ in range(50):
        past = line(rng, rng.randrange(1, 40))
        foretold, level, beyond = rng.uniform(60, 1e5), rng.choice((LOW, 0.5, HIGH, rng.random())), rng.uniform(0, 1e5)
        middle = past.base + past.slope * math.log(foretold)
        known = [error <= math.log(max(beyond, 60.0)) - middle for error in past.errors]
        before = past.parts[sum(known) - 1] if any(known) else 0.0
        wanted = before + level * (1.0 - before) - 1e-9
        later = zip(past.errors, past.parts, known, strict=True)
        error = next((error for error, part, passed in later if not passed and part >= wanted), None)
        longest = max(math.exp(middle + past.most), beyond * 2.0 ** (1 + level) if all(known) else 0.0)
        assert past.at(foretold, level, beyond) == (longest if error is None else math.exp(middle + error))


def test_a_long_past_makes_an_interval_hardly_dearer():
    past = line(random.Random(1), 1000)
    past.at(3600.0, HIGH, 600.0)
    assert past.errors.count + past.parts.count < 40
