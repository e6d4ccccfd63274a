"""Jobs that accept any profile."""

import json
import random

import pytest

from fairlead.core.mig.flexible import Completion, Flexible, partitionings, prices
from fairlead.core.mig.states import States
from fairlead.simulation.mig import speeds, static
from fairlead.simulation.mig.report import compare_speeds

TABLE = {
    "small": {"1g.5gb": 2.0, "2g.10gb": 1.4, "3g.20gb": 1.2, "7g.40gb": 1.0},
    "middle": {"2g.10gb": 2.6, "3g.20gb": 1.6, "7g.40gb": 1.0},
    "large": {"3g.20gb": 2.5, "7g.40gb": 1.0},
}


@pytest.fixture
def workloads(tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(TABLE))
    return speeds.read(path)


def test_a_table_is_read_as_speeds_relative_to_a_whole_gpu(workloads):
    assert [profile.name for profile in workloads.geometry.profiles] == ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"]
    assert workloads.names == ("small", "middle", "large")
    assert workloads.speeds[1] == pytest.approx({1: 1 / 2.6, 2: 1 / 1.6, 3: 1.0})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected an object"),
        ("[]", "expected an object"),
        ("{}", "no workloads"),
        ('{"a": {"1g.5gb": "x"}}', "expected an object"),
        ('{"a": {"1g.5gb": 1}}', "workload 'a' has no 7g.40gb"),
        ('{"a": {"9g.5gb": 1, "7g.40gb": 1}}', "no profile '9g.5gb'"),
        ('{"a": {"7g.40gb": 0}}', "workload 'a', profile 7g.40gb: 0 seconds per step must be from 1e-06"),
        ('{"a": {"7g.40gb": -1}}', "-1 seconds per step must be from 1e-06"),
        ('{"a": {"7g.40gb": 1e308, "1g.5gb": 1e-308}}', "profile 7g.40gb: 1e.308 seconds per step must be from"),
        ('{"a": {"7g.40gb": 1, "1g.5gb": 1e-320}}', "profile 1g.5gb: 9.*e-321 seconds per step must be from"),
        ('{"a": {"7g.40gb": 1e4, "1g.5gb": 1e-4}}', "workload 'a', profile 1g.5gb: 1e.08 times the speed of 7g.40gb"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_place(text, said, tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(text)
    with pytest.raises(speeds.SpeedsError, match=said) as refused:
        speeds.read(path)
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(speeds.SpeedsError, match="No such file"):
        speeds.read(tmp_path / "none.json")


class Watched(speeds.Dynamic):
    """Dynamic partitions that check what they are asked for."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.running = set()

    def take(self, profile):
        assert self.offered()[profile] is not None
        partition = super().take(profile)
        assert partition not in self.running
        self.running.add(partition)
        return partition

    def release(self, partition):
        self.running.remove(partition)
        super().release(partition)


@pytest.mark.parametrize("seed", range(10))
def test_every_job_ends_and_partitions_never_overlap(seed, workloads):
    rng = random.Random(seed)
    states = States(workloads.geometry)
    cost, capacity = prices(states, workloads.speeds)
    gpus = rng.randint(1, 3)
    jobs = speeds.draw(seed, workloads, rng.uniform(0.3, 1.5) * capacity * gpus, 120)
    dynamic = Watched(Completion(states, cost), states, gpus)
    mean = speeds.play(jobs, workloads.speeds, dynamic, Flexible(cost, gpus))
    assert not dynamic.running
    assert mean >= sum(job.work for job in jobs) / len(jobs)
    assert (
        speeds.play(jobs, workloads.speeds, speeds.Dynamic(Completion(states, cost), states, gpus), Flexible(cost, gpus)) == mean
    )


def test_one_job_after_the_other_runs_on_a_whole_gpu(workloads):
    states = States(workloads.geometry)
    cost, _ = prices(states, workloads.speeds)
    jobs = [speeds.Job(100.0 * number, number % 3, 2.0 + number) for number in range(6)]
    policy = Flexible(cost, 1, idle=0.0)
    assert speeds.play(jobs, workloads.speeds, speeds.Dynamic(Completion(states, cost), states, 1), policy) == pytest.approx(4.5)


def test_whole_gpus_serve_in_the_order_of_arrival(workloads):
    cost, _ = prices(States(workloads.geometry), workloads.speeds)
    jobs = [speeds.Job(0.1 * number, number % 3, 1.0) for number in range(5)]
    mean = speeds.static_time([jobs], workloads, [0, 0, 0, 1], cost, Flexible(cost, 1))
    assert mean == pytest.approx(sum((number + 1) - 0.1 * number for number in range(5)) / 5)


def test_a_partitioning_that_a_workload_does_not_fit_is_no_candidate(workloads):
    cost, _ = prices(States(workloads.geometry), workloads.speeds)
    assert speeds.static_time([[]], workloads, [7, 0, 0, 0], cost, Flexible(cost, 1)) == float("inf")


def test_no_partitioning_of_two_gpus_is_better_than_the_one_found(workloads):
    states = States(workloads.geometry)
    cost, capacity = prices(states, workloads.speeds)
    jobs = [speeds.draw(seed, workloads, 0.9 * capacity * 2, 60) for seed in (1, 2)]
    found = static.search(jobs, workloads, states, 2, cost)
    ways = partitionings(states)
    best = min(
        speeds.static_time(jobs, workloads, [a + b for a, b in zip(one, two, strict=True)], cost, Flexible(cost, 2))
        for one in ways
        for two in ways
    )
    assert found.time <= best + 1e-9
    assert sum(found.layout.values()) == 2
    assert found.tried > len(ways)


def test_loads_are_compared(workloads):
    result = compare_speeds(workloads, [1, 2], gpus=2, loads=(0.5, 1.0), jobs=40)
    assert list(result.mean_jct) == ["0.5", "1"]
    for load in result.mean_jct:
        assert result.of_best_static[load] == pytest.approx(result.mean_jct[load] / result.best_static[load])
        assert result.of_whole_gpus[load] == pytest.approx(result.mean_jct[load] / result.whole_gpus[load])
        assert result.best_static[load] <= result.whole_gpus[load]


@pytest.mark.parametrize(
    "table",
    [
        {"a": {"7g.40gb": 1}},
        {"a": {"7g.40gb": 1, "1g.5gb": 1e-6}, "b": {"7g.40gb": 1, "1g.5gb": 1e6}},
        {"a": {"7g.40gb": 1e6, "3g.20gb": 1}, "b": {"7g.40gb": 1e-6, "1g.5gb": 1}},
    ],
)
def test_loads_are_compared_for_one_profile_and_at_the_bounds(table, tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(table))
    result = compare_speeds(speeds.read(path), [1], gpus=2, loads=(0.8,), jobs=20)
    assert 0 < result.mean_jct["0.8"] < float("inf")
    assert result.of_best_static["0.8"] > 0
