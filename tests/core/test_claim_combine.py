"""One plan that evicts and moves pods with ResourceClaims: no more is evicted than is lacking where the rest can be moved."""

import pytest

from fairlead.core import invariants
from fairlead.core.dra import model
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Preempt
from tests.builders import group, held, preempted, queue, run
from tests.core.claim_combining import LATE, Recorded, World
from tests.core.claim_lodging import lodge
from tests.core.test_device_claims import DRIVER, asks

CLASSES = [
    ServiceClass("fixed", movable=False),
    ServiceClass("saves", checkpoint_interval=7200.0),
    ServiceClass("whole", moves_whole=True, checkpoint_interval=900.0),
]


def cards(host, count, driver):
    """A slice with devices of a driver."""
    devices = tuple(model.Device(f"gpu-{each}", driver) for each in range(count))
    return model.Slice(host, driver, host, 1, 1, model.Reach(host), devices=devices)


def two_nodes(*, groups=(), policy=None, driver=DRIVER, **more):
    """j0 (2 devices) on one node, j1 (2) and j2 (1) on the other, all of q0; four are there on each."""
    items = [cards(host, 4, driver) for host in ("a", "b")]
    queues = [queue("q0", 4), queue("q1", 4)]
    rules = {"reservations": 0, **(policy or {})}
    stream = Recorded(["a", "b"], items, groups=groups, classes=CLASSES, queues=queues, remade=True, **rules)
    for name, host, devices in (("j0", "a", (0, 1)), ("j1", "b", (0, 1)), ("j2", "b", (2,))):
        wanted = [f"gpu-{each}" for each in devices]
        own = {"queue": "q0", "controlled": True, "owner": f"o-{name}", **more}
        lodge(stream, name, asks(len(devices)), host, wanted, driver=driver, **own)
    stream.now = LATE
    return stream


def test_the_smallest_is_evicted_and_another_moves_so_that_all_devices_are_busy():
    stream = two_nodes()
    stream.submit("wide", 1e6, [asks(4)], queue="q1")
    (plan,) = run(stream.state, LATE)
    assert isinstance(plan, Preempt)
    assert {each.pod.name for each in plan.victims} == {"j0", "j2"}
    assert plan.moved == ("uid-j0",)
    invariants.check(stream.state)


def test_all_run_in_the_end_but_the_one_that_is_evicted():
    stream = two_nodes()
    stream.submit("wide", 1e6, [asks(4)], queue="q1")
    stream.step()
    assert sorted(each.name.partition("+")[0] for each in stream.pods.values() if each.node) == ["j0", "j1", "wide"]
    assert (held(stream.state, "q0"), held(stream.state, "q1")) == (4, 4)
    assert len(stream.plans) == 1
    assert not preempted(run(stream.state, LATE + 100))


@pytest.mark.parametrize("how", ["class", "stays", "budget", "none"])
def test_without_moves_it_is_as_it_was(how):
    more = {"class": {"service_class": "fixed"}, "stays": {"stays": True}, "budget": {"labels": (("app", "a"),)}, "none": {}}[how]
    stream = two_nodes(policy={"moves_per_minute": 0} if how == "none" else {}, **more)
    if how == "budget":
        stream.state.upsert_budget(DisruptionBudget("ns", "b", (Requirement("app", "In", ("a",)),), 1))
    stream.submit("wide", 1e6, [asks(4)], queue="q1")
    (plan,) = run(stream.state, LATE)
    assert not plan.moved
    assert [each.pod.name for each in plan.victims] == ["j0"]
    invariants.check(stream.state)


def test_no_more_work_is_lost_with_moves_than_without():
    """Three devices' work would be lost with moves, two devices' with the one that falls; it waited for no time."""
    stream = two_nodes(service_class="saves")
    stream.submit("wide", 1e6, [asks(4)], queue="q1")
    (plan,) = run(stream.state, LATE)
    assert not plan.moved
    assert [each.pod.name for each in plan.victims] == ["j0"]


def test_devices_that_are_no_gpus_count_one_by_one():
    stream = two_nodes(driver="nic.example.com")
    stream.submit("wide", 1e6, [asks(4)], queue="q0", priority=1)
    (plan,) = run(stream.state, LATE)
    assert plan.moved == ("uid-j0",)
    assert {each.pod.name for each in plan.victims} == {"j0", "j2"}
    invariants.check(stream.state)


def test_a_plan_that_is_not_bettered_stands_with_its_devices():
    """It is laid out again as it was found, the same devices for the same claims."""
    stream = two_nodes(service_class="fixed")
    stream.submit("wide", 1e6, [asks(4)], queue="q1")
    stream.step()
    (bound,) = (each for each in stream.pods.values() if each.name == "wide")
    given = stream.claims[bound.claims[0].key].allocation.devices
    assert sorted(each.device.device for each in given) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert stream.where["uid-wide"] == "a"


def test_a_gang_moves_as_a_whole_only_where_its_class_lets_it():
    for service, moves in (("", False), ("whole", True)):
        stream = two_nodes(groups=[group("g", 1, "q0")], policy={"move_patience": 0.0})
        own = {"queue": "q0", "controlled": True}
        for name, host, more in (("j1", "b", {"service_class": "fixed"}), ("j0", "a", {"group": "g", "service_class": service})):
            stream.delete(f"uid-{name}")
            lodge(stream, name, asks(2), host, ["gpu-0", "gpu-1"], owner=f"o-{name}", **own, **more)
        stream.now = 4000.0
        stream.submit("wide", 1e6, [asks(4)], queue="q1")
        stream.now = 8000.0
        (plan,) = run(stream.state, stream.now)
        assert plan.moved == (("uid-j0",) if moves else ()), service
        invariants.check(stream.state)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_no_more_is_evicted_than_a_judge_finds(first):
    both = compared = worse = idle = 0
    for seed in range(first, first + 50):
        world = World(seed)
        least = world.least()
        world.ask()
        assert all(world.stream.where.get(f"uid-unit{at}") for at in range(len(world.wanted))) or not world.stream.plans, seed
        if not world.stream.plans:
            idle += bool(least)
            continue
        (plan,) = world.stream.plans
        fallen = [each.pod.name for each in plan.victims if each.pod.uid not in plan.moved]
        assert least is not None, seed
        compared += 1
        both += bool(fallen) and bool(plan.moved)
        worse += world.charged(fallen) > least
        assert not fallen or world.reclaimable(fallen), seed
    assert compared > 10
    assert not worse, f"{worse} of {compared}"
    assert not idle, f"{idle} wait though there is a plan"
