"""The contract of the port: what every adapter reports and does, on the real API server and on the simulated one."""

from __future__ import annotations

import asyncio
import itertools
import time

import msgspec
import pytest

from fairlead.api import crds
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.cluster import KubernetesCluster
from fairlead.cluster.kubernetes.config import Config, load
from fairlead.cluster.port import Gone, GroupReport, Outcome, QueueReport, Synced, Upsert
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.cluster import SimulatedCluster
from fairlead.cluster.simulated.controllers import Controllers
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.simulated.wire import Wire
from fairlead.core.model.groups import Group, Member, Target
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.queues import ForecastRecord, Queue, RunTimeRecord, UsageRecord
from fairlead.core.model.transactions import Binding, PodRef, Resume, Suspension
from testbed import objects

LIMIT = 15.0
NS = "contract"
counter = itertools.count()


class Port:
    """One adapter, listening, and an administrator beside it (`admin`: method, path, body -> object or None)."""

    def __init__(self, cluster, admin):
        self.cluster, self.admin = cluster, admin
        self.heard = []

    async def create(self, manifest):
        return await self.admin("POST", objects.path(manifest, NS), manifest)

    async def until(self, what):
        deadline = time.monotonic() + LIMIT
        while not (found := what()):
            assert time.monotonic() < deadline, self.heard[-5:]
            await asyncio.sleep(0.02)
        return found

    def seen(self, kind, name):
        """The last report of an object."""
        for event in reversed(self.heard):
            if isinstance(event, Upsert) and isinstance(event.object, kind) and event.object.name == name:
                return event.object
        return None

    async def pod(self, **more):
        """A new pod that the adapter has reported."""
        name = f"port-{next(counter)}"
        made = await self.create(objects.pod(name, **more))
        await self.until(lambda: self.seen(Pod, name))
        return PodRef(made["metadata"]["uid"], NS, name)

    async def read(self, pod):
        return await self.admin("GET", f"/api/v1/namespaces/{NS}/pods/{pod.name}", None)


def client_admin(client):
    from fairlead.cluster.kubernetes.client import ApiError

    async def admin(method, path, body):
        import msgspec

        try:
            content = await client._request(method, path, msgspec.json.encode(body) if body is not None else None)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return msgspec.json.decode(content)

    return admin


def boxed():
    api = ApiServer(Clock(start=time.time(), loop=asyncio.get_running_loop()))
    Controllers(api)
    for each in crds.definitions():
        api.create(api.served("apiextensions.k8s.io/v1", "customresourcedefinitions"), "", each)
    api.create(api.served("v1", "namespaces"), "", {"metadata": {"name": NS}})
    return api


KINDS = [
    pytest.param("real", marks=[pytest.mark.e2e, pytest.mark.xdist_group("contract")]),
    "simulated over the wire",
    "simulated without a wire",
]


@pytest.fixture(params=KINDS)
async def port(request):
    if request.param == "real":
        request.getfixturevalue("real_api")
        client = Client(load(str(request.getfixturevalue("real_plane").kubeconfig)))
        cluster = KubernetesCluster(client)
    else:
        api = boxed()
        client = Client(Config("http://simulated"), transport=SimulatedTransport(Wire(api)))
        cluster = KubernetesCluster(client) if "over" in request.param else SimulatedCluster(api)
    async with client:
        made = Port(cluster, client_admin(client))
        task = asyncio.ensure_future(cluster.run(made.heard.extend))
        await made.until(lambda: any(isinstance(event, Synced) for event in made.heard))
        yield made
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if request.param == "real":
        await asyncio.sleep(0.25)  # aiohttp closes TLS connections a little later than its session


async def test_synced_comes_once_after_everything_that_exists(port):
    assert sum(isinstance(event, Synced) for event in port.heard) == 1


async def test_a_pod_is_told_of_as_the_core_sees_it(port):
    pod = await port.pod(gpus=2, cpu="500m", queue="vision")
    seen = port.seen(Pod, pod.name)
    assert (seen.uid, seen.namespace, seen.queue, seen.node, seen.ours) == (pod.uid, NS, "vision", "", True)
    assert dict(seen.spec.requests)["nvidia.com/gpu"] == 2
    assert dict(seen.spec.requests)["cpu"] == 500


