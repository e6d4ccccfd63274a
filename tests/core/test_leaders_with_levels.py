"""Leaders of followers whose gang asks for levels of the network itself: by its PodGroup, by Kueue's annotations, by a
ComputeDomain. The places for followers keep to these levels, too."""

import msgspec
import pytest

from fairlead.api.names import CLIQUE_LABEL, COMPUTE_DOMAIN_CLASS
from fairlead.core import invariants
from fairlead.core.dra.model import DeviceClaim, DeviceClass
from fairlead.core.model.nodes import NetworkLevel, NodePool
from fairlead.core.model.pods import Closeness, DeviceUse, SliceRule
from fairlead.core.model.transactions import Preempt
from tests.builders import GPU, node, pod, refused, run, spec, start
from tests.core.test_compute_domains import channels, template
from tests.core.test_followers import INDEX, JOB, add, asked, followers, groups, kept, leader, rack, world

BLOCK = Closeness(("block",))
POOL = NodePool("p", levels=(NetworkLevel("block", "net/block"),))
"""Racks are labels that no pool knows, as the label of an exclusive topology may be."""
NESTED = NodePool("p", levels=(NetworkLevel("block", "net/block"), NetworkLevel("rack", "net/rack")))


def hosts(sizes, **more):
    """Nodes of a GPU each: block -> sizes of its racks, which are numbered through."""
    named = [(block, size) for block, racks in sizes.items() for size in racks]
    return [
        node(f"r{number}n{i}", labels={"net/block": block, "net/rack": f"r{number}"}, gpus=1, **more)
        for number, (block, size) in enumerate(named)
        for i in range(size)
    ]


def lab(nodes, pods, groups_, *, pool=POOL, **policy):
    state = world(nodes, [], groups_, **policy)
    state.upsert_pool(pool)
    add(state, pods)
    return state


def racks_of(placed):
    return sorted(rack(each) for each in placed)


@pytest.mark.parametrize("pool", [POOL, NESTED])
def test_all_leaders_and_followers_are_in_one_domain_of_what_is_required_of_the_gang(pool):
    leads = [leader(f"lead{i}", own=f"job{i}") for i in range(2)]
    led = groups(2, leaders=2, closeness=BLOCK)
    state = lab(hosts({"x": (3, 2), "y": (4, 4)}), leads, led, pool=pool)
    placed = start(state)
    assert racks_of(placed.values()) == ["r2", "r3"]
    assert racks_of(kept(state)) == ["r2", "r2", "r3", "r3"]
    add(state, [pod(f"other-{number}", gpus=1) for number in range(20)])
    start(state, 2.0)
    for name, where in placed.items():
        add(state, followers(2, rack=rack(where), own=name.replace("lead", "job")))
    assert racks_of(start(state, 3.0).values()) == ["r2", "r2", "r3", "r3"]
    assert kept(state) == []


def test_leaders_wait_where_no_domain_takes_them_with_their_followers():
    leads = [leader(f"lead{i}", own=f"job{i}") for i in range(2)]
    state = lab(hosts({"x": (3, 2), "y": (3, 2)}), leads, groups(2, leaders=2, closeness=BLOCK))
    reason = refused(run(state))["lead0"]
    assert "4 of them for followers" in reason.message
    assert state.queues.queues["default"].used.get(GPU, 0) == 0
    state.upsert_node(node("r1n9", labels={"net/block": "x", "net/rack": "r1"}, gpus=1))
    assert racks_of(start(state).values()) == ["r0", "r1"]


def test_a_level_narrower_than_the_domain_of_followers_holds_for_them_too():
    """Exclusive is the block, required a rack of it."""
    led = groups(2, closeness=Closeness(("rack",)))
    led = [msgspec.structs.replace(led[0], followers=(msgspec.structs.replace(asked(2), level="net/block"),)), led[1]]
    state = lab(hosts({"x": (2, 2), "y": (3,)}), [leader("lead")], led, pool=NESTED)
    assert rack(start(state)["lead"]) == "r2"
    assert racks_of(kept(state)) == ["r2", "r2"]


