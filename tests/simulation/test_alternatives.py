"""AIJobs with alternatives: scheduler and operator on virtual time."""

import asyncio

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.node_pool import NodePool
from fairlead.operator.jobs.alternatives import in_form, offer
from fairlead.simulation import aijobs
from fairlead.simulation.world import World
from tests.simulation.lives import Live, live

POOL = {"apiVersion": names.API_VERSION, "kind": "NodePool"}

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pool(name, **spec):
    return {**POOL, "metadata": {"name": name}, "spec": {"nodeSelector": {"matchLabels": {"model": name}}, **spec}}


def job(name, *, replicas=1, gpus=1, seconds=3000, model="", alternatives=(), **spec):
    made = aijobs.single("any")["spec"]
    made["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    if model:
        made["nodeSelector"] = {"model": model}
    template = {"metadata": {"annotations": {names.SIMULATED_DURATION_ANNOTATION: f"{seconds}s"}}, "spec": made}
    role = {"name": "worker", "replicas": replicas, "template": template}
    spec = {"roles": [role], **({"alternatives": list(alternatives)} if alternatives else {}), **spec}
    return {"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": {"name": name, "namespace": "vision"}, "spec": spec}


class Lab(Live):
    """Pools of one node each, by name -> GPUs."""

    def __init__(self, pools, *, kills=False, objects=()):
        self.world = World(nodes=0, seed=1)
        self.kills = kills
        for name, gpus in pools.items():
            made = aijobs.node(f"n-{name}", gpus)
            made["metadata"].setdefault("labels", {})["model"] = name
            self.world.create(made)
        for each in objects:
            self.world.create(each)
        self._start()

    def submit(self, *jobs):
        for each in jobs:
            self.world.create(each, "vision")

    def placed(self, name):
        """[(node, GPUs)] of the pods of a job that have nodes."""
        found = []
        for each in aijobs.pods(self.world):
            if each["metadata"]["labels"].get(names.JOB_LABEL) == name and each["spec"].get("nodeName"):
                limits = each["spec"]["containers"][0]["resources"]["limits"]
                found.append((each["spec"]["nodeName"], int(limits["nvidia.com/gpu"])))
        return sorted(found)


def told(story):
    return live(story)


@pytest.mark.parametrize("affinity", [None, {"nodeAffinity": None}, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}])
def test_a_null_in_the_template_is_as_if_it_were_not_there(affinity):
    told = job("large", gpus=8, alternatives=[{"pool": "slow"}])
    told["spec"]["roles"][0]["template"]["spec"]["affinity"] = affinity
    made = msgspec.convert({**told, "status": {"alternative": {"index": 1, "pool": "slow"}}}, AIJob)
    formed = in_form(made, offer(made, {"slow": msgspec.convert(pool("slow"), NodePool)}, {}))
    wanted = formed.spec.roles[0].template["spec"]["affinity"]["nodeAffinity"][REQUIRED]
    assert wanted == {"nodeSelectorTerms": [{"matchExpressions": [{"key": "model", "operator": "In", "values": ["slow"]}]}]}


@pytest.mark.parametrize("kills", [False, True])
def test_a_job_that_waits_runs_in_another_pool_with_other_gpus_and_members(kills):
    async def story():
        lab = Lab({"fast": 8, "slow": 8}, kills=kills, objects=[pool("fast"), pool("slow")])
        lab.submit(job("first", gpus=8, model="fast"))
        await lab.until(lambda: aijobs.phase(lab.world, "first") == "Running", 200)
        lab.submit(
            job(
                "second",
                replicas=2,
                gpus=4,
                alternatives=[{"pool": "fast", "gpusPerMember": 2}, {"pool": "slow", "gpusPerMember": 2, "replicas": 4}],
            )
        )
        # As it is written it fits the slow pool at once.
        await lab.until(lambda: aijobs.phase(lab.world, "second") == "Running", 200)
        lab.submit(job("third", gpus=8, model="fast", alternatives=[{"pool": "fast", "gpusPerMember": 4}]))
        await asyncio.sleep(100.0)
        return (
            lab.placed("first"),
            lab.placed("second"),
            lab.placed("third"),
            aijobs.status(lab.world, "second").get("alternative"),
        )

    first, second, third, form = told(story)
    assert first == [("n-fast", 8)]
    assert second == [("n-slow", 4)] * 2
    assert (third, form) == ([], None)


