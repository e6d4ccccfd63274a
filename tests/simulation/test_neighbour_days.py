"""Days full of faults on which jobs share GPUs by twos, isolate nodes or GPUs, and take of what pools share; and that their judge sees."""

import asyncio

import msgspec
import pytest

from fairlead.api.names import GPU_SHARING_LABEL
from fairlead.core.mig.parts import NOT_KNOWN
from fairlead.simulation import chaos
from fairlead.simulation.neighbours import plan
from fairlead.simulation.workload import crowded
from fairlead.simulation.world import POOLS, REPLICAS_LABEL, World

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


@pytest.mark.parametrize(("devices", "seed"), [(0, 83), (0, 97), (5, 38), (5, 48)])
def test_days_with_replicas_break_no_invariant(devices, seed):
    """On some of the nodes a device plugin gives out each GPU several times."""
    assert plan.drawn(seed, lasting=False).replicas
    settings = chaos.Settings(**SMALL, devices=devices)
    outcome = chaos.run(seed, settings)
    assert not outcome.violations, "\n".join([chaos.replay_command(seed, settings), *outcome.violations[:10]])


def test_replicas_are_drawn_apart_and_labelled_on_nodes_that_share_by_no_other_rule():
    drawn = [plan.drawn(seed, lasting=False) for seed in range(1, 401)]
    having = [each for each in drawn if each.replicas]
    assert 0.3 <= len(having) / sum(each.any for each in drawn) <= 0.5
    assert {each.replicas for each in having} == {2, 4}

    async def labels(day):
        world = World(nodes=30, seed=1)
        plan.install(day, world)
        stored = {key[1]: record.object["metadata"]["labels"] for key, record in world.api.store.records("nodes")}
        assert stored == {name: manifest["metadata"]["labels"] for name, manifest in world.manifests.items()}
        return stored

    day = msgspec.structs.replace(having[0], pairs=True)
    found = asyncio.run(labels(day))
    replicated = [each for each in found.values() if REPLICAS_LABEL in each]
    assert 3 <= len(replicated) <= 20
    assert all(each[REPLICAS_LABEL] == str(day.replicas) and GPU_SHARING_LABEL not in each for each in replicated)
    plain = asyncio.run(labels(msgspec.structs.replace(day, replicas=0)))
    assert plain == {name: {key: each[key] for key in each if key != REPLICAS_LABEL} for name, each in found.items()}


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
        ("fairlead.core.pods.filters.gpu_isolation.sharing_of", lambda _: NOT_KNOWN, "are replicated", 11),
    ],
)
def test_the_judge_sees_what_it_is_there_for(monkeypatch, broken, instead, told, seed):
    """Seeded bugs: what is shared never ends, isolation and the rules of pairs do not hold, nodes are not followed."""
    monkeypatch.setattr(broken, instead)
    found = chaos.run(seed, chaos.Settings(**SMALL)).violations
    assert any(told in each for each in found), found[:10]
