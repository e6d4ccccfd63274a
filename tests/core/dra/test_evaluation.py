"""CEL and the table of the generator's selectors agree, so the judges' verdicts hold for both."""

import gc
from fractions import Fraction
from random import Random

import pytest

from fairlead.core.dra import columns
from fairlead.core.dra.columns import Columns
from fairlead.core.dra.evaluation import Evaluation
from fairlead.core.dra.inventory import Inventory, SelectorFailure
from fairlead.core.dra.model import Capacity, Version
from fairlead.core.dra.pools import Slices
from fairlead.core.dra.selectors import Selector, SelectorError, compile_selector
from testbed.dra import selectors
from testbed.dra.clusters import generate
from testbed.dra.ours import Case
from tests.core.dra.worlds import DRIVER, device, node, pool


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


ODD = [
    device("plain", attributes={"model": "a100", "index": 1}),
    device("alike", attributes={"model": "a100", "index": 2, "other": "x"}),
    device("typed", attributes={"model": True, "index": 1}),
    device("whole", attributes={f"{DRIVER}/model": "a100", "index": 1}),
    device("twice", attributes={"model": "h100", f"{DRIVER}/model": "a100", "index": 1}),
    device("version", attributes={"model": Version("1.2.3")}),
    device("broken", attributes={"model": "a100", "fw": Version("one")}),
    device("foreign", driver="nic.example.com", attributes={"model": "a100"}),
    device("shared", attributes={"model": "a100"}, multiple=True),
    device("memory", attributes={"model": "a100"}, capacity={"memory": Capacity(16 << 30)}),
    device("small", attributes={"model": "a100"}, capacity={f"{DRIVER}/memory": Capacity(Fraction(1, 3))}),
]


def by_itself(evaluation, expression, one):
    """The verdict of a device without what is remembered of others."""
    try:
        found = compile_selector(expression)._verdict(evaluation._view(one))
    except (SelectorError, SelectorFailure) as error:
        return str(error)
    return found if isinstance(found, bool) else str(found)


@pytest.mark.parametrize(
    "expression",
    [
        f'device.attributes["{DRIVER}"].model == "a100"',
        f'device.attributes["{DRIVER}"].?model.orValue("") == "a100" && device.attributes["{DRIVER}"].index < 2',
        f'device.attributes["{DRIVER}"].model == true',
        f'device.attributes["{DRIVER}"].?model.hasValue()',
        f'device.attributes["{DRIVER}"].?model.optMap(v, type(v) == bool).orValue(false)',
        f'device.attributes.?gpu.model.orValue("") == "a100" || device.attributes[?"{DRIVER}"].?index.orValue(0) == 1',
        f'has(device.attributes["{DRIVER}"].index)',
        'device.attributes["absent"].?model.orValue("a100") == "a100"',
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("8Gi")) > 0',
        f'"{DRIVER}" in device.attributes',
        'device.driver == "nic.example.com"',
        "device.allowMultipleAllocations",
        "device.",
        "true",
    ],
)
def test_devices_judged_by_columns_have_the_verdicts_that_each_has_by_itself(expression):
    evaluation, nodes = Evaluation(), []
    for seed in range(40):
        devices = Random(seed // 2).sample(ODD, 1 + seed % len(ODD))  # some nodes begin alike, some are
        nodes.append(Columns(devices))
        found = evaluation.selected(expression, nodes[-1])
        assert not found.mask & found.failed
        expected = [by_itself(evaluation, expression, one) for one in devices]
        for at, one in enumerate(devices):
            verdict = found.mask >> at & 1 == 1
            assert (isinstance(expected[at], str), expected[at] is True) == (found.failed >> at & 1 == 1, verdict), one.name
        assert found.message == next((each for each in expected if isinstance(each, str)), "")


def test_nodes_whose_devices_are_alike_are_one_question_and_leave_nothing_behind(monkeypatch):
    asked = []
    plain = Selector.matches_alike
    monkeypatch.setattr(Selector, "matches_alike", lambda *given: asked.append(given) or plain(*given))
    evaluation, expression = Evaluation(), f'device.attributes["{DRIVER}"].model == "b"'
    nodes = [Columns([device(f"d{at}", attributes={"model": model, "uuid": f"{at}"}) for model in "ab"]) for at in range(50)]
    assert {evaluation.selected(expression, each).mask for each in nodes} == {0b10}
    assert len(asked) == 2
    assert evaluation.selected(expression, Columns([device("e", attributes={"model": "b"})])).mask == 0b1
    kept = len(columns._shared)
    nodes.clear()
    gc.collect()
    assert len(columns._shared) == kept - 1


def test_equal_devices_of_many_nodes_are_evaluated_once(monkeypatch):
    asked = []
    plain = Selector._verdict
    monkeypatch.setattr(Selector, "_verdict", lambda self, view: asked.append(view) or plain(self, view))
    expression = f'device.attributes["{DRIVER}"].model == "only here"'
    evaluation = Evaluation()
    for at in range(50):
        devices = [device(f"d{at}-{each}", attributes={"model": "ab"[each % 2], "uuid": f"{at}-{each}"}) for each in range(8)]
        assert Inventory(Slices([pool(*devices)]).pools(node()), evaluation).selected(expression).mask == 0
    assert len(asked) == 2
