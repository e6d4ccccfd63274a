"""Days full of faults for AIJobs and Jobs of all classes, with the operator beside the scheduler: every job comes to its end."""

import random

import pytest

from fairlead.api import names
from fairlead.simulation import chaos
from fairlead.simulation.researchers import Researchers

DAY = chaos.Settings(nodes=14, jobs=60, hours=8, workload="aijobs")
SEEDS = (1, 21)
SOAK = (4, 37, *range(1000, 1200))


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
    wanted = {"operator_killed", "operator_cut_off", "job_paused", "job_deleted", "start_failure"}
    for seed in (5, 6):
        wanted -= set(chaos.run(seed, DAY).faults)
        if not wanted:
            return
    raise AssertionError(f"did not happen: {wanted}")


def test_a_job_that_never_comes_back_is_told(monkeypatch):
    monkeypatch.setattr("fairlead.core.state.suspended.Suspended.begin", lambda *_: None)
    monkeypatch.setattr(chaos, "_DRAIN", 3600.0)
    found = (each for seed in (2, 5) for each in chaos.run(seed, DAY).violations)
    assert any("did not end" in each and "'Suspended'" in each for each in found)


@pytest.mark.parametrize("seed", [4, pytest.param(9, marks=pytest.mark.slow)])
def test_jobs_whose_target_states_are_lost_end(seed, monkeypatch):
    """PodGroups of suspended jobs are deleted, made anew, or lose their targets, at any time of a storm: those of Jobs first."""
    before, draw, lost = Researchers.strikes, random.Random(seed), []

    def strikes(users):
        api = users.world.api

        async def lose():
            groups = api.served(names.API_VERSION, "podgroups")
            every = [record.object for _, record in api.store.records(groups.table) if _target(record.object) == "Suspended"]
            found = [each for each in every if names.MADE_FOR_LABEL in (each["metadata"].get("labels") or {})] or every
            if not found:
                return
            group = min(found, key=lambda each: each["metadata"]["uid"])
            at = group["metadata"]["namespace"], group["metadata"]["name"]
            how = draw.choice(("deleted", "made anew", "taken out"))
            lost.append((how, *at))
            if how == "taken out":
                api.patch(groups, *at, "application/merge-patch+json", {"status": {"target": None}}, subresource="status")
                return
            api.delete(groups, *at)
            if how == "made anew":
                kept = {each: group["metadata"].get(each) for each in ("name", "labels", "ownerReferences")}
                api.create(groups, at[0], {"metadata": kept, "spec": group["spec"]})

        return [*before(users), *[("intent_lost", lose)] * 8]

    monkeypatch.setattr(Researchers, "strikes", strikes)
    judge(chaos.run(seed, DAY))
    assert lost


def _target(group):
    return ((group.get("status") or {}).get("target") or {}).get("state", "")
