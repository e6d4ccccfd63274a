"""The stream of the floors protocol through the production pass: the same work as best fit's, no node twice, no gang left."""

from statistics import fmean

import pytest

from fairlead.simulation.topology import fabric as fabrics
from fairlead.simulation.topology import floors, production, rules


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    path = tmp_path_factory.mktemp("lab") / "topo.csv"
    path.write_text("PSW,ASW\n" + "".join(f"P{leaf % 3},S{leaf:02d}\n" for leaf in range(20) for _ in range(5 + leaf % 4)))
    return fabrics.read(path)


@pytest.fixture(scope="module")
def base(fabric):
    return floors.run(fabric, rules.best_fit, 3, 0.9, 200)


def test_the_stream_is_that_of_best_fit(base):
    gangs = production.stream(base, 3)
    assert [(gang.nodes, gang.counted) for gang in gangs] == [(nodes, counted) for nodes, _, _, counted in base.intervals]
    assert [gang.arrived for gang in gangs] == sorted(gang.arrived for gang in gangs)
    assert fmean(start - gang.arrived for gang, (_, start, _, counted) in zip(gangs, base.intervals, strict=True) if counted) == (
        pytest.approx(fmean(base.waits))
    )
    assert gangs == production.stream(base, 3)
    assert {gang.queue for gang in gangs} == set(production.QUEUES)


@pytest.mark.parametrize("wait", [0.0, 600.0])
def test_no_more_nodes_are_used_than_there_are(fabric, base, wait):
    gangs = production.stream(base, 3)
    run = production.simulate(fabric, gangs, production.policy(wait))
    assert [nodes for nodes, *_ in run.intervals] == [gang.nodes for gang in gangs]
    changes = sorted(
        [(end, -nodes) for nodes, _, end, _ in run.intervals] + [(start, nodes) for nodes, start, *_ in run.intervals]
    )
    used = 0
    for _, change in changes:
        used += change
        assert used <= fabric.hosts
    for gang, (_, start, end, _) in zip(gangs, run.intervals, strict=True):
        assert start >= gang.arrived - 1e-6
        assert end - start == pytest.approx(gang.runs)
    assert len(run.over_ideal) == sum(gang.counted for gang in gangs)


def test_waiting_for_leaves_saves_some(fabric, base):
    gangs = production.stream(base, 3)
    at_once, patient = (production.simulate(fabric, gangs, production.policy(wait)) for wait in (0.0, 1800.0))
    assert patient.mean < at_once.mean
    assert fmean(patient.waits) > fmean(at_once.waits)
    again = production.simulate(fabric, gangs, production.policy(1800.0))
    assert again.intervals == patient.intervals
