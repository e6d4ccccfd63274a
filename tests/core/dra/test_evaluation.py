"""CEL and the table of the generator's selectors agree, so the judges' verdicts hold for both."""

import pytest

from fairlead.core.dra.evaluation import Evaluation
from fairlead.core.dra.inventory import SelectorFailure
from fairlead.core.dra.model import Capacity, Version
from testbed.dra import selectors
from testbed.dra.clusters import generate
from testbed.dra.ours import Case
from tests.core.dra.worlds import device


def verdict(matches, expression, one):
    try:
        return matches(expression, one)
    except SelectorFailure:
        return None


def test_cel_agrees_with_the_table():
    evaluation, seen = Evaluation(), set()
    for seed in range(200):
        case = Case(generate(seed))
        asks = [ask for claim in case.claims for request in claim.requests for ask in request.alternatives]
        expressions = {each for ask in asks for each in ask.selectors} | {
            each for one in case.classes.values() for each in one.selectors
        }
        devices = [one for node in case.nodes for one in case.inventory(node).devices]
        for expression in sorted(expressions):
            for one in devices:
                found = verdict(evaluation, expression, one)
                assert found == verdict(selectors.matches, expression, one), (seed, expression, one)
                seen.add(found)
    assert seen == {True, False, None}


def test_answers_by_cel_are_those_by_the_table():
    for seed in range(100):
        case = generate(seed)
        by_cel = Case(case, Evaluation()).answers()
        for name, answer in Case(case).answers().items():
            assert isinstance(by_cel[name], list) == isinstance(answer, list), seed


def test_versions_and_capacities_are_seen():
    one = device("d", attributes={"fw": Version("1.2.3")}, capacity={"memory": Capacity(16 << 30)})
    evaluation = Evaluation()
    assert evaluation('device.attributes["gpu.example.com"].fw.compareTo(semver("1.10.0")) < 0', one)
    assert evaluation('device.capacity["gpu.example.com"].memory.compareTo(quantity("8Gi")) > 0', one)
    with pytest.raises(SelectorFailure):
        evaluation("device.", one)
    with pytest.raises(SelectorFailure, match="attribute fw"):
        evaluation("true", device("d", attributes={"fw": Version("one")}))
