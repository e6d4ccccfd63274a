"""Devices by how they are connected: the best set where nothing else decides, and never another verdict."""

from __future__ import annotations

import random
from itertools import combinations

import msgspec
import pytest

from fairlead.core.dra.allocator import Options, Preference
from fairlead.core.dra.held import Held
from fairlead.core.dra.inventory import Inventory
from fairlead.core.dra.model import Allocation, Chosen, Constraint, Device, DeviceClass, DeviceId
from fairlead.core.dra.pools import Slices
from fairlead.core.dra.refusals import Refusal
from fairlead.core.links.matrix import Links, links_of
from fairlead.core.links.report import read
from fairlead.simulation.gpusets.machines import machines
from tests.core.dra.worlds import ask, claim, matches, names, node, partitions, pool, solve

PACKED = Options(Preference.PACKED)
ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"
GPU, NIC = "gpu.example.com", "nic.example.com"
CLASSES = {"gpu": DeviceClass("gpu", ("kind=gpu",)), "nic": DeviceClass("nic", ("kind=nic",))}
MACHINES = {each.name: each.links for each in machines()}


def kinds(expression, each):
    if expression.startswith("name="):
        return expression == f"name={each.name}"
    return matches(expression, each) if each.driver == GPU else each.driver == NIC and expression == "kind=nic"


def gpu(number, **attributes):
    return Device(f"gpu-{number}", GPU, {"kind": "gpu", **attributes})


def nic(number, root):
    return Device(f"nic-{number}", NIC, {ROOT: root})


def here(devices, links=None, taken=()):
    """The state of a node with these devices, some of them taken."""
    of_driver = {driver: [each for each in devices if each.driver == driver] for driver in (GPU, NIC)}
    slices = [pool(*members, driver=driver) for driver, members in of_driver.items() if members]
    held = Held()
    held.take([Allocation((Chosen("r", DeviceId(GPU if name.startswith("gpu") else NIC, "n0", name)),)) for name in taken])
    return held.on(Inventory(Slices(slices).pools(node()), kinds, links))


def numbers(allocation, driver=GPU):
    return {int(each.device.device.partition("-")[2]) for each in allocation.devices if each.device.driver == driver}


def wants(count, *constraints, cards=0, cards_first=False):
    asks = [ask("g", count)]
    if cards:
        asks.append(msgspec.structs.replace(ask("n", cards), device_class="nic"))
    return claim(*(reversed(asks) if cards_first else asks), constraints=constraints)


def worth(links: Links, chosen, free):
    left = set(free) - set(chosen)
    return tuple(sum(links.weights[one][two] for one, two in combinations(sorted(each), 2)) for each in (chosen, left))


@pytest.mark.parametrize("name", ["dgx-1-volta", "4x-rtx8000", "summit", "nvlink-bridges"])
def test_a_claim_gets_the_best_set_that_leaves_the_best_remainder(name):
    links, draw = MACHINES[name], random.Random(5)
    for _ in range(40):
        free = sorted(draw.sample(range(links.gpus), draw.randint(1, links.gpus)))
        count = draw.randint(1, len(free))
        state = here(
            [gpu(each) for each in range(links.gpus)], links, [f"gpu-{each}" for each in range(links.gpus) if each not in free]
        )
        (found,) = solve(state, wants(count), classes=CLASSES, options=PACKED)
        best = max(worth(links, chosen, free) for chosen in combinations(free, count))
        assert worth(links, numbers(found), free) == best


def test_two_requests_of_a_claim_get_gpus_that_are_connected():
    state = here([gpu(each) for each in range(8)], MACHINES["dgx-1-volta"], ["gpu-0", "gpu-1", "gpu-3"])
    both = claim(ask("one"), ask("two"))
    (found,) = solve(state, both, classes=CLASSES, options=PACKED)
    assert numbers(found) == {6, 7}


def test_attributes_suffice_where_nothing_is_annotated():
    devices = [gpu(each, **{ROOT: f"pci{each % 4}", NUMA: each % 2}) for each in range(8)]
    (pair,) = solve(here(devices), wants(2), classes=CLASSES, options=PACKED)
    assert {each % 4 for each in numbers(pair)} in ({0}, {1}, {2}, {3})
    (four,) = solve(here(devices), wants(4), classes=CLASSES, options=PACKED)
    assert {each % 2 for each in numbers(four)} in ({0}, {1})
    (single,) = solve(here(devices, taken=["gpu-2"]), wants(1), classes=CLASSES, options=PACKED)
    assert numbers(single) == {6}  # the other pairs stay whole


