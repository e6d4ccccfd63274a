"""Upstream's allocators and ours on the same random clusters: their verdicts are recorded, with the versions that gave them."""

import gzip
import json
from pathlib import Path

import pytest

from fairlead.core.dra import allocator
from fairlead.core.dra.allocator import PACKED, refusal
from fairlead.core.dra.problem import Problem, prepare
from fairlead.core.dra.refusals import Refusal
from testbed.dra import checker
from testbed.dra.clusters import generate
from testbed.dra.differential import VERSIONS, Comparison, compare, with_ours
from testbed.dra.ours import Case, as_json

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "verdicts.json.gz").read_bytes()))


@pytest.mark.parametrize("version", VERSIONS)
def test_feasibility_is_upstreams_where_it_is_not_listed(version):
    assert RECORDED["versions"] == list(VERSIONS)
    total = Comparison()
    for seed, verdicts in zip(RECORDED["seeds"], RECORDED["verdicts"][version], strict=True):
        total.add(compare(*with_ours(generate(seed)), verdicts))
    assert total.examples == []
    assert (total.different, total.refused_allocations, total.gave_up) == (0, 0, 0)
    assert total.found > 150  # many are possible
    assert total.cases - total.found > 150  # and many are not
    assert total.dropped < total.cases / 100
    assert total.same_choice > 0.9 * total.found  # and of several we take the same


def test_why_there_is_no_allocation_is_what_the_allocation_says():
    """The short cut for verdicts decides nothing otherwise; and it is one for many."""
    short = found = refused = 0
    for seed in range(2000, 2300):
        ours = Case(generate(seed))
        for node in ours.nodes:
            answer = ours.answer(node, PACKED)
            state = ours.held.on(ours.inventory(node))
            assert refusal(state, node.name, ours.claims, ours.classes, PACKED) == (
                answer if isinstance(answer, Refusal) else None
            )
            found += isinstance(answer, list)
            refused += isinstance(answer, Refusal)
            problem = prepare(state, ours.claims, ours.classes)
            if isinstance(problem, Problem) and allocator._any_choice_fits(problem):
                short += 1
                assert isinstance(answer, list)
    assert min(short, found, refused) > 50


def test_a_recorded_verdict_that_differs_is_noticed():
    """Turn verdicts around: every one of them is a difference, unless the checker cannot side with us."""
    noticed = turned = 0
    for seed, verdicts in zip(RECORDED["seeds"][:60], RECORDED["verdicts"]["v0.37.2"], strict=False):
        case, answers = with_ours(generate(seed))
        for name, verdict in verdicts.items():
            if verdict.get("slow") or verdict.get("error"):
                continue
            node = next(each for each in case["nodes"] if each["metadata"]["name"] == name)
            other = {**verdicts, name: {**verdict, "found": False, "ours": False, "oursError": "", "chosen": None}}
            if isinstance(answers[name], list) and verdict["found"] and verdict["ours"]:
                turned += 1
                result = compare({**case, "nodes": [node]}, answers, other)
                noticed += result.different + sum(result.listed_exceptions.values())
    assert turned > 20
    assert noticed == turned


def test_the_checker_agrees_with_every_answer():
    """What we allocate breaks no rule; where we refuse, trying everything finds nothing."""
    found = refused = 0
    for seed in range(1000, 1250):
        case = generate(seed)
        ours = Case(case)
        for each, node in zip(case["nodes"], ours.nodes, strict=True):
            answer = ours.answer(node)
            if isinstance(answer, list):
                found += 1
                assert checker.violations(case, each, as_json(answer)) == [], seed
                continue
            try:
                assert not checker.possible(case, each, 3000), (seed, answer.text())
                refused += 1
            except checker.TooLarge:
                continue
    assert min(found, refused) > 100
