"""Gangs whose members need one another's restraint: all get devices, or there is a reason and nothing is held."""

import random
from collections import Counter
from itertools import product

import msgspec
import pytest

from fairlead.core.dra import questions
from fairlead.core.dra.allocator import Options, allocate
from fairlead.core.dra.gangs import Form, Gang, Member, Place, allocate_gang
from fairlead.core.dra.held import Held
from fairlead.core.dra.inventory import Inventory
from fairlead.core.dra.model import Capacity, Claim, Reach
from fairlead.core.dra.pools import Slices
from fairlead.core.dra.refusals import Kind, Refusal
from fairlead.core.model.selectors import NAME_FIELD, Requirement, SelectorTerm
from testbed.dra import gangs as drawn_gangs
from testbed.dra.ours import Case
from tests.core.dra.worlds import CLASSES, DRIVER, ask, claim, device, first_available, matches, node, partitions, pool


def place(name, *slices):
    return Place(node(name), Inventory(Slices(slices).pools(node(name)), matches))


def on(name, slices):
    """The same slices for another node."""
    return [msgspec.structs.replace(each, name=f"{each.name}-{name}", pool=name, reach=Reach(node=name)) for each in slices]


FIRST_NODE = (Requirement(NAME_FIELD, "In", ("n0",)),)
WHOLE_OR_HALF = Claim("d", "c", (first_available("r", ask("r/w", 1, "kind=whole"), ask("r/h", 1, "kind=half")),))


def test_one_whole_or_two_halves():
    """The first member prefers the whole device; then there is none for the second."""
    here = place("n0", *partitions(1))
    members = [Member("a", (WHOLE_OR_HALF,)), Member("b", (WHOLE_OR_HALF,))]
    gang = allocate_gang([here], Held(), members, [], CLASSES)
    assert [each.allocations[0].devices[0].device.device for each in gang.members] == ["gpu-0-half-0", "gpu-0-half-2"]
    third = allocate_gang([here], Held(), [*members, Member("c", (WHOLE_OR_HALF,))], [], CLASSES)
    assert third.kind is Kind.TOGETHER
    assert "not for all 3 members" in third.text()


def test_members_that_share_a_local_claim_run_on_its_node():
    places = [place(f"n{at}", *on(f"n{at}", partitions(1))) for at in range(2)]
    shared = [claim(ask("r", 1, "kind=whole"), name="shared")]
    members = [Member("a", shared=(0,)), Member("b", (WHOLE_OR_HALF,)), Member("c", shared=(0,))]
    gang = allocate_gang(places, Held(), members, shared, CLASSES)
    assert gang.members[0].node == gang.members[2].node != gang.members[1].node
    assert len(gang.shared[0].devices) == 1
    apart = [Member("a", shared=(0,), nodes=frozenset({"n0"})), Member("b", shared=(0,), nodes=frozenset({"n1"}))]
    assert isinstance(allocate_gang(places, Held(), apart, shared, CLASSES), Refusal)


def test_members_that_share_a_network_device_run_where_it_can_be_used():
    net = pool(
        device("nic", driver="net", attributes={f"{DRIVER}/kind": "nic"}), driver="net", name="net", reach=Reach(everywhere=True)
    )
    places = [place(f"n{at}", *on(f"n{at}", partitions(1)), net) for at in range(2)]
    shared = [claim(ask("r", 1, "kind=nic"), name="shared")]
    whole = claim(ask("r", 1, "kind=whole"))
    gang = allocate_gang(places, Held(), [Member("a", (whole,), (0,)), Member("b", (whole,), (0,))], shared, CLASSES)
    assert {each.node for each in gang.members} == {"n0", "n1"}
    assert gang.shared[0].terms is None
    too_many = [Member(str(at), (whole,), (0,)) for at in range(3)]
    assert allocate_gang(places, Held(), too_many, shared, CLASSES).kind is Kind.TOGETHER  # with or without the shared claim


def test_where_ways_to_share_are_left_out_a_gang_that_is_not_placed_is_not_known_to_be_impossible():
    """The shared claim gets the first device, which only one member's node can use; the other would do for both."""
    near = pool(device("a", driver="net"), driver="net", name="a", reach=Reach(terms=(SelectorTerm(fields=FIRST_NODE),)))
    far = pool(device("b", driver="net"), driver="net", name="b", reach=Reach(everywhere=True))
    places = [place(f"n{at}", near, far) for at in range(2)]
    members = [Member(f"m{at}", shared=(0, 1), nodes=frozenset({f"n{at}"})) for at in range(2)]
    shared = [claim(ask(), name="first"), claim(ask(), name="second")]
    refusal = allocate_gang(places, Held(), members, shared, CLASSES)
    assert refusal.kind is Kind.GAVE_UP
    assert "no placement was found" in refusal.text()


