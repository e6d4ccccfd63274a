"""JobSets and LeaderWorkerSets of which parts start later: each stage is a gang of its own, whatever the stage before needed."""

import asyncio
import copy
import random

import pytest

from fairlead.api import names
from fairlead.simulation import aijobs
from fairlead.simulation.world import OperatorProcess, Process
from tests.simulation.lives import Live, live

GPUS = 8


def definition(group, version, kind, plural):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


JOBSET = definition("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
LWS = definition("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")


def replicated(name, pods, **more):
    template = {"spec": {"schedulerName": "fairlead", "containers": [{"name": "main", "image": "i"}]}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"name": name, "replicas": 1, "template": {"spec": spec}, **more}


def after(*jobs):
    return [{"name": each, "status": "Complete"} for each in jobs]


class Stages(Live):
    """The cluster, and what the JobSet controller would do in it."""

    def __init__(self):
        super().__init__(kills=False)
        for each in (JOBSET, LWS):
            self.world.create(copy.deepcopy(each))

    def jobset(self, name, jobs, order="AnyOrder", annotations=None):
        spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": order}}
        manifest = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}
        metadata = {"name": name, "namespace": "vision", "annotations": annotations or {}}
        return self.world.create({**manifest, "metadata": metadata}, "vision")["metadata"]["uid"]

    def pods(self, name, job, count, *, uid="", seconds=60):
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": job}
        labels |= {"jobset.sigs.k8s.io/jobset-uid": uid} if uid else {}
        self.make(name, job, count, labels, seconds)

    def make(self, name, job, count, labels, seconds=60):
        owner = {"apiVersion": "simulated/v1", "kind": "Job", "name": f"{name}-{job}", "uid": f"{name}-{job}", "controller": True}
        for number in range(count):
            made = aijobs.single(f"{name}-{job}-{number}")
            made["metadata"] |= {"namespace": "vision", "labels": labels, "ownerReferences": [owner]}
            made["metadata"]["annotations"] = {names.SIMULATED_DURATION_ANNOTATION: f"{seconds}s"}
            self.world.create(made, "vision")

    def racks(self, **nodes):
        for name, rack in nodes.items():
            labels = {"metadata": {"labels": {"example.com/rack": rack}}}
            self.world.api.patch(self.world.api.served("v1", "nodes"), "", name, "application/merge-patch+json", labels)

    def groups(self):
        return {name: record.object for (_, name), record in self.world.api.store.records("fairlead.dev/podgroups")}

    def of(self, name, job):
        return [pod for pod in aijobs.pods(self.world) if pod["metadata"]["name"].startswith(f"{name}-{job}-")]

    def placed(self, name, job):
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.of(name, job))

    def done(self, name, job):
        found = self.of(name, job)
        return bool(found) and all((pod.get("status") or {}).get("phase") == "Succeeded" for pod in found)


@pytest.mark.parametrize("uid", [True, False], ids=["with its UID", "without"])
def test_a_later_stage_that_is_smaller_does_not_wait_for_the_size_of_the_first(uid):
    async def story():
        found = Stages()
        given = found.jobset("js", [replicated("a", 4), replicated("b", 2)], order="InOrder") if uid else ""
        if not uid:
            found.jobset("js", [replicated("a", 4), replicated("b", 2)], order="InOrder")
        found.pods("js", "a", 4, uid=given)
        await found.until(lambda: found.done("js", "a"), 200)
        found.pods("js", "b", 2, uid=given)
        await found.until(lambda: found.placed("js", "b") == 2, 60)
        await found.until(lambda: found.done("js", "b"), 200)

    live(story)


@pytest.mark.parametrize("uid", [True, False], ids=["with its UID", "without"])
def test_trainers_after_a_small_initializer_start_together_or_not_at_all(uid):
    async def story():
        found = Stages()
        jobs = [replicated("init", 1), replicated("driver", 1, dependsOn=after("init"))]
        jobs += [replicated("trainer", GPUS - 1, dependsOn=after("init"))]
        given = found.jobset("js", jobs) if uid else found.jobset("js", jobs) and ""
        found.pods("js", "init", 1, uid=given)
        await found.until(lambda: found.done("js", "init"), 200)
        found.world.create({**aijobs.single("other"), "metadata": {"name": "other", "namespace": "vision"}}, "vision")
        await asyncio.sleep(5.0)
        found.pods("js", "trainer", GPUS - 1, uid=given)
        await asyncio.sleep(20.0)
        assert found.placed("js", "trainer") == 0, "the driver is not there"
        found.pods("js", "driver", 1, uid=given)
        await asyncio.sleep(20.0)
        assert found.placed("js", "trainer") == 0, "one GPU is another's"
        found.world.api.delete(found.world.api.served("v1", "pods"), "vision", "other")
        await found.until(lambda: found.placed("js", "trainer") == GPUS - 1 and found.placed("js", "driver") == 1, 100)

    live(story)


