"""Gangs on the levels of a network: all members in one domain, or a reason with numbers."""

import itertools
import random

import msgspec

from fairlead.api.reasons import ReasonCode
from fairlead.cli.nodes import domains_of
from fairlead.core import invariants
from fairlead.core.forecast import forecast
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import NetworkLevel, NodePool
from fairlead.core.model.pods import Closeness
from fairlead.core.model.transactions import Preempt
from fairlead.scheduler.overview import nodes as overview
from tests.builders import GPU, cluster, node, placed, pod, preempted, queue, refused, run, start

BLOCK, RACK = NetworkLevel("block", "net/block"), NetworkLevel("rack", "net/rack")
POOL = NodePool("p", levels=(BLOCK, RACK))


def on(name, rack, block="b", **more):
    return node(name, labels={"net/block": block, "net/rack": rack}, **more)


def gang(name, size, **more):
    return [pod(f"{name}-{i}", group=name, **more) for i in range(size)]


def near(name, least, *required, preferred="", **more):
    return Group("ns", name, least, closeness=Closeness(required, preferred), **more)


def world(nodes, pods, groups, pools=(POOL,), queues=(), **policy):
    state = cluster(queues=queues, **policy)
    for each in pools:
        state.upsert_pool(each)
    for each in nodes:
        state.upsert_node(each)
    for each in groups:
        state.upsert_group(each)
    for each in pods:
        state.upsert_pod(each)
    return state


def racks_of(state, name):
    """The racks, with their blocks, where members of a gang have places."""
    tasks = state.gangs[f"ns/{name}"].tasks.values()
    labels = [state.nodes.objects[task.row].labels for task in tasks if task.row >= 0]
    return {(each.get("net/block"), each.get("net/rack")) for each in labels}


def test_all_members_are_in_one_rack():
    nodes = [on("a", "r1", gpus=3), on("b", "r2", gpus=3), on("c", "r2", gpus=3)]
    state = world(nodes, gang("g", 4), [near("g", 4, "rack")])
    assert len(start(state)) == 4
    assert racks_of(state, "g") == {("b", "r2")}


def test_it_waits_with_numbers():
    nodes = [on("a", "r1", gpus=3), on("b", "r2", gpus=2)]
    state = world(nodes, gang("g", 4), [near("g", 4, "rack")])
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "largest rack holds at most 3 when empty" in reason.message
    assert reason.numbers == {"needed": 4, "held": 3, "domains": 2, "ceiling": 3}


def test_it_waits_for_what_runs_in_the_best_rack():
    nodes = [on("a", "r1", gpus=3), on("b", "r2", gpus=5)]
    state = world(nodes, [pod("x", at="b", gpus=3), *gang("g", 4)], [near("g", 4, "rack")])
    reason = refused(run(state))["g-0"]
    assert "rack r1 has 3 of 4, the most of 2" in reason.message
    assert reason.numbers == {"needed": 4, "held": 3, "domains": 2, "ceiling": 4}
    state.remove_pod("uid-x")
    assert len(start(state)) == 4


def test_racks_of_one_name_in_two_blocks_are_two():
    nodes = [on("a", "r", block="b1", gpus=2), on("b", "r", block="b2", gpus=2)]
    state = world(nodes, gang("g", 4), [near("g", 4, "rack")])
    assert refused(run(state))["g-0"].code is ReasonCode.TOPOLOGY


def test_a_rack_that_is_filled_is_taken_before_a_free_one():
    nodes = [on(f"n{rack}{i}", f"r{rack}") for rack in range(3) for i in range(2)]
    state = world(nodes, [pod("x", at="n20", gpus=8), *gang("g", 8)], [near("g", 8, "rack")])
    start(state)
    assert racks_of(state, "g") == {("b", "r2")}


def test_members_that_come_later_go_where_the_gang_is():
    nodes = [on("a", "r1", gpus=2), on("b", "r2", gpus=1), on("c", "r1", gpus=1)]
    state = world(nodes, gang("g", 2, gpus=1), [near("g", 2, "rack")])
    start(state)
    assert racks_of(state, "g") == {("b", "r1")}
    state.upsert_node(on("b", "r2", gpus=8))
    state.upsert_pod(pod("g-2", group="g"))
    assert start(state) == {"g-2": "c"}
    state.upsert_pod(pod("g-3", group="g"))
    reason = refused(run(state))["g-3"]
    assert "outside rack r1, where the gang is" in reason.message


def test_a_member_that_comes_again_goes_back():
    nodes = [on("a", "r1", gpus=2), on("b", "r1", gpus=2), on("c", "r2", gpus=8)]
    state = world(nodes, gang("g", 3), [near("g", 3, "rack")], gang_grace=1e9)
    start(state)
    home = racks_of(state, "g")
    lost = next(task for task in state.gangs["ns/g"].tasks.values() if task.row >= 0)
    state.remove_pod(lost.pod.uid)
    state.upsert_pod(msgspec.structs.replace(lost.pod, uid="again", name="again", node=""))
    assert len(start(state, 2.0)) == 1
    assert racks_of(state, "g") == home


