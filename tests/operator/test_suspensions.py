"""What Fairlead suspended is resumed once no PodGroup has it as a suspended target, whatever the cause."""

import asyncio
import contextlib

import pytest

from fairlead.api import names
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.errors import StatusError
from fairlead.simulation.chaos import silence
from fairlead.simulation.world import OperatorProcess, World
from testbed import objects

NS, MERGE = "vision", "application/merge-patch+json"
RAY = {"RayCluster": "rayclusters", "RayJob": "rayjobs"}


def definition(kind, plural):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ray.io"},
        "spec": {
            "group": "ray.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


class Story:
    """A cluster with an operator and no scheduler."""

    def __init__(self):
        self.world = World(nodes=1, seed=1)
        for each in RAY.items():
            self.world.create(definition(*each))
        self.operator = OperatorProcess(self.world)
        self.operator.start()

    async def restart(self, meanwhile):
        await self.operator.kill()
        meanwhile()
        await asyncio.sleep(5.0)
        self.operator = OperatorProcess(self.world)
        self.operator.start()
        await asyncio.sleep(10.0)

    def served(self, kind, version):
        return self.world.api.catalog.of_kind(version, kind)

    def create(self, kind, name, version="batch/v1", spec=None, owner=None):
        made = objects.job(name) if kind == "Job" else {"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec or {}}
        made["metadata"] = {"name": name, "namespace": NS, **({"ownerReferences": [owner]} if owner else {})}
        return self.reference(kind, version, self.world.create(made, NS))

    @staticmethod
    def reference(kind, version, made):
        metadata = made["metadata"]
        return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}

    def intend(self, group, owner, epoch=1, state="Suspended", *, owned=False, labels=None, **more):
        """A PodGroup whose target state is for an object."""
        groups = self.served("PodGroup", names.API_VERSION)
        with contextlib.suppress(StatusError):
            made = objects.pod_group(group, 1)
            owners = [{**owner, "controller": False}] if owned else []
            made["metadata"] |= {"namespace": NS, "ownerReferences": owners, "labels": labels or {}}
            self.world.create(made, NS)
        target = {"state": state, "epoch": epoch, "owners": [owner], **more}
        self.world.api.patch(groups, NS, group, MERGE, {"status": {"target": target}}, subresource="status")

    def delete(self, kind, name, version=names.API_VERSION):
        self.world.api.delete(self.served(kind, version), NS, name, {"propagationPolicy": "Background"})

    def found(self, kind, name, version="batch/v1"):
        return self.world.api.get(self.served(kind, version), NS, name).object

    def suspended(self, kind, name, version="batch/v1"):
        return bool(self.found(kind, name, version)["spec"].get("suspend"))

    def marks(self, kind, name, version="batch/v1"):
        metadata = self.found(kind, name, version)["metadata"]
        both = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
        return sorted(each for each in both if each.startswith("fairlead.dev/") and "simulated" not in each)


def play(story):
    async def run():
        made = Story()
        await asyncio.sleep(5.0)
        await story(made)
        await made.operator.kill()

    silence()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_the_group_of_a_workload_is_made_again_while_that_is_there():
    async def story(made):
        spec = {"headGroupSpec": {"template": {"spec": {"schedulerName": "fairlead", "containers": []}}}}
        made.create("RayCluster", "ray", "ray.io/v1", spec)
        await asyncio.sleep(5.0)
        first = made.found("PodGroup", "raycluster.ray", names.API_VERSION)["metadata"]["uid"]
        made.delete("PodGroup", "raycluster.ray")
        await asyncio.sleep(5.0)
        assert made.found("PodGroup", "raycluster.ray", names.API_VERSION)["metadata"]["uid"] != first
        made.delete("RayCluster", "ray", "ray.io/v1")
        await asyncio.sleep(5.0)
        with pytest.raises(StatusError):
            made.found("PodGroup", "raycluster.ray", names.API_VERSION)

    play(story)


def test_the_group_of_a_workload_that_was_deleted_is_not_the_next_ones():
    """It is collected a while after its object."""

    async def story(made):
        before = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "earlier", "controller": True}
        group = objects.pod_group("raycluster.ray", 7)
        group["metadata"] |= {"namespace": NS, "ownerReferences": [before]}
        made.world.create(group, NS)
        spec = {"headGroupSpec": {"template": {"spec": {"schedulerName": "fairlead", "containers": []}}}}
        own = made.create("RayCluster", "ray", "ray.io/v1", spec)
        await asyncio.sleep(10.0)
        assert made.found("PodGroup", "raycluster.ray", names.API_VERSION)["spec"]["minMember"] == 7
        made.delete("PodGroup", "raycluster.ray")
        await asyncio.sleep(5.0)
        found = made.found("PodGroup", "raycluster.ray", names.API_VERSION)
        assert (found["spec"]["minMember"], found["metadata"]["ownerReferences"][0]["uid"]) == (1, own["uid"])
        events = [record.object for _, record in made.world.api.store.records("events")]
        assert not [each for each in events if each["reason"] == "NameTaken"], "no name is to be changed for that"

    play(story)


async def _suspended_job(story):
    story.intend("group", story.create("Job", "low"))
    await asyncio.sleep(5.0)
    assert story.suspended("Job", "low")


