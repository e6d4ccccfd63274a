"""Spare places of gangs: kept beside the members, charged, given to replacements, and free again at the end."""

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.groups import Group, Target
from fairlead.core.model.nodes import NetworkLevel, NodePool, Reservation
from fairlead.core.model.pods import Closeness, SliceRule
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Preempt
from tests.builders import cluster, node, pod, preempted, queue, refused, run, start

RACK = NetworkLevel("rack", "net/rack")
POOL = NodePool("p", levels=(RACK,))


def on(name, rack, gpus=1, **more):
    return node(name, labels={"net/rack": rack, "name": name}, gpus=gpus, **more)


def racks(*sizes):
    return [on(f"r{rack}n{number}", f"r{rack}") for rack, size in enumerate(sizes) for number in range(size)]


def gang(name, size, **more):
    return [pod(f"{name}-{i}", group=name, **more) for i in range(size)]


def group(name, least, spares=1, required=("rack",), **more):
    return Group("ns", name, least, closeness=Closeness(required, spares=spares), **more)


def world(nodes, pods, groups, queues=(), **policy):
    state = cluster(queues=queues, **policy)
    state.upsert_pool(POOL)
    for each in (*nodes,):
        state.upsert_node(each)
    for each in groups:
        state.upsert_group(each)
    for each in pods:
        state.upsert_pod(each)
    return state


def kept(state, name="g"):
    """The nodes where places are kept for a gang."""
    found = state.gangs.get(f"ns/{name}")
    return list(state.spares.nodes(found)) if found is not None else []


def rack_of(state, name="g"):
    members = state.gangs[f"ns/{name}"].placed()
    return {state.nodes.names[task.row][:2] for task in members}


def fail(state, name, uid="again"):
    """A node fails; the pod there goes, and its controller makes another."""
    lost = next(task for task in state.tasks.values() if task.row >= 0 and state.nodes.names[task.row] == name)
    pod_ = lost.pod
    state.remove_node(name)
    if not pod_.spare:
        state.remove_pod(pod_.uid)
        state.upsert_pod(msgspec.structs.replace(pod_, uid=uid, name=uid, node=""))
    return pod_


def reserved(name, start, end, queue=""):
    """A node is reserved by an administrator."""
    return Reservation(f"window-{name}", start, end, (Requirement("name", "In", (name,)),), queue)


def used(state, name="default"):
    return state.queues.queues[name].used.get("nvidia.com/gpu", 0) // 1000


def test_it_starts_only_where_the_rack_has_the_spare_too():
    state = world(racks(4), gang("g", 4), [group("g", 4)])
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "spare" in reason.message
    assert reason.numbers["needed"] == 5
    state.upsert_node(on("r0n9", "r0"))
    assert len(start(state)) == 4
    assert len(kept(state)) == 1


def test_a_rack_with_enough_for_the_members_alone_is_passed_over():
    state = world(racks(4, 5), gang("g", 4), [group("g", 4)])
    assert len(start(state)) == 4
    assert rack_of(state) == {"r1"}
    assert kept(state)[0].startswith("r1")


def test_no_other_job_gets_the_place_and_the_queue_pays_for_it():
    state = world(racks(5), gang("g", 4), [group("g", 4)])
    start(state)
    state.upsert_pod(pod("other", gpus=1))
    assert start(state) == {}
    assert used(state) == 5


def test_a_quota_for_the_members_alone_is_not_enough():
    limited = queue("q", limit=4)
    state = world(racks(8), gang("g", 4, queue="q"), [group("g", 4)], queues=[limited])
    assert refused(run(state))["g-0"].code is ReasonCode.LIMIT_EXCEEDED
    state.upsert_queue(queue("q", limit=5))
    assert len(start(state)) == 4
    assert used(state, "q") == 5


