"""Gangs whose members end at different times, on the simulated cluster with its processes killed in between."""

import asyncio

import pytest

from fairlead.api import names
from fairlead.simulation import aijobs
from tests.simulation import lives
from tests.simulation.lives import Live, alive, group_status, live, role, template


def job(roles, **spec):
    """An AIJob of roles with one GPU a member. roles: name -> (members, seconds)."""
    return lives.job(*(role(name, count, seconds=seconds) for name, (count, seconds) in roles.items()), **spec)


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize(
    "roles",
    [
        {"short": (1, 30), "middle": (1, 300), "long": (1, 3000)},
        {"launcher": (1, 30), "worker": (4, 600)},
        {"trainer": (3, 200), "evaluator": (1, 900)},
    ],
)
def test_members_that_end_at_different_times_run_once(roles, kills):
    async def story():
        found = Live(kills=kills)
        found.world.create(job(roles), "vision")
        await found.until(lambda: aijobs.phase(found.world, "job") in ("Succeeded", "Failed"), 8000)
        return aijobs.status(found.world, "job"), group_status(found.world)

    status, group = live(story)
    members = sum(count for count, _ in roles.values())
    assert status["phase"] == "Succeeded"
    assert (status.get("attempt", 0), status.get("interruptions", 0), status.get("restarts", 0)) == (0, 0, 0)
    assert (status["succeeded"], group["succeeded"], group["phase"]) == (members, members, "Succeeded")


def test_a_member_that_fails_late_leaves_it_to_the_restart_policy():
    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(job({"short": (1, 30), "long": (2, 600)}, restart={"limit": 1, "backoff": "1s"}), "vision")
        await asyncio.sleep(200.0)
        before = aijobs.status(world, "job")
        world.kubelet.end(("vision", "job-long-1-0"), failed=True)
        await asyncio.sleep(120.0)
        again = aijobs.status(world, "job"), {pod["metadata"]["name"] for pod in alive(world)}, group_status(world)
        await found.until(lambda: aijobs.phase(world, "job") == "Succeeded", 2000)
        return before, again, aijobs.status(world, "job")

    before, (status, pods, group), after = live(story)
    assert (before["succeeded"], before["running"]) == (1, 2)
    assert (status["restarts"], status["attempt"], status["succeeded"]) == (1, 1, 1)
    assert pods == {"job-long-0-1", "job-long-1-1"}
    assert (group["succeeded"], group["run"]["attempt"]) == (1, 1)
    assert (after["restarts"], after["attempt"], after.get("interruptions", 0)) == (1, 1, 0)


def test_a_member_whose_exit_code_is_ignored_counts_as_one_that_succeeded():
    async def story():
        found = Live(kills=False)
        rules = {"limit": 0, "exitCodes": [{"codes": [1], "action": "Ignore"}]}
        found.world.create(job({"worker": (3, 900)}, restart=rules), "vision")
        await asyncio.sleep(60.0)
        found.world.kubelet.end(("vision", "job-worker-2-0"), failed=True)
        await found.until(lambda: aijobs.phase(found.world, "job") in ("Succeeded", "Failed"), 3000)
        return aijobs.status(found.world, "job"), group_status(found.world)

    status, group = live(story)
    assert (status["phase"], status.get("interruptions", 0), group["succeeded"]) == ("Succeeded", 0, 3)


@pytest.mark.parametrize("kills", [False, True])
def test_pods_of_a_pod_group_that_end_one_by_one_run_once(kills):
    async def story():
        found = Live(kills=kills)
        world = found.world
        group = {"apiVersion": names.API_VERSION, "kind": "PodGroup", "metadata": {"name": "job"}, "spec": {"minMember": 3}}
        world.create(group, "vision")
        for name, seconds in (("a", 30), ("b", 300), ("c", 900)):
            made = template(seconds)
            labels = {names.POD_GROUP_LABEL: "job"}
            metadata = {**made["metadata"], "name": name, "labels": labels}
            world.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}, "vision")
        await found.until(lambda: group_status(world).get("phase") == "Succeeded", 1500)
        return group_status(world)

    assert live(story)["succeeded"] == 3
