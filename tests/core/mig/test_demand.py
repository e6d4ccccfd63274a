"""What waits, put before the planner: compared with exhaustive search over all ways to reconfigure small pools."""

import random
from itertools import product

import pytest

from fairlead.core.mig.demand import Offer, Wish, propose

CONFIGS = {
    "p": {
        "ones": (("1g.5gb", 4),),
        "twos": (("2g.10gb", 2),),
        "mixed": (("1g.5gb", 2), ("2g.10gb", 1)),
        "whole": (("gpu", 2),),
    },
    "q": {"ones": (("1g.5gb", 4),), "large": (("3g.20gb", 2),)},
}


def offer(name, pool="p", config="ones", free=None, *, changeable=True, holds=(True,)):
    return Offer(name, pool, config, CONFIGS[pool][config] if free is None else free, changeable, holds)


def wish(name, profile, count=1, *, shape=0, gang=""):
    return Wish(name, shape, ((profile, count),), gang)


def test_nothing_is_changed_for_what_is_free():
    found = propose([offer("n1")], CONFIGS, [wish("a", "1g.5gb")])
    assert (found.changes, found.served, found.exact) == ((), ("a",), True)


def test_a_change_names_the_pods_that_it_is_for():
    wishes = [wish("a", "1g.5gb"), wish("b", "2g.10gb"), wish("c", "2g.10gb")]
    found = propose([offer("n1"), offer("n2")], CONFIGS, wishes)
    assert [(each.node, each.config, each.before, each.pods, each.first) for each in found.changes] == [
        ("n1", "twos", "ones", ("b", "c"), 1)
    ]
    assert found.served == ("a", "b", "c")


def test_a_node_that_may_not_hold_the_pod_is_left_alone():
    nodes = [offer("n1", holds=(False,)), offer("n2", holds=(True,))]
    assert [each.node for each in propose(nodes, CONFIGS, [wish("a", "2g.10gb")]).changes] == ["n2"]
    assert not propose(nodes[:1], CONFIGS, [wish("a", "2g.10gb")]).changes


def test_free_partitions_that_a_pod_may_not_use_do_not_serve_it():
    nodes = [offer("n1", config="twos", holds=(False,), changeable=False), offer("n2")]
    assert [each.node for each in propose(nodes, CONFIGS, [wish("a", "2g.10gb")]).changes] == ["n2"]


def test_a_gang_that_would_be_served_in_part_changes_nothing():
    gang = [wish(f"g{number}", "2g.10gb", gang="g") for number in range(3)]
    assert not propose([offer("n1")], CONFIGS, gang).changes
    assert len(propose([offer("n1"), offer("n2")], CONFIGS, gang).changes) == 2
    # Another pod gets the node that the gang cannot use.
    found = propose([offer("n1")], CONFIGS, [*gang, wish("a", "gpu")])
    assert [(each.config, each.pods) for each in found.changes] == [("whole", ("a",))]


def test_a_pod_that_needs_a_whole_node_gets_one_and_the_head_goes_first():
    large = wish("large", "gpu", 2)
    found = propose([offer("n1")], CONFIGS, [wish("a", "2g.10gb"), large])
    assert [(each.config, each.pods) for each in found.changes] == [("mixed", ("a",))]
    found = propose([offer("n1")], CONFIGS, [large, wish("a", "2g.10gb")])
    assert [(each.config, each.pods) for each in found.changes] == [("whole", ("large",))]
    found = propose([offer("n1"), offer("n2")], CONFIGS, [wish("a", "2g.10gb"), large])
    assert [(each.config, each.pods) for each in found.changes] == [("mixed", ("a",)), ("whole", ("large",))]
    mixed = Wish("m", 0, (("1g.5gb", 1), ("2g.10gb", 1)))
    assert [each.config for each in propose([offer("n1")], CONFIGS, [mixed]).changes] == ["mixed"]