def test_the_first_alternative_that_can_start_is_taken():
    async def story():
        lab = Lab({"fast": 4, "middle": 4, "slow": 4}, objects=[pool("fast"), pool("middle"), pool("slow")])
        lab.submit(job("first", gpus=3, model="fast"))
        await lab.until(lambda: aijobs.phase(lab.world, "first") == "Running", 200)
        named = [{"pool": "fast", "gpusPerMember": 2}, {"pool": "middle", "gpusPerMember": 2, "replicas": 2}, {"pool": "slow"}]
        lab.submit(job("second", gpus=8, alternatives=named))
        await lab.until(lambda: aijobs.phase(lab.world, "second") == "Running", 300)
        group = lab.world.api.store.get("fairlead.dev/podgroups", ("vision", "second")).object
        return lab.placed("second"), aijobs.status(lab.world, "second"), group

    placed, status, group = told(story)
    assert placed == [("n-middle", 2)] * 2
    assert status["alternative"] == {"index": 2, "pool": "middle"}
    assert (status["attempt"], status.get("restarts", 0), status["members"]) == (1, 0, 2)
    assert group["spec"]["minMember"] == 2
    assert group["status"]["alternative"] == {"index": 2, "pool": "middle", "attempt": 0}


def test_an_alternative_without_a_pool_takes_the_fastest_that_can_start_it():
    async def story():
        pools = [pool("a", relativeSpeed=1.5), pool("b", relativeSpeed=3), pool("c"), pool("d", relativeSpeed=2)]
        lab = Lab({"a": 4, "b": 1, "c": 4, "d": 4}, objects=pools)
        lab.submit(job("any", gpus=8, alternatives=[{"gpusPerMember": 2}]))
        await lab.until(lambda: aijobs.phase(lab.world, "any") == "Running", 300)
        return lab.placed("any"), aijobs.status(lab.world, "any")["alternative"]

    assert told(story) == ([("n-d", 2)], {"index": 1, "pool": "d"})


def test_what_is_not_named_or_not_allowed_is_never_taken():
    async def story():
        cheap = {
            "apiVersion": names.API_VERSION,
            "kind": "ServiceClass",
            "metadata": {"name": "cheap"},
            "spec": {"alternativePools": ["b"]},
        }
        lab = Lab({"a": 4, "b": 2}, objects=[pool("a"), pool("b"), cheap])
        lab.submit(
            job("unnamed", gpus=8, alternatives=[{"pool": "b", "gpusPerMember": 4}]),
            job("missing", gpus=8, alternatives=[{"pool": "nowhere", "gpusPerMember": 1}]),
            job("spills", gpus=8, serviceClass="cheap", alternatives=[{"pool": "a", "gpusPerMember": 1}, {"gpusPerMember": 2}]),
        )
        await lab.until(lambda: aijobs.phase(lab.world, "spills") == "Running", 300)
        return [lab.placed(name) for name in ("unnamed", "missing", "spills")], [
            next(
                iter(
                    [
                        each["message"]
                        for each in aijobs.status(lab.world, name)["conditions"]
                        if each["type"] == "AlternativesOffered"
                    ]
                ),
                "",
            )
            for name in ("unnamed", "missing", "spills")
        ]

    placed, said = told(story)
    assert placed == [[], [], [("n-b", 2)]]
    assert said[0] == ""
    assert "nowhere" in said[1]
    assert "ServiceClass cheap does not allow pool a" in said[2]