def test_a_replacement_gets_the_spare_where_the_rack_is_reserved_for_another_job():
    """What is reserved there is for the time when the gang has ended."""
    runs = [pod(f"g-{i}", group="g", gpus=1, at=f"r0n{i}", started=0.0, time_limit=7200.0) for i in range(4)]
    state = world(racks(5), runs, [group("g", 4), group("next", 5, spares=0)], gang_grace=1e9)
    run(state)
    assert kept(state) == ["r0n4"]
    for each in gang("next", 5, gpus=1):
        state.upsert_pod(each)
    run(state, 2.0)
    run(state, 1000.0)
    (hold,) = state.reserved.holds.values()
    assert len(hold.rows) == 5
    state.remove_pod("uid-g-1")
    state.upsert_pod(msgspec.structs.replace(runs[1], uid="again", name="again", node=""))
    assert start(state, 1001.0) == {"again": "r0n4"}
    assert used(state) == 4
    invariants.check(state)


def test_a_member_whose_node_fails_gets_the_spare_while_all_else_is_full():
    state = world(racks(5, 3), gang("g", 4), [group("g", 4)], gang_grace=1e9)
    start(state)
    for i in range(6):
        state.upsert_pod(pod(f"full-{i}", gpus=1))
    start(state)
    spare = kept(state)[0]
    lost = state.nodes.names[state.tasks["uid-g-1"].row]
    fail(state, lost)
    assert start(state, 2.0) == {"again": spare}
    assert rack_of(state) == {"r0"}
    assert kept(state) == []
    assert used(state) == 7
    state.upsert_node(on(lost, "r0"))
    for i in range(3, 6):
        state.remove_pod(f"uid-full-{i}")
    start(state, 3.0)
    assert kept(state) == [lost]


def test_the_spare_follows_where_its_own_node_fails():
    state = world(racks(6), gang("g", 4), [group("g", 4)])
    start(state)
    before = kept(state)[0]
    state.remove_node(before)
    start(state, 2.0)
    assert len(kept(state)) == 1
    assert kept(state) != [before]


def test_a_spare_leaves_a_node_that_an_administrator_reserves():
    """No member that could be replaced may start there: only one that ends before the window begins."""
    state = world(racks(4), gang("g", 2), [group("g", 2)])
    start(state)
    (where,) = kept(state)
    state.upsert_reservation(reserved(where, 500.0, 900.0))
    start(state, 2.0)
    (other,) = kept(state)
    assert other != where
    state.upsert_reservation(reserved(other, 500.0, 900.0))
    start(state, 3.0)
    assert kept(state) == []
    state.remove_reservation(f"window-{other}")
    start(state, 4.0)
    assert kept(state) == [other]


def test_a_spare_stays_where_its_members_may_start_whatever_is_reserved():
    """They end before the window begins, or it is for their queue."""
    state = world(racks(3), gang("g", 2, time_limit=100.0), [group("g", 2)])
    start(state)
    (where,) = kept(state)
    state.upsert_reservation(reserved(where, 500.0, 900.0))
    start(state, 2.0)
    assert kept(state) == [where]
    state.upsert_reservation(reserved(where, 90.0, 900.0))
    start(state, 3.0)
    assert kept(state) == []
    state.upsert_reservation(reserved(where, 90.0, 900.0, queue="default"))
    start(state, 4.0)
    assert kept(state) == [where]


def test_a_replacement_does_not_get_a_place_that_an_administrator_reserves():
    state = world(racks(3), gang("g", 2), [group("g", 2)])
    start(state)
    (where,) = kept(state)
    state.upsert_reservation(reserved(where, 500.0, 900.0))
    lost = fail(state, next(name for name in ("r0n0", "r0n1", "r0n2") if name != where))
    assert start(state, 2.0) == {}
    state.remove_reservation(f"window-{where}")
    assert start(state, 3.0) == {"again": where}
    assert not lost.spare


def test_a_spare_leaves_a_node_that_is_cordoned():
    state = world(racks(6), gang("g", 4), [group("g", 4)])
    start(state)
    before = kept(state)[0]
    state.upsert_node(on(before, "r0", unschedulable=True))
    start(state, 2.0)
    assert len(kept(state)) == 1
    assert kept(state) != [before]


