"""Provisioning classes: only those that an administrator lists are used, whatever an object names."""

import asyncio

import pytest

from fairlead.operator.app import Options
from tests.e2e.test_provisioning import definition
from tests.operator.test_suspensions import definition as ray_definition
from tests.operator.worlds import in_a_world

GROUPS, REQUESTS = "fairlead.dev/podgroups", "autoscaling.x-k8s.io/provisioningrequests"
WAITS = {"phase": "Pending", "scheduled": 0, "reason": {"code": "Resources", "message": "full"}}


def ask(world, name, kind):
    """A gang of one that waits for capacity and requests nodes of a class."""
    notes = {"fairlead.dev/provisioning-class": kind}
    metadata = {"name": name, "namespace": "vision", "annotations": notes}
    world.create(
        {"apiVersion": "fairlead.dev/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": 1}}, "vision"
    )
    record = world.api.store.get(GROUPS, ("vision", name)).object
    world.api.store.put(GROUPS, ("vision", name), {**record, "metadata": dict(record["metadata"]), "status": WAITS})
    labels = {"fairlead.dev/pod-group": name}
    spec = {"containers": [{"name": "main", "image": "none"}], "schedulerName": "fairlead"}
    world.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "vision", "labels": labels}, "spec": spec},
        "vision",
    )


def told(world, name):
    found = world.api.store.get(GROUPS, ("vision", name)).object["status"].get("conditions") or []
    return [(each["status"], each["reason"], each["message"]) for each in found if each["type"] == "Provisioned"]


def events(world, name):
    found = [record.object for _, record in world.api.store.records("events")]
    return [each["message"] for each in found if each["involvedObject"]["name"] == name and each["reason"] == "ClassNotAllowed"]


@pytest.mark.parametrize("allowed", [(), ("small",), ("small", "large")])
def test_only_classes_of_the_list_are_asked_for(allowed):
    async def story(world, operator):
        world.create(definition())
        for kind in ("small", "huge"):
            ask(world, f"of-{kind}", kind)
        await asyncio.sleep(180.0)
        requests = {key[1] for key, _ in world.api.store.records(REQUESTS)}
        assert requests == ({"of-small-1"} if allowed else set())
        assert operator.provisioning.made == len(requests)
        message = f"provisioning class huge is not allowed; allowed: {', '.join(sorted(allowed)) or 'none'}"
        assert told(world, "of-huge") == [("False", "ClassNotAllowed", message)]
        assert len(events(world, "of-huge")) == 1
        assert [reason for _, reason, _ in told(world, "of-small")] == (["Requested"] if allowed else ["ClassNotAllowed"])

    in_a_world(story, Options(leader_elect=False, address="", provisioning_classes=allowed))


CLASS = "small"
LIKE = {"spec": {"schedulerName": "fairlead", "containers": [{"name": "main", "image": "none"}]}}


def waits(world, group):
    """A PodGroup waits for capacity."""
    record = world.api.store.get(GROUPS, ("vision", group)).object
    world.api.store.put(GROUPS, ("vision", group), {**record, "metadata": dict(record["metadata"]), "status": WAITS})


def member(world, name, labels, owner=None, **spec):
    metadata = {"name": name, "labels": labels, **({"ownerReferences": [owner]} if owner else {})}
    world.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**LIKE["spec"], **spec}}, "vision")


def sets(world, request):
    found = world.api.store.get(REQUESTS, ("vision", request))
    return sorted(each["count"] for each in found.object["spec"]["podSets"]) if found is not None else None


def consumers(world, request):
    note = "autoscaling.x-k8s.io/consume-provisioning-request"
    pods = (record.object["metadata"] for _, record in world.api.store.records("pods"))
    return sorted(each["name"] for each in pods if (each.get("annotations") or {}).get(note) == request)


def test_pods_that_name_no_podgroup_are_members_of_their_workloads():
    async def story(world, _):
        world.create(definition())
        world.create(ray_definition("RayCluster", "rayclusters"))
        await asyncio.sleep(70.0)  # kinds that are installed later are detected within a minute
        spec = {"headGroupSpec": {"template": LIKE}, "workerGroupSpecs": [{"template": LIKE, "replicas": 40}]}
        metadata = {"name": "ray", "annotations": {"fairlead.dev/provisioning-class": CLASS}}
        world.create({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}, "vision")
        cluster = {"ray.io/cluster": "ray"}
        member(world, "head", {**cluster, "ray.io/node-type": "head"}, hostname="head")
        for number in range(40):
            numbered = {"ray.io/node-type": "worker", "ray.io/ray-worker-replica-index": str(number)}
            member(world, f"worker-{number}", {**cluster, **numbered})
        member(world, "other", {"ray.io/cluster": "another"})
        member(world, "apart", {**cluster, "fairlead.dev/pod-group": "apart"})
        await asyncio.sleep(5.0)
        waits(world, "raycluster.ray")
        await asyncio.sleep(5.0)
        assert sets(world, "raycluster.ray-1") == [1, 40]
        assert consumers(world, "raycluster.ray-1") == sorted(["head", *(f"worker-{each}" for each in range(40))])

    in_a_world(story, Options(leader_elect=False, address="", provisioning_classes=(CLASS,)))


def test_a_stage_of_a_workload_has_nodes_requested_for_its_own_pods():
    async def story(world, _):
        world.create(definition())
        owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "u", "controller": True}
        notes = {"fairlead.dev/provisioning-class": CLASS}
        stage = f"jobsetstage.js.{'node' * 15}"
        assert len(stage) > 63, "a label cannot hold it"
        for name, needed, serves in (("jobset.js", 1, ""), (stage, 3, "jobset.js/node")):
            metadata = {"name": name, "annotations": {**notes, **({"fairlead.dev/serves": serves} if serves else {})}}
            metadata["ownerReferences"] = [owner]
            group = {
                "apiVersion": "fairlead.dev/v1alpha1",
                "kind": "PodGroup",
                "metadata": metadata,
                "spec": {"minMember": needed},
            }
            world.create(group, "vision")
        for number in range(4):
            labels = {
                "jobset.sigs.k8s.io/jobset-name": "js",
                "jobset.sigs.k8s.io/replicatedjob-name": "node" if number else "init",
            }
            labels |= {"jobset.sigs.k8s.io/job-key": f"key-{number}", "batch.kubernetes.io/job-name": f"js-{number}"}
            terms = [{"topologyKey": "rack", "labelSelector": {}}] if number == 3 else []
            apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}} if terms else {}
            member(world, f"pod-{number}", labels, **apart)
        for group in ("jobset.js", stage):
            waits(world, group)
        await asyncio.sleep(70.0)
        assert (sets(world, "jobset.js-1"), sets(world, f"{stage}-1")) == ([1], [1, 2])
        assert consumers(world, f"{stage}-1") == ["pod-1", "pod-2", "pod-3"]
        assert [reason for _, reason, _ in told(world, stage)] == ["Requested"]
        templates = [record.object for key, record in world.api.store.records("podtemplates") if "stage" in key[1]]
        keyed = [each["template"]["metadata"]["labels"].get("jobset.sigs.k8s.io/job-key") for each in templates]
        assert sorted(map(str, keyed)) == ["None", "key-3"], "labels count where terms of pods may select by them"

    in_a_world(story, Options(leader_elect=False, address="", provisioning_classes=(CLASS,)))