READY = ({"startupPolicy": "LeaderReady"}, {})
EXCLUSIVE = ({}, {"leaderworkerset.sigs.k8s.io/exclusive-topology": "example.com/rack"})


@pytest.mark.parametrize(("policy", "annotations"), [READY, EXCLUSIVE], ids=["ready", "has a node"])
def test_workers_that_are_made_after_their_leader_start_together_or_not_at_all(policy, annotations):
    async def story():
        found = Stages()
        template = {"spec": {"schedulerName": "fairlead", "containers": [{"name": "main", "image": "i"}]}}
        spec = {"replicas": 1, "leaderWorkerTemplate": {"size": GPUS, "workerTemplate": template}, **policy}
        manifest = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "spec": spec}
        metadata = {"name": "lws", "namespace": "vision", "annotations": annotations}
        found.racks(n0="r0", n1="r0")
        found.world.create({**manifest, "metadata": metadata}, "vision")
        labels = {"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/group-index": "0"}
        index = "leaderworkerset.sigs.k8s.io/worker-index"
        found.make("lws", "leader", 1, {**labels, index: "0"}, seconds=9000)
        await found.until(lambda: found.placed("lws", "leader") == 1, 60)
        found.make("lws", "worker", GPUS - 2, {**labels, index: "1"}, seconds=9000)
        await asyncio.sleep(20.0)
        assert found.placed("lws", "worker") == 0, "one of seven is missing"
        found.make("lws", "last", 1, {**labels, index: "7"}, seconds=9000)
        await found.until(lambda: found.placed("lws", "worker") + found.placed("lws", "last") == GPUS - 1, 100)

    live(story)


def test_followers_are_made_once_leaders_have_nodes_and_start_together_or_not_at_all():
    """As JobSet's webhook has it for jobs that have a domain to themselves: no follower is made before."""

    async def story():
        found = Stages()
        exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "example.com/rack"}
        found.racks(n0="r0", n1="r0")
        found.jobset("js", [{**replicated("node", 3), "replicas": 2}], annotations=exclusive)
        labels = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        index = "batch.kubernetes.io/job-completion-index"
        found.make("js", "leader0", 1, {**labels, index: "0"}, seconds=9000)
        await asyncio.sleep(20.0)
        assert found.placed("js", "leader0") == 0, "the other leader is not there"
        found.make("js", "leader1", 1, {**labels, index: "0"}, seconds=9000)
        await found.until(lambda: found.placed("js", "leader0") + found.placed("js", "leader1") == 2, 60)
        found.make("js", "follower", 3, {**labels, index: "1"}, seconds=9000)
        await asyncio.sleep(20.0)
        assert found.placed("js", "follower") == 0, "one of four is missing"
        found.make("js", "last", 1, {**labels, index: "2"}, seconds=9000)
        await found.until(lambda: found.placed("js", "follower") + found.placed("js", "last") == 4, 100)

    live(story)


@pytest.mark.parametrize("restarts", [False, True], ids=["one scheduler", "another scheduler"])
def test_a_leader_starts_where_its_followers_fit_and_these_get_the_places_kept_for_them(restarts):
    """Two racks of four GPUs, of which one has a GPU in use. What comes in between gets none of the places."""

    async def story():
        found = Stages()
        found.racks(n0="r0", n1="r1")
        found.make("x", "used", 1, {}, seconds=9000)
        await found.until(lambda: found.placed("x", "used") == 1, 60)
        taken = found.of("x", "used")[0]["spec"]["nodeName"]
        job = replicated("node", 4)
        container = {"name": "main", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
        job["template"]["spec"]["template"]["spec"]["containers"] = [container]
        found.jobset("js", [job], annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "example.com/rack"})
        labels = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        index = "batch.kubernetes.io/job-completion-index"
        found.make("js", "leader", 1, {**labels, index: "0"}, seconds=9000)
        await found.until(lambda: found.placed("js", "leader") == 1, 60)
        where = found.of("js", "leader")[0]["spec"]["nodeName"]
        assert where != taken, "three followers do not fit beside what runs there"
        await asyncio.sleep(5.0)
        assert found.groups()["jobset.js"]["status"]["spares"] == {"wanted": 3, "kept": 3, "nodes": [where] * 3}
        if restarts:
            await found.scheduler.kill()
        found.make("x", "late", 4, {}, seconds=9000)
        if restarts:
            found.scheduler = Process(found.world, 0)
            found.scheduler.start()
        await asyncio.sleep(60.0)  # a lease ends in between
        assert found.placed("x", "late") == 3, [each.get("status") for each in found.of("x", "late")]
        found.make("js", "follower", 3, {**labels, index: "1"}, seconds=9000)
        await found.until(lambda: found.placed("js", "follower") == 3, 60)
        assert {each["spec"]["nodeName"] for each in found.of("js", "follower")} == {where}
        await asyncio.sleep(5.0)
        assert "nodes" not in (found.groups()["jobset.js"]["status"].get("spares") or {})

    live(story)


