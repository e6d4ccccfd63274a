"""The judge of devices given twice: silent on honest allocations in random storms, and it finds each planted mistake."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from typer.testing import CliRunner

from fairlead.api import names
from fairlead.cli.main import app
from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.device_values import number
from fairlead.cluster.simulated.devices import DRIVER, Model
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import CLAIMS, NODES, PODS
from fairlead.simulation import chaos
from fairlead.simulation.device_audit import DeviceAuditor
from tests.simulation.device_lives import DeviceLife, run

LATE = 20.0
MODELS = {"n1": Model("mig", 2, "A30"), "n2": Model("plain", 2), "n3": Model("shared", 2, "A30"), "n4": Model("mig", 1, "A30")}
KINDS = {
    "whole": lambda device: device["attributes"]["type"]["string"] == "gpu" and not device.get("allowMultipleAllocations"),
    "part": lambda device: device["attributes"].get("profile", {}).get("string", "").startswith("1g"),
    "half": lambda device: device["attributes"].get("profile", {}).get("string", "").startswith("2g"),
    "share": lambda device: device.get("allowMultipleAllocations"),
}
DEVICES = {node: devices.devices(node, model) for node, model in MODELS.items()}


def amounts(sets):
    """(counter set, counter) -> amount."""
    return {
        (each.get("counterSet") or each["name"], key): number(of["value"])
        for each in sets
        for key, of in each["counters"].items()
    }


CONSUMED = {node: {each["name"]: amounts(each.get("consumesCounters", ())) for each in found} for node, found in DEVICES.items()}
TOTALS = {node: amounts(devices.counter_sets(model)) for node, model in MODELS.items()}
MISTAKES = (
    "ignores who holds a device",
    "ignores counters",
    "ignores capacity",
    "binds without a reservation",
    "binds elsewhere",
    "ignores taints",
    "takes lost devices",
    "shares a share",
)


class Allocator:
    """Gives devices to pods, first fit in a random order. mistake: what it does wrong."""

    def __init__(self, life, draw, mistake=""):
        self.life, self.draw, self.mistake = life, draw, mistake
        self.bound = 0

    def published(self, node):
        """The devices of a node's newest slices, if they are all there."""
        specs = [each["spec"] for each in self.life.slices(node)]
        newest = max((spec["pool"]["generation"] for spec in specs), default=0)
        specs = [spec for spec in specs if spec["pool"]["generation"] == newest]
        if not specs or len(specs) < specs[0]["pool"]["resourceSliceCount"]:
            return []
        return [device for spec in specs for device in spec.get("devices", ())]

    def holds(self):
        return [
            result
            for _, record in self.life.api.store.sorted(CLAIMS)
            for result in ((record.object["status"].get("allocation") or {}).get("devices") or {}).get("results", ())
        ]

    def fits(self, node, device, memory):
        """Whether a device can be given beside what all claims hold."""
        if self.mistake != "ignores taints" and any(each["effect"] != "None" for each in device.get("taints", ())):
            return False
        held = [each for each in self.holds() if each["pool"] == node]
        same = [each for each in held if each["device"] == device["name"]]
        if device.get("allowMultipleAllocations"):
            taken = sum(number(each["consumedCapacity"]["memory"]) for each in same) + number(memory)
            return taken <= number(device["capacity"]["memory"]["value"]) or self.mistake == "ignores capacity"
        if same and self.mistake != "ignores who holds a device":
            return False
        used = Counter()
        for name in {each["device"] for each in held} | {device["name"]}:
            used.update(CONSUMED[node][name])
        totals = TOTALS[node]
        return all(amount <= totals[key] for key, amount in used.items()) or self.mistake == "ignores counters"

    def serve(self, pod, kind):
        """Allocate and bind a pod if anything fits."""
        names_ = self.life.claims_of(pod)
        if not names_ or self.life.get(CLAIMS, names_[0]) is None:
            return
        claim = self.life.get(CLAIMS, names_[0])
        if claim["metadata"].get("deletionTimestamp"):
            return
        allocated = claim["status"].get("allocation")
        if allocated:
            node = allocated["devices"]["results"][0]["pool"]
            if pod not in [each["name"] for each in claim["status"].get("reservedFor", ())]:
                self.life.reserve(names_[0], pod)
            self.bind(pod, node)
            return
        nodes = self.draw.sample(sorted(MODELS), len(MODELS))
        memory = self.draw.choice(("6Gi", "12Gi"))
        for node in nodes:
            found = self.published(node)
            if self.mistake == "takes lost devices" and found:
                found = DEVICES[node]
            for device in found:
                if KINDS[kind](device) and self.fits(node, device, memory):
                    pods = [] if self.mistake == "binds without a reservation" else [pod]
                    if not device.get("allowMultipleAllocations"):
                        self.life.allocate(names_[0], node, device["name"], pods=pods)
                    elif self.mistake == "shares a share":
                        uid = "00000000-0000-4000-8000-000000000000"
                        more = {"shareID": uid, "consumedCapacity": {"memory": memory}}
                        self.life.allocate(names_[0], node, device["name"], pods=pods, **more)
                    else:
                        self.life.share(names_[0], node, device["name"], memory, pods=pods)
                    self.bind(pod, nodes[-1] if self.mistake == "binds elsewhere" else node)
                    return

    def bind(self, pod, node):
        if self.life.get(NODES, node, "") is not None:
            self.life.bind(pod, node)
            self.bound += 1