def test_levels_may_lie_across_the_domain_of_followers():
    """Rack r0 has nodes of both rails, r1 of one: a leader and two followers of one rail and one rack are in r1 alone."""
    rails = NodePool("p", levels=(NetworkLevel("rail", "net/rail"),))
    nodes = [
        node(name, gpus=1, labels={"net/rack": name[:2], "net/rail": rail})
        for name, rail in (
            ("r0n0", "a"),
            ("r0n1", "a"),
            ("r0n2", "b"),
            ("r0n3", "b"),
            ("r1n0", "b"),
            ("r1n1", "b"),
            ("r1n2", "b"),
        )
    ]
    state = lab(nodes, [leader("lead")], groups(2, closeness=Closeness(("rail",))), pool=rails)
    assert rack(start(state)["lead"]) == "r1"
    assert racks_of(kept(state)) == ["r1", "r1"]


def test_a_preferred_level_is_kept_to_where_it_can_be():
    for sizes, blocks in (({"x": (3, 2), "y": (3, 3)}, {"y"}), ({"x": (3,), "y": (3,)}, {"x", "y"})):
        nodes = hosts(sizes)
        leads = [leader(f"lead{i}", own=f"job{i}") for i in range(2)]
        state = lab(nodes, leads, groups(2, leaders=2, closeness=Closeness((), "block")))
        placed = start(state)
        where = {each.name: each.labels["net/block"] for each in nodes}
        assert {where[each] for each in (*placed.values(), *kept(state))} == blocks
        assert len(kept(state)) == 4


def test_what_only_some_templates_ask_for_binds_no_others():
    """Kueue's annotations are those of pods: a driver beside the leaders has none, and runs where there is no block."""
    leads = [leader(f"lead{i}", own=f"job{i}", closeness=BLOCK) for i in range(2)]
    like = msgspec.structs.replace(pod("like", gpus=1), queue="", closeness=BLOCK)
    led, others = groups(2, leaders=2, like=like)
    driver = pod("driver", spec_=spec(gpus=0, selector={"kind": "cpu"}), group="leaders")
    head = node("head", gpus=0, labels={"kind": "cpu"})
    nodes = [head, *hosts({"x": (3, 2), "y": (3, 3)}, cpu=2_000)]
    state = lab(nodes, [driver, *leads], [msgspec.structs.replace(led, min_member=3), others])
    placed = start(state)
    assert placed.pop("driver") == "head"
    assert racks_of(placed.values()) == ["r2", "r3"]
    assert racks_of(kept(state)) == ["r2", "r2", "r3", "r3"]


@pytest.mark.parametrize("block", ["", "heads"])
def test_a_leader_without_the_levels_of_its_followers_is_beside_them_alone(block):
    """A LeaderWorkerSet with templates of its own for leaders: on a node of the rack that is in no block, or in another one."""
    like = msgspec.structs.replace(pod("like", gpus=1), queue="", closeness=BLOCK)
    labels = {"kind": "cpu", **({"net/block": block} if block else {})}
    heads = [node(f"r{number}head", gpus=0, labels={**labels, "net/rack": f"r{number}"}) for number in range(3)]
    nodes = [*heads, *hosts({"x": (1,), "y": (1,), "z": (2,)})]
    first = pod("lead", spec_=spec(gpus=0, selector={"kind": "cpu"}), group="leaders", labels=((INDEX, "0"), (JOB, "a")))
    state = lab(nodes, [first], groups(2, like=like))
    assert start(state) == {"lead": "r2head"}
    assert kept(state) == ["r2n0", "r2n1"]
    invariants.check(state)