def test_nodes_without_the_label_hold_no_member():
    nodes = [node("a", gpus=8), on("b", "r1", gpus=2)]
    state = world(nodes, gang("g", 2), [near("g", 2, "rack")])
    start(state)
    assert racks_of(state, "g") == {("b", "r1")}


def test_a_level_that_no_pool_has():
    state = world([on("a", "r")], gang("g", 2), [near("g", 2, "row")])
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert "no NodePool has the topology level 'row'; levels are block, rack" in reason.message
    state.upsert_pool(NodePool("q", levels=(NetworkLevel("row", "net/rack"),)))
    assert len(start(state)) == 2


def test_a_level_that_no_node_has():
    state = world([node("a")], gang("g", 2), [near("g", 2, "rack")])
    assert "no node has the labels of the topology level rack" in refused(run(state))["g-0"].message
    state.upsert_node(on("a", "r"))
    assert len(start(state)) == 2


def test_the_fewest_racks_where_one_is_preferred():
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=1) for rack, size in enumerate((3, 2, 4, 1)) for i in range(size)]
    state = world(nodes, gang("g", 6), [near("g", 6, preferred="rack")])
    assert len(start(state)) == 6
    assert racks_of(state, "g") == {("b", "r2"), ("b", "r1")}


def test_a_preferred_level_keeps_nothing_from_starting():
    state = world([node("a", gpus=3), on("b", "r", gpus=1)], gang("g", 4), [near("g", 4, preferred="rack")])
    assert len(start(state)) == 4


def test_victims_are_all_in_one_rack():
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=1) for rack in range(3) for i in range(2)]
    low = [pod(f"x{n}", at=n, priority=0) for n in ("n00", "n10", "n11", "n20", "n21")]
    state = world(nodes, low, [])
    run(state)
    state.upsert_group(near("g", 2, "rack"))
    for each in gang("g", 2, priority=10):
        state.upsert_pod(each)
    assert preempted(run(state, 10.0)) == [["x" + "n00"]]


def test_a_group_that_comes_after_its_pods():
    nodes = [on("a", "r1", gpus=2), on("b", "r2", gpus=8), on("c", "r1", gpus=1)]
    bound = pod("g-0", group="g", at="a")
    state = world(nodes, [bound, pod("g-1", group="g")], [])
    state.upsert_group(near("g", 2, "rack"))
    start(state)
    assert racks_of(state, "g") == {("b", "r1")}


def test_domains_are_counted_by_level():
    """What `fairlead nodes --topology` shows."""
    nodes = [on("a", "r1"), on("b", "r1"), on("c", "r2", block="b2"), node("d"), on("e", "r2", block="b2", unschedulable=True)]
    state = world(nodes, [pod("x", at="a", gpus=3)], [])
    found = domains_of(overview.lines(state))
    rows = [(each.level, each.name, each.nodes, each.nodes_free, each.gpus_used, each.gpus_free) for each in found.domains]
    assert rows == [
        ("block", "b", 2, 1, 3, 13),
        ("rack", "b/r1", 2, 1, 3, 13),
        ("block", "b2", 2, 1, 0, 8),
        ("rack", "b2/r2", 2, 1, 0, 8),
    ]
    assert found.nodes_outside == 1


def test_ranks_follow_the_order_of_the_network():
    """Neighbours in rank are neighbours on the network, whatever the order of names and of scores."""
    nodes = [on(f"n{at}", f"r{at % 3}", gpus=2) for at in range(6)]
    members = [pod(f"g-{rank}", group="g", labels=(("fairlead.dev/index", str(rank)),)) for rank in range(12)]
    random.Random(1).shuffle(members)
    state = world(nodes, members, [near("g", 12, "block")])
    found = start(state)
    assert [found[f"g-{rank}"] for rank in range(12)] == [f"n{at}" for at in (0, 0, 3, 3, 1, 1, 4, 4, 2, 2, 5, 5)]


def test_members_that_ask_for_nothing_may_be_elsewhere():
    """As with Kueue's annotation on the workers only: the launcher has no part in the choice."""
    asked = Closeness(("net/rack",))
    pods = [pod("g-launcher", group="g", gpus=4), *(pod(f"g-{i}", group="g", closeness=asked) for i in range(3))]
    state = world([on("a", "r1", gpus=3), on("b", "r2", gpus=5)], pods, [Group("ns", "g", 4)])
    found = start(state)
    assert found == {"g-launcher": "b", **{f"g-{i}": "a" for i in range(3)}}