class Storm:
    """What goes wrong now and then."""

    def __init__(self, life, draw):
        self.life, self.draw = life, draw

    def strike(self):
        draw, life = self.draw, self.life
        node = draw.choice(sorted(MODELS))
        found = devices.of_gpu(MODELS[node], draw.randrange(MODELS[node].gpus))
        some = found if draw.random() < 0.5 else [draw.choice(found)]
        pods = [key[1] for key, _ in life.api.store.sorted(PODS)]
        claims = [key[1] for key, _ in life.api.store.sorted(CLAIMS)]
        kind = draw.choice(("restart", "lose", "taint", "node", "pod", "force", "claim", "repair", "repair"))
        if kind == "restart" and life.drivers.nodes[node].registered:
            life.drivers.restart(node, draw.uniform(1, 60))
        elif kind == "lose":
            life.drivers.lose(node, some)
        elif kind == "taint":
            life.drivers.taint(node, some, draw.choice(("NoSchedule", "NoExecute", "None")))
        elif kind == "repair":
            life.drivers.repair(node)
        elif kind == "node" and life.get(NODES, node, "") is not None:
            life.api.delete(life.api.served("v1", "nodes"), "", node)
            life.api.clock.call_later(draw.uniform(1, 30), lambda: life.add_node(node))
        elif kind in ("pod", "force") and pods:
            life.delete(draw.choice(pods), 0 if kind == "force" else None)
        elif kind == "claim" and claims:
            life.api.delete(life.api.served(devices.API_VERSION, "resourceclaims"), "default", draw.choice(claims))


async def play(seed, mistake="", *, storms=True):
    """A random hour; returns its world, allocator and what the judge found, before and after the end."""
    draw = random.Random(f"device worlds {seed}")
    life = DeviceLife(MODELS)
    violations = []
    auditor = DeviceAuditor(life.api.store, life.api.clock.now, violations.append, late=LATE)
    allocator, storm = Allocator(life, draw, mistake), Storm(life, draw)
    kinds = {}
    for kind in KINDS:
        life.template(kind)
    for number_ in range(40):
        name, kind = f"p{number_}", draw.choice(sorted(KINDS))
        kinds[name] = kind
        if kind == "whole" and draw.random() < 0.3:  # two pods with one claim
            life.claim(name)
            kinds[f"{name}-too"] = kind
            for each in (name, f"{name}-too"):
                life.api.clock.call_later(draw.uniform(0, 1800), lambda each=each, name=name: made(life, each, draw, gpu=name))
            continue
        life.api.clock.call_later(draw.uniform(0, 1800), lambda name=name, kind=kind: made(life, name, draw, gpu=f"from-{kind}"))
    for step in range(900):
        await asyncio.sleep(3)
        for (_, name), record in list(life.api.store.sorted(PODS)):
            if not record.object["spec"].get("nodeName") and not record.object["metadata"].get("deletionTimestamp"):
                allocator.serve(name, kinds[name])
        if storms and step < 600 and draw.random() < 0.1:
            storm.strike()
    for node in MODELS:
        life.drivers.repair(node)
    await asyncio.sleep(900)
    return life, allocator, auditor, violations


def made(life, name, draw, **claims):
    try:
        life.pod(name, draw.uniform(10, 600), scheduler=names.SCHEDULER_NAME, **claims)
    except StatusError as error:
        assert error.code == 409  # noqa: PT017 - it may be there already


