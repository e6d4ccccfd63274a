"""Streams of jobs with pressures, and what `simulate interference` makes of them."""

import pytest

from fairlead.simulation.interference import report, stream
from fairlead.simulation.interference.stream import Job
from fairlead.simulation.interference.world import World


def job(name, pressure, arrives=0.0, lasts=1000.0, gpus=1, service=False):
    return Job(name, "ann", gpus, pressure, arrives, lasts, service)


def test_a_stream_is_its_seed_and_asks_for_the_load():
    one = stream.jobs(1, 4000, gpus=320, load=0.8)
    assert one == stream.jobs(1, 4000, gpus=320, load=0.8)
    assert one != stream.jobs(2, 4000, gpus=320, load=0.8)
    assert [each.arrives for each in one] == sorted(each.arrives for each in one)
    asked = sum(each.gpus * each.lasts for each in one) / (one[-1].arrives * 320)
    assert asked == pytest.approx(0.8, abs=0.12)
    assert all(0 <= amount <= 1000 for each in one for amount in each.pressure)
    assert all(any(each.pressure[kind] > 200 for each in one) for kind in range(4))


def test_slowdowns_are_means_over_time():
    # Two jobs of 0.8 of a kind on the only node, together for half of the first one's time.
    jobs = [job("a-1", (800, 0, 0, 0)), job("b-1", (800, 10, 0, 0), arrives=500.0), job("c-1", (0, 0, 900, 0), arrives=500.0)]
    run = World(jobs, 1, 0, learns=True).play()
    # a: 500 s alone and 500 s at 1.6; b the same; c: alone on its kind. The first quarter of three is none.
    assert run.mean_slowdown == pytest.approx((1.3 + 1.3 + 1.0) / 3)
    assert run.jobs == 3
    assert not run.limits_broken


def test_what_is_learned_keeps_jobs_of_a_kind_apart():
    jobs = [job(f"a-{n}", (700, 0, 0, 0), arrives=600.0 * n, lasts=500.0 if n == 0 else 5000.0) for n in range(4)]
    apart, together = (World(jobs, 4, 0, learns=learns).play() for learns in (True, False))
    assert apart.mean_slowdown == pytest.approx(1.0)
    assert together.mean_slowdown > 1.5


def test_a_service_shares_no_node():
    jobs = [job("a-1", (0, 0, 0, 10)), job("s-1", (0, 0, 0, 10), service=True), job("b-1", (0, 0, 0, 10), lasts=10.0)]
    run = World(jobs, 2, 0, learns=False).play()
    assert not run.limits_broken


def test_it_compares_both_on_the_same_jobs():
    seen = []
    result = report.compare([1, 2], nodes=8, count=120, load=0.7, progress=lambda at, of: seen.append((at, of)))
    assert seen[-1] == (480, 480)
    assert result.limits_broken == 0
    assert result.slowdown_ratio < 1
    assert [each.seed for each in result.runs] == [1, 2]
    again = report.compare([2], nodes=8, count=120, load=0.7)
    assert again.runs[0] == result.runs[1]
