"""Days full of faults for AIJobs and Jobs of all classes, with the operator beside the scheduler: every job comes to its end."""

import pytest

from fairlead.simulation import chaos

DAY = chaos.Settings(nodes=14, jobs=60, hours=8, workload="aijobs")
SEEDS = (1, 4, 21, 37)
SOAK = range(1000, 1200)


def judge(outcome):
    again = chaos.replay_command(outcome.seed, DAY)
    assert not outcome.violations, "\n".join([f"again with: {again}", *outcome.violations[:10]])
    assert outcome.jobs_finished > DAY.jobs / 2
    assert outcome.restarts > 0
    assert outcome.settled_checks > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_every_job_comes_to_its_end(seed):
    outcome = chaos.run(seed, DAY)
    judge(outcome)
    assert outcome.fault_kinds >= 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", SOAK)
def test_many_more_days(seed):
    judge(chaos.run(seed, DAY))


def test_the_operator_and_the_jobs_own_users_are_part_of_it():
    found = {fault for seed in (5, 6) for fault in chaos.run(seed, DAY).faults}
    assert {"operator_killed", "operator_cut_off", "job_paused", "job_deleted", "start_failure"} <= found


def test_a_job_that_never_comes_back_is_told(monkeypatch):
    monkeypatch.setattr("fairlead.core.suspended.Suspended._raise", lambda *_: None)
    monkeypatch.setattr(chaos, "_DRAIN", 3600.0)
    found = [each for seed in (2, 5) for each in chaos.run(seed, DAY).violations]
    assert any("did not end" in each and "'Suspended'" in each for each in found)
