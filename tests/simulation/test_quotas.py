"""Gangs in namespaces with ResourceQuotas and LimitRanges, on the simulated cluster."""

import asyncio

import pytest

from fairlead.api import names
from fairlead.cluster.simulated.errors import StatusError
from fairlead.operator.jobs.making import Maker
from fairlead.operator.jobs.quotas import Quotas
from fairlead.simulation import aijobs
from fairlead.simulation.world import GPU
from tests.simulation.lives import Live, alive, job, live, role, template

REQUESTS = f"requests.{GPU}"


def quota(name="gpus", scopes=None, **hard):
    spec = {"hard": {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}}
    if scopes:
        spec["scopeSelector"] = {"matchExpressions": scopes}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec}


def gpus(count, **more):
    made = quota(**more)
    made["spec"]["hard"][REQUESTS] = str(count)
    return made


def limit_range(**item):
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "bounds"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def accepted(world, name):
    return next(each for each in aijobs.status(world, name)["conditions"] if each["type"] == "Accepted")


def of(world, name):
    return [pod for pod in alive(world) if pod["metadata"]["labels"].get(names.JOB_LABEL) == name]


def used(world, name="gpus"):
    return world.api.store.get("resourcequotas", ("vision", name)).object["status"]["used"]


@pytest.mark.parametrize("kills", [False, True])
def test_a_gang_that_a_quota_would_admit_in_part_is_not_begun(kills):
    async def story():
        found = Live(kills=kills)
        world = found.world
        world.create(gpus(6), "vision")
        await asyncio.sleep(2.0)
        world.create(job(role("worker", 4, seconds=300), name="first"), "vision")
        await asyncio.sleep(5.0)
        world.create(job(role("worker", 4, seconds=60), name="second"), "vision")
        await asyncio.sleep(20.0)
        seen = len(of(world, "first")), len(of(world, "second")), accepted(world, "second"), dict(used(world))
        await found.until(lambda: aijobs.phase(world, "second") == "Succeeded", 1000)
        return seen, accepted(world, "second"), used(world), aijobs.status(world, "first"), aijobs.status(world, "second")

    (first, second, why, held), after, rest, one, two = live(story)
    assert (first, second, held[REQUESTS]) == (4, 0, "4")
    assert (why["status"], why["reason"]) == ("False", "ResourceQuota")
    said = "ResourceQuota gpus in namespace vision: its 4 pods need 4 requests.nvidia.com/gpu, 2 of 6 are left (4 are used)"
    assert why["message"] == said
    assert (after["status"], rest[REQUESTS]) == ("True", "0")
    assert (one.get("restarts", 0), two.get("restarts", 0), two.get("interruptions", 0)) == (0, 0, 0)


def test_a_gang_larger_than_a_quota_is_told_that_it_never_fits():
    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(quota(name="pods", pods="3"), "vision")
        await asyncio.sleep(2.0)
        world.create(job(role("worker", 4)), "vision")
        await asyncio.sleep(20.0)
        before = accepted(world, "job"), len(alive(world))
        patch = {"spec": {"hard": {"pods": "4"}}}
        world.api.patch(world.api.served("v1", "resourcequotas"), "vision", "pods", "application/merge-patch+json", patch)
        await found.until(lambda: aijobs.phase(world, "job") == "Succeeded", 200)
        return before

    why, pods = live(story)
    assert pods == 0
    assert "its 4 pods need 4 pods, 3 of 3 are left: the quota never allows this" in why["message"]


@pytest.mark.parametrize("knows", [True, False])
def test_two_gangs_at_once_do_not_take_half_of_a_quota_each(knows, monkeypatch):
    """knows: the operator may read quotas; else the API server refuses members, and the others of their gang are taken back."""
    if not knows:
        monkeypatch.setattr(Quotas, "concerns", lambda *_: False)

    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(gpus(6), "vision")
        await asyncio.sleep(2.0)
        for name in ("one", "two", "three"):
            world.create(job(role("worker", 4, seconds=100), name=name), "vision")
        peak = 0
        for _ in range(100):
            await asyncio.sleep(1.0)
            peak = max(peak, int(used(world)[REQUESTS]))
        ends = ("one", "two", "three")
        await found.until(lambda: all(aijobs.phase(world, name) == "Succeeded" for name in ends), 2000)
        return [aijobs.status(world, name) for name in ends], peak

    statuses, peak = live(story)
    assert [status.get("interruptions", 0) + status.get("restarts", 0) for status in statuses] == [0, 0, 0]
    assert peak <= 6


