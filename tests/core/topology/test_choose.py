"""Places of a gang on a network with levels: what every answer keeps."""

import numpy as np
import pytest

from fairlead.core.topology.choose import choices, choose
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


@pytest.mark.parametrize("pods", [1, 2, 5])
def test_an_incomplete_slice_in_a_required_block(pods):
    """Of 1 or 2 pods the only slice, of 5 the last one has fewer than 3; required of the set and of the gang."""
    request = Request((Shape(np.ones(10, np.int64)),), (Set((Group(0, pods, (Slice(1, 3),)),), Rules(0)),), Rules(0))
    assert len(rows(choose(tree(), request))) == pods
    racks = [tree().domain[1][place.row] for place in choose(tree(), request).sets[0] for _ in range(place.pods)]
    assert {len(set(racks[at : at + 3])) for at in range(0, pods, 3)} == {1}


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


def test_equal_parts_and_never_fourteen_and_eighteen():
    """Two racks of 18 and 16 free nodes: 32 pods lie 16 + 16. With 18 and 14 they wait, or have a third rack."""
    racks = ["r1"] * 18 + ["r2"] * 16
    even = Tree.of_labels(["rack"], [racks])

    def parts(labels, pods, *slices):
        tree = Tree.of_labels(["rack"], [labels])
        pods = Set((Group(0, pods, slices),), balanced=True)
        answer = choose(tree, Request((Shape(np.ones(len(labels), np.int64)),), (pods,), Rules(preferred=0)))
        if isinstance(answer, Refusal):
            return answer
        domains = [int(tree.domain[0][place.row]) for place in answer.sets[0]]
        return [domains.count(at) for at in range(tree.sizes[0])]

    assert even.sizes == [2, 34]
    assert parts(racks, 32) == [16, 16]
    assert parts(["r1"] * 18 + ["r2"] * 14, 32).reason == "Balance"
    assert parts(["r1"] * 18 + ["r2"] * 14 + ["r3"] * 11, 32) == [10, 11, 11]
    assert parts(["r1"] * 25 + ["r2"] * 24 + ["r3"] * 18, 40, Slice(0, 10)) == [20, 20, 0]


def test_work_that_needs_no_whole_rows_stays_off_racks_that_gangs_need():
    """Sixteen racks of 18 nodes; in four of them GPUs of half of the nodes are in use. 30 pods without GPUs leave twelve racks whole."""
    racks = [f"r{row // 18}" for row in range(16 * 18)]
    tree = Tree.of_labels(["rack"], [racks])
    whole = np.array([row // 18 >= 4 or row % 2 == 0 for row in range(16 * 18)])
    request = Request((Shape(np.ones(16 * 18, np.int64)),), (Set((Group(0, 30),)),), whole=whole)
    answer = choose(tree, request)
    touched = {row for row in rows(answer) if whole[row]}
    assert len(rows(answer)) == 30
    assert touched == set()
    many = choose(tree, request._replace(sets=(Set((Group(0, 64),)),)))
    assert {int(tree.domain[0][row]) for row in rows(many)} <= {int(tree.domain[0][at * 18]) for at in range(4)}


def test_spares_lie_where_the_pods_lie():
    pods = Set((Group(0, 3),), Rules(1), spares=1)
    answer = choose(tree(), Request((Shape(np.ones(10, np.int64)),), (pods,)))
    assert rows(answer) == [6, 7, 8, 9]
    assert [place.spare for place in answer.sets[0]] == [False, False, False, True]
    refused = choose(tree(), Request((Shape(np.ones(10, np.int64)),), (pods._replace(spares=2),)))
    assert refused.text == "rack b/r1 has 4 of 5"


def test_pods_of_different_shapes_share_rows_by_amounts():
    """A row of 8 units takes one pod of 5 and one of 3. By parts of the row (one of one, one of two) it would not."""
    one = Tree.of_labels(["rack"], [["r1", "r1"]])
    shapes = (Shape(np.array([1, 1]), (5,)), Shape(np.array([2, 2]), (3,)))
    request = Request(shapes, (Set((Group(0, 2), Group(1, 2)), Rules(0)),), free=np.array([[8], [8]]))
    assert sorted(place.row for place in choose(one, request).sets[0]) == [0, 0, 1, 1]
    refused = choose(one, request._replace(free=None))
    assert (refused.reason, refused.proven) == ("Sets", False)


def test_other_domains_follow_where_pods_do_not_fit_as_counted():
    found = list(choices(tree(), ask(2, required=1)))
    assert len({int(tree().domain[1][answer.sets[0][0].row]) for answer in found}) == len(found) == 3