def test_nodes_are_reserved_in_one_rack():
    """A gang that waits for a rack gets nodes of one for later, of the rack that is free first; a job elsewhere is not kept off."""
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=1) for rack in range(2) for i in range(2)]
    running = [
        pod(f"x{rack}{i}", at=f"n{rack}{i}", time_limit=3600.0 * (3 - rack), started=0.0) for rack in range(2) for i in range(2)
    ]
    state = world(nodes, running, [], patience=0.0)
    run(state)
    state.upsert_group(near("g", 2, "rack"))
    for each in gang("g", 2):
        state.upsert_pod(each)
    run(state, 10.0)
    run(state, 11.0)
    (hold,) = state.reserved.of_units()
    assert sorted(state.nodes.names[row] for row in hold.rows) == ["n10", "n11"]


def test_pods_move_out_of_one_rack_for_a_gang():
    """Two free GPUs in each of three racks: a gang that needs four in one rack gets them by two moves, of one rack."""
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=2) for rack in range(3) for i in range(2)]
    small = [pod(f"x{rack}{i}", at=f"n{rack}{i}", started=0.0) for rack in range(3) for i in range(2)]
    state = world(nodes, small, [near("g", 2, "rack")], reservations=0)
    for each in gang("g", 2, gpus=2, created=0.0):
        state.upsert_pod(each)
    assert refused(run(state, 10.0))["g-0"].code is ReasonCode.TOPOLOGY
    decided = [each for each in run(state, 1000.0) if isinstance(each, Preempt)]
    (plan,) = decided
    assert plan.moves
    assert len({victim.node[:2] for victim in plan.victims}) == 1
    assert len(plan.victims) == 2
    assert len(racks_of(state, "g")) == 1
    invariants.check(state)


def test_what_waits_for_a_domain_counts_in_shares_where_one_would_hold_it_empty():
    """A full rack is waited for like a full node: a larger share would help. A rack that is too small is none to wait for."""
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=2) for rack in range(2) for i in range(2)]
    state = world(
        nodes, [pod(f"x-{n.name}", queue="b", at=n.name, gpus=2) for n in nodes], [], queues=[queue("a", quota=6), queue("b")]
    )
    state.upsert_group(near("g", 2, "rack"))
    state.upsert_group(near("h", 3, "rack"))
    members = [*gang("g", 2, gpus=2, queue="a", never_preempts=True), *gang("h", 3, gpus=2, queue="a", never_preempts=True)]
    for each in members:
        state.upsert_pod(each)
    found = refused(run(state))
    assert (found["g-0"].code, found["h-0"].code) == (ReasonCode.TOPOLOGY, ReasonCode.TOPOLOGY)
    state.upsert_node(on("n20", "r2", gpus=1))  # what waits is counted anew
    run(state, 10.0)
    assert state.queues.fair.share["a"][GPU] == 4000


def test_a_gang_that_waits_for_a_domain_is_foretold_once_nodes_are_reserved_for_it():
    """Enough is free in two racks together, but amounts would foretell it for now; and for one that no rack holds there is no start."""
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=2) for rack in range(2) for i in range(2)]
    running = [pod(f"x{rack}", at=f"n{rack}0", gpus=2, started=0.0, time_limit=3600.0 * (1 + rack)) for rack in range(2)]
    state = world(nodes, running, [near("g", 2, "rack"), near("h", 3, "rack")], moves_per_minute=0.0)
    for each in (*gang("g", 2, gpus=2, created=0.0), *gang("h", 3, gpus=2, created=0.0)):
        state.upsert_pod(each)
    assert not placed(run(state, 10.0))
    assert not forecast(state, 10.0)
    run(state, 400.0)
    assert forecast(state, 400.0) == {"ns/g": 3600.0}


def two_racks_half_free(**policy):
    """Two nodes free in each of two racks of four: a gang of four fits now in both, and in one rack once that is free."""
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=1) for rack in range(2) for i in range(4)]
    running = [pod(f"x{rack}{i}", at=f"n{rack}{i}", started=0.0) for rack in range(2) for i in range(2)]
    return world(nodes, running, [near("g", 4, preferred="rack", created=0.0)], moves_per_minute=0.0, **policy)


def test_a_gang_waits_for_fewer_domains_of_its_preferred_level():
    state = two_racks_half_free(preferred_wait=100.0)
    for each in gang("g", 4, created=0.0, priority=10):
        state.upsert_pod(each)
    decided = run(state, 10.0)
    assert not [each for each in decided if isinstance(each, Preempt)]
    reason = refused(decided)["g-0"]
    assert reason.code is ReasonCode.PREFERRED_TOPOLOGY
    assert reason.numbers == {"domains": 2, "fewest": 1}
    assert "would span 2 domains of rack" in reason.message
    assert "90 s" in reason.message
    assert not state.reserved.holds
    for number in range(2):
        state.remove_pod(f"uid-x1{number}")
    assert len(start(state, 20.0)) == 4
    assert racks_of(state, "g") == {("b", "r1")}
    invariants.check(state)


