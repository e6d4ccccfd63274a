"""What if, where work asks for devices by ResourceClaims: what starts on which, what is evicted, and why something waits."""

import random

import msgspec
import pytest

from fairlead.cluster import device_views, views
from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.devices import Model
from fairlead.cluster.translate import Objects
from fairlead.core import invariants
from fairlead.core.model.policy import Policy
from fairlead.simulation import whatif
from fairlead.simulation.device_work import spec_of
from testbed import objects as made
from tests.simulation.test_whatif import by_job, changed, view

DRIVER = devices.DRIVER


def template(kind):
    manifest = {"metadata": {"name": kind, "namespace": "ns"}, "spec": {"spec": spec_of(kind)}}
    return msgspec.convert(manifest, device_views.ResourceClaimTemplate)


def a_cluster(*pods, hosts=("a",), model=None, claims=(), quota=8):
    nodes = [view(views.Node, made.node(name, gpus=0)) for name in hosts]
    slices = [each for name in hosts for each in devices.slices(name, model or Model("plain", 2))]
    return Objects(
        now=1_767_225_600.0 + 3600,
        nodes=nodes,
        queues=[view(views.Queue, made.queue("owner", quota=quota)), view(views.Queue, made.queue("guest", quota=0))],
        pods=list(pods),
        slices=[msgspec.convert(each, device_views.ResourceSlice) for each in slices],
        device_classes=[msgspec.convert(each, device_views.DeviceClass) for each in devices.classes()],
        claim_templates=[template(kind) for kind in ("gpu", "two", "small", "half", "any")],
        device_claims=[msgspec.convert(each, device_views.ResourceClaim) for each in claims],
    )


def asking(name, kind="gpu", queue="owner", claim="", **more):
    """The manifest of a pod with a claim by a template, or of a name."""
    manifest = made.pod(name, queue=queue, gpus=0, **more)
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": kind}
    manifest["spec"]["resourceClaims"] = [{"name": "devices", **source}]
    return manifest


def running(name, node, device, queue="guest", owned=True):
    """A pod that runs with a claim of its own, and the claim."""
    manifest = asking(name, queue=queue, nodeName=node)
    manifest["metadata"] |= {"uid": f"uid-{name}", "namespace": "ns"}
    manifest["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "controller": True}]
    statuses = [{"name": "devices", "resourceClaimName": f"{name}-devices"}]
    manifest["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "resourceClaimStatuses": statuses}
    owner = {"kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    claim = {
        "metadata": {"name": f"{name}-devices", "namespace": "ns", "uid": f"uid-claim-{name}", "ownerReferences": [owner]},
        "spec": spec_of("gpu"),
        "status": {
            "allocation": {"devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": node, "device": device}]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        },
    }
    return view(views.Pod, manifest, "ns"), claim


def asked(before, *manifests):
    after = changed(before)
    for manifest in manifests:
        whatif.apply(after, manifest, "ns")
    return whatif.what_if(before, after)


def test_a_job_starts_where_its_claims_can_be_had():
    found = asked(a_cluster(), asking("one"), asking("two"), asking("zlast"))
    jobs = by_job(found.after)
    assert found.starts == ["ns/one", "ns/two"]
    assert (jobs["ns/one"].nodes, jobs["ns/one"].gpus) == (["a"], 1.0)
    late = jobs["ns/zlast"]
    assert late.starts != "now"
    assert late.reason.startswith("Devices: ")
    assert "request gpu" in late.reason
    assert "2 are allocated" in late.reason


def test_what_a_request_lacks_is_said():
    found = asked(a_cluster(), asking("part", "small"))
    (job,) = found.after.jobs
    assert job.starts != "now"
    assert "request gpu" in job.reason
    found = asked(a_cluster(), asking("unknown", "no-such-template"))
    assert "no-such-template" in found.after.jobs[0].reason


def test_a_template_and_a_shared_claim_in_the_same_question():
    kind = {"kind": "ResourceClaimTemplate", "metadata": {"name": "mine"}, "spec": {"spec": spec_of("two")}}
    found = asked(a_cluster(), kind, asking("both", "mine"))
    assert found.starts == ["ns/both"]
    claim = {"kind": "ResourceClaim", "metadata": {"name": "shared"}, "spec": spec_of("two")}
    found = asked(a_cluster(hosts=("a", "b")), claim, asking("x", claim="shared"), asking("y", claim="shared"))
    assert found.starts == ["ns/x", "ns/y"]
    assert {tuple(job.nodes) for job in found.after.jobs} in ({("a",)}, {("b",)})


def test_pods_are_evicted_for_their_devices_and_wait_again():
    pods = [running("guest-0", "a", "gpu-0"), running("guest-1", "a", "gpu-1")]
    before = a_cluster(*(pod for pod, _ in pods), claims=[claim for _, claim in pods])
    found = asked(before, asking("one"))
    assert found.starts == ["ns/one"]
    (victim,) = found.after.evicted
    assert (victim.queue, victim.node, victim.by) == ("guest", "a", "ns/one")
    again = by_job(found.after)[victim.pod]
    assert again.starts != "now"
    assert "Devices" in again.reason
    assert found.before.evicted == []


def test_nodes_that_are_added_bring_devices_and_drained_ones_give_claims_back():
    pod, claim = running("guest-0", "a", "gpu-0")
    before = a_cluster(pod, claims=[claim], model=Model("plain", 1))
    after = changed(before)
    whatif.add_nodes(after, 1, "a")
    whatif.apply(after, asking("one", queue="guest"), "ns")
    found = whatif.what_if(before, after)
    assert by_job(found.after)["ns/one"].nodes == ["what-if-0000"]
    after = changed(before)
    whatif.drain(after, "a")
    found = whatif.what_if(before, after)
    assert by_job(found.after)["ns/guest-0"].starts != "now"
    whatif.add_nodes(before, 1, "a")
    after = changed(before)
    whatif.drain(after, "a")
    found = whatif.what_if(before, after)
    assert by_job(found.after)["ns/guest-0"].nodes == ["what-if-0000"]


def test_claims_of_pods_that_are_gone_hold_nothing():
    _, claim = running("gone", "a", "gpu-0")
    found = asked(a_cluster(claims=[claim], model=Model("plain", 1)), asking("one"))
    assert found.starts == ["ns/one"]


def test_a_claim_that_exists_keeps_what_it_holds():
    claim = {"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": spec_of("gpu")}
    results = [{"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-1"}]
    before = a_cluster(claims=[claim | {"status": {"allocation": {"devices": {"results": results}}}}])
    found = asked(before, {"kind": "ResourceClaim", **claim}, asking("one"), asking("two"))
    assert len(found.starts) == 1


def test_a_snapshot_keeps_devices():
    pod, claim = running("guest-0", "a", "gpu-0")
    before = a_cluster(pod, claims=[claim], model=Model("mig", 1, "A100-40GB"))
    again = msgspec.json.decode(msgspec.json.encode(before), type=Objects)
    assert whatif.play(again) == whatif.play(before)
    assert len(again.slices) == len(before.slices) > 1


def test_what_cannot_be_read_is_said():
    wrong = {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {"requests": "many"}}}
    with pytest.raises(whatif.WhatIfError, match="ResourceClaim 'c' cannot be read"):
        whatif.apply(a_cluster(), wrong, "ns")