def test_what_was_made_of_a_gang_before_its_operator_died_does_not_keep_a_quota(monkeypatch):
    make, posted = Maker._post_new, 0

    async def half(self, path, manifest):
        nonlocal posted
        posted += 1
        if posted > 2:
            await asyncio.sleep(1000.0)
        return await make(self, path, manifest)

    async def story():
        found = Live(kills=False)
        world = found.world
        await asyncio.sleep(2.0)
        world.create(gpus(6), "vision")
        world.create(job(role("worker", 4)), "vision")
        monkeypatch.setattr(Maker, "_post_new", half)
        await asyncio.sleep(5.0)
        await found.operator.kill()
        monkeypatch.undo()
        world.create(quota(name="late", pods="3"), "vision")
        await asyncio.sleep(2.0)
        before = len(of(world, "job"))
        found._start()
        await asyncio.sleep(20.0)
        return before, len(of(world, "job")), accepted(world, "job")

    before, after, why = live(story)
    assert (before, after) == (2, 0)
    assert why["reason"] == "ResourceQuota"


@pytest.mark.parametrize("members", [1, 2])
def test_elements_of_an_array_start_as_a_quota_allows(members):
    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(quota(name="few", pods="5"), "vision")
        await asyncio.sleep(2.0)
        world.create(job(role("worker", members, seconds=20), array={"indexes": "0-9"}), "vision")
        most = 0
        for _ in range(60):
            await asyncio.sleep(1.0)
            most = max(most, len(alive(world)))
        await found.until(lambda: aijobs.phase(world, "job") in ("Succeeded", "Failed"), 1000)
        return most, aijobs.status(world, "job")

    most, status = live(story)
    assert most == 5 // members * members
    assert (status["phase"], status["completedIndexes"]) == ("Succeeded", "0-9")


def test_members_beyond_the_minimum_take_what_a_quota_leaves():
    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(gpus(3), "vision")
        await asyncio.sleep(2.0)
        elastic = {"replicas": 2, "minReplicas": 2, "maxReplicas": 6}
        world.create(job({**role("worker", 2, seconds=200), **elastic}), "vision")
        await asyncio.sleep(60.0)
        return len(of(world, "job")), aijobs.status(world, "job")["phase"]

    assert live(story) == (3, "Running")


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"max": {"cpu": "500m"}}, "container main: its limit of cpu is"),
        ({"max": {GPU: "0"}}, f"its limit of {GPU} is 1, at most 0 are allowed"),
    ],
)
def test_a_limit_range_that_refuses_members_is_named(item, said):
    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(limit_range(default={"cpu": "1"}, **item), "vision")
        await asyncio.sleep(2.0)
        world.create(job(role("worker", 2)), "vision")
        await asyncio.sleep(20.0)
        return accepted(world, "job"), len(alive(world))

    why, pods = live(story)
    assert (why["reason"], pods) == ("LimitRange", 0)
    assert "LimitRange bounds in namespace vision" in why["message"]
    assert said in why["message"]


def test_the_simulated_server_refuses_what_exceeds_a_quota_and_counts_what_ends():
    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(quota(name="q", pods="1", count__pods="2"), "vision")
        await asyncio.sleep(2.0)

        def make(name):
            metadata = {"name": name}
            spec = {**template(10)["spec"]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template(10)["metadata"], **metadata}, "spec": spec}
            world.create(pod, "vision")

        make("a")
        with pytest.raises(StatusError, match="exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"):
            make("b")
        await asyncio.sleep(30.0)  # it has ended: it counts among the objects only
        make("b")
        await asyncio.sleep(30.0)
        with pytest.raises(StatusError, match="requested: count/pods=1, used: count/pods=2"):
            make("c")
        return dict(used(world, "q"))

    assert live(story) == {"pods": "0", "count/pods": "2"}