def test_it_starts_in_more_domains_once_it_has_waited_long_enough():
    state = two_racks_half_free(preferred_wait=100.0)
    for each in gang("g", 4, created=0.0):
        state.upsert_pod(each)
    assert not placed(run(state, 10.0))
    assert state.next_due == 100.0
    assert not placed(run(state, 99.0))
    assert len(start(state, 100.0)) == 4
    assert racks_of(state, "g") == {("b", "r0"), ("b", "r1")}


def test_a_gang_that_waits_for_fewer_domains_is_foretold_for_the_end_of_its_wait():
    state = two_racks_half_free(preferred_wait=100.0)
    for each in gang("g", 4, created=0.0):
        state.upsert_pod(each)
    assert not placed(run(state, 10.0))
    assert forecast(state, 10.0) == {"ns/g": 100.0}


def test_others_go_first_while_a_gang_waits_for_fewer_domains():
    state = two_racks_half_free(preferred_wait=100.0)
    for each in gang("g", 4, created=0.0):
        state.upsert_pod(each)
    assert not placed(run(state, 10.0))
    state.upsert_pod(pod("y", created=11.0))
    assert len(start(state, 12.0)) == 1


def test_without_the_setting_a_gang_starts_in_more_domains_at_once():
    state = two_racks_half_free()
    for each in gang("g", 4, created=0.0):
        state.upsert_pod(each)
    assert len(start(state, 10.0)) == 4


def test_a_gang_that_no_domain_holds_waits_for_the_fewest_that_do():
    """Six members need two racks of four: they wait where three racks would be used, not where two are."""
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=1) for rack in range(3) for i in range(4)]
    running = [pod(f"x{rack}{i}", at=f"n{rack}{i}", started=0.0) for rack in range(3) for i in range(2)]
    state = world(nodes, running, [near("g", 6, preferred="rack", created=0.0)], moves_per_minute=0.0, preferred_wait=100.0)
    for each in gang("g", 6, created=0.0):
        state.upsert_pod(each)
    assert refused(run(state, 10.0))["g-0"].numbers == {"domains": 3, "fewest": 2}
    state.remove_pod("uid-x00")
    state.remove_pod("uid-x01")
    assert len(start(state, 20.0)) == 6
    assert len(racks_of(state, "g")) == 2


def test_a_pod_by_itself_goes_where_the_least_is_lost():
    """A gang of one with a preferred level spares the whole rack."""
    nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=1) for rack in range(2) for i in range(2)]
    state = world(nodes, [pod("x", at="n10")], [near("g", 1, preferred="rack")])
    state.upsert_pod(pod("g-0", group="g"))
    assert start(state) == {"g-0": "n11"}


def test_gangs_that_wait_for_fewer_domains_start_at_last_in_random_worlds():
    """Whatever runs: a gang that fits starts at the latest when its wait is over, and in the fewest domains if before."""
    for seed in range(60):
        draw = random.Random(seed)
        racks = draw.randint(2, 4)
        nodes = [on(f"n{rack}{i}", f"r{rack}", gpus=1) for rack in range(racks) for i in range(draw.randint(1, 4))]
        busy = [each for each in nodes if draw.random() < 0.4]
        free = len(nodes) - len(busy)
        if not free:
            continue
        size = draw.randint(1, free)
        running = [pod(f"x-{each.name}", at=each.name, started=0.0) for each in busy]
        state = world(nodes, running, [near("g", size, preferred="rack", created=0.0)], moves_per_minute=0.0, preferred_wait=50.0)
        for each in gang("g", size, created=0.0):
            state.upsert_pod(each)
        held = {
            rack: sum(each.labels["net/rack"] == rack for each in nodes) for rack in {each.labels["net/rack"] for each in nodes}
        }
        used = {rack: sum(each.labels["net/rack"] == rack for each in busy) for rack in held}
        begun = len(start(state, 10.0))
        now, ideal = fewest([held[rack] - used[rack] for rack in held], size), fewest(list(held.values()), size)
        assert begun == (size if now == ideal else 0), seed
        if not begun:
            assert len(start(state, 50.0)) == size, seed
        assert len(racks_of(state, "g")) == now, seed
        invariants.check(state)


def fewest(capacities, wanted):
    """The fewest racks that hold so many, by trying all sets of racks."""
    return next(
        k for k in range(1, len(capacities) + 1) if any(sum(some) >= wanted for some in itertools.combinations(capacities, k))
    )