MODELS = (Model("plain", 2), Model("mig", 2, "A100-40GB"), Model("mig", 1, "A30"), Model("shared", 1))


@pytest.mark.parametrize("seed", range(30))
def test_what_starts_on_paper_has_its_devices_alone(seed):
    rnd = random.Random(seed)
    hosts = [f"n{each}" for each in range(rnd.randint(1, 3))]
    objects = a_cluster(hosts=(), quota=rnd.choice((1, 8)))
    pods, claims = [], []
    for host in hosts:
        objects.nodes.append(view(views.Node, made.node(host, gpus=0)))
        model = rnd.choice(MODELS)
        found = devices.slices(host, model)
        objects.slices += [msgspec.convert(each, device_views.ResourceSlice) for each in found]
        if model.kind == "plain" and rnd.random() < 0.6:
            pod, claim = running(f"guest-{host}", host, "gpu-0")
            pods.append(pod)
            claims.append(msgspec.convert(claim, device_views.ResourceClaim))
    objects.pods, objects.device_claims = pods, claims
    for number in range(rnd.randint(1, 8)):
        queue = rnd.choice(("owner", "guest"))
        whatif.apply(objects, asking(f"p{number}", rnd.choice(("gpu", "two", "small", "half", "any")), queue), "ns")
    trial = whatif._Trial(objects, Policy())
    outcome = trial.run()
    state = trial.core.state
    assert [each for each in invariants.violations(state) if "members placed" not in each] == []
    started = {job.job: job for job in outcome.jobs if job.starts == "now"}
    for task in state.tasks.values():
        if task.pod.key in started:
            for use in task.pod.claims:
                claim = state.device_claims.claims[use.key]
                assert task.pod.uid in claim.users
                assert {each.device.pool for each in claim.allocation.devices} == set(started[task.pod.key].nodes)
    alone = [
        each.device for claim in state.device_claims.claims.values() if claim.allocation for each in claim.allocation.devices
    ]
    assert len(alone) == len(set(alone))
    waiting = [job for job in outcome.jobs if job.starts != "now"]
    assert all(job.reason for job in waiting)
    assert whatif.play(objects) == outcome
