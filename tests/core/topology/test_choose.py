"""Places of a gang on a network with levels: what every answer keeps."""

import numpy as np

from fairlead.core.topology.choose import choose
from fairlead.core.topology.request import Group, Placement, Refusal, Request, Rules, Set, Shape, Slice
from fairlead.core.topology.tree import Tree

BLOCKS = ["a"] * 6 + ["b"] * 4
RACKS = ["r1", "r1", "r1", "r2", "r2", None, "r1", "r1", "r1", "r1"]


def tree():
    return Tree.of_labels(["block", "rack"], [BLOCKS, RACKS])


def ask(pods, *slices, required=None, preferred=None):
    return Request((Shape(np.ones(10, np.int64)),), (Set((Group(0, pods, slices),)),), Rules(required, preferred))


def rows(answer):
    assert isinstance(answer, Placement), answer
    return sorted(place.row for places in answer.sets for place in places)


def test_a_required_rack_is_a_path_of_labels():
    assert rows(choose(tree(), ask(4, required=1))) == [6, 7, 8, 9]
    refused = choose(tree(), ask(5, required=1))
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.fits, refused.wanted, refused.text) == ("NoDomain", 4, 5, "rack b/r1 has 4 of 5")


def test_a_row_without_the_label_serves_wider_levels_only():
    assert rows(choose(tree(), ask(6, required=0))) == [0, 1, 2, 3, 4, 5]
    assert 5 not in rows(choose(tree(), ask(9, Slice(1, 1))))


def test_the_least_that_is_free_is_used():
    assert rows(choose(tree(), ask(2, required=1))) == [3, 4]


def test_the_last_slice_may_be_incomplete_and_comes_last():
    assert choose(tree(), ask(10, Slice(1, 2))).reason == "Slices"
    answer = choose(tree(), ask(9, Slice(1, 2)))
    racks = [int(tree().domain[1][place.row]) for place in answer.sets[0] for _ in range(place.pods)]
    assert all(racks[at] == racks[at + 1] for at in (0, 2, 4, 6))


def test_copies_of_sets_each_lie_in_one_domain():
    fits = np.ones(10, np.int64)
    pods = Set((Group(0, 1), Group(1, 7)), Rules(1), copies=3)
    answer = choose(tree(), Request((Shape(fits), Shape(fits * 8)), (pods,)))
    domain = tree().domain[1]
    for copy in range(3):
        assert len({int(domain[place.row]) for place in answer.sets[0] if place.copy == copy}) == 1
    assert sum(answer.counts(0, 1).values()) == 21


def test_a_request_that_contradicts_itself_is_refused():
    assert choose(tree(), ask(4, Slice(1, 2), Slice(1, 3))).reason == "Invalid"
    assert choose(tree(), ask(4, Slice(0, 2), required=1)).reason == "Invalid"
    assert choose(tree(), ask(4, required=7)).reason == "Invalid"
    empty = Tree.of_labels(["rack"], [[None] * 10])
    assert choose(empty, ask(4, required=0)).reason == "NoSuchDomain"