async def test_nodes_queues_and_groups_are_told_of(port):
    name = f"port-{next(counter)}"
    await port.create(objects.node(name, gpus=4))
    await port.create(objects.queue(name, quota=3))
    await port.create(objects.pod_group(name, 5))
    await port.until(lambda: port.seen(Node, name) and port.seen(Queue, name) and port.seen(Group, name))
    assert port.seen(Node, name).allocatable["nvidia.com/gpu"] == 4
    assert port.seen(Queue, name).resources[0].quota == 3000
    assert port.seen(Group, name).min_member == 5
    await port.admin("DELETE", f"/api/v1/nodes/{name}", None)
    await port.until(lambda: Gone("node", name) in port.heard)


async def test_binding_is_done_and_told(port):
    pod = await port.pod()
    assert await port.cluster.bind(Binding(pod, "some-node"), 7) == (Outcome.DONE, "")
    await port.until(lambda: port.seen(Pod, pod.name).node == "some-node")
    found = await port.read(pod)
    assert found["metadata"]["annotations"]["fairlead.dev/epoch"] == "7"


async def test_binding_again_to_the_same_node_is_done(port):
    pod = await port.pod()
    await port.cluster.bind(Binding(pod, "some-node"), None)
    assert (await port.cluster.bind(Binding(pod, "some-node"), None))[0] is Outcome.DONE


async def test_binding_right_after_its_condition_was_written_is_done(port):
    pods = [await port.pod() for _ in range(5)]
    for pod in pods:
        await port.cluster.refuse(pod, Reason(ReasonCode.RESOURCES, "none fits"))
        assert await port.cluster.bind(Binding(pod, "some-node"), None) == (Outcome.DONE, "")


async def test_binding_to_another_node_is_refused(port):
    pod = await port.pod()
    await port.cluster.bind(Binding(pod, "some-node"), None)
    outcome, message = await port.cluster.bind(Binding(pod, "other-node"), None)
    assert outcome is Outcome.REFUSED
    assert message


async def test_binding_what_is_gone_says_so(port):
    assert (await port.cluster.bind(Binding(PodRef("no-uid", NS, "nobody"), "n"), None))[0] is Outcome.GONE


async def test_binding_a_namesake_says_gone(port):
    pod = await port.pod()
    assert (await port.cluster.bind(Binding(PodRef("another-uid", NS, pod.name), "n"), None))[0] is Outcome.GONE


async def test_binding_a_gated_pod_is_refused(port):
    pod = await port.pod(schedulingGates=[{"name": "example.com/hold"}])
    assert port.seen(Pod, pod.name).gated
    assert (await port.cluster.bind(Binding(pod, "n"), None))[0] is Outcome.REFUSED


async def test_eviction_deletes_and_is_told(port):
    pod = await port.pod()
    assert (await port.cluster.evict(pod, dry_run=False))[0] is Outcome.DONE
    await port.until(lambda: Gone("pod", pod.uid) in port.heard)


async def test_an_eviction_shortens_the_time_that_a_pod_was_given_to_end(port):
    pod = await port.pod(terminationGracePeriodSeconds=30)
    await port.cluster.bind(Binding(pod, "some-node"), None)
    await port.admin("DELETE", f"/api/v1/namespaces/{NS}/pods/{pod.name}", {"gracePeriodSeconds": 10**9})
    await port.until(lambda: port.seen(Pod, pod.name).leaves > time.time() + 10**8)
    assert (await port.cluster.evict(pod, dry_run=True, grace=20))[0] is Outcome.DONE
    assert (await port.cluster.evict(pod, dry_run=False))[0] is Outcome.DONE
    assert (await port.read(pod))["metadata"]["deletionGracePeriodSeconds"] == 10**9
    assert (await port.cluster.evict(pod, dry_run=False, grace=20))[0] is Outcome.DONE
    await port.until(lambda: 0 < port.seen(Pod, pod.name).leaves < time.time() + 60)
    assert (await port.read(pod))["metadata"]["deletionGracePeriodSeconds"] == 20


async def test_a_dry_eviction_changes_nothing(port):
    pod = await port.pod()
    assert (await port.cluster.evict(pod, dry_run=True))[0] is Outcome.DONE
    assert await port.read(pod) is not None


async def test_evicting_what_is_gone_says_so(port):
    assert (await port.cluster.evict(PodRef("no-uid", NS, "nobody"), dry_run=False))[0] is Outcome.GONE