def test_the_places_are_free_once_the_gang_has_ended():
    state = world(racks(5), gang("g", 4), [group("g", 4)])
    start(state)
    state.upsert_pod(pod("other", gpus=5))
    for i in range(4):
        task = state.tasks[f"uid-g-{i}"]
        state.upsert_pod(msgspec.structs.replace(task.pod, finished=True, succeeded=2.0))
    start(state, 3.0)
    assert kept(state) == []
    assert used(state) == 0


def test_the_places_are_free_once_the_pod_group_is_gone():
    state = world(racks(5), gang("g", 4), [group("g", 4)])
    start(state)
    state.remove_group("ns/g")
    assert used(state) == 4
    for i in range(4):
        state.remove_pod(f"uid-g-{i}")
    start(state, 2.0)
    assert used(state) == 0
    assert "ns/g" not in state.gangs


def test_the_places_are_free_once_the_job_is_suspended():
    state = world(racks(5), gang("g", 4), [group("g", 4)])
    start(state)
    state.upsert_group(group("g", 4, target=Target("Suspended", 1)))
    start(state, 2.0)
    assert kept(state) == []


def test_a_job_that_starts_anew_has_its_places_for_a_while():
    """As an AIJob does whose member is lost: all pods of the next attempt come, and the rack has one node less."""
    state = world(racks(5, 5), gang("g", 4), [group("g", 4)])
    start(state)
    for i in range(5):
        state.upsert_pod(pod(f"full-{i}", gpus=1))
    start(state)
    fail(state, state.nodes.names[state.tasks["uid-g-0"].row])
    for i in range(1, 4):
        state.remove_pod(f"uid-g-{i}")
    state.remove_pod("again")
    start(state, 2.0)
    assert len(kept(state)) == 1
    for each in gang("h", 4):
        state.upsert_pod(msgspec.structs.replace(each, group="g", attempt=2))
    assert len(start(state, 3.0)) == 4
    assert kept(state) == []


def test_places_without_members_are_given_up_after_a_while():
    state = world(racks(5), gang("g", 4), [group("g", 4)])
    start(state)
    for i in range(4):
        state.remove_pod(f"uid-g-{i}")
    start(state, 2.0)
    assert len(kept(state)) == 1
    assert state.next_due <= 122.0
    start(state, 130.0)
    assert kept(state) == []
    assert used(state) == 0


def test_what_preempts_the_gang_gets_the_spare_place_too():
    state = world(racks(5), gang("g", 4), [group("g", 4)])
    start(state)
    for each in gang("top", 5, priority=10):
        state.upsert_pod(each)
    state.upsert_group(Group("ns", "top", 5, closeness=Closeness(("rack",))))
    decided = run(state, 2.0)
    assert preempted(decided) == [["g-0", "g-1", "g-2", "g-3"]]
    for each in decided:
        for binding in each.victims if isinstance(each, Preempt) else ():
            state.remove_pod(binding.pod.uid)
    assert len(start(state, 3.0)) == 5
    assert kept(state) == []


def test_one_pod_does_not_get_the_spare_place_by_priority_alone():
    """It evicts the gang, which its priority allows, or nothing: a spare is not a victim of its own."""
    state = world(racks(5), gang("g", 4), [group("g", 4)])
    start(state)
    state.upsert_pod(pod("top", gpus=1, priority=10))
    decided = run(state, 2.0)
    assert preempted(decided) == [["g-0", "g-1", "g-2", "g-3"]]


def test_a_gang_that_waits_for_victims_has_its_spare_held():
    state = world(racks(5), [pod(f"low-{i}", at=f"r0n{i}", gpus=1) for i in range(5)], [])
    start(state)
    state.upsert_group(group("g", 4))
    for each in gang("g", 4, priority=10):
        state.upsert_pod(each)
    decided = run(state, 2.0)
    assert sorted(name for each in preempted(decided) for name in each) == [f"low-{i}" for i in range(5)]
    for i in range(4):
        state.remove_pod(f"uid-low-{i}")
    assert start(state, 3.0) == {}
    state.remove_pod("uid-low-4")
    assert len(start(state, 4.0)) == 4
    assert len(kept(state)) == 1


