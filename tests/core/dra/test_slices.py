"""Slices found by index are those that reading all of them gives, after any changes; and a change says whom it affects."""

from random import Random

import msgspec
import pytest

from fairlead.core.dra.model import Device, Reach, Slice
from fairlead.core.dra.pools import Slices
from fairlead.core.dra.reach import NO_NODES, Affected, reaches
from fairlead.core.model.nodes import Node
from fairlead.core.model.selectors import NAME_FIELD, Requirement, SelectorTerm
from testbed.dra import slices as many
from tests.core.dra.worlds import device, node, pool


def plain(slices, where):
    """What a node sees of slices, read one after the other: (driver, pool, fault, incomplete, devices, counters) in order."""
    found = []
    for driver, name in sorted({(each.driver, each.pool) for each in slices}):
        own = [each for each in slices if (each.driver, each.pool) == (driver, name)]
        newest = max(each.generation for each in own)
        current = sorted((each for each in own if each.generation == newest), key=lambda each: each.name)
        usable = [each for each in current if near(each, where)]
        if not usable:
            continue
        if {each.slices for each in current} != {len(current)}:
            most = max(each.slices for each in current)
            found.append((driver, name, f"{len(current)} of {most} slices of generation {newest} are there", True, [], {}))
            continue
        devices = [(one, each) for each in usable if not each.counters for one in each.devices]
        counters = {(set_, counter): value for each in current for set_, of in each.counters for counter, value in of.items()}
        if fault := first_fault(current, [one.name for one, _ in devices], counters):
            found.append((driver, name, fault, False, [], {}))
            continue
        here = [(one, each) for one, each in devices if not each.per_device or reaches(one.reach, where)]
        found.append((driver, name, "", False, here, counters))
    return sorted(found, key=lambda each: any(one.conditions for one, _ in each[4]))


def near(each, where):
    if each.per_device:
        return any(reaches(one.reach, where) for one in each.devices)
    return reaches(each.reach, where)


def first_fault(current, names, counters):
    for what, those in (("device name", names), ("counter set", [name for each in current for name, _ in each.counters])):
        for at, name in enumerate(those):
            if name in those[:at]:
                return f"{what} {name} is there twice"
    for one in (one for each in current for one in each.devices):
        for set_, uses in one.counters:
            if set_ not in {name for name, _ in counters}:
                return f"device {one.name} consumes counter set {set_}, which is not there"
            for counter, _ in uses:
                if (set_, counter) not in counters:
                    return f"device {one.name} consumes counter {counter} of {set_}, which is not there"
    return ""


def indexed(slices, where):
    return [
        (each.driver, each.name, each.fault, each.incomplete, list(each.devices), each.counters) for each in slices.pools(where)
    ]


def known_devices(slices, where):
    """All devices of the pools with counters: those that others hold count against counters."""
    return {(each.driver, each.name): each.every for each in slices.pools(where) if each.counters}


NODES = [Node(f"n{at}", {}, {"zone": "abc"[at % 3], "rack": str(at % 4), **({"odd": "7"} if at % 2 else {})}) for at in range(8)]


def draw_term(draw):
    kind = draw.randrange(8)
    expressions, fields = (), ()
    if kind < 3:
        expressions = (Requirement("zone", "In", tuple(draw.sample("abc", draw.randint(1, 2)))),)
    elif kind == 3:
        expressions = (Requirement("rack", "In", ("1", "2")), Requirement("zone", "NotIn", ("b",)))
    elif kind == 4:
        expressions = (Requirement("odd", draw.choice(("Exists", "DoesNotExist"))),)
    elif kind == 5:
        expressions = (Requirement("odd", draw.choice(("Gt", "Lt")), (draw.choice(("6", "8", "x")),)),)
    elif kind == 6:
        fields = (Requirement(NAME_FIELD, draw.choice(("In", "NotIn")), (draw.choice(NODES).name,)),)
    return SelectorTerm(expressions, fields)


def draw_reach(draw):
    kind = draw.randrange(6)
    if kind < 3:
        return Reach(node=draw.choice(NODES).name)
    if kind == 3:
        return Reach(everywhere=True)
    return Reach(terms=tuple(draw_term(draw) for _ in range(draw.randrange(3)))) if kind == 4 else Reach()


def draw_slice(draw):
    counted = draw.random() < 0.4
    kind = draw.randrange(4)
    uses = (("c", ((draw.choice("ccd"), 1),)),) if counted and draw.random() < 0.5 else ()
    devices = tuple(
        Device(
            f"d{draw.randrange(6)}",
            "gpu",
            attributes={"x": draw.choice((1, True))},
            counters=uses,
            reach=draw_reach(draw),
            conditions=("ready",) if draw.random() < 0.1 else (),
        )
        for _ in range(draw.randint(1, 2))
    )
    counters = (("c", {"c": 2, "d": 1}),) if counted and kind == 0 else ()
    return Slice(
        f"s{draw.randrange(9)}",
        draw.choice(("gpu", "nic")),
        f"p{draw.randrange(3)}",
        draw.choice((1, 1, 1, 2)),
        draw.choice((1, 1, 2, 3)),
        draw_reach(draw),
        kind == 1,
        () if counters else devices,
        counters,
    )


