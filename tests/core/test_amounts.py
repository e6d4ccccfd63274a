"""Would it fit if these left: by amounts alone."""

from __future__ import annotations

from fairlead.core.pods.amounts import add, by_column, covers, fits, lacking, places
from tests.builders import cluster, node, pod, settle


def full():
    state = cluster([node("a", gpus=4), node("b", gpus=2)], pods=[pod(f"p{i}", at="a") for i in range(3)])
    settle(state)
    return state


def test_a_row_has_enough_if_some_leave_and_not_if_they_come_back():
    state = full()
    row, big = state.nodes.rows["a"], state.shapes.intern(pod("big", gpus=3).spec).shape
    gone = by_column(task for task in list(state.nodes.pods[row].values())[:2])
    assert not fits(state.nodes, row, big.demand)
    assert fits(state.nodes, row, big.demand, gone)
    assert not fits(state.nodes, row, big.demand, gone, back=gone)


def test_how_many_places_there_would_be():
    state = full()
    row, pair = state.nodes.rows["a"], state.shapes.intern(pod("pair", gpus=2).spec).shape
    gone = by_column(state.nodes.pods[row].values())
    assert (places(state.nodes, row, pair.demand, {}, 9), places(state.nodes, row, pair.demand, gone, 9)) == (0, 2)
    assert places(state.nodes, row, (), gone, 9) == 9


def test_what_rows_lack_together_and_what_makes_up_for_it():
    state = full()
    column = state.nodes.resources["nvidia.com/gpu"]
    missing = lacking(state.nodes, slice(0, state.nodes.count), {column: 5})
    assert missing == {column: 2}
    assert lacking(state.nodes, [state.nodes.rows["b"]], {column: 2}) == {column: 0}
    assert covers({column: 2}, missing)
    assert not covers({column: 1}, missing)
    assert covers({}, {column: 0})


def test_amounts_grow_by_what_more_tasks_ask_for():
    state = full()
    running = list(state.nodes.pods[state.nodes.rows["a"]].values())
    asked = by_column(running[:1])
    add(asked, running[1:])
    assert asked == by_column(running)