def test_a_scheduler_that_starts_anew_finds_the_places():
    first = world(racks(6), gang("g", 4), [group("g", 4)])
    start(first)
    nodes = tuple(kept(first))
    pods = [first.tasks[f"uid-g-{i}"].pod for i in range(4)]
    waiting = [pod(f"other-{i}", gpus=1) for i in range(2)]
    state = world(racks(6), [*pods, *waiting], [group("g", 4, spares=1)])
    blank = world(racks(6), [*pods, *waiting], [])
    state = cluster()
    state.upsert_pool(POOL)
    for each in racks(6):
        state.upsert_node(each)
    state.upsert_group(msgspec.structs.replace(group("g", 4), spares=nodes))
    for each in (*pods, *waiting):
        state.upsert_pod(each)
    assert len(start(state, 5.0)) == 1
    assert tuple(kept(state)) == nodes
    assert len(start(blank, 5.0)) == 2


def test_a_refill_does_not_take_what_waits_for_a_place():
    state = world(racks(6), gang("g", 4), [group("g", 4)], gang_grace=1e9)
    start(state)
    fail(state, state.nodes.names[state.tasks["uid-g-0"].row])
    for i in range(2):
        state.upsert_pod(pod(f"other-{i}", gpus=1))
    done = start(state, 2.0)
    assert "again" in done
    assert len(done) == 2
    assert kept(state) == []


def test_roles_have_spares_of_their_own():
    asked = Closeness(roles=(("worker", Closeness(("rack",), spares=2)),))
    members = [pod("lead", group="g", gpus=0, labels=(("fairlead.dev/role", "lead"),))]
    members += gang("g", 3, labels=(("fairlead.dev/role", "worker"),))
    state = world(racks(4, 5), members, [Group("ns", "g", 4, closeness=asked)])
    assert len(start(state)) == 4
    assert [each[:2] for each in kept(state)] == ["r1", "r1"]


def test_members_beyond_the_minimum_take_no_spare():
    state = world(racks(4), [*gang("g", 2), pod("g-2", group="g", gpus=1)], [group("g", 2, spares=2)])
    assert len(start(state)) == 2
    assert len(kept(state)) == 2
    state.upsert_node(on("r0n9", "r0"))
    assert len(start(state, 2.0)) == 1


@pytest.mark.parametrize("spares", [1, 3])
def test_more_than_any_rack_has_is_a_reason_with_numbers(spares):
    state = world(racks(4, 4), gang("g", 4), [group("g", 4, spares)])
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert reason.numbers["needed"] == 4 + spares
    assert reason.numbers["ceiling"] == 4
    invariants.check(state)


def test_spares_without_a_required_level_are_a_reason():
    state = world(racks(8), gang("g", 4), [group("g", 4, required=())])
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "spares need a required level" in reason.message


def test_spares_of_members_in_slices_are_a_reason():
    asked = Closeness(("rack",), slices=(SliceRule("rack", (2,)),), spares=1)
    state = world(racks(8), gang("g", 4), [Group("ns", "g", 4, closeness=asked)])
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "members in slices have no spares" in reason.message


def test_a_spare_held_for_members_that_are_gone_waits_with_those_that_come():
    state = world(racks(5), [pod(f"low-{i}", at=f"r0n{i}", gpus=1) for i in range(5)], [])
    start(state)
    state.upsert_group(group("g", 4))
    for each in gang("g", 4, priority=10):
        state.upsert_pod(each)
    run(state, 2.0)
    for i in range(4):
        state.remove_pod(f"uid-g-{i}")
        state.upsert_pod(pod(f"again-{i}", group="g", priority=10))
    for i in range(4):
        state.remove_pod(f"uid-low-{i}")
    assert start(state, 3.0) == {}
    assert kept(state) == []
    state.remove_pod("uid-low-4")
    assert len(start(state, 4.0)) == 4
    assert len(kept(state)) == 1
