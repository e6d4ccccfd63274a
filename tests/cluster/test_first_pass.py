"""When the first pass may begin: after the devices that pods need were listed, but not for ever."""

import asyncio
import json

import pytest

from fairlead.cluster.kubernetes import cluster as adapter
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.cluster import KubernetesCluster
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.port import DevicesKnown, Synced
from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.devices import Model
from fairlead.cluster.simulated.transport import Partition, SimulatedTransport
from fairlead.cluster.transport import Reply
from fairlead.simulation.world import World
from testbed import claims

STATUS = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not served"}
RESOURCE = "/apis/resource.k8s.io/"
NEVER = 1e9


class Slow(SimulatedTransport):
    """Lists of devices are empty, and take a while."""

    after = 0.0

    async def request(self, method, path, **asked):
        if path.startswith(RESOURCE):
            await asyncio.sleep(self.after)
            return Reply(200, {}, json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode())
        return await super().request(method, path, **asked)


class Without(SimulatedTransport):
    """Devices are not served at all."""

    async def request(self, method, path, **asked):
        if path.startswith(RESOURCE):
            return Reply(404, {}, json.dumps(STATUS).encode())
        return await super().request(method, path, **asked)


def observed(transport, after=0.0, *, with_claims=True, slices_at=None):
    """Times at which `DevicesKnown` and `Synced` were delivered within two minutes."""
    times = {}

    async def run():
        world = World(nodes=1, seed=1)
        if with_claims:
            world.create(claims.pod(0, "fairlead"), "vision")
        carrier = transport(world.wire, world.plan, latency=world.latency, partition=Partition())
        carrier.after = after
        loop = asyncio.get_running_loop()
        begun = loop.time()
        published = [world.api.served(devices.API_VERSION, "resourceslices"), "", devices.slices("n", Model("plain", 1))[0]]
        if slices_at == 0.0:
            world.api.create(*published)
        elif slices_at is not None:
            loop.call_later(slices_at, lambda: world.api.create(*published))

        def sink(events):
            for event in events:
                if isinstance(event, DevicesKnown | Synced):
                    assert type(event) not in times
                    times[type(event)] = loop.time() - begun

        async with Client(Config("http://simulated"), transport=carrier, clock=world.clock.now, timeout=NEVER) as client:
            task = asyncio.ensure_future(KubernetesCluster(client).run(sink))
            await asyncio.sleep(120.0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
    return times.get(DevicesKnown, NEVER), times[Synced]


@pytest.mark.parametrize("after", [0.0, 1.0, 7.0])
def test_pods_with_claims_are_decided_once_devices_were_listed(after):
    known, synced = observed(Slow, after)
    assert after <= known <= synced < after + 1.0


def test_devices_that_are_never_listed_hold_up_the_first_pass_for_a_while_only():
    known, synced = observed(Without)
    assert known == NEVER
    assert adapter._DEVICES_LIMIT <= synced < adapter._DEVICES_LIMIT + 1.0


def test_devices_that_are_listed_later_are_known_from_then_on():
    known, synced = observed(Slow, 30.0)
    assert adapter._DEVICES_LIMIT <= synced < adapter._DEVICES_LIMIT + 1.0
    assert 30.0 <= known < 31.0


@pytest.mark.parametrize("at", [0.0, 30.0])
def test_slices_are_watched_once_there_are_any_though_no_pod_has_claims(at):
    known, synced = observed(SimulatedTransport, with_claims=False, slices_at=at)
    assert synced <= adapter._CLASSES_LIMIT
    assert at <= known < at + adapter._SLICES_EVERY
    known, synced = observed(SimulatedTransport, with_claims=False)
    assert known == NEVER


def test_without_pods_with_claims_nothing_waits_for_devices():
    known, synced = observed(Slow, 30.0, with_claims=False)
    assert known == NEVER
    assert synced < 1.0
