"""The judged worlds: a fast sample of `bench worlds`, and the judge itself."""

import pytest

from fairlead.core.model.units import WHOLE
from fairlead.simulation import judged
from fairlead.simulation.judged.world import Job, Share, World


def test_no_single_gpu_job_is_evicted_where_quotas_add_up_to_the_cluster():
    found = judged.run("evictions", range(6), ["flat 1", "two levels 1", "deep 1"])
    assert (found.worlds, found.evicting_worlds, found.missed) == (18, 0, 0), found.examples
    assert {name: each.worlds for name, each in found.varieties.items()} == {"flat 1": 6, "two levels 1": 6, "deep 1": 6}


def test_no_pod_is_evicted_in_a_sample_of_every_variety():
    found = judged.run("evictions", range(3))
    assert (found.worlds, found.evicting_worlds, found.missed) == (45, 0, 0), found.examples
    assert found.servable > 300


@pytest.mark.parametrize(
    ("variety", "seed"),
    [
        ("gangs 1/2/4/8", 1509),
        ("gangs 1/2/4/8", 1659),
        ("gangs 1/2/4/8", 1874),
        ("fractions 1", 244),
        ("fractions 1/2/4", 285),
        ("fractions 1/2/4", 800),
        ("fractions 1/2/4", 1734),
    ],
)
def test_no_pod_is_evicted_in_worlds_where_one_was(variety, seed):
    """A gang larger than the cluster; others tried in an order in which they would not be served."""
    found = judged.run("evictions", [seed], [variety])
    assert (found.evicting_worlds, found.missed) == (0, 0), found.examples


def test_worlds_notice_an_eviction_and_who_waits_again():
    world = World([2], [Share("a", 0), Share("b", WHOLE)])
    world.submit(Job("one", "a"))
    world.submit(Job("two", "a", created=0.5))
    world.play()
    assert not world.waiting
    world.submit(Job("mine", "b", created=1.0))
    world.play()
    assert world.evicted == [["two"]]
    assert [job.name for job in world.waiting] == ["two"]
    assert (world.held("a"), world.held("b"), world.free()) == (WHOLE, WHOLE, {"n0": [0, 0]})


@pytest.mark.parametrize("variety", judged.KINDS["victims"].varieties)
def test_no_victims_that_would_do_are_missed(variety):
    result = judged.run("victims", range(12), [variety])
    assert result.worlds == 12
    assert not result.missed, result.examples


@pytest.mark.parametrize(
    ("variety", "seed"),
    [("fractions 1/3/5", 1834), ("fractions 1/2/4/8", 395), ("fractions 1/2/4/8", 533), ("fractions 1/2/4/8", 1805)],
)
def test_small_pods_that_share_devices_leave_them_to_a_large_one(variety, seed):
    """A dozen pods that hold parts of devices: sets of single pods are too many to try."""
    found = judged.run("victims", [seed], [variety])
    assert (found.servable, found.missed) == (1, 0), found.examples


def test_the_judge_of_victims_finds_what_the_scheduler_does_not_try(monkeypatch):
    monkeypatch.setattr("fairlead.core.preemption.search._by_subsets", lambda *_: None)
    varieties = [name for name in judged.KINDS["victims"].varieties if name.endswith("1/3/5")]
    assert judged.run("victims", range(30), varieties).missed
