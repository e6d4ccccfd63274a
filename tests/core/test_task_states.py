"""The table of states that follow each other. Each test of the tree checks every change that it sees (`tests/conftest.py`)."""

import ast
from pathlib import Path

import pytest

import fairlead.core
from fairlead.core.pods.tasks import TRANSITIONS, TaskState
from tests.builders import cluster, confirm, node, pod, run


def test_each_state_has_a_row_and_a_way_in_and_out():
    pods = set(TaskState) - {TaskState.PLACEHOLDER}
    assert set(TRANSITIONS) == set(TaskState)
    assert set().union(*TRANSITIONS.values()) == pods
    assert {state for state, after in TRANSITIONS.items() if after} == pods
    assert all(state not in after for state, after in TRANSITIONS.items())


def test_a_change_that_the_table_does_not_know_is_found_in_any_test():
    state = cluster([node("n")], pods=[pod("a")])
    confirm(state, run(state))
    (task,) = state.tasks.values()
    assert task.state is TaskState.BOUND
    with pytest.raises(AssertionError, match=r"ns/a: .*BOUND -> .*HELD"):
        task.become(TaskState.HELD)


def test_states_are_changed_in_one_place():
    """No module assigns the state of a task, by attribute or through the undo log, but `Task` itself."""
    found = []
    for path in sorted(Path(fairlead.core.__path__[0]).rglob("*.py")):
        for each in ast.walk(ast.parse(path.read_text())):
            targets = each.targets if isinstance(each, ast.Assign) else []
            flat = [one for many in targets for one in (many.elts if isinstance(many, ast.Tuple) else [many])]
            assigned = "TaskState" in ast.unparse(each) and any(
                isinstance(one, ast.Attribute) and one.attr == "state" for one in flat
            )
            logged = isinstance(each, ast.Call) and any(isinstance(a, ast.Constant) and a.value == "state" for a in each.args)
            if assigned or logged:
                found.append(f"{path.name}:{each.lineno}")
    assert [each.partition(":")[0] for each in found] == ["tasks.py"] * 3, found