def test_a_group_that_was_made_for_a_job_stays_while_it_names_places():
    async def story(made):
        owner, labels = made.create("Job", "low"), {names.MADE_FOR_LABEL: "Job"}
        made.intend("job-batch.low", owner, owned=True, labels=labels)
        await asyncio.sleep(5.0)
        made.intend("job-batch.low", owner, 2, "Running", nodes=["n"], keptUntil="2027-01-31T08:00:00Z")
        await asyncio.sleep(5.0)
        assert not made.suspended("Job", "low")
        assert made.found("PodGroup", "job-batch.low", names.API_VERSION)["status"]["target"]["nodes"] == ["n"]
        made.intend("job-batch.low", owner, 3, "Running", nodes=None, keptUntil=None)
        await asyncio.sleep(5.0)
        with pytest.raises(StatusError, match="not found"):
            made.found("PodGroup", "job-batch.low", names.API_VERSION)

    play(story)


def _take_target_out(story):
    story.world.api.patch(
        story.served("PodGroup", names.API_VERSION), NS, "group", MERGE, {"status": {"target": None}}, subresource="status"
    )


def _make_group_anew(story):
    story.delete("PodGroup", "group")
    made = objects.pod_group("group", 1)
    made["metadata"]["namespace"] = NS
    story.world.create(made, NS)


GONE = {
    "deleted": lambda story: story.delete("PodGroup", "group"),
    "made anew": _make_group_anew,
    "taken out": _take_target_out,
}


@pytest.mark.parametrize("down", [False, True], ids=["operator up", "operator down"])
@pytest.mark.parametrize("how", GONE)
def test_a_job_whose_target_state_is_gone_resumes(how, down):
    async def story(made):
        await _suspended_job(made)
        if down:
            await made.restart(lambda: GONE[how](made))
        else:
            GONE[how](made)
            await asyncio.sleep(10.0)
        assert not made.suspended("Job", "low")
        assert made.marks("Job", "low") == []

    play(story)


def test_a_job_stays_suspended_while_its_target_state_does_and_what_its_user_suspended_is_the_users():
    async def story(made):
        await _suspended_job(made)
        made.create("Job", "his")
        made.world.api.patch(made.served("Job", "batch/v1"), NS, "his", MERGE, {"spec": {"suspend": True}})
        await made.restart(lambda: None)
        await asyncio.sleep(300.0)
        assert made.suspended("Job", "low")
        assert made.suspended("Job", "his")
        group = made.served("PodGroup", names.API_VERSION)
        made.world.api.patch(group, NS, "group", MERGE, {"metadata": {"annotations": {"a": "b"}}})
        await asyncio.sleep(10.0)
        assert made.suspended("Job", "low")

    play(story)


def test_a_suspension_that_is_carried_out_late_does_not_outlive_its_target_state():
    """A request of an operator that was killed, or has lost its lease, reaches the server after all else is over."""

    async def story(made):
        owner = made.create("Job", "low")
        made.intend("group", owner)
        await asyncio.sleep(5.0)
        late = {
            "metadata": {each: made.found("Job", "low")["metadata"].get(each) or {} for each in ("annotations", "labels")},
            "spec": {"suspend": True},
        }
        made.intend("group", owner, 2, "Running")
        await asyncio.sleep(5.0)
        made.delete("PodGroup", "group")
        await asyncio.sleep(5.0)
        assert not made.suspended("Job", "low")
        made.world.api.patch(made.served("Job", "batch/v1"), NS, "low", MERGE, late)
        await asyncio.sleep(10.0)
        assert not made.suspended("Job", "low")

    play(story)


def test_a_ray_job_whose_cluster_goes_when_it_is_suspended_resumes():
    """The PodGroup is its cluster's, and goes with it."""

    async def story(made):
        job = made.create("RayJob", "train", "ray.io/v1", {"shutdownAfterJobFinishes": True})
        cluster = made.create("RayCluster", "train-abcde", "ray.io/v1", owner=job)
        made.intend("raycluster.train-abcde", cluster, owned=True)
        await asyncio.sleep(5.0)
        assert made.suspended("RayJob", "train", "ray.io/v1")
        made.delete("RayCluster", "train-abcde", "ray.io/v1")  # its controller's answer
        await asyncio.sleep(10.0)
        with pytest.raises(StatusError):
            made.found("PodGroup", "raycluster.train-abcde", names.API_VERSION)
        assert not made.suspended("RayJob", "train", "ray.io/v1")

    play(story)


def test_an_owner_that_cannot_be_suspended_is_not_even_read():
    """The operator may only list kinds without a field for that; any user may write such an owner on a Job."""

    async def story(made):
        asked = []
        transport = made.operator._transport
        request = transport.request

        async def noted(method, path, **more):
            asked.append(path)
            return await request(method, path, **more)

        transport.request = noted
        above = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "above", "uid": "u"}
        made.intend("group", made.create("Job", "low", owner={**above, "controller": True}))
        await asyncio.sleep(10.0)
        assert [path for path in asked if path.endswith("/jobs/low")]
        assert [path for path in asked if "leaderworkersets" in path] == []
        assert not made.suspended("Job", "low")

    play(story)
