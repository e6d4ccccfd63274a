"""A stream of pods on nodes that the operator reconfigures through a played mig-manager, on virtual time."""

import pytest

from fairlead.simulation.mig.reconfigured import Stream, arrivals, faster, layouts, simulate

SMALL = Stream(nodes=4, pods=80, phase=20, run=600.0)


@pytest.mark.parametrize("seed", range(3))
def test_all_pods_run_and_none_is_hit(seed):
    found = simulate(Stream(nodes=4, pods=80, phase=20, seed=seed, fails=0.0, hangs=0.0))
    assert found.running_pods_hit == 0
    assert found.rejected == 0
    assert found.placed == found.pods
    assert found.cordoned == 0
    assert 0 < found.reconfigurations <= 0.2 * found.pods
    assert found.outcomes["Succeeded"] == found.reconfigurations


def test_reconfigurations_that_fail_and_hang_hit_nothing_and_close_nothing_for_ever():
    found = simulate(Stream(nodes=4, pods=80, phase=20, seed=1, fails=0.3, hangs=0.2))
    assert (found.running_pods_hit, found.cordoned) == (0, 0)
    assert found.placed == found.pods, "an administrator repaired what failed"
    assert found.outcomes.get("Failed", 0) + found.outcomes.get("Hung", 0) > 0


def test_the_stream_asks_for_its_load_in_phases():
    stream = Stream(pods=4000, phase=1000, load=0.5)
    found = arrivals(stream)
    compute = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3, "7g.40gb": 7}
    asked = sum(compute[each.profile] * each.seconds for each in found) / found[-1].at / (stream.nodes * 8 * 7)
    assert asked == pytest.approx(0.5, rel=0.1)
    fronts = {max(compute, key=[each.profile for each in found[at : at + 1000]].count) for at in range(0, 4000, 1000)}
    assert len(fronts) > 1
    assert found == arrivals(stream), "by its seed"


def test_a_faster_stream_differs_in_its_spans_alone():
    found = faster(SMALL, 20.0)
    assert (found.run, found.settle, found.pods, found.load) == (30.0, 5.0, 80, SMALL.load)
    assert layouts()["all-1g.5gb"] == {"nvidia.com/mig-1g.5gb": 56}