async def test_a_refusal_is_written_once_in_kube_schedulers_form(port):
    pod = await port.pod()
    reason = Reason(ReasonCode.RESOURCES, "0/3 nodes are available: 3 Insufficient cpu.", {"nodes": 3})
    await port.cluster.refuse(pod, reason)
    found = await port.read(pod)
    (condition,) = [each for each in found["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Unschedulable", reason.message)
    await port.until(lambda: port.cluster.translator.reported.get(pod.uid))
    await port.cluster.refuse(pod, reason)
    assert (await port.read(pod))["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_a_node_is_nominated_until_a_refusal_withdraws_that(port):
    pod = await port.pod()
    await port.cluster.nominate(pod, "n")
    found = (await port.read(pod))["status"]
    assert found["nominatedNodeName"] == "n"
    assert not [each for each in found.get("conditions") or () if each["type"] == "PodScheduled"], "nothing is refused by that"
    reason = Reason(ReasonCode.RESOURCES, "0/3 nodes are available: 3 Insufficient cpu.", {"nodes": 3})
    await port.cluster.refuse(pod, reason)
    assert (await port.read(pod))["status"]["nominatedNodeName"] == "n"
    await port.cluster.refuse(pod, reason, withdraw=True)
    assert not (await port.read(pod))["status"].get("nominatedNodeName"), "though the reason stands there already"


async def test_waiting_for_a_turn_is_not_unschedulable(port):
    pod = await port.pod()
    await port.cluster.refuse(pod, Reason(ReasonCode.LIMIT_EXCEEDED, "queue vision is at its limit"))
    (condition,) = [each for each in (await port.read(pod))["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert condition["reason"] == "LimitExceeded"


async def test_a_groups_status_is_written(port):
    name = f"port-{next(counter)}"
    await port.create(objects.pod_group(name, 2))
    await port.until(lambda: port.seen(Group, name))
    await port.cluster.group_status(
        f"{NS}/{name}", GroupReport("Pending", 0, Reason(ReasonCode.GANG_INCOMPLETE, "one is missing"))
    )
    path = f"/apis/fairlead.dev/v1alpha1/namespaces/{NS}/podgroups/{name}"
    status = (await port.admin("GET", path, None))["status"]
    assert status == {"phase": "Pending", "scheduled": 0, "reason": {"code": "GangIncomplete", "message": "one is missing"}}
    await port.cluster.group_status(f"{NS}/{name}", GroupReport("Scheduled", 2))
    assert (await port.admin("GET", path, None))["status"] == {"phase": "Scheduled", "scheduled": 2}
    begun = 1_767_225_600.0
    report = GroupReport("Pending", 0, None, begun + 3600, earliest_start=begun + 1800, latest_start=begun + 7200)
    await port.cluster.group_status(f"{NS}/{name}", report)
    status = (await port.admin("GET", path, None))["status"]
    assert status["expectedStart"] == "2026-01-01T01:00:00Z"
    assert (status["earliestStart"], status["latestStart"]) == ("2026-01-01T00:30:00Z", "2026-01-01T02:00:00Z")
    await port.cluster.group_status(f"{NS}/{name}", GroupReport("Scheduled", 2))
    assert (await port.admin("GET", path, None))["status"] == {"phase": "Scheduled", "scheduled": 2}


async def test_a_queues_status_is_written_and_forgets_what_is_gone(port):
    name = f"port-{next(counter)}"
    await port.create(objects.queue(name, quota=4))
    path = f"/apis/fairlead.dev/v1alpha1/queues/{name}"
    held = {"nvidia.com/gpu": 1500, "cpu": 2500, "memory": 1 << 31}
    await port.cluster.queue_status(name, QueueReport(held, 7, {"nvidia.com/gpu": 2000}))
    status = (await port.admin("GET", path, None))["status"]
    assert status == {
        "allocated": {"nvidia.com/gpu": "1.5", "cpu": "2.5", "memory": "2Gi"},
        "pending": 7,
        "fairShare": {"nvidia.com/gpu": "2"},
    }
    await port.cluster.queue_status(name, QueueReport(held, 7, {}, foreign={"nvidia.com/gpu": 500, "cpu": 1000}))
    assert (await port.admin("GET", path, None))["status"]["foreign"] == {"nvidia.com/gpu": "0.5", "cpu": "1"}
    await port.cluster.queue_status(name, QueueReport(held, 7, {}, foreign={"cpu": 1000}))
    assert (await port.admin("GET", path, None))["status"]["foreign"] == {"cpu": "1"}
    await port.cluster.queue_status(name, QueueReport({"cpu": 1000}, 0, {}))
    assert (await port.admin("GET", path, None))["status"] == {"allocated": {"cpu": "1"}, "pending": 0, "fairShare": {}}
    used = UsageRecord(7200.5, 1_767_225_600.0, (("ann", 7000.0), ("bob", 200.5)))
    await port.cluster.queue_status(name, QueueReport({}, 0, {}, used))
    await port.cluster.queue_status(name, QueueReport({}, 0, {}, UsageRecord(7000.0, 1_767_225_660.0, (("ann", 7000.0),))))
    usage = (await port.admin("GET", path, None))["status"]["usage"]
    assert usage == {"deviceSeconds": 7000, "at": "2026-01-01T00:01:00Z", "users": {"ann": 7000}}
    ran = (RunTimeRecord("ann", "batch", 500, (60, 3600)), RunTimeRecord("", "", 16_000, (7,)))
    await port.cluster.queue_status(name, QueueReport({}, 0, {}, run_times=ran))
    await port.until(lambda: port.seen(Queue, name).run_times == ran)
    assert port.seen(Queue, name).usage.value == 7000, "what is not told is left alone"
    came = (ForecastRecord(name, 500, 3600, 7200), ForecastRecord(name, 16_000, 60, 601))
    await port.cluster.queue_status(name, QueueReport({}, 0, {}, forecasts=came))
    await port.until(lambda: port.seen(Queue, name).forecasts == came)
    assert port.seen(Queue, name).run_times == ran
    why = Reason(ReasonCode.RESOURCES, "no room")
    await port.cluster.queue_status(name, QueueReport({}, 1, {}, None, why))
    assert (await port.admin("GET", path, None))["status"]["reason"] == {"code": "Resources", "message": "no room"}
    await port.cluster.queue_status(name, QueueReport({}, 0, {}))
    assert "reason" not in (await port.admin("GET", path, None))["status"]
    await port.cluster.queue_status(f"{name}-gone", QueueReport({}, 0, {}))


async def test_the_target_state_of_a_suspended_job_is_written_and_observed(port):
    name = f"port-{next(counter)}"
    await port.create(objects.pod_group(name, 2))
    path = f"/apis/fairlead.dev/v1alpha1/namespaces/{NS}/podgroups/{name}"
    members = (Member(2, Pod("", NS, "", PodSpec((("nvidia.com/gpu", 1), ("pods", 1)), gpus=1), labels=(("a", "b"),))),)
    job = Suspension(f"{NS}/{name}", 3, (("batch/v1/Job/train", "uid-train"),), members, ("uid-a", "uid-b"))
    assert await port.cluster.suspend(job) == (Outcome.DONE, "")
    target = (await port.admin("GET", path, None))["status"]["target"]
    assert (target["state"], target["epoch"], target["members"][0]["count"]) == ("Suspended", 3, 2)
    assert target["owners"] == [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train"}]
    await port.until(lambda: port.seen(Group, name).target == Target("Suspended", 3, ("uid-train",), members))
    await port.cluster.group_status(f"{NS}/{name}", GroupReport("Suspended", 0))
    assert (await port.admin("GET", path, None))["status"]["target"]["state"] == "Suspended", "it is left alone"
    assert await port.cluster.resume(Resume(f"{NS}/{name}", 4, (), (), 7200.5, 1_700_000_000.0)) == (Outcome.DONE, "")
    resumed = Target("Running", 4, ("uid-train",), (), 7200.5, 1_700_000_000.0)
    await port.until(lambda: port.seen(Group, name).target == resumed)
    assert (await port.cluster.resume(Resume(f"{NS}/{name}-gone", 4, (), ())))[0] is Outcome.GONE
    again = msgspec.structs.replace(job, epoch=5)
    assert await port.cluster.suspend(again) == (Outcome.DONE, "")
    await port.until(lambda: port.seen(Group, name).target == Target("Suspended", 5, ("uid-train",), members))
    placed = Resume(f"{NS}/{name}", 6, (), (), places=("n0", ""), until=1_700_000_120.0)
    assert await port.cluster.resume(placed) == (Outcome.DONE, "")
    kept = Target("Running", 6, ("uid-train",), members, nodes=("n0", ""), until=1_700_000_120.0)
    await port.until(lambda: port.seen(Group, name).target == kept)
    assert await port.cluster.resume(Resume(f"{NS}/{name}", 7, (), ())) == (Outcome.DONE, "")
    await port.until(lambda: port.seen(Group, name).target == Target("Running", 7, ("uid-train",)))
    assert await port.cluster.resume(msgspec.structs.replace(placed, epoch=8)) == (Outcome.DONE, "")
    assert await port.cluster.suspend(msgspec.structs.replace(job, epoch=9)) == (Outcome.DONE, "")
    await port.until(lambda: port.seen(Group, name).target == Target("Suspended", 9, ("uid-train",), members))


async def test_a_group_is_made_for_a_job_that_has_none_and_only_once(port):
    name = f"job-batch.port-{next(counter)}"
    members = (Member(3, Pod("", NS, "", PodSpec())),)
    lone = f"lone-{name.rpartition('.')[2]}"
    await port.create({**objects.job(lone), "spec": {**objects.job(lone)["spec"], "suspend": True}})
    uid = (await port.admin("GET", f"/apis/batch/v1/namespaces/{NS}/jobs/{lone}", None))["metadata"]["uid"]
    job = Suspension(f"{NS}/{name}", 1, ((f"batch/v1/Job/{lone}", uid),), members, ("uid-a",), made=True, queue="vision")
    for _ in range(2):
        assert await port.cluster.suspend(job) == (Outcome.DONE, "")
    made = await port.admin("GET", f"/apis/fairlead.dev/v1alpha1/namespaces/{NS}/podgroups/{name}", None)
    assert made["spec"] == {"minMember": 3, "queue": "vision"}
    assert made["metadata"]["labels"] == {"fairlead.dev/made-for": "Job"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == uid
    other = msgspec.structs.replace(job, epoch=2, owners=((f"batch/v1/Job/{lone}-other", "uid-other"),))
    outcome, message = await port.cluster.suspend(other)
    assert (outcome, "belongs to another object" in message) == (Outcome.REFUSED, True)
    made = await port.admin("GET", f"/apis/fairlead.dev/v1alpha1/namespaces/{NS}/podgroups/{name}", None)
    assert made["status"]["target"]["epoch"] == 1


async def test_events_are_written_about_pods_and_groups(port):
    pod = await port.pod()
    await port.cluster.event(pod, "Scheduled", "on some node")
    await port.cluster.event(f"{NS}/{pod.name}-group", "FailedScheduling", "no room", warning=True)
    items = (await port.admin("GET", f"/api/v1/namespaces/{NS}/events", None))["items"]
    found = {each["involvedObject"]["name"]: each for each in items}
    assert (found[pod.name]["reason"], found[pod.name]["message"], found[pod.name]["type"]) == (
        "Scheduled",
        "on some node",
        "Normal",
    )
    assert found[f"{pod.name}-group"]["type"] == "Warning"


async def test_a_namespaces_label_moves_its_pods(port):
    pod = await port.pod()
    assert port.seen(Pod, pod.name).queue == "default"
    space = await port.admin("GET", f"/api/v1/namespaces/{NS}", None)
    space["metadata"]["labels"]["fairlead.dev/default-queue"] = "robotics"
    await port.admin("PUT", f"/api/v1/namespaces/{NS}", space)
    await port.until(lambda: port.seen(Pod, pod.name).queue == "robotics")
    space = await port.admin("GET", f"/api/v1/namespaces/{NS}", None)
    del space["metadata"]["labels"]["fairlead.dev/default-queue"]
    await port.admin("PUT", f"/api/v1/namespaces/{NS}", space)


async def test_a_pod_that_has_ended_holds_nothing(port):
    pod = await port.pod()
    await port.cluster.bind(Binding(pod, "some-node"), None)
    await port.until(lambda: port.seen(Pod, pod.name).node)
    found = await port.read(pod)
    found["status"]["phase"] = "Succeeded"
    await port.admin("PUT", f"/api/v1/namespaces/{NS}/pods/{pod.name}/status", found)
    await port.until(lambda: port.seen(Pod, pod.name).finished or Gone("pod", pod.uid) in port.heard)
