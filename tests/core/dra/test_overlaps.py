"""Overlaps of allocations: the later one is found, whatever overlaps, as a plain count of each device and counter finds it."""

import random

import pytest

from fairlead.core.dra.model import Allocation, Capacity, Chosen, DeviceId
from fairlead.core.dra.overlaps import Written
from tests.core.dra.worlds import DRIVER, device, partitions, pool


def has(*names, host="n0", **more):
    return Allocation(tuple(Chosen("r", DeviceId(DRIVER, host, each), **more) for each in names))


def share(name, amount):
    return Allocation((Chosen("r", DeviceId(DRIVER, "n0", name), shared=True, consumed=(("memory", amount),)),))


def written(*claims, slices=None):
    found = Written()
    for each in partitions(2) if slices is None else slices:
        found.put_slice(each)
    for at, (key, allocation) in enumerate(claims):
        found.put(key, allocation, at + 1)
    return found


def test_the_later_of_a_whole_gpu_and_its_partition_has_to_go():
    found = written(("ns/a", has("gpu-0-whole-0")), ("ns/b", has("gpu-0-quarter-1")), ("ns/c", has("gpu-1-quarter-1")))
    assert found.overlap("ns/a") is None
    assert found.overlap("ns/c") is None
    overlap = found.overlap("ns/b")
    assert (str(overlap.device), overlap.others) == (f"{DRIVER}/n0/gpu-0-quarter-1", ("ns/a",))
    assert "needs 1 of counter s1 of gpu-0, and 0 is left" in overlap.what
    found.remove("ns/a")
    assert found.overlap("ns/b") is None


def test_shares_beyond_a_capacity_are_found():
    slices = [pool(device("d", multiple=True, capacity={"memory": Capacity(10)}))]
    found = written(("ns/a", share("d", 6)), ("ns/b", share("d", 4)), ("ns/c", share("d", 1)), slices=slices)
    assert [found.overlap(f"ns/{each}") is None for each in "abc"] == [True, True, False]
    assert "has 10 of memory, and its shares are 11" in found.overlap("ns/c").what
    found.put("ns/d", has("d"), 9)
    assert found.overlap("ns/d").others == ("ns/a", "ns/b", "ns/c")


def test_a_device_that_its_driver_has_withdrawn_has_its_counters_as_long_as_it_is_allocated():
    devices, counters = partitions(1)
    found = written(("ns/a", has("gpu-0-half-0")), slices=[devices, counters])
    found.put_slice(pool(*[each for each in devices.devices if each.name != "gpu-0-half-0"], slices=2))
    found.put("ns/b", has("gpu-0-quarter-1"), 2)
    assert found.overlap("ns/b").others == ("ns/a",)
    found.remove("ns/a")
    assert found.overlap("ns/b") is None
    found.remove("ns/b")
    found.remove_slice(devices.name)
    found.remove_slice(counters.name)
    assert found.entries == 0


def test_a_claim_with_the_same_devices_has_them_since_it_got_them_first():
    found = written(("ns/a", has("gpu-0-whole-0")), ("ns/b", has("gpu-0-half-0")))
    found.put("ns/a", has("gpu-0-whole-0"), 9)
    assert found.overlap("ns/a") is None
    found.put("ns/a", has("gpu-0-half-0"), 10)
    assert found.overlap("ns/a").others == ("ns/b",)
    assert found.overlap("ns/b") is None


def counted(before, ours, devices, totals):
    """Whether an allocation does not fit: by each device that is taken, then by each counter."""
    taken = [each for allocation in before for each in allocation.devices if not each.admin]
    mine = [each for each in ours.devices if not each.admin]
    for each in mine:
        others = [one for one in taken if one.device == each.device]
        if others and (not each.shared or any(not one.shared for one in others)):
            return True
        both = others + [one for one in mine if one.device == each.device]
        for name, capacity in devices[each.device.device].capacity.items():
            if others and dict(each.consumed).get(name) and sum(dict(one.consumed).get(name, 0) for one in both) > capacity.value:
                return True
    old = {one.device.device for one in taken}
    new = {one.device.device for one in mine} - old
    for (name, counter), total in totals.items():
        used = [sum(dict(dict(devices[one].counters).get(name, ())).get(counter, 0) for one in these) for these in (old, new)]
        if all(used) and sum(used) > total:
            return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_random_allocations_overlap_where_a_plain_count_says_so(seed):
    rnd = random.Random(seed)
    parts, sets = partitions(2)
    shared = [
        device(f"s{each}", multiple=True, capacity={"memory": Capacity(4)}, counters=((f"gpu-{each}", (("s3", 1),)),))
        for each in range(2)
    ]
    slices = [pool(*parts.devices, *shared, slices=2), sets]
    devices = {each.name: each for each in slices[0].devices}
    totals = {(name, counter): value for name, of in sets.counters for counter, value in of.items()}
    found, model = Written(), {}
    for each in slices:
        found.put_slice(each)
    positive = 0
    for version in range(1, 81):
        key = f"ns/c{rnd.randint(0, 5)}"
        if rnd.random() < 0.25:
            found.put(key, None, version)
            model.pop(key, None)
        else:
            chosen = []
            for name in rnd.sample(sorted(devices), rnd.randint(1, 2)):
                multiple = devices[name].multiple and rnd.random() < 0.9
                consumed = (("memory", rnd.randint(1, 3)),) if multiple else ()
                chosen.append(Chosen("r", DeviceId(DRIVER, "n0", name), rnd.random() < 0.1, multiple, consumed))
            allocation = Allocation(tuple(chosen))
            if key not in model or model[key][1] != allocation:
                model[key] = (version, allocation)
            found.put(key, allocation, version)
        if rnd.random() < 0.1:
            found.put_slice(rnd.choice(slices))
        for one, (since, ours) in model.items():
            before = [each for other, (at, each) in sorted(model.items()) if at < since and other != one]
            expected = counted(before, ours, devices, totals)
            positive += expected
            assert (found.overlap(one) is not None) is expected, (one, model)
        assert found.overlap("ns/unknown") is None
    assert positive
    for key in list(model):
        found.remove(key)
    for each in slices:
        found.remove_slice(each.name)
    assert found.entries == 0
