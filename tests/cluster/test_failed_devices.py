"""Failures of devices in the Lease: the scheduler that leads next avoids what the one before it avoided, as long as that did."""

import asyncio
import random

import pytest

from fairlead.api.names import FAILED_DEVICES_ANNOTATION
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.failed_devices import FailedDevices
from fairlead.cluster.kubernetes.lease import Elector
from fairlead.cluster.port import BindFailed, DevicesFailed
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock, VirtualLoop
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.simulated.wire import Wire
from fairlead.core.model.allocations import Allocation, Chosen, DeviceId, FailedDevice
from fairlead.core.model.policy import Policy
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.core_loop import CoreLoop
from tests.builders import placed, refused, run
from tests.core.test_device_claims import claim, gpus, state_of, uses

LEASE = ("kube-system", "fairlead-scheduler")
DEVICES = [DeviceId("gpu.example.com", "a", f"gpu-{each}") for each in range(4)]
UNSERVED = FailedDevice("", DeviceId("", "", ""), "the feature gate is off", unserved=True)


def pass_time(state, now):
    """As a pass does at the time when one is due."""
    claims = state.device_claims
    while due := [each for each in (claims.failures.next_due, claims.unserved.next_due) if each is not None and each <= now]:
        claims.end_backoffs(min(due))


def avoided(state):
    """All that is known of failures."""
    failures, unserved = state.device_claims.failures, state.device_claims.unserved
    by_device = {each: failures.status(each) for each in DEVICES}
    by_claim = {f"ns/c{each}": dict(failures.of_claim(f"ns/c{each}")) for each in range(3)}
    return by_device, by_claim, unserved.why, unserved.next_due, failures.next_due


@pytest.mark.parametrize("seed", range(150))
def test_what_is_kept_says_all_that_the_scheduler_knew(seed):
    draw = random.Random(seed)
    now = 1e9
    live = ClusterState(Policy())

    def clock():
        return now

    kept = FailedDevices(clock)
    for step in range(draw.randint(1, 14)):
        now += draw.choice((1.0, 5.0, 40.0, 700.0, 5000.0))
        pass_time(live, now)
        kind = draw.random()
        if kind < 0.55:
            device = draw.choice(DEVICES)
            failed = FailedDevice(f"ns/c{draw.randrange(3)}", device, f"condition {step}", refused=draw.random() < 0.3)
        elif kind < 0.7:
            failed = UNSERVED
        else:
            found = Allocation((Chosen("gpu", draw.choice(DEVICES)),), ())
            live.device_claims.failures.works(found.devices[0].device)
            kept.works([found, None])
            if draw.random() < 0.3:
                live.device_claims.unserved.works()
                kept.claims_served()
            continue
        live.device_claims.note_failed(failed, now)
        kept.note([failed])
        if draw.random() < 0.2:  # another scheduler leads
            after = FailedDevices(clock)
            past = after.take_over({name: value for name, value in kept.annotations().items() if value is not None})
            kept = after
            new = ClusterState(Policy())
            new.claims.remember_failures([(each.at, each.failed) for each in past], now)
            assert avoided(new) == avoided(live)
            live = new
    now += draw.choice((0.0, 3.0, 100.0, 4000.0))
    pass_time(live, now)
    past = FailedDevices(lambda: now).take_over({name: value or "[]" for name, value in kept.annotations().items()})
    new = ClusterState(Policy())
    new.claims.remember_failures([(each.at, each.failed) for each in past], now)
    assert avoided(new) == avoided(live)


def test_what_is_kept_is_bounded_and_forgotten():
    now = 1e9
    kept = FailedDevices(lambda: now)
    for each in range(300):
        now += 1
        kept.note([FailedDevice("ns/c", DeviceId("d", "p", f"gpu-{each % 40}"), "w" * 5000)])
    text = kept.annotations()[FAILED_DEVICES_ANNOTATION]
    assert len(text) < 64 * 400
    assert len(kept.take_over({})) == 64
    now += 4201
    assert kept.annotations() == {FAILED_DEVICES_ANNOTATION: None}


@pytest.mark.parametrize("text", ["", "x", "{}", '[{"at": 1}]', '[{"at": "x", "failed": {}}]', "null", '[{"at": 1e999}]'])
def test_what_cannot_be_read_is_nothing(text):
    assert FailedDevices(lambda: 1e9).take_over({FAILED_DEVICES_ANNOTATION: text}) == ()


