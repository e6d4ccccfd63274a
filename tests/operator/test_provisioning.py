"""Provisioning classes: only those that an administrator lists are used, whatever an object names."""

import asyncio

import pytest

from fairlead.operator.app import Options
from tests.e2e.test_provisioning import definition
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
