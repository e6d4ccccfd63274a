"""What part of a GPU devices are: whole GPUs, partitions by their counters, shares by what they consume."""

from fractions import Fraction

import pytest

from fairlead.core.dra import weights
from fairlead.core.dra.gpus import Gpus
from fairlead.core.dra.model import Ask, Capacity, Device, Policy, Reach, Slice

DRIVER = "gpu.nvidia.com"
SLICES = {f"memory-slice-{each}": 1 for each in range(8)}
SET = "gpu-0-counter-set"
COUNTERS = {(SET, name): amount for name, amount in {"multiprocessors": 98, "jpeg-engines": 1, **SLICES}.items()}


def partition(multiprocessors, slices, jpeg=0):
    used = {"multiprocessors": multiprocessors, "jpeg-engines": jpeg, **dict(list(SLICES.items())[:slices])}
    return Device("part", DRIVER, counters=((SET, tuple(used.items())),))


@pytest.mark.parametrize(
    ("device", "milli"),
    [
        (Device("whole", DRIVER), 1000),
        (Device("nic", "nic.example.com"), 0),
        (partition(98, 8, 1), 1000),
        (partition(14, 1), 142),  # 1g.5gb
        (partition(14, 1, 1), 142),  # with the JPEG engine, of which there is one
        (partition(14, 2), 250),  # 1g.10gb
        (partition(42, 4), 500),  # 3g.20gb
        (partition(56, 4), 571),  # 4g.20gb
    ],
)
def test_a_partition_is_the_largest_part_of_memory_and_multiprocessors(device, milli):
    assert weights.milli(device, COUNTERS) == milli


def test_without_sizes_the_largest_part_of_all_counters_counts():
    device = Device("half", DRIVER, counters=(("set", (("slots", 1), ("links", 2))),))
    assert weights.milli(device, {("set", "slots"): 2, ("set", "links"): 3}) == 666


def test_a_share_is_the_part_of_the_capacity_that_it_consumes():
    device = Device("gpu", DRIVER, capacity={"memory": Capacity(80, Policy(least=10, step=10))}, multiple=True)
    assert weights.milli_of_ask(device, {}, Ask("r", "c", capacity=(("memory", 15),))) == 250
    assert weights.milli_of_ask(device, {}, Ask("r", "c")) == 1000
    assert weights.milli_of_ask(device, {}, Ask("r", "c", capacity=(("memory", 90),))) == 0
    assert weights.milli_of_share(device, {}, {"memory": Fraction(40)}) == 500


def test_a_gpu_is_a_counter_set_or_a_device_without_counters():
    reach, pool = Reach("n"), (DRIVER, "n")
    gpus = Gpus()
    assert gpus.put(Slice("a", DRIVER, "n", 1, 2, reach, counters=((SET, {"multiprocessors": 98}), ("gpu-1", {}))))
    assert gpus.put(Slice("b", DRIVER, "n", 1, 2, reach, devices=(partition(14, 1), Device("gpu-2", DRIVER))))
    assert not gpus.put(Slice("c", "nic.example.com", "n", reach=reach, devices=(Device("nic", "nic.example.com"),)))
    assert gpus.on("n") == [(pool, [SET, "gpu-1", "gpu-2"])]
    assert gpus.remove("a")
    assert gpus.on("n") == [(pool, ["gpu-2"])]  # a partition of nothing is no GPU


def test_gpus_of_the_network_are_of_no_node():
    gpus = Gpus()
    devices = (Device("near", DRIVER, reach=Reach("n")), Device("far", DRIVER, reach=Reach(everywhere=True)))
    gpus.put(Slice("a", DRIVER, "pool", per_device=True, devices=devices))
    assert gpus.on("n") == [((DRIVER, "pool"), ["near"])]
    assert [(gpu, reaches) for _, gpu, reaches in gpus.of_none()] == [("far", [Reach(everywhere=True)])]