def test_members_take_different_devices_of_the_network():
    """Each of two nodes could use either device, one member can use but one of them: the other goes to the other member."""
    nics = [device(f"nic-{at}", driver="net", attributes={f"{DRIVER}/kind": f"nic-{at}"}) for at in range(2)]
    net = pool(*nics, driver="net", name="net", reach=Reach(everywhere=True))
    places = [place(f"n{at}", *on(f"n{at}", partitions(1)), net) for at in range(2)]
    whole = ask("g", 1, "kind=whole")
    either = Claim(
        "d", "c", (first_available("n", ask("n/0", 1, "kind=nic-0"), ask("n/1", 1, "kind=nic-1")), first_available("g", whole))
    )
    first = Claim("d", "c", (first_available("n", ask("n/0", 1, "kind=nic-0")), first_available("g", whole)))
    held = Held()
    gang = allocate_gang(places, held, [Member("a", (either,)), Member("b", (first,), nodes=frozenset({"n1"}))], [], CLASSES)
    assert [each.allocations[0].devices[0].device.device for each in gang.members] == ["nic-1", "nic-0"]
    three = allocate_gang(places, held, [Member(str(at), (first,)) for at in range(2)], [], CLASSES)
    assert three.kind is Kind.GAVE_UP  # not all choices of devices were tried
    assert "members of several nodes need the same devices" in three.text()
    assert held.on(places[0].inventory).alone == 0


def test_a_shared_claim_that_no_member_uses_is_left_out():
    here = place("n0", *partitions(1))
    gang = allocate_gang([here], Held(), [Member("a", (WHOLE_OR_HALF,))], [claim(ask("r", 1, "kind=whole"))], CLASSES)
    assert isinstance(gang, Gang)
    assert gang.shared == (None,)


@pytest.mark.parametrize("at", [-1, 1])
def test_a_member_that_uses_a_shared_claim_that_is_not_there_is_refused(at):
    here = place("n0", *partitions(1))
    refusal = allocate_gang([here], Held(), [Member("a", shared=(at,))], [WHOLE_OR_HALF], CLASSES)
    assert refusal.kind is Kind.INVALID
    assert f"member a uses shared claim {at}, and there are 1" in refusal.text()


def plain(nodes, devices, **fields):
    return [
        place(f"n{at}", *on(f"n{at}", [pool(*[device(f"d{number}", **fields) for number in range(devices)])]))
        for at in range(nodes)
    ]


def of_counts(*counts):
    return [Member(f"m{at}", (claim(ask("r", count), name=f"c{at}"),)) for at, count in enumerate(counts)]


def test_a_gang_that_needs_more_devices_than_there_are_is_refused_at_once():
    """29 devices are needed, and 14 nodes have two each: no counter says so."""
    refusal = allocate_gang(plain(14, 2), Held(), of_counts(*[1] * 9, *[2] * 10), [], CLASSES)
    assert refusal.kind is Kind.TOGETHER
    assert refusal.work < 1000


def test_spreads_over_nodes_that_are_alike_are_not_tried_one_by_one():
    """There are enough devices: five of three on each node, and members of two leave one of each unused."""
    refusal = allocate_gang(plain(12, 3), Held(), of_counts(*[2] * 11, *[1] * 12), [], CLASSES)
    assert isinstance(refusal, Gang)
    refusal = allocate_gang(plain(12, 5), Held(), of_counts(*[3] * 9, *[2] * 16), [], CLASSES)
    assert refusal.kind is Kind.TOGETHER
    assert refusal.work < 20_000


def test_a_gang_whose_spreads_are_too_many_gives_up(monkeypatch):
    monkeypatch.setattr(questions, "_MOST_WORK", 50)
    refusal = allocate_gang(plain(12, 5), Held(), of_counts(*[3] * 9, *[2] * 16), [], CLASSES)
    assert refusal.kind is Kind.GAVE_UP


def test_a_question_without_a_result_makes_the_refusal_one_of_a_search_that_gave_up():
    """Shares of 40 and 61 of 100: which of them go together is not found out within the budget of a question."""
    places = plain(2, 3, multiple=True, capacity={"m": Capacity(100)})
    asks = [ask(f"r{at}", 1, capacity=(("m", size),)) for at, size in enumerate((40, 61, 40, 61))]
    members = [Member(f"m{at}", (claim(*asks, name=f"c{at}"),)) for at in range(3)]
    assert allocate_gang(places, Held(), members, [], CLASSES).kind is Kind.TOGETHER
    unknown = allocate_gang(places, Held(), members, [], CLASSES, Options(budget=2))
    assert unknown.kind is Kind.GAVE_UP
    assert "no placement was found, and it is not known whether there is one" in unknown.text()


def test_refusals_name_what_no_node_has():
    here = place("n0", *partitions(1))
    refusal = allocate_gang([here], Held(), [Member("a", (claim(ask("r", 1, "kind=gone")),))], [], CLASSES)
    assert "1 of 1 members have devices on no node" in refusal.text()
    assert "8 fail selector 0" not in refusal.text()
    nowhere = allocate_gang([here], Held(), [Member("a", (WHOLE_OR_HALF,), nodes=frozenset())], [], CLASSES)
    assert "they may not run there" in nowhere.text()