@pytest.mark.parametrize("start", range(0, 300, 30))
def test_any_changes_leave_what_reading_all_slices_gives(start):
    faults, sights, spared, changes = set(), 0, 0, 0
    for seed in range(start, start + 30):
        draw = Random(seed)
        slices, mirror = Slices(), {}
        for _ in range(40):
            before = [indexed(slices, each) for each in NODES]
            known = [known_devices(slices, each) for each in NODES]
            if mirror and draw.random() < 0.25:
                name = draw.choice(sorted(mirror))
                del mirror[name]
                affected = slices.remove(name)
            else:
                each = draw_slice(draw)
                if each.name in mirror and draw.random() < 0.6:  # mostly the same slice with other devices
                    fresh = each.devices if not mirror[each.name].counters else ()
                    each = msgspec.structs.replace(mirror[each.name], devices=fresh)
                mirror[each.name] = each
                affected = slices.put(each)
            changes += 1
            for at, where in enumerate(NODES):
                found = indexed(slices, where)
                assert found == plain(list(mirror.values()), where), (seed, where.name)
                assert [msgspec.to_builtins(one[4]) for one in found] == [
                    msgspec.to_builtins(one[4]) for one in plain(list(mirror.values()), where)
                ]  # with the types of values
                same = msgspec.to_builtins(found) == msgspec.to_builtins(before[at]) and known[at] == known_devices(slices, where)
                assert same or affected.includes(where), (seed, where.name)
                spared += not affected.includes(where)
                faults |= {each[2].partition(" ")[0] for each in found}
                sights += len(found)
        slices = Slices(mirror.values())
        assert [indexed(slices, each) for each in NODES] == [plain(list(mirror.values()), each) for each in NODES]
        for name in sorted(mirror):
            slices.remove(name)
        assert not slices.remove("unknown")
        assert vars(slices)["_by_reach"] == {}  # nothing is left behind
    assert {"", "1", "2", "device"} <= faults
    assert sights > 5_000
    assert spared > changes  # most nodes of most changes


def test_a_change_affects_those_whom_its_slice_reaches():
    slices = Slices([pool(device("a"), name=f"p{at}", reach=Reach(node=f"n{at}")) for at in range(4)])
    again = pool(device("a"), name="p1", reach=Reach(node="n1"))
    assert slices.put(again) == NO_NODES
    assert slices.put(pool(device("a", attributes={"x": 1}), name="p1", reach=Reach(node="n1"))) == Affected(frozenset({"n1"}))
    assert slices.put(pool(device("a", attributes={"x": True}), name="p1", reach=Reach(node="n1"))).names == {"n1"}
    assert slices.put(pool(device("a"), name="p1", reach=Reach(node="n2"))) == Affected(frozenset({"n1", "n2"}))
    assert slices.put(pool(device("a"), name="net", reach=Reach(everywhere=True))).everywhere
    term = SelectorTerm((Requirement("zone", "In", ("a",)),))
    selecting = slices.put(pool(device("a"), name="zone", reach=Reach(terms=(term,))))
    assert (selecting.terms, selecting.includes(node(zone="a")), selecting.includes(node(zone="b"))) == ((term,), True, False)
    assert not slices.put(pool(device("old"), name="zone", generation=0, reach=Reach(node="n0")))
    assert slices.remove(f"{again.driver}-p1-1-0").names == {"n2"}


def test_a_slice_that_completes_a_pool_affects_all_whom_the_pool_reaches():
    first = pool(device("a"), name="p", slices=2, part=0, reach=Reach(node="n0"))
    second = pool(device("b"), name="p", slices=2, part=1, reach=Reach(node="n1"))
    slices = Slices([first])
    assert slices.put(second).names == {"n0", "n1"}
    changed = msgspec.structs.replace(second, devices=(device("c"),))
    assert slices.put(changed).names == {"n1"}


def test_nodes_that_see_the_same_of_a_pool_have_the_same_object_until_it_changes():
    nodes = [node(f"n{at}", zone="ab"[at % 2]) for at in range(4)]
    zone = Reach(terms=(SelectorTerm((Requirement("zone", "In", ("a",)),)),))
    slices = Slices(
        [
            pool(device("x"), name="all", reach=Reach(everywhere=True)),
            pool(device("y"), name="zone", reach=zone),
            pool(device("z"), name="own", reach=Reach(node="n0")),
        ]
    )
    seen = [{each.name: each for each in slices.pools(one)} for one in nodes]
    assert [sorted(each) for each in seen] == [["all", "own", "zone"], ["all"], ["all", "zone"], ["all"]]
    assert all(each["all"] is seen[0]["all"] for each in seen)
    assert seen[0]["zone"] is seen[2]["zone"]
    slices.put(pool(device("z"), name="own", reach=Reach(node="n1")))
    assert slices.pools(nodes[3])[0] is seen[3]["all"]


def test_what_is_measured_of_many_slices_is_what_nodes_see():
    reported = []
    found = many.run(40, lambda done, total: reported.append((done, total)))
    assert {name: each.seen for name, each in found.pools.items()} == {"of nodes": 1, "of racks": 10, "of all nodes": 40}
    assert reported[-1] == (4, 4)
    assert min(found.first_us, found.second_us) > 0
