"""Gangs that get their places and do not start, on the simulated cluster, with its processes killed in between."""

import pytest

from fairlead.api import names
from fairlead.simulation import aijobs
from tests.simulation.lives import Live, alive, group_status, job, live, role, template

PULL = 'ImagePullBackOff: Back-off pulling image "trian:1": not found'


@pytest.mark.parametrize("kills", [False, True])
def test_a_gang_that_cannot_start_gives_its_gpus_back(kills):
    """Eight GPUs: a job with a bad image holds them three times five minutes, then another one has them."""

    async def story():
        found = Live(kills=kills)
        world = found.world
        world.create(job(role("good", 7, seconds=9000), role("bad", 1, PULL), startTimeout="5m", restart={"limit": 2}), "vision")
        await found.until(lambda: len(alive(world)) == 8, 60)
        world.create(job(role("worker", 8), name="next"), "vision")
        await found.until(lambda: aijobs.phase(world, "job") == "Failed", 1500)
        await found.until(lambda: aijobs.phase(world, "next") == "Succeeded", 600)
        return aijobs.status(world, "job")

    status = live(story)
    assert (status["restarts"], status.get("interruptions", 0)) == (2, 0)
    assert "Back-off pulling image" in status["message"]
    assert "did not start within 5m" in status["message"]
    started = next(each for each in status["conditions"] if each["type"] == "Started")
    assert (started["status"], started["reason"]) == ("False", "ImagePullBackOff")


@pytest.mark.parametrize(
    ("failure", "restarts", "limit"),
    [("InvalidImageName: couldn't parse", 0, 60), ('CreateContainerConfigError: secret "a" not found', 1, 150)],
)
def test_hopeless_causes_do_not_wait_for_the_deadline(failure, restarts, limit):
    async def story():
        found = Live(kills=False)
        found.world.create(job(role("worker", 2, failure)), "vision")
        await found.until(lambda: aijobs.phase(found.world, "job") == "Failed", limit)
        return aijobs.status(found.world, "job")

    status = live(story)
    assert status.get("restarts", 0) == restarts
    assert failure.partition(": ")[2] in status["message"]


def test_what_is_repaired_in_time_starts():
    async def story():
        found = Live(kills=False)
        world = found.world
        broken = True
        world.kubelet.stalls = lambda _: "ContainerCreating" if broken else ""
        world.create(job(role("worker", 4)), "vision")
        await found.until(lambda: len(alive(world)) == 4, 100)
        broken = False
        await found.until(lambda: aijobs.phase(world, "job") == "Succeeded", 200)
        return aijobs.status(world, "job")

    status = live(story)
    assert status.get("restarts", 0) == 0
    assert not [each for each in status["conditions"] if each["type"] == "Started"]


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("kills", [False, True])
def test_elements_of_an_array_go_their_own_ways(members, kills):
    """Every third element has an image that cannot be pulled: these fail, each by itself, and the others succeed."""

    async def story():
        found = Live(kills=kills)
        world = found.world
        world.kubelet.stalls = lambda pod: PULL if int(pod["metadata"]["labels"][names.ELEMENT_LABEL]) % 3 == 0 else ""
        array = {"indexes": "0-8", "parallelism": 8}
        world.create(job(role("worker", members), array=array, startTimeout="3m", restart={"limit": 1}), "vision")
        await found.until(lambda: aijobs.phase(world, "job") == "Failed", 2000)
        return aijobs.status(world, "job")

    status = live(story)
    assert (status["completedIndexes"], status["failedIndexes"]) == ("1-2,4-5,7-8", "0,3,6")


def plain_job(failure, *, seconds=60):
    """A Job of three pods and its PodGroup."""
    made = template(seconds)
    made["metadata"]["labels"] = {names.POD_GROUP_LABEL: "job"}
    if failure:
        made["metadata"]["annotations"][names.SIMULATED_START_FAILURE_ANNOTATION] = failure
    made["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": 3, "completions": 3, "backoffLimit": 100, "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "vision"}, "spec": spec}


def pod_group(**spec):
    metadata = {"name": "job", "namespace": "vision"}
    return {"apiVersion": names.API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": 3, **spec}}


@pytest.mark.parametrize("kills", [False, True])
def test_a_job_that_cannot_start_queues_again_ever_later_until_it_is_repaired(kills):
    async def story():
        found = Live(kills=kills)
        world = found.world
        broken = True
        world.kubelet.stalls = lambda _: PULL if broken else ""
        world.create(pod_group(startTimeout="2m"), "vision")
        world.create(plain_job(""), "vision")
        await found.until(lambda: group_status(world).get("starts", {}).get("failed", 0) >= 3, 1500)
        status = group_status(world)
        broken = False
        await found.until(lambda: group_status(world).get("phase") == "Succeeded", 1500)
        return status, group_status(world)

    failing, after = live(story)
    assert "Back-off pulling image" in failing["starts"]["message"]
    assert failing["starts"]["retryAt"]
    assert "starts" not in after


def test_bare_pods_that_do_not_start_stay_and_their_group_says_why():
    async def story():
        found = Live(kills=False)
        world = found.world
        world.kubelet.stalls = lambda _: PULL
        world.create(pod_group(startTimeout="1m"), "vision")
        for name in "abc":
            made = template(60)
            metadata = {"name": name, "labels": {names.POD_GROUP_LABEL: "job"}}
            world.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}, "vision")
        await found.until(lambda: "reason" in group_status(world), 300)
        return group_status(world), len(alive(world))

    status, pods = live(story)
    assert (status["reason"]["code"], pods) == ("StartTimeout", 3)
    assert "have no controller and stay" in status["reason"]["message"]