@pytest.mark.parametrize("cards_first", [False, True])
def test_gpus_and_network_cards_are_under_one_root(cards_first):
    devices = [gpu(each, **{ROOT: f"pci{each // 2}"}) for each in range(8)] + [nic(each, f"pci{each}") for each in range(4)]
    state = here(devices, taken=["nic-0", "gpu-2"])
    (found,) = solve(state, wants(1, cards=1, cards_first=cards_first), classes=CLASSES, options=PACKED)
    assert {each // 2 for each in numbers(found)} == numbers(found, NIC) == {1}
    (two,) = solve(state, wants(2, cards=2, cards_first=cards_first), classes=CLASSES, options=PACKED)
    assert {each // 2 for each in numbers(two)} == numbers(two, NIC)
    (more,) = solve(state, wants(2, cards=1, cards_first=cards_first), classes=CLASSES, options=PACKED)
    assert {each // 2 for each in numbers(more)} == numbers(more, NIC)


@pytest.mark.parametrize("cards_first", [False, True])
def test_only_cards_that_the_claim_can_get_count(cards_first):
    devices = [gpu(each, **{ROOT: f"pci{each // 2}"}) for each in range(8)] + [nic(each, f"pci{each}") for each in range(4)]
    card = msgspec.structs.replace(ask("n", 1, "name=nic-3"), device_class="nic")
    wanted = claim(*([card, ask("g", 2)] if cards_first else [ask("g", 2), card]))
    (found,) = solve(here(devices), wanted, classes=CLASSES, options=PACKED)
    assert numbers(found) == {6, 7}
    assert numbers(found, NIC) == {3}


def test_a_constraint_is_kept_and_the_best_value_taken():
    links = MACHINES["dgx-1-volta"]
    devices = [gpu(each, **{NUMA: each // 4}) for each in range(8)]
    same = Constraint(NUMA)
    # Of both NUMA nodes the one with two NVLinks between the two that are free.
    state = here(devices, links, ["gpu-2", "gpu-3", "gpu-4", "gpu-7"])
    (found,) = solve(state, wants(2, same), classes=CLASSES, options=PACKED)
    assert numbers(found) == {5, 6}
    assert isinstance(solve(state, wants(3, same), classes=CLASSES, options=PACKED), Refusal)


def test_a_matrix_of_other_gpus_is_not_used_and_said_to_be():
    links = links_of([[0, 1], [1, 0]])
    devices = [gpu(each, **{ROOT: f"pci{each % 2}"}) for each in range(4)]
    state = here(devices, links)
    assert state.inventory.connected.fault.startswith("OtherGPUs: device gpu-2 is not one of gpu-0 to gpu-1")
    (found,) = solve(state, wants(2), classes=CLASSES, options=PACKED)
    assert {each % 2 for each in numbers(found)} in ({0}, {1})


def test_a_gpu_that_was_withdrawn_leaves_the_others_their_numbers():
    devices = [gpu(each) for each in range(8) if each != 0]
    state = here(devices, MACHINES["dgx-1-volta"], ["gpu-1", "gpu-5"])
    (found,) = solve(state, wants(2), classes=CLASSES, options=PACKED)
    assert numbers(found) in ({2, 3}, {4, 7})


def test_partitions_are_chosen_as_before():
    devices, counters = partitions(4)
    state = Held().on(Inventory(Slices([devices, counters]).pools(node()), matches, MACHINES["4x-rtx8000"]))
    assert state.inventory.connected.gpus == 0
    plain = Held().on(Inventory(Slices([devices, counters]).pools(node()), matches))
    wanted = claim(ask("r", 3, "kind=quarter"))
    assert names(solve(state, wanted, options=PACKED)) == names(solve(plain, wanted, options=PACKED))


@pytest.mark.parametrize("seed", range(150))
def test_no_verdict_depends_on_how_devices_are_connected(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 8)
    weights = [[0] * count for _ in range(count)]
    for one, two in combinations(range(count), 2):
        weights[one][two] = weights[two][one] = draw.choice([10, 50, 100, 200])
    devices = [
        gpu(each, **{ROOT: f"pci{draw.randint(0, 3)}"}, **({NUMA: draw.randint(0, 1)} if draw.random() < 0.9 else {}))
        for each in range(count)
    ] + [nic(each, f"pci{draw.randint(0, 4)}") for each in range(draw.randint(0, 4))]
    taken = [each.name for each in devices if draw.random() < 0.25]
    links = links_of(weights) if draw.random() < 0.6 else None
    state = here(devices, links, taken)
    claims = []
    for number in range(draw.randint(1, 3)):
        attribute = draw.choice([ROOT, NUMA])
        constraints = [Constraint(attribute, distinct=draw.random() < 0.3)] if draw.random() < 0.6 else []
        wanted = wants(draw.randint(1, 4), *constraints, cards=draw.randint(0, 2), cards_first=draw.random() < 0.5)
        claims.append(msgspec.structs.replace(wanted, name=f"c{number}"))
    first, packed = (solve(state, *claims, classes=CLASSES, options=each) for each in (Options(), PACKED))
    assert isinstance(first, Refusal) == isinstance(packed, Refusal)
    if isinstance(packed, Refusal):
        return
    chosen = [each.device.device for allocation in packed for each in allocation.devices]
    assert len(chosen) == len(set(chosen))
    assert set(chosen).isdisjoint(taken)
    by_name = {each.name: each for each in devices}
    for wanted, allocation in zip(claims, packed, strict=True):
        assert len(allocation.devices) == sum(each.alternatives[0].count for each in wanted.requests)
        for constraint in wanted.constraints:
            values = [by_name[each.device.device].attributes[constraint.attribute] for each in allocation.devices]
            assert len(set(values)) == (len(values) if constraint.distinct else 1)


def test_an_annotation_is_used_as_the_tool_prints_it():
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tSYS\tNV4\nGPU1\tSYS\tX\tSYS\nGPU2\tNV4\tSYS\tX\n"
    (found,) = solve(here([gpu(each) for each in range(3)], read(text)), wants(2), classes=CLASSES, options=PACKED)
    assert numbers(found) == {0, 2}