@pytest.mark.parametrize("at", [-1e300, 1e300, 0.0])
def test_any_time_is_harmless(at):
    now = 1e9
    text = FailedDevices(lambda: at)
    text.note([FailedDevice("ns/c", DEVICES[0], "broken")])
    past = FailedDevices(lambda: now).take_over({FAILED_DEVICES_ANNOTATION: text.annotations()[FAILED_DEVICES_ANNOTATION] or ""})
    state = ClusterState(Policy())
    state.claims.remember_failures([(each.at, each.failed) for each in past], now)
    assert (state.device_claims.failures.next_due or now) <= now + 4200


def test_the_next_leader_finds_it_in_the_lease_and_the_annotations_of_others_stay():
    async def story():
        loop = asyncio.get_running_loop()
        api = ApiServer(Clock(start=1e9, loop=loop), seed=1)
        async with Client(Config("http://simulated"), transport=SimulatedTransport(Wire(api)), clock=api.clock.now) as client:
            kept = FailedDevices(client.clock)
            found = []

            def elector(annotations):
                return Elector(client, namespace=LEASE[0], name=LEASE[1], healthy=lambda: True, annotations=annotations)

            async def lead(by, seconds):
                async def work():
                    found.append(dict(by.found))
                    await loop.create_future()

                task = asyncio.ensure_future(by.lead(work))
                await asyncio.sleep(seconds)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            first = asyncio.ensure_future(lead(elector(kept.annotations), 20))
            await asyncio.sleep(5)
            metadata = {"metadata": {"annotations": {"example.com/other": "x"}}}
            leases = api.served("coordination.k8s.io/v1", "leases")
            api.patch(leases, *LEASE, "application/merge-patch+json", metadata)
            kept.note([FailedDevice("ns/c", DEVICES[0], "broken")])
            await first
            second = FailedDevices(client.clock)
            await lead(elector(second.annotations), 1)
            assert set(found[1]) == {FAILED_DEVICES_ANNOTATION, "example.com/other"}
            past = second.take_over(found[1])
            assert [each.failed.device for each in past] == [DEVICES[0]]
            second.works([Allocation((Chosen("gpu", DEVICES[0]),), ())])
            await lead(elector(second.annotations), 5)
            assert set(api.store.get("coordination.k8s.io/leases", LEASE).object["metadata"]["annotations"]) == {
                "example.com/other"
            }

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


def test_a_core_that_is_told_avoids_the_device_until_the_backoff_is_over():
    before = state_of(gpus("a", 1), claim("c"), pods=[uses("p", "c")], hosts=("a",))
    assert placed(run(before, 0.0)) == {"p": "a"}
    failed = FailedDevice("ns/c", DeviceId("gpu.example.com", "a", "gpu-0"), "condition Broken")
    now = 1e9
    kept = FailedDevices(lambda: now)
    kept.note([failed])
    told = DevicesFailed(
        FailedDevices(lambda: now).take_over({FAILED_DEVICES_ANNOTATION: kept.annotations()[FAILED_DEVICES_ANNOTATION]})
    )
    core = CoreLoop(Policy(), lambda _: None)
    core.state = state_of(gpus("a", 1), claim("c"), pods=[uses("p", "c")], hosts=("a",))
    core._take_in(told, now + 4)
    reason = refused(run(core.state, now + 5))["p"]
    assert "could not be bound (gpu.example.com/a/gpu-0: condition Broken; tried again after 10 s)" in reason.message
    assert placed(run(core.state, now + 10)) == {"p": "a"}
    core._take_in(BindFailed("uid-p", "", (failed,)), now + 11)
    assert "2 times in a row" in refused(run(core.state, now + 20))["p"].message


def test_many_pods_that_are_refused_at_once_are_one_failure_and_hide_no_earlier_one():
    now = [1000.0]
    kept = FailedDevices(lambda: now[0])
    refused = FailedDevice("", DeviceId("", "", ""), "refused", unserved=True)
    for wait in (11.0, 21.0, 41.0):
        for _ in range(20):
            kept.note([refused])
        now[0] += wait
    text = kept.annotations()
    found = FailedDevices(lambda: now[0]).take_over({name: value for name, value in text.items() if value})
    assert [each.at for each in found] == [1000.0, 1011.0, 1032.0]
