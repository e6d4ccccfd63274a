"""Slices as pools: generations, what is missing, what contradicts itself, and what each node sees."""

import pytest

from fairlead.core.dra.model import Reach
from fairlead.core.dra.pools import Slices
from fairlead.core.dra.reach import reaches
from fairlead.core.model.selectors import Requirement, SelectorTerm
from tests.core.dra.worlds import DRIVER, device, node, pool

ZONE = Reach(terms=(SelectorTerm((Requirement("zone", "In", ("a",)),)),))


def seen(*slices, at=None):
    return Slices(slices).pools(at or node())


def devices(pools):
    return [each.name for one in pools for each, _ in one.devices]


def test_the_newest_generation_counts_alone():
    old, new = pool(device("old"), generation=1), pool(device("new"), generation=2)
    assert devices(seen(old, new)) == ["new"]
    assert seen(old, pool(device("x"), generation=2, reach=Reach(node="n1"))) == []


def test_pools_with_missing_slices_give_nothing_and_say_so():
    found = seen(pool(device("a"), slices=2))
    assert (found[0].fault, found[0].incomplete, devices(found)) == ("1 of 2 slices of generation 1 are there", True, [])


@pytest.mark.parametrize(
    ("slices", "fault"),
    [
        ([pool(device("a"), device("a"))], "device name a is there twice"),
        ([pool(counters=(("c", {}), ("c", {})), slices=2), pool(device("a"), slices=2, part=1)], "counter set c is there twice"),
        ([pool(device("a", counters=(("c", (("m", 1),)),)))], "device a consumes counter set c, which is not there"),
        (
            [pool(device("a", counters=(("c", (("m", 1),)),)), slices=2), pool(counters=(("c", {"n": 1}),), slices=2, part=1)],
            "device a consumes counter m of c, which is not there",
        ),
    ],
)
def test_pools_that_contradict_themselves_give_nothing(slices, fault):
    assert [(each.fault, each.incomplete) for each in seen(*slices)] == [(fault, False)]


def test_each_node_sees_what_reaches_it():
    nodes = node("n0", zone="a"), node("n1", zone="b")
    for reach, expected in (
        (Reach(node="n1"), [False, True]),
        (Reach(everywhere=True), [True, True]),
        (ZONE, [True, False]),
        (Reach(), [False, False]),
    ):
        assert [reaches(reach, each) for each in nodes] == expected
    import msgspec

    per_device = msgspec.structs.replace(
        pool(device("a", reach=ZONE), device("b", reach=Reach(node="n1")), reach=Reach()), per_device=True
    )
    assert [devices(seen(per_device, at=each)) for each in nodes] == [["a"], ["b"]]


def test_pools_come_by_driver_and_name_slices_by_name_late_ones_last():
    late = pool(device("late", conditions=("ready",)), name="a")
    second = pool(device("second"), name="b", slices=2, part=1)
    first = pool(device("first"), name="b", slices=2, part=0)
    other = pool(device("other"), driver="abc", name="z")
    assert devices(seen(late, second, first, other)) == ["other", "first", "second", "late"]


def test_slices_are_replaced_and_removed_by_name():
    slices = Slices([pool(device("a"))])
    slices.put(pool(device("b")))
    assert devices(slices.pools(node())) == ["b"]
    name = f"{DRIVER}-n0-1-0"
    slices.remove(name)
    slices.remove(name)
    assert slices.pools(node()) == []
