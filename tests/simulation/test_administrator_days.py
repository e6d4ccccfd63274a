"""Days full of faults on which administrators reserve windows, move queues, change policies and drain nodes; and that the judge sees."""

import asyncio
import random

import pytest

from fairlead.api import names
from fairlead.cluster.simulated.resources import NODES, PODS
from fairlead.simulation import chaos
from fairlead.simulation.administrators import Administrators
from fairlead.simulation.audit import Auditor
from fairlead.simulation.researchers import Researchers
from fairlead.simulation.users import Users
from fairlead.simulation.world import World

SMALL = {"nodes": 12, "jobs": 40, "hours": 6, "administrators": True}
QUEUES, CLASSES, WINDOWS, BUDGETS = (
    "fairlead.dev/queues",
    "fairlead.dev/serviceclasses",
    "fairlead.dev/reservations",
    "policy/poddisruptionbudgets",
)


@pytest.fixture
def dense(monkeypatch):
    """Of all strikes most are theirs."""
    plain = Administrators.strikes
    monkeypatch.setattr(Administrators, "strikes", lambda self: 4 * plain(self))


@pytest.mark.parametrize(("workload", "seed"), [("pods", 3), ("pods", 22), ("pods", 35), ("aijobs", 7), ("aijobs", 11)])
def test_days_with_administrators_break_no_invariant(dense, workload, seed):
    settings = chaos.Settings(**SMALL, workload=workload)
    outcome = chaos.run(seed, settings)
    assert not outcome.violations, "\n".join([chaos.replay_command(seed, settings), *outcome.violations[:10]])
    assert sum(name in outcome.faults for name in NAMES) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["pods", "aijobs"])
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_more_days_with_administrators(dense, workload, seed):
    outcome = chaos.run(seed, chaos.Settings(**SMALL, workload=workload))
    assert not outcome.violations, outcome.violations[:10]


def test_only_days_that_ask_for_them_have_any():
    outcome = chaos.run(3, chaos.Settings(nodes=10, jobs=5, hours=3))
    assert not outcome.faults.keys() & NAMES
    assert outcome.windows == 0
    settings = chaos.Settings(**SMALL, workload="aijobs")
    assert chaos.replay_command(3, settings).endswith("--administrators --workload aijobs")


def test_the_judge_sees_a_window_that_is_not_kept(dense, monkeypatch):
    """Seeded bug: what administrators reserve keeps nothing out."""
    monkeypatch.setattr("fairlead.core.queues.reservations.Reservations._lets", lambda *_: True)
    found = [chaos.run(seed, chaos.Settings(**SMALL)) for seed in (1, 5)]
    assert any("which window" in each for outcome in found for each in outcome.violations)
    assert sum(outcome.windows for outcome in found) > 0


NAMES = {
    "window_reserved",
    "queue_moved",
    "queue_policy_edited",
    "quota_edited",
    "class_policy_edited",
    "budget_made",
    "node_tainted",
    "node_drained",
    "node_relabelled",
}
"""Of all strikes."""


@pytest.mark.parametrize("strike", sorted(NAMES))
def test_each_strike_changes_something_and_is_undone(strike):
    async def struck():
        world = World(nodes=10, seed=1, limits=1.6)
        assert isinstance(Researchers(world, [], 1), Users)
        pod = {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "main", "image": "x"}], "schedulerName": names.SCHEDULER_NAME},
        }
        for node in world.manifests:
            world.create({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": f"on-{node}"}}, "vision")
            world.api.bind("vision", f"on-{node}", {"target": {"kind": "Node", "name": node}})
        repairs = []
        made = Administrators(world, 1, Auditor(world), repairs.append, relabels=True)
        made._random = random.Random(strike)
        made._later = lambda _: None
        world.clock.call_later = lambda _, call: repairs.append(call)

        def seen():
            tables = (QUEUES, CLASSES, WINDOWS, BUDGETS, NODES)
            return {
                (table, key): (record.object["spec"], record.object["metadata"].get("labels"))
                for table in tables
                for key, record in world.api.store.records(table)
            }, sum("deletionTimestamp" not in record.object["metadata"] for _, record in world.api.store.records(PODS))

        before, pods = seen()
        await dict(made.strikes())[strike]()
        during, left = seen()
        assert during != before
        assert (left < pods) == (strike == "node_drained")
        for repair in repairs:
            repair()
        assert seen()[0] == before

    asyncio.run(struck())