@pytest.mark.parametrize("by_pods", [False, True])
def test_leaders_in_slices_reserve_nothing(by_pods):
    """Which slice a follower that is not there would be in is not known."""
    slices = Closeness(slices=(SliceRule("block", (2,)),))
    lead = leader("lead-0", closeness=slices if by_pods else None)
    state = lab(hosts({"x": (1,)}), [lead], groups(2, closeness=None if by_pods else slices))
    assert start(state) == {"lead-0": "r0n0"}
    assert kept(state) == []


def domain_world(nodes, *, places):
    """A leader that joins a ComputeDomain, as its followers do by their template."""
    use = DeviceUse("channel", "ns/lead-channel", "ns/d1")
    like = msgspec.structs.replace(pod("like", gpus=1), queue="", claims=(DeviceUse("channel", "", "ns/d1"),))
    state = lab(nodes, [], groups(places, like=like))
    state.claims.upsert(DeviceClass(COMPUTE_DOMAIN_CLASS))
    for each in nodes:
        state.claims.upsert(channels(each.name))
    for uid in ("d1", "d2"):
        state.claims.upsert(template(uid))
    state.claims.all_known()
    return state, leader("lead", claims=(use,))


def test_places_for_followers_join_the_compute_domain_of_their_leader():
    cliques = {"r0n0": "c0", "r0n1": "c0", "r0n2": "c1", "r1n0": "c1", "r1n1": "c1", "r1n2": "c1"}
    nodes = [node(name, gpus=1, labels={"net/rack": name[:2], CLIQUE_LABEL: clique}) for name, clique in cliques.items()]
    state, lead = domain_world(nodes, places=2)
    add(state, [lead])
    assert start(state) == {}, "its claim is not made"
    state.claims.upsert(msgspec.structs.replace(claim_of(lead), owner=lead.uid))
    assert rack(start(state, 2.0)["lead"]) == "r1"
    assert racks_of(kept(state)) == ["r1", "r1"]
    seated = {near.domain for near in (task.shape.spec.near for task in state.spares.kept(state.gangs["ns/leaders"])) if near}
    assert seated == {"d1"}, "no other domain gets these nodes"


def claim_of(owner):
    return DeviceClaim("ns/lead-channel", "c-lead", template("d1").asks, owner=owner.uid)


def test_a_scheduler_that_starts_anew_finds_the_places_again():
    leads = [leader(f"lead{i}", own=f"job{i}") for i in range(2)]
    nodes, led = hosts({"x": (3, 2), "y": (4, 4)}), groups(2, leaders=2, closeness=BLOCK)
    before = lab(nodes, leads, led)
    placed = start(before)
    written = msgspec.structs.replace(led[0], spares=tuple(kept(before)))
    bound = [msgspec.structs.replace(each, node=placed[each.name], bound=1.0) for each in leads]
    state = lab(nodes, bound, [written, led[1]])
    start(state, 5.0)
    assert sorted(kept(state)) == sorted(kept(before))


def test_a_level_that_is_given_later_holds_from_the_next_start():
    """The PodGroup's topology changes while the leader waits: places are made anew."""
    led, others = groups(2)
    state = lab(hosts({"x": (1, 1), "y": (3,)}), [leader("lead")], [led, others])
    state.upsert_group(msgspec.structs.replace(led, closeness=BLOCK))
    assert rack(start(state)["lead"]) == "r2"
    assert racks_of(kept(state)) == ["r2", "r2"]


def test_victims_are_those_of_one_domain():
    """A rack of three nodes, two of which are in the block of others: the leader and its followers need another one."""
    nodes = [*hosts({"x": (2, 1), "y": (3,)}), node("r0n9", labels={"net/block": "y", "net/rack": "r0"}, gpus=1)]
    state = lab(nodes, [], groups(2, closeness=BLOCK))
    add(state, [pod(f"low-{number}", gpus=1) for number in range(len(nodes))])
    assert len(start(state)) == len(nodes)
    add(state, [leader("lead", priority=10)])
    victims = [each.node for decided in run(state, 2.0) if isinstance(decided, Preempt) for each in decided.victims]
    assert racks_of(victims) == ["r2", "r2", "r2"]
