"""Slices, equal parts, roles and spares of gangs on the levels of a network."""

import random
from collections import Counter
from itertools import product

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core.gang_slices import even_parts
from fairlead.core.model.groups import Group
from fairlead.core.model.pods import Closeness, SliceRule
from tests.builders import pod, refused, run, start
from tests.core.test_levels import gang, on, world


def sliced(name, least, *rules, **more):
    slices = tuple(SliceRule(level, sizes if isinstance(sizes, tuple) else (sizes,)) for level, sizes in rules)
    return Group("ns", name, least, closeness=Closeness(slices=slices, **more))


def racks_by_index(state, name):
    """For each member by index its rack."""
    found = {}
    for task in state.gangs[f"ns/{name}"].tasks.values():
        if task.row >= 0:
            found[int(task.pod.name.rpartition("-")[2])] = state.nodes.objects[task.row].labels["net/rack"]
    return found


def racks(*sizes, block="b"):
    return [on(f"{block}{rack}-{i}", f"r{rack}", block=block, gpus=1) for rack, size in enumerate(sizes) for i in range(size)]


def test_each_slice_is_in_one_rack():
    state = world(racks(5, 5, 2), gang("g", 10), [sliced("g", 10, ("rack", 4))])
    assert len(start(state)) == 10
    found = racks_by_index(state, "g")
    assert {found[i] for i in range(4)} != {found[i] for i in range(4, 8)}
    assert all(len({found[i] for i in part}) == 1 for part in (range(4), range(4, 8), range(8, 10)))


def test_it_waits_for_whole_slices_with_numbers():
    state = world(racks(5, 3, 3), gang("g", 8), [sliced("g", 8, ("rack", 4))])
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "the racks take 1 of 2 slices of 4 pods" in reason.message


def test_a_member_that_comes_again_goes_back_to_its_slice():
    state = world(racks(5, 5, 9), gang("g", 8), [sliced("g", 8, ("rack", 4))], gang_grace=1e9)
    start(state)
    before = racks_by_index(state, "g")
    lost = next(task for task in state.gangs["ns/g"].tasks.values() if task.pod.name == "g-5")
    state.remove_pod(lost.pod.uid)
    state.upsert_pod(msgspec.structs.replace(lost.pod, uid="again", name="again-5", node=""))
    assert len(start(state, 2.0)) == 1
    assert racks_by_index(state, "g") == before


def test_equal_parts():
    state = world(racks(18, 14, 16, 17), gang("g", 32), [sliced("g", 32, balanced=True, preferred="rack")])
    assert len(start(state)) == 32
    assert sorted(Counter(racks_by_index(state, "g").values()).values()) == [16, 16]


def test_the_largest_size_that_there_are_places_for():
    state = world(racks(8, 8, 3), gang("g", 16), [sliced("g", 16, ("rack", (16, 8, 4)))])
    assert len(start(state)) == 16
    found = racks_by_index(state, "g")
    assert all(len({found[i] for i in range(first, first + 8)}) == 1 for first in (0, 8))


def test_slices_inside_of_slices():
    nodes = racks(2, 2, 2, block="b") + racks(3, 3, block="c")
    state = world(nodes, gang("g", 8), [sliced("g", 8, ("block", 4), ("rack", 2))])
    assert len(start(state)) == 8
    tasks = {int(task.pod.name[2:]): state.nodes.objects[task.row].labels for task in state.gangs["ns/g"].tasks.values()}
    for first in (0, 4):
        assert len({tasks[i]["net/block"] for i in range(first, first + 4)}) == 1
    for first in range(0, 8, 2):
        assert len({(tasks[i]["net/block"], tasks[i]["net/rack"]) for i in (first, first + 1)}) == 1


def test_a_role_in_one_rack_and_the_others_anywhere():
    closeness = Closeness(roles=(("server", Closeness(("rack",))),))
    pods = gang("g", 3, labels=(("fairlead.dev/role", "worker"),))
    pods += [pod(f"s-{i}", group="g", labels=(("fairlead.dev/role", "server"),)) for i in range(3)]
    state = world(racks(2, 3, 1), pods, [Group("ns", "g", 6, closeness=closeness)])
    assert len(start(state)) == 6
    servers = [task for task in state.gangs["ns/g"].tasks.values() if task.pod.name.startswith("s-")]
    assert {state.nodes.objects[task.row].labels["net/rack"] for task in servers} == {"r1"}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([("row", 2)], "no NodePool has the topology level 'row'"),
        ([("rack", 4), ("block", 2)], "level block is wider than rack"),
        ([("block", 4), ("rack", 3)], "slices of 3 members do not divide slices of 4 members"),
        ([("rack", 0)], "slices of 0 members"),
        ([("rack", 4), ("rack", 2)], "two slices have the level rack"),
    ],
)
def test_what_contradicts_itself_has_a_reason(rules, message):
    state = world(racks(4, 4), gang("g", 4), [sliced("g", 4, *rules)])
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert message in reason.message
    state.upsert_group(Group("ns", "g", 4))
    assert len(start(state, 2000.0)) == 4


def test_members_without_an_index_have_a_reason():
    pods = [pod(f"m{letter}", group="g") for letter in "ab"]
    state = world(racks(4), pods, [sliced("g", 2, ("rack", 2))])
    assert "slices are by index, and pod ns/ma has none" in refused(run(state))["ma"].message


def test_equal_parts_stay_equal_when_members_come_again():
    state = world(racks(6, 6, 4), gang("g", 8), [sliced("g", 8, balanced=True, preferred="rack")], gang_grace=1e9)
    start(state)
    counts = Counter(racks_by_index(state, "g").values())
    lost = [task for task in state.gangs["ns/g"].tasks.values() if task.row >= 0][:3]
    for task in lost:
        state.remove_pod(task.pod.uid)
    for task in lost:
        state.upsert_pod(msgspec.structs.replace(task.pod, uid=f"{task.pod.uid}+", node=""))
    start(state, 2.0)
    assert Counter(racks_by_index(state, "g").values()) == counts


def test_equal_parts_are_found_where_there_are_any():
    """Against a search over all ways to give units to domains."""
    rnd = random.Random(5)
    for _ in range(400):
        held = {domain: rnd.randint(1, 4) for domain in range(1, 1 + rnd.randint(0, 2))}
        room = {domain: rnd.randint(0, 5) for domain in range(1, 5)}
        more = rnd.randint(1, 6)
        found = even_parts(held, room, more)
        ways = (
            way
            for way in product(*(range(room[domain] + 1) for domain in room))
            if sum(way) == more and _even([held.get(domain, 0) + way[domain - 1] for domain in room])
        )
        assert (found is None) == (next(ways, None) is None)
        if found is not None:
            assert sum(found.values()) == more
            assert all(count <= room[domain] for domain, count in found.items())
            assert _even([held.get(domain, 0) + found.get(domain, 0) for domain in room])


def _even(counts):
    used = [each for each in counts if each]
    return max(used) - min(used) <= 1


def test_work_without_a_topology_fills_one_rack_after_the_other():
    nodes = [on(f"n{i}-{rack}", f"r{rack}", gpus=8) for rack in range(4) for i in range(4)]
    pods = [pod(f"c{i}", gpus=0, cpu=40_000) for i in range(6)]
    state = world(nodes, pods, [])
    assert len(start(state)) == 6
    used = {state.nodes.objects[task.row].labels["net/rack"] for task in state.tasks.values()}
    assert len(used) == 2
