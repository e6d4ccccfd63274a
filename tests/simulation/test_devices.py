"""Devices of the simulated cluster: what nodes publish, and a pod's way from its template to its end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter

import pytest

from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.claims import FINALIZER
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.device_values import number
from fairlead.cluster.simulated.devices import Model
from fairlead.cluster.simulated.resources import CLAIMS, PODS
from fairlead.core.mig.geometry import GEOMETRIES
from tests.simulation.device_lives import DeviceLife, run

MIG, PLAIN, SHARED = Model("mig", 2), Model("plain", 2), Model("shared", 2)
PREFIX = "Failed to prepare dynamic resources: prepare dynamic resources: "


# -- what nodes have ---------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", ["plain", "mig", "shared"])
def test_slices_of_every_model_are_valid_and_complete(kind, geometry):
    api = ApiServer(Clock(start=0.0))
    model = Model(kind, 16, geometry)
    made = devices.slices("n1", model, 3)
    for each in (*made, *devices.classes()):
        plural = "resourceslices" if each["kind"] == "ResourceSlice" else "deviceclasses"
        api.create(api.served(devices.API_VERSION, plural), "", each)
    pools = {tuple(sorted(each["spec"]["pool"].items())) for each in made}
    assert pools == {(("generation", 3), ("name", "n1"), ("resourceSliceCount", len(made)))}
    found = [device for each in made for device in each["spec"].get("devices", ())]
    assert found == devices.devices("n1", model)
    assert len({each["name"] for each in found}) == len(found)
    starts = sum(len(profile.starts) for profile in GEOMETRIES[geometry].profiles)
    assert len(found) == 16 * (1 + (starts if kind == "mig" else 0))


def amounts(counters):
    return {name: number(each["value"]) for name, each in counters["counters"].items()}


def fits(geometry, placed):
    """Whether partitions can be on one GPU at once: (profile, start) each."""
    used = [slot for profile, start in placed for slot in range(start, start + profile.memory)]
    whole = [profile for profile, _ in placed if profile.media or profile.memory == geometry.memory]
    return len(used) == len(set(used)) and sum(each.compute for each, _ in placed) <= geometry.compute and len(whole) <= 1


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_counters_admit_the_partitions_that_the_geometry_admits(geometry):
    """All pairs, and random larger sets; every device of a set takes the counters of its GPU alone."""
    model = Model("mig", 1, geometry)
    [totals] = devices.counter_sets(model)
    made = devices.devices("n1", model)
    total = amounts(totals)
    places = [(profile, start) for profile in GEOMETRIES[geometry].profiles for start in profile.starts]
    of = {place: amounts(*device["consumesCounters"]) for place, device in zip(places, made[1:], strict=True)}
    draw = random.Random(geometry)
    sets = [*itertools.combinations(places, 2), *(draw.sample(places, draw.randint(3, 6)) for _ in range(1000))]
    admitted = 0
    for placed in sets:
        used = Counter()
        for each in placed:
            used.update(of[each])
        holds = all(amount <= total[name] for name, amount in used.items())
        assert holds == fits(GEOMETRIES[geometry], placed), placed
        admitted += holds
    assert 20 < admitted < len(sets) - 20
    [whole] = made[0]["consumesCounters"]
    assert whole["counters"] == totals["counters"]


def test_lost_devices_leave_and_taints_stay_with_the_rest():
    lost = devices.of_gpu(MIG, 0)
    taint = {"key": "a", "effect": "NoSchedule"}
    made = devices.slices("n1", MIG, 2, lost=lost, taints={"gpu-1": taint})
    found = [device for each in made for device in each["spec"].get("devices", ())]
    assert not {each["name"] for each in found} & set(lost)
    assert [each["name"] for each in found if "taints" in each] == ["gpu-1"]
    sets = [each["name"] for part in made for each in part["spec"].get("sharedCounters", ())]
    assert sets == ["gpu-1-counter-set"]
    assert devices.slices("n1", MIG, 2, lost=[*lost, *devices.of_gpu(MIG, 1)])[0]["spec"]["devices"] == []


# -- the life of a claim -----------------------------------------------------------------------


def test_a_pod_starts_when_the_claim_of_its_template_is_allocated_and_takes_it_along():
    async def main():
        life = DeviceLife({"n1": MIG})
        life.template("half")
        life.pod("p", 60, gpu="from-half")
        await asyncio.sleep(5)
        [claim] = life.claims_of("p")
        assert claim.startswith("p-gpu-")
        assert len(life.slices("n1")) == 2
        life.allocate(claim, "n1", "gpu-0-mig-3g40gb-0", pods=["p"])
        life.bind("p", "n1")
        await asyncio.sleep(5)
        assert life.phase("p") == "Running"
        [report] = life.get(CLAIMS, claim)["status"]["devices"]
        assert (report["device"], report["conditions"][0]["status"]) == ("gpu-0-mig-3g40gb-0", "True")
        assert next(iter(life.drivers.nodes["n1"].prepared.values()))[0] == f"default/{claim}"
        await asyncio.sleep(60)
        assert (life.phase("p"), life.get(CLAIMS, claim), life.drivers.nodes["n1"].prepared) == ("Succeeded", None, {})

    run(main)


def test_a_pod_without_an_allocation_waits_and_its_event_says_why():
    async def main():
        life = DeviceLife({"n1": PLAIN, "n2": PLAIN})
        life.claim("one")
        pod = life.pod("p", 60, gpu="one")
        life.bind("p", "n1")
        await asyncio.sleep(60)
        uid, claim = pod["metadata"]["uid"], life.get(CLAIMS, "one")
        said = life.said("p")
        message = f"{PREFIX}pod p ({uid}) is not allowed to use ResourceClaim one ({claim['metadata']['uid']})"
        assert (list(said), said[message] > 2, life.phase("p")) == ([message], True, "Pending")
        [status] = life.get(PODS, "p")["status"]["containerStatuses"]
        assert status["state"] == {"waiting": {"reason": "ContainerCreating"}}
        life.allocate("one", "n1", "gpu-0", pods=["p"])
        await asyncio.sleep(15)
        assert life.phase("p") == "Running"

    run(main)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (["gpu-9"], "NodePrepareResources failed for ResourceClaim one: device gpu-9 is not there"),
        (["gpu-0"], "NodePrepareResources failed for ResourceClaim one: device gpu-0 is prepared for claim default/other"),
        (
            ["gpu-0-mig-1g10gb-0"],
            "NodePrepareResources failed for ResourceClaim one: partitions overlap in multiprocessors of gpu-0-counter-set",
        ),
    ],
)
def test_a_driver_refuses_what_is_not_there_or_prepared_for_another(found, message):
    async def main():
        life = DeviceLife({"n1": MIG})
        for name, chosen in (("other", ["gpu-0"]), ("one", found)):
            life.claim(name)
            life.pod(name, gpu=name)
            life.allocate(name, "n1", *chosen, pods=[name])
            life.bind(name, "n1")
            await asyncio.sleep(5)
        assert (life.phase("other"), life.phase("one")) == ("Running", "Pending")
        assert any(each.startswith(PREFIX + message) for each in life.said("one")), life.said("one")
        assert life.drivers.refusals
        life.delete("other")
        await asyncio.sleep(60)
        assert life.phase("one") == ("Pending" if found == ["gpu-9"] else "Running")

    run(main)


def test_shares_of_a_device_fit_its_memory():
    async def main():
        life = DeviceLife({"n1": SHARED})
        for name, memory in (("a", "50Gi"), ("b", "30Gi"), ("c", "1Mi")):
            life.claim(name)
            life.pod(name, gpu=name)
            life.share(name, "n1", "gpu-0", memory, pods=[name])
            life.bind(name, "n1")
            await asyncio.sleep(5)
        assert [life.phase(each) for each in "abc"] == ["Running", "Running", "Pending"]
        [message] = life.said("c")
        assert "shares of device gpu-0 need" in message

    run(main)


def test_pods_share_a_claim_which_is_given_back_with_the_last():
    async def main():
        life = DeviceLife({"n1": PLAIN})
        life.claim("both")
        for name, seconds in (("a", 60), ("b", 120)):
            life.pod(name, seconds, gpu="both")
        life.allocate("both", "n1", "gpu-0", pods=["a", "b"])
        for name in "ab":
            life.bind(name, "n1")
        await asyncio.sleep(90)
        claim = life.get(CLAIMS, "both")
        assert [life.phase(each) for each in "ab"] == ["Succeeded", "Running"]
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["b"]
        assert life.drivers.nodes["n1"].prepared
        await asyncio.sleep(60)
        claim = life.get(CLAIMS, "both")
        assert (life.phase("b"), claim["status"], claim["metadata"].get("finalizers")) == ("Succeeded", {}, None)
        assert not life.drivers.nodes["n1"].prepared

    run(main)


def test_a_claim_that_was_deleted_by_accident_is_made_again():
    async def main():
        life = DeviceLife({})
        life.template("any")
        life.pod("p", gpu="from-any")
        await asyncio.sleep(1)
        [first] = life.claims_of("p")
        life.api.delete(life.api.served(devices.API_VERSION, "resourceclaims"), "default", first)
        await asyncio.sleep(1)
        [second] = life.claims_of("p")
        assert second != first
        assert life.get(CLAIMS, second)

    run(main)


def test_a_missing_template_is_tried_again_ever_more_rarely_and_at_once_when_it_comes():
    async def main():
        life = DeviceLife({})
        life.pod("p", gpu="from-any")
        await asyncio.sleep(3600)
        [(message, count)] = life.said("p").items()
        assert 'resourceclaimtemplate.resource.k8s.io "any" not found' in message
        assert 10 < count < 30
        life.template("any")
        await asyncio.sleep(0.1)
        assert life.claims_of("p")

    run(main)


def test_a_pod_that_is_deleted_by_force_leaves_its_devices_until_its_kubelet_has_seen_it():
    async def main():
        life = DeviceLife({"n1": PLAIN})
        life.template("any")
        life.pod("p", gpu="from-any")
        await asyncio.sleep(3)
        [claim] = life.claims_of("p")
        life.allocate(claim, "n1", "gpu-0", pods=["p"])
        life.bind("p", "n1")
        await asyncio.sleep(5)
        life.drivers.withdraw("n1")
        life.delete("p", 0)
        await asyncio.sleep(5)
        assert (life.get(PODS, "p"), life.get(CLAIMS, claim)) == (None, None)
        assert life.drivers.nodes["n1"].prepared
        life.drivers.publish("n1")
        assert not life.drivers.nodes["n1"].prepared

    run(main)


# -- faults ------------------------------------------------------------------------------------


def test_a_driver_that_restarts_publishes_a_new_generation_and_pods_wait_meanwhile():
    async def main():
        life = DeviceLife({"n1": MIG})
        life.template("any")
        life.pod("first", 20, gpu="from-any")
        life.pod("second", gpu="from-any")
        await asyncio.sleep(3)
        for pod, device in (("first", "gpu-0"), ("second", "gpu-1")):
            [claim] = life.claims_of(pod)
            life.allocate(claim, "n1", device, pods=[pod])
        life.bind("first", "n1")
        await asyncio.sleep(5)
        life.drivers.restart("n1", 60)
        life.bind("second", "n1")
        await asyncio.sleep(50)
        assert life.slices("n1") == []
        assert (life.phase("first"), life.phase("second")) == ("Running", "Pending")
        assert list(life.said("second")) == [f"{PREFIX}DRA driver gpu.nvidia.com is not registered"]
        await asyncio.sleep(30)
        assert {each["spec"]["pool"]["generation"] for each in life.slices("n1")} == {2}
        assert (life.phase("first"), life.phase("second")) == ("Succeeded", "Running")

    run(main)


def test_a_lost_gpu_leaves_the_slices_and_comes_back():
    async def main():
        life = DeviceLife({"n1": MIG})
        await asyncio.sleep(3)
        life.drivers.lose("n1", devices.of_gpu(MIG, 1))
        await asyncio.sleep(1)
        names = {device["name"] for each in life.slices("n1") for device in each["spec"].get("devices", ())}
        assert names == set(devices.of_gpu(MIG, 0))
        assert {each["spec"]["pool"]["generation"] for each in life.slices("n1")} == {2}
        assert {each["spec"]["pool"]["resourceSliceCount"] for each in life.slices("n1")} == {len(life.slices("n1"))}
        life.drivers.repair("n1")
        await asyncio.sleep(1)
        assert len([device for each in life.slices("n1") for device in each["spec"].get("devices", ())]) == 2 * len(names)

    run(main)


@pytest.mark.parametrize(("effect", "runs"), [("NoSchedule", True), ("NoExecute", False), ("None", True)])
def test_a_taint_evicts_pods_by_its_effect(effect, runs):
    async def main():
        life = DeviceLife({"n1": PLAIN})
        life.template("any")
        life.pod("p", gpu="from-any")
        await asyncio.sleep(3)
        [claim] = life.claims_of("p")
        life.allocate(claim, "n1", "gpu-0", pods=["p"])
        life.bind("p", "n1")
        await asyncio.sleep(5)
        life.drivers.taint("n1", ["gpu-0"], effect)
        await asyncio.sleep(5)
        assert life.phase("p") == ("Running" if runs else "gone")
        assert (life.get(CLAIMS, claim) is None) is not runs
        assert life.controllers.device_evictions.evicted == (not runs)

    run(main)


def test_a_pod_bound_to_a_tainted_device_is_evicted():
    async def main():
        life = DeviceLife({"n1": PLAIN})
        life.claim("one")
        life.pod("p", gpu="one")
        life.allocate("one", "n1", "gpu-0", pods=["p"])
        await asyncio.sleep(3)
        life.drivers.taint("n1", ["gpu-0"], "NoExecute")
        await asyncio.sleep(3)
        assert life.phase("p") == "Pending"
        life.bind("p", "n1")
        await asyncio.sleep(3)
        assert life.phase("p") == "gone"
        assert FINALIZER not in (life.get(CLAIMS, "one")["metadata"].get("finalizers") or ())

    run(main)


@pytest.mark.parametrize(("away", "phase", "prepared"), [(10, "Running", 1), (60, "gone", 0)])
def test_a_node_that_is_deleted_takes_its_slices_along_and_keeps_what_its_pods_hold(away, phase, prepared):
    """Pods of a node that is gone for longer are collected; their devices are free once its driver is there again."""

    async def main():
        life = DeviceLife({"n1": PLAIN})
        life.claim("one")
        life.pod("p", gpu="one")
        life.allocate("one", "n1", "gpu-0", pods=["p"])
        life.bind("p", "n1")
        await asyncio.sleep(5)
        life.api.delete(life.api.served("v1", "nodes"), "", "n1")
        await asyncio.sleep(away)
        assert (life.slices("n1"), len(life.drivers.nodes["n1"].prepared)) == ([], 1)
        life.add_node("n1")
        await asyncio.sleep(3)
        assert {each["spec"]["pool"]["generation"] for each in life.slices("n1")} == {2}
        assert (life.phase("p"), len(life.drivers.nodes["n1"].prepared)) == (phase, prepared)
        assert ("allocation" in life.get(CLAIMS, "one")["status"]) is (phase == "Running")

    run(main)