@pytest.mark.parametrize("seed", range(6))
def test_random_jobsets_start_stage_by_stage(seed):
    """As many of a stage have nodes as it has pods, or none, at any moment; and all come to their end."""
    draw = random.Random(seed)

    async def one(found, name):
        stages = [[(f"{name}{stage}{part}", draw.randint(1, 4)) for part in "ab"[: draw.randint(1, 2)]] for stage in range(3)]
        in_order = draw.random() < 0.5
        if in_order:
            stages = [stage[:1] for stage in stages]
        jobs, before = [], []
        for stage in stages:
            jobs += [
                replicated(job, count, **({"dependsOn": after(*before)} if before and not in_order else {}))
                for job, count in stage
            ]
            before = [job for job, _ in stage]
        uid = found.jobset(name, jobs, "InOrder" if in_order else "AnyOrder")
        told = uid if draw.random() < 0.5 else ""
        for stage in stages:
            for job, count in stage:
                found.pods(name, job, count, uid=told, seconds=draw.randint(5, 90))
                await asyncio.sleep(draw.choice([0.0, 0.0, 3.0]))
            needed = sum(count for _, count in stage)
            while not all(found.done(name, job) for job, _ in stage):
                placed = sum(found.placed(name, job) for job, _ in stage)
                found.seen.append((name, placed, needed))
                await asyncio.sleep(1.0)

    async def story():
        found = Stages()
        found.seen = []
        async with asyncio.timeout(20_000):
            await asyncio.gather(*(one(found, f"js{number}") for number in range(4)))
        partial = [each for each in found.seen if 0 < each[1] < each[2]]
        # Bindings of a gang are written one by one.
        assert all(partial.count(each) <= 2 for each in partial), partial

    live(story)


def test_the_topology_of_kubernetes_own_pod_group_is_its_gangs():
    async def story():
        found = Stages()
        found.world.create(definition("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups"))
        await asyncio.sleep(70.0)
        theirs = {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "up", "namespace": "vision"},
        }
        constraints = {"topology": [{"key": "example.com/rack"}]}
        gang = {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": constraints}
        found.world.create({**theirs, "spec": gang}, "vision")
        await asyncio.sleep(10.0)
        groups = {name: record.object for (_, name), record in found.world.api.store.records("fairlead.dev/podgroups")}
        assert groups["upstream.up"]["spec"]["minMember"] == 2
        assert groups["upstream.up"]["spec"]["topology"]["required"] == "example.com/rack"

    live(story)


def pod_group(name, uid, kind="JobSet", owner="js"):
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": kind, "name": owner, "uid": uid, "controller": True}
    metadata = {"name": name, "namespace": "vision", "ownerReferences": [reference]}
    return {"apiVersion": names.API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": 1}}


def test_a_group_that_an_earlier_version_made_stays_the_gangs():
    async def story():
        found = Stages()
        await found.operator.kill()
        uid = found.jobset("js", [replicated("a", 4)])
        found.world.create(pod_group("jobset-js", uid), "vision")
        found.operator = OperatorProcess(found.world)
        found.operator.start()
        await asyncio.sleep(10.0)
        groups = {name: record.object for (_, name), record in found.world.api.store.records("fairlead.dev/podgroups")}
        assert {name: each["spec"]["minMember"] for name, each in groups.items()} == {"jobset-js": 4}
        found.pods("js", "a", 3)
        await asyncio.sleep(10.0)
        assert found.placed("js", "a") == 0
        found.make("js", "last", 1, {"jobset.sigs.k8s.io/jobset-name": "js"})
        await found.until(lambda: found.placed("js", "a") == 3 and found.placed("js", "last") == 1, 100)

    live(story)


def test_a_group_of_its_name_that_is_another_objects_is_told_of_once():
    async def story():
        found = Stages()
        found.world.create(pod_group("jobset.js", "other", kind="Sweep", owner="lr"), "vision")
        found.jobset("js", [replicated("a", 4)])
        await asyncio.sleep(5.0)
        sets = found.world.api.served("jobset.x-k8s.io/v1alpha2", "jobsets")
        found.world.api.patch(sets, "vision", "js", "application/merge-patch+json", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(5.0)
        events = [record.object for _, record in found.world.api.store.records("events")]
        told = [each for each in events if each.get("reason") == "NameTaken"]
        assert len(told) == 1
        assert "belongs to Sweep lr" in str(told[0])

    live(story)