@pytest.mark.parametrize("seed", range(6))
def test_honest_allocations_in_a_storm_violate_nothing_and_nothing_is_left(seed):
    life, allocator, auditor, violations = run(lambda: play(seed))
    assert violations == []
    assert auditor.settled() == []
    assert allocator.bound >= 25
    assert auditor.judged >= 20
    over = {
        record.object["status"].get("phase") for _, record in life.api.store.sorted(PODS) if record.object["spec"].get("nodeName")
    }
    assert over <= {"Succeeded", "Failed"}
    assert allocator.holds() == []
    assert not any(node.prepared for node in life.drivers.nodes.values())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_found(mistake):
    message = {
        "ignores who holds a device": "is given to",
        "ignores counters": "is overdrawn in",
        "ignores capacity": "shares of device",
        "binds without a reservation": "is not reserved for it",
        "binds elsewhere": "of node",
        "ignores taints": "with taint",
        "takes lost devices": "left its slices",
        "shares a share": "has a share twice",
    }[mistake]
    assert any(any(message in each for each in run(lambda seed=seed: play(seed, mistake))[3]) for seed in range(6))


def test_one_device_in_two_claims_is_no_violation_until_both_lead_to_pods():
    async def main():
        life = DeviceLife({"n1": Model("plain", 2)})
        violations = []
        auditor = DeviceAuditor(life.api.store, life.api.clock.now, violations.append, late=LATE)
        await asyncio.sleep(3)
        for name in "ab":
            life.claim(name)
            life.pod(name, scheduler=names.SCHEDULER_NAME, gpu=name)
            life.allocate(name, "n1", "gpu-0", pods=[name])
        life.bind("a", "n1")
        await asyncio.sleep(5)
        twice = f"device {DRIVER}/n1/gpu-0 is given to default/a, default/b"
        assert violations == []
        assert auditor.settled() == [
            f"settled: {each}"
            for each in (
                twice,
                f"device {DRIVER}/n1/gpu-0 is given to default/b, default/a",
                "claim default/b is reserved for pod b, which has no node",
            )
        ]
        life.bind("b", "n1")
        assert violations == [f"device {DRIVER}/n1/gpu-0 is given to default/b, default/a"]
        assert life.phase("b") == "Pending"

    run(main)


def test_admin_access_holds_nothing():
    async def main():
        life = DeviceLife({"n1": Model("plain", 2)})
        violations = []
        auditor = DeviceAuditor(life.api.store, life.api.clock.now, violations.append, late=LATE)
        life.api.patch(
            life.api.served("v1", "namespaces"),
            "",
            "default",
            "application/merge-patch+json",
            {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}},
        )
        await asyncio.sleep(3)
        for name in "ab":
            life.claim(name, adminAccess=name == "b")
            life.pod(name, scheduler=names.SCHEDULER_NAME, gpu=name)
            life.allocate(name, "n1", "gpu-0", pods=[name], **({"adminAccess": True} if name == "b" else {}))
            life.bind(name, "n1")
        await asyncio.sleep(5)
        assert (violations, auditor.settled(), life.phase("b")) == ([], [], "Running")

    run(main)


@pytest.mark.parametrize("seed", range(4))
def test_a_day_of_pods_with_claims_breaks_no_invariant(seed):
    """Pods with claims are placed, moved and preempted through all that goes wrong with devices."""
    settings = chaos.Settings(nodes=12, jobs=60, hours=4, devices=4)
    outcome = chaos.run(seed, settings)
    assert not outcome.violations, outcome.violations[:10]
    assert outcome.devices["claims_made"] > 0
    assert outcome.devices["allocations"] > 10
    assert outcome.devices["driver_restarts"] + outcome.faults.get("device_lost", 0) + outcome.faults.get("device_tainted", 0) > 0
    assert "--devices 4" in chaos.replay_command(seed, settings)


def test_a_day_of_devices_is_the_same_for_the_same_seed():
    settings = chaos.Settings(nodes=12, jobs=20, hours=2, devices=4)
    assert chaos.run(1, settings).digest == chaos.run(1, settings).digest


def test_devices_need_the_workload_whose_jobs_have_claims():
    done = CliRunner().invoke(app, ["simulate", "faults", "--devices", "2", "--workload", "aijobs"])
    assert (done.exit_code, "--devices needs --workload pods" in done.output) == (2, True), done.output
