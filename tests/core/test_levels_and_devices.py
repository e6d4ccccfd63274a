"""Gangs in one domain of the network whose members have devices by claims, or resources that devices may serve."""

import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.dra.model import DeviceClass
from tests.builders import GPU, placed, pod, preempted, refused, run, spec
from tests.core.test_device_claims import GPU as CLASS
from tests.core.test_device_claims import claim, gpus, uses
from tests.core.test_extended_resources import wants
from tests.core.test_levels import near, on, racks_of, world

MANY = 40  # more domains than are tried


def with_claims(state, size):
    for each in range(size):
        state.claims.upsert(claim(f"c{each}"))
        state.upsert_pod(uses(f"m{each}", f"c{each}", group="g", priority=5))


def with_gpus(state, size):
    for each in range(size):
        state.upsert_pod(wants(f"m{each}", spec_=spec(gpus=1), resource=GPU, group="g", priority=5))


def by_claims(free, least=2, low=()):
    """Racks with so many devices each, on nodes of one device."""
    names = [(f"n{rack:02}{at}", f"r{rack:02}") for rack, count in enumerate(free) for at in range(count)]
    state = world([on(name, rack, gpus=0) for name, rack in names], low, [near("g", least, "rack")])
    for each in (CLASS, *(gpus(name, 1) for name, _ in names)):
        state.claims.upsert(each)
    state.claims.all_known()
    return state


def by_plugins(free, least=2, low=()):
    """The same where device plugins have the GPUs, and a class would serve them elsewhere."""
    names = [(f"n{rack:02}{at}", f"r{rack:02}") for rack, count in enumerate(free) for at in range(count)]
    state = world([on(name, rack, gpus=1) for name, rack in names], low, [near("g", least, "rack")])
    state.claims.upsert(DeviceClass("gpu", resource=GPU))
    state.claims.all_known()
    return state


KINDS = pytest.mark.parametrize(("nodes", "members"), [(by_claims, with_claims), (by_plugins, with_gpus)])


@KINDS
def test_the_rack_with_enough_devices_is_found_among_many_with_too_few(nodes, members):
    state = nodes([1] * MANY + [2])
    members(state, 2)
    assert len(placed(run(state))) == 2
    assert racks_of(state, "g") == {("b", f"r{MANY}")}
    invariants.check(state)


@KINDS
def test_racks_are_compared_by_devices_where_none_has_enough(nodes, members):
    state = nodes([1, 2, 1], least=3)
    members(state, 3)
    reason = refused(run(state))["m0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "largest rack holds at most 2 when empty" in reason.message
    assert reason.numbers == {"needed": 3, "held": 2, "domains": 3, "ceiling": 2}


@KINDS
def test_victims_are_sought_in_racks_that_could_hold_the_gang(nodes, members):
    state = nodes([1] * MANY + [2], low=[pod("low", spec_=spec(gpus=0, cpu=63_500), at=f"n{MANY}0")])
    members(state, 2)
    assert preempted(run(state, 10.0)) == [["low"]]
    invariants.check(state)
