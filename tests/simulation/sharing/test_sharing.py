"""Sharing by measured throughputs: the reader, the bound and the best matching against all, and the run that learns."""

import json
import lzma
import random
from functools import lru_cache

import numpy as np
import pytest

from fairlead.simulation.sharing import report, rules
from fairlead.simulation.sharing.exact import assignment, best_pairs
from fairlead.simulation.sharing.throughputs import Throughputs, read
from fairlead.simulation.traces import TraceError


def _table(rng, kinds):
    speed = np.array([[rng.uniform(0.2, 1.0) for _ in range(kinds)] for _ in range(kinds)])
    stopped = np.array([[rng.random() < 0.1 for _ in range(kinds)] for _ in range(kinds)])
    speed[stopped | stopped.T] = 0.0
    return Throughputs(tuple(f"kind {number}" for number in range(kinds)), speed)


def _most(speed):
    """The most worth per GPU of all matchings."""

    @lru_cache(None)
    def best(left):
        """By number of GPUs the most worth."""
        if not left:
            return {0: 0.0}
        first = (left & -left).bit_length() - 1
        rest = left & ~(1 << first)
        found = {gpus + 1: worth + 1.0 for gpus, worth in best(rest).items()}
        for other in range(len(speed)):
            if rest >> other & 1 and speed[first, other] > 0:
                for gpus, worth in best(rest & ~(1 << other)).items():
                    found[gpus + 1] = max(found.get(gpus + 1, 0.0), worth + speed[first, other] + speed[other, first])
        return found

    return max(worth / gpus for gpus, worth in best((1 << len(speed)) - 1).items())


def test_no_matching_exceeds_the_bound_and_ours_is_nearly_the_best():
    shares = []
    for seed in range(120):
        rng = random.Random(seed)
        table = _table(rng, rng.randint(1, 6))
        jobs = rules.drawn(rng, table, rng.randint(1, 9))
        speed = table.speed[np.ix_(jobs, jobs)]
        pairs, bound = best_pairs(speed + speed.T, speed)
        assert sorted(each for pair in pairs for each in pair) == list(range(len(jobs)))
        assert all(len(pair) == 1 or speed[pair] > 0 for pair in pairs)
        best = _most(speed)
        assert best <= bound + 1e-9
        shares.append(rules.scored(table, jobs, pairs).worth / len(pairs) / best)
    assert max(shares) <= 1 + 1e-9
    assert np.mean(shares) > 0.97


def test_assignments_are_the_best_of_all_permutations():
    import itertools

    for seed in range(60):
        rng = random.Random(seed)
        count = rng.randint(1, 6)
        worth = np.array([[rng.choice([-50.0, 0.0, rng.random()]) for _ in range(count)] for _ in range(count)])
        found = assignment(worth)
        assert sorted(found) == list(range(count))
        best = max(sum(worth[row, column] for row, column in enumerate(each)) for each in itertools.permutations(range(count)))
        assert sum(worth[row, column] for row, column in enumerate(found)) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(12))
def test_a_run_learns_and_no_pair_that_does_not_run_stays(seed):
    rng = random.Random(seed)
    table = _table(rng, rng.randint(2, 12))
    jobs = rules.drawn(rng, table, 2 * rng.randint(1, 20))
    found = rules.learned(random.Random(seed), table, jobs, known=rng.random(), rounds=8, restart=0.0)
    _, bound = rules.matched(table, jobs)
    assert found.kept_not_runnable <= 1
    assert max(found.rounds) <= bound + 1e-9 or any(table.speed[a, b] == 0 for a in jobs for b in jobs)
    again = rules.learned(random.Random(seed), table, jobs, known=0.5, rounds=8, restart=0.0)
    assert again == rules.learned(random.Random(seed), table, jobs, known=0.5, rounds=8, restart=0.0)


def test_the_last_round_beats_random_pairs_and_restarts_cost():
    rng = random.Random(3)
    table = _table(rng, 12)
    result = report.compare(table, "drawn", known=0.25, jobs=60, draws=4, rounds=12)
    free = report.compare(table, "drawn", known=0.25, jobs=60, draws=4, rounds=12, restart=0.0)
    assert result.rounds[-1] > result.rounds[0]
    assert result.rounds[-1] > result.random.worth_per_gpu
    assert result.ours.worth_per_gpu < free.ours.worth_per_gpu <= result.bound
    assert result.kept_not_runnable <= 1
    assert result == report.compare(table, "drawn", known=0.25, jobs=60, draws=4, rounds=12)


def _write(path, content):
    path.write_bytes(lzma.compress(json.dumps(content).encode()) if path.suffix == ".xz" else json.dumps(content).encode())
    return path


GOOD = {
    "v100": {
        "('A', 1)": {"null": 10, "('A', 1)": [5, 5], "('B', 1)": [8, 2]},
        "('B', 1)": {"null": 4, "('A', 1)": [2, 8], "('B', 1)": [0, 0]},
        "('C', 2)": {"null": 4},
    }
}


@pytest.mark.parametrize("name", ["table.json", "table.json.xz"])
def test_throughputs_are_parts_of_those_alone(tmp_path, name):
    table = read(_write(tmp_path / name, GOOD), "v100")
    assert table.kinds == ("('A', 1)", "('B', 1)")
    assert table.speed == pytest.approx(np.array([[0.5, 0.8], [0.5, 0.0]]))
    assert table.runnable_pairs == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "no GPU model"),
        ({"k80": {}}, "it has: k80"),
        ({"v100": {}}, "no kind of job"),
        ({"v100": {"('A', 1)": {}}}, "alone"),
        ({"v100": {"('A', 1)": 3}}, "alone"),
        ({"v100": {"('A', 1)": {"null": 0}}}, "alone"),
        ({"v100": {"('A', 1)": {"null": 1, "('A', 1)": [1]}}}, "two numbers"),
        ({"v100": {"('A', 1)": {"null": 1, "('A', 1)": [1, -1]}}}, "two numbers"),
        ({"v100": {"('A', 1)": {"null": 1, "('A', 1)": [True, 1]}}}, "two numbers"),
    ],
)
def test_files_that_cannot_be_used_are_said_to_be(tmp_path, content, says):
    with pytest.raises(TraceError, match=says):
        read(_write(tmp_path / "bad.json", content), "v100")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path / "text.json", "v100")
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path / "missing.json.xz", "v100")


def test_the_floors_are_reproduced_and_the_target_is_reached(traces):
    table = read(traces / "gavel" / "simulation_throughputs.json.xz", "v100")
    result = report.compare(table, "gavel-v100", known=0.25)
    assert (result.kinds, result.runnable_pairs) == (26, 330)
    assert result.random.worth_per_gpu == pytest.approx(1.304, abs=5e-4)
    assert result.random.p95_slowdown == pytest.approx(6.07, abs=5e-3)
    assert result.matching.worth_per_gpu <= 1.651 + 5e-4 <= result.bound + 1e-3
    assert result.ours.worth_per_gpu >= 1.52
    assert result.ours.p95_slowdown <= 2.6
    assert result.kept_not_runnable <= 1