def test_a_gang_of_large_pods_is_placed_whole_or_not_at_all():
    gang = [wish(f"g{number}", "gpu", 2, gang="g") for number in range(2)]
    assert not propose([offer("n1")], CONFIGS, gang).changes
    assert [each.node for each in propose([offer("n1"), offer("n2")], CONFIGS, gang).changes] == ["n1", "n2"]


def world(seed):
    """A small pool of nodes of two kinds, and pods that wait for one partition."""
    draw = random.Random(seed)
    shapes = draw.randint(1, 2)
    nodes = []
    for number in range(draw.randint(1, 4)):
        pool = draw.choice("ppq")
        config = draw.choice(sorted(CONFIGS[pool]))
        busy = draw.random() < 0.3
        free = tuple((name, draw.randint(0, count)) for name, count in CONFIGS[pool][config]) if busy else None
        holds = tuple(draw.random() < 0.7 for _ in range(shapes))
        nodes.append(offer(f"n{number}", pool, config, free, changeable=not busy, holds=holds))
    profiles = ["1g.5gb", "2g.10gb", "3g.20gb", "gpu"]
    wishes = [wish(f"w{number}", draw.choice(profiles), shape=draw.randrange(shapes)) for number in range(draw.randint(1, 7))]
    return nodes, wishes


def most_served(frees, wishes):
    """(whether the first is, how many are): all ways to give partitions to pods."""

    def rest(place, left):
        if place == len(wishes):
            return [(False, 0)]
        found = [(served_first, count) for served_first, count in rest(place + 1, left)]
        each = wishes[place]
        for number, (holds, free) in enumerate(left):
            if holds[each.shape] and free.get(each.needs[0][0], 0) > 0:
                taken = list(left)
                taken[number] = (holds, {**free, each.needs[0][0]: free[each.needs[0][0]] - 1})
                found += [(served_first or place == 0, count + 1) for served_first, count in rest(place + 1, taken)]
        return found if place else [max(found)]

    return max(rest(0, frees))


@pytest.mark.parametrize("seed", range(60))
def test_the_changes_are_the_fewest_that_serve_the_most(seed):
    nodes, wishes = world(seed)
    wishes = wishes[:5]
    best = None
    options = [
        [(each.config, dict(each.free), 0)]
        + ([(name, dict(got), 1) for name, got in CONFIGS[each.pool].items() if name != each.config] if each.changeable else [])
        for each in nodes
    ]
    for chosen in product(*options):
        first, count = most_served([(each.holds, free) for each, (_, free, _) in zip(nodes, chosen, strict=True)], wishes)
        value = first, count, -sum(changed for _, _, changed in chosen)
        best = value if best is None else max(best, value)
    found = propose(nodes, CONFIGS, wishes)
    assert found.exact
    assert (wishes[0].name in found.served, len(found.served), -len(found.changes)) == best
    named = {change.node for change in found.changes}
    assert named <= {each.name for each in nodes if each.changeable}
    assert all(change.pods for change in found.changes), "each change is for some pod"


@pytest.mark.parametrize("seed", range(40))
def test_with_gangs_and_large_pods_all_that_is_promised_fits(seed):
    draw = random.Random(seed)
    nodes, wishes = world(seed)
    mixed = []
    for each in wishes:
        gang = draw.choice(["", "", "g", "h"])
        count = draw.choice([1, 1, 2])
        mixed.append(Wish(each.name, each.shape, ((each.needs[0][0], count),), gang))
    found = propose(nodes, CONFIGS, mixed)
    served = set(found.served)
    for gang in ("g", "h"):
        members = [each.name for each in mixed if each.gang == gang]
        assert not served & set(members) or set(members) <= served, "whole or not at all"
    assert len({change.node for change in found.changes}) == len(found.changes), "each node once"
    by_name = {each.name: each for each in nodes}
    for change in found.changes:
        node = by_name[change.node]
        assert node.changeable
        assert change.config in CONFIGS[node.pool]
        assert change.config != node.config
        assert set(change.pods) <= served