def test_small_gangs_with_amounts_are_placed_exactly_where_some_spread_fits():
    """As below, with amounts of nodes' other resources, and on some nodes a device plugin instead of a claim."""
    placed = refused = otherwise = 0
    for seed in range(2000):
        draw, drawn = random.Random(seed), drawn_gangs.draw_gang(seed // 4)
        if drawn.shared or len(drawn.case["nodes"]) > 3 or len(drawn.members) > 5:
            continue
        case = Case(drawn.case)
        amounts = {each.name: {"cpu": draw.randint(2, 12), "plugin": draw.choice((0, 1, 2))} for each in case.nodes}
        places = [Place(each, case.inventory(each), amounts[each.name]) for each in case.nodes]
        plugins = frozenset(name for name, each in amounts.items() if each["plugin"])
        members = []
        for at, (own, _) in enumerate([*drawn.members, *drawn.members[: draw.randint(0, 1)]]):
            claims, cpu = tuple(map(drawn_gangs._read, own)), ("cpu", draw.randint(0, 4))
            other = Form(claims[1:], (cpu, ("plugin", 1)))
            elsewhere = ((plugins, other),) if claims and plugins and draw.random() < 0.4 else ()
            members.append(Member(f"m{at}", claims, amounts=(cpu,), elsewhere=elsewhere))
        gang = allocate_gang(places, case.held, members, [], case.classes)

        def fits(at, spread, places=places, members=members, case=case, amounts=amounts):
            name = places[at].node.name
            forms = [member.form_on(name) for member, where in zip(members, spread, strict=True) if where == at]
            used = Counter()
            for form in forms:
                used.update(dict(form.amounts))
            if any(amount > amounts[name][each] for each, amount in used.items()):
                return False
            claims = [each for form in forms for each in form.claims]
            return isinstance(allocate(case.held.on(places[at].inventory), name, claims, case.classes), list)

        spreads = product(range(len(places)), repeat=len(members))
        possible = any(all(fits(at, spread) for at in range(len(places))) for spread in spreads)
        assert isinstance(gang, Gang) == possible, seed
        if possible:
            chosen = [next(at for at, each in enumerate(places) if each.node.name == one.node) for one in gang.members]
            assert all(fits(at, chosen) for at in range(len(places))), seed
            asked = [member.form_on(one.node) for member, one in zip(members, gang.members, strict=True)]
            assert [len(one.allocations) for one in gang.members] == [len(form.claims) for form in asked], seed
            otherwise += sum(bool(form.amounts[1:]) for form in asked)
        placed, refused = placed + possible, refused + (not possible)
    assert min(placed, refused, otherwise) > 10, (placed, refused, otherwise)


@pytest.mark.parametrize("seeds", [range(60)])
def test_gangs_that_can_be_placed_are_placed_and_nothing_stays_held(seeds):
    for seed in seeds:
        drawn = drawn_gangs.draw_gang(seed)
        case = Case(drawn.case)
        places = [Place(each, case.inventory(each)) for each in case.nodes]
        members = [
            Member(f"m{at}", tuple(map(drawn_gangs._read, own)), tuple(uses)) for at, (own, uses) in enumerate(drawn.members)
        ]
        shared = [drawn_gangs._read(each) for each in drawn.shared]
        before = [case.held.on(each.inventory).free for each in places]
        gang = allocate_gang(places, case.held, members, shared, case.classes)
        assert isinstance(gang, Gang), (seed, gang)
        assert drawn_gangs.problems(drawn, gang) == [], seed
        assert [case.held.on(each.inventory).free for each in places] == before


def test_small_gangs_are_placed_exactly_where_some_spread_has_devices():
    """Every spread of members over nodes is tried out; each node's claims are decided by `allocate`, which has its own judges."""
    placed = refused = 0
    for seed in range(400):
        drawn = drawn_gangs.draw_gang(seed)
        if drawn.shared or len(drawn.case["nodes"]) > 3 or len(drawn.members) > 6:
            continue
        extra = [*drawn.members, drawn.members[seed % len(drawn.members)]]
        case = Case({**drawn.case, "allocated": drawn.case["allocated"][seed % 2 :]})
        places = [Place(each, case.inventory(each)) for each in case.nodes]
        members = [Member(f"m{at}", tuple(map(drawn_gangs._read, own))) for at, (own, _) in enumerate(extra)]
        gang = allocate_gang(places, case.held, members, [], case.classes)

        def fits(at, spread, places=places, members=members, case=case):
            claims = [each for member, where in zip(members, spread, strict=True) if where == at for each in member.claims]
            return isinstance(allocate(case.held.on(places[at].inventory), places[at].node.name, claims, case.classes), list)

        possible = any(
            all(fits(at, spread) for at in range(len(places))) for spread in product(range(len(places)), repeat=len(members))
        )
        assert isinstance(gang, Gang) == possible, seed
        placed, refused = placed + possible, refused + (not possible)
    assert placed > 0
    assert refused > 5
