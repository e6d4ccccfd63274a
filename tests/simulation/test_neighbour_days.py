"""Days full of faults on which jobs share GPUs by twos, isolate nodes or GPUs, and take of what pools share; and that their judge sees."""

import pytest

from fairlead.simulation import chaos
from fairlead.simulation.neighbours import plan
from fairlead.simulation.workload import crowded
from fairlead.simulation.world import POOLS

SMALL = {"nodes": 12, "jobs": 40, "hours": 4}
POOL_NAMES = tuple(pool.name for pool in POOLS)


def some(workload, devices, seeds):
    return [(workload, devices, seed) for seed in seeds]


@pytest.mark.parametrize(
    ("workload", "devices", "seed"),
    [*some("pods", 0, (4, 14, 23)), *some("pods", 5, (4, 34)), *some("aijobs", 0, (11, 14))],
)
def test_days_with_neighbours_break_no_invariant(workload, devices, seed):
    settings = chaos.Settings(**SMALL, workload=workload, devices=devices)
    outcome = chaos.run(seed, settings)
    assert not outcome.violations, "\n".join([chaos.replay_command(seed, settings), *outcome.violations[:10]])
    assert outcome.neighbours["judged"] > 0
    assert not plan.drawn(seed, lasting=False).pairs or outcome.neighbours["pairs"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["pods", "aijobs"])
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_more_days_with_neighbours(workload, seed):
    outcome = chaos.run(seed, chaos.Settings(**SMALL, workload=workload))
    assert not outcome.violations, outcome.violations[:10]


def test_half_of_the_days_have_some_of_it_and_the_others_are_as_they_were():
    drawn = [plan.drawn(seed, lasting=False) for seed in range(1, 401)]
    having = [each for each in drawn if each.any]
    assert 160 <= len(having) <= 240
    for part in ("shared", "isolation", "pairs"):
        assert 0.6 <= sum(getattr(each, part) for each in having) / len(having) <= 0.85
    without = next(each for each in drawn if not each.any)
    jobs = crowded(without.seed, 40, 4 * 3600.0, POOL_NAMES)
    assert plan.with_neighbours(jobs, without, None) is jobs


@pytest.mark.parametrize(
    ("broken", "instead", "told", "seed"),
    [
        ("fairlead.core.nodes.shared_resources.SharedResources.free", lambda *_: 1 << 60, "pods of pool", 14),
        ("fairlead.core.nodes.tenants.Tenants.concerns", lambda *_: False, "isolates nodes", 8),
        ("fairlead.core.queues.admission.Admission._shares_gpu", lambda *_: "", "has a part of one", 33),
        ("fairlead.core.nodes.partners.Partners.seat", lambda self, _, row: self._first(row), "believes in pairs", 6),
        ("fairlead.core.nodes.partners.Partners._is_divided", lambda *_: False, "by different rules", 23),
    ],
)
def test_the_judge_sees_what_it_is_there_for(monkeypatch, broken, instead, told, seed):
    """Seeded bugs: what is shared never ends, isolation and the rules of pairs do not hold, nodes are not followed."""
    monkeypatch.setattr(broken, instead)
    found = chaos.run(seed, chaos.Settings(**SMALL)).violations
    assert any(told in each for each in found), found[:10]
