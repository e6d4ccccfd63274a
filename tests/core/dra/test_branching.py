"""Constraints over irregular partitions: verdicts of the tree of covering problems against an integer program and a search."""

import pytest

from fairlead.core.dra.allocator import allocate
from fairlead.core.dra.branching import Tree
from fairlead.core.dra.covering import GaveUp
from fairlead.core.dra.model import Constraint
from fairlead.core.dra.problem import Problem, prepare
from fairlead.core.dra.refusals import Kind, Refusal
from fairlead.core.dra.search import Search
from fairlead.core.dra.values import narrow
from testbed.dra import checker, hard, solver
from testbed.dra.irregular import irregular
from testbed.dra.ours import Case, as_json
from tests.core.dra.worlds import CLASSES, DRIVER, ask, claim, device, partitions, pool, solve, state


def case_of(seed):
    raw = hard.instance(seed, (irregular,))
    case = Case(raw)
    return raw, case, case.held.on(case.inventory(case.nodes[0]))


def search(part):
    found = Search(part, 20_000)
    return found.picks if found.run() else None


def tree(problem, units=100_000):
    done = 0

    def spend(more):
        nonlocal done
        done += more
        if done > units:
            raise GaveUp

    return Tree(problem, search, spend, lambda: max(0, units - done))


@pytest.mark.parametrize("start", range(0, 120, 40))
def test_verdicts_are_those_of_an_integer_program(start):
    found = refused = 0
    for seed in range(start, start + 40):
        raw, case, here = case_of(seed)
        answer = allocate(here, "n0", case.claims, case.classes)
        assert isinstance(answer, list) or answer.kind is not Kind.GAVE_UP, seed
        assert isinstance(answer, list) == solver.possible(raw, raw["nodes"][0]), seed
        if isinstance(answer, Refusal):
            refused += answer.kind is Kind.TOGETHER
        else:
            found += 1
            assert checker.violations(raw, raw["nodes"][0], as_json(answer)) == [], seed
    assert min(found, refused) > 5


@pytest.mark.parametrize("seed", [453, 662, 1114, 2064, 2708])
def test_what_a_search_over_devices_gave_up_on_is_decided(seed):
    raw, case, here = case_of(seed)
    answer = allocate(here, "n0", case.claims, case.classes)
    assert isinstance(answer, list) or answer.kind is not Kind.GAVE_UP
    assert isinstance(answer, list) == solver.possible(raw, raw["nodes"][0])


def test_the_tree_alone_and_a_search_agree():
    """Without the short search that mostly comes before: instances with few and with many solutions, and with none."""
    alike = {True: 0, False: 0}
    for seed in range(200, 700):
        _, case, here = case_of(seed)
        problem = prepare(here, case.claims, case.classes)
        if not isinstance(problem, Problem) or not any(problem.limits) or not narrow(problem):
            continue
        other = Search(problem, 3000)
        try:
            expected = other.run()
        except GaveUp:
            continue
        before = [[(slot.candidates, slot.refusal) for slot in position.slots] for position in problem.positions]
        picks = tree(problem).solve()
        assert (picks is not None) == expected, seed
        assert before == [[(slot.candidates, slot.refusal) for slot in position.slots] for position in problem.positions]
        alike[expected] += 1
    assert min(alike.values()) > 30


def test_a_tree_beyond_its_budget_gives_up_and_says_nothing_else():
    outcomes = set()
    for seed in range(100):
        _, case, here = case_of(seed)
        problem = prepare(here, case.claims, case.classes)
        if not isinstance(problem, Problem) or not narrow(problem):
            continue
        whole = tree(problem).solve()
        try:
            part = tree(problem, 15).solve()
        except GaveUp:
            outcomes.add("gave up")
            continue
        assert (part is None) == (whole is None), seed
        outcomes.add(part is None)
    assert outcomes == {True, False, "gave up"}


def test_equal_values_are_tried_once():
    """Six equal GPUs, none of which holds what the claim wants of one: one of them proves it for all."""
    here = state(*partitions(6))
    same = [Constraint(f"{DRIVER}/parent")]
    wanted = claim(ask("r", 1, "kind=half"), ask("s", 3, "kind=quarter"), ask("t", 1, "kind=quarter"), constraints=same)
    problem = prepare(here, [wanted], CLASSES)
    nodes = []
    searched = tree(problem)
    plain = searched._node
    searched._node = lambda part: nodes.append(part) or plain(part)
    assert searched.solve() is None
    assert len(nodes) <= 2
    fits = claim(ask("r", 1, "kind=half"), ask("s", 2, "kind=quarter"), constraints=same)
    (allocation,) = solve(here, fits)
    assert len({each.device.device[:5] for each in allocation.devices}) == 1


def test_of_a_value_that_is_allowed_once_one_device_is_taken():
    """Two GPUs, each of which could serve all: one device of each, whatever the order of devices says."""
    here = state(*partitions(2))
    apart = [Constraint(f"{DRIVER}/parent", distinct=True)]
    (allocation,) = solve(here, claim(ask("r", 2, "kind=quarter"), constraints=apart))
    assert {each.device.device[:5] for each in allocation.devices} == {"gpu-0", "gpu-1"}
    assert solve(here, claim(ask("r", 3, "kind=quarter"), constraints=apart)).kind is Kind.TOGETHER
    mixed = claim(ask("r", 2, "kind=quarter"), name="apart", constraints=apart)
    rest = claim(ask("s", 1, "kind=half"), ask("t", 2, "kind=quarter"), ask("u", 2, "kind=quarter"), name="rest")
    assert isinstance(solve(here, mixed, rest), list)
    assert solve(here, mixed, claim(ask("s", 3, "kind=half"), ask("t", 1, "kind=quarter"), name="rest")).kind is Kind.TOGETHER


def test_shared_devices_beside_constraints_are_decided():
    nics = [device(f"nic{at}", attributes={"kind": "nic", "root": at % 2}, multiple=True) for at in range(4)]
    here = state(*partitions(2), pool(*nics, name="net"))
    same = [Constraint(f"{DRIVER}/root", requests=("n",)), Constraint(f"{DRIVER}/parent", requests=("g", "h"))]
    fits = claim(ask("n", 2, "kind=nic"), ask("g", 1, "kind=half"), ask("h", 2, "kind=quarter"), constraints=same)
    assert isinstance(solve(here, fits), list)
    too_many = claim(ask("n", 3, "kind=nic"), ask("g", 1, "kind=half"), constraints=same)
    assert solve(here, too_many).kind is Kind.TOGETHER
