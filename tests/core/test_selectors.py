"""Device selectors: Kubernetes' recorded verdicts, random devices, mistakes, and what is remembered."""

import itertools
import json
import lzma
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fairlead.core.dra import selectors
from fairlead.core.dra.selectors import DeviceView, Quantity, SelectorError, Version, compile_selector
from fairlead.expressions import defaults, quantities, versions
from fairlead.expressions.environment import COSTLIEST, LONGEST
from fairlead.expressions.functions import IMPLEMENTATIONS
from fairlead.expressions.tree import Tree, walk
from testbed.selectors import differential, random_selectors, table
from testbed.selectors.differential import Comparison, Said, compare, device_of, ours

RECORDED = json.loads(lzma.decompress(Path(__file__).with_name("selectors.json.xz").read_bytes()))
_KNOWN_COSTS = ("flatten(", "sortBy(", "google.protobuf.")  # what the library knows less of than Kubernetes

GPU = DeviceView(
    driver="gpu.example.com",
    attributes={"model": "a100", "index": 3, "driverVersion": versions.parse("550.54.15"), "net.example.com/link": "x"},
    capacity={"memory": quantities.parse("40Gi")},
)


def test_recorded_verdicts_are_those_of_the_judge_and_of_the_cases_that_are_drawn_now():
    assert RECORDED["judge"] == differential.JUDGE == "k8s.io/dynamic-resource-allocation v0.36.3"
    questions = [*table.cases(), *(case for seed in range(400) for case in random_selectors.cases(seed))]
    assert RECORDED["questions"] == questions, "write them anew: python -m testbed.selectors"


@pytest.fixture(scope="module")
def compared():
    result = Comparison(RECORDED["judge"])
    compare(RECORDED["questions"], [Said(*each) for each in RECORDED["answers"]], result)
    return result


def test_every_verdict_is_that_of_kubernetes(compared):
    result = compared
    assert [
        each for each in result.found if not (each.startswith("cost: ") and any(known in each for known in _KNOWN_COSTS))
    ] == []
    assert result.cases == len(RECORDED["answers"]) > 4000
    assert result.different == 0
    asked_for = sum(result.listed_exceptions.get(each, 0) for each in ("large values", "slow calls"))  # in the table on purpose
    assert sum(result.listed_exceptions.values()) - asked_for < result.cases / 100
    assert all(result.verdicts[verdict] > 500 for verdict in ("compile", "error", "false", "true"))


def test_every_listed_exception_is_one_that_occurs(compared):
    assert set(compared.listed_exceptions) == {each.name for each in differential.EXCEPTIONS}


def test_a_wrong_verdict_would_be_found():
    question = {"expression": "device.driver == 'a'", "driver": "a", "attributes": {}, "capacity": {}}
    mine = ours(question)
    assert mine == Said("true", 3)
    for judge, found in ((Said("false", 3), "judge false"), (Said("true", 4), "judge 4")):
        result = Comparison("")
        compare([question], [judge], result)
        assert found in result.found[0]
    assert result.different == 0
    assert result.different_costs == 1


@pytest.mark.parametrize(
    ("expression", "problem", "place", "message"),
    [
        ("device.driver ==", "syntax", (1, 17), "Syntax error"),
        ("device.driver ==\n gpu", "type", (2, 2), "undeclared reference to 'gpu'"),
        ("device.shape == 'a'", "type", (1, 7), "undefined field 'shape'"),
        ("device.driver", "type", (1, 1), "must evaluate to bool or the unknown type, not string"),
        ("1 + 'a' == 2", "type", (1, 3), "no matching overload"),
        ("[1, 'a'].size() == 2", "type", (1, 5), "expected type 'int' but found 'string'"),
        ("'a'.matches('[')", "type", (1, 13), "invalid regular expression"),
        ("int('a') == 1", "type", (1, 5), "invalid int argument"),
        ("'%d'.format(['a']) == ''", "type", (1, 14), "does not take string"),
        ("format.dns1123Label().validate('a').hasValue()", "unsupported", (1, 1), "named formats"),
        ("lists.range(1000).all(a, lists.range(1000).all(b, a == b))", "cost", (0, 0), "1000000 is allowed"),
        (f"'{'x' * LONGEST}' == device.driver", "length", (0, 0), f"{LONGEST} are allowed"),
    ],
)
def test_what_does_not_compile_says_where_and_why(expression, problem, place, message):
    for _ in range(2):  # also where it is remembered
        with pytest.raises(SelectorError) as raised:
            compile_selector(expression)
        error = raised.value
        assert (error.problem, (error.line, error.column)) == (problem, place)
        assert message in str(error)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("device.attributes['gpu.example.com'].size == 1", "size"),
        ("device.attributes['none.example.com'].model == 'a100'", "model"),
        ("device.attributes['gpu.example.com'].model > 1", "overload"),
        ("device.attributes['gpu.example.com'].driverVersion == '550.54.15'", "another type"),
        ("device.attributes['gpu.example.com'].model", "str and not bool"),
        ("device.attributes['gpu.example.com'].index / 0 == 1", "divide by zero"),
        ("quantity(device.driver).isInteger()", "not a quantity"),
    ],
)
def test_what_fails_for_a_device_says_why_each_time(expression, message):
    selector = compile_selector(expression)
    for _ in range(2):
        with pytest.raises(SelectorError) as raised:
            selector.matches(GPU)
        assert raised.value.problem == "evaluation"
        assert message in str(raised.value)


def test_a_selector_is_the_same_object_for_the_same_text():
    assert compile_selector("device.driver == 'b'") is compile_selector("device.driver == 'b'")


def test_verdicts_are_remembered_by_what_a_device_presents(monkeypatch):
    selector = compile_selector("device.attributes['gpu.example.com'].index == 3 && device.driver != 'remembered'")
    calls = Counter()
    inner = type(selector)._verdict

    def counted(self, device):
        calls["evaluated"] += 1
        return inner(self, device)

    monkeypatch.setattr(type(selector), "_verdict", counted)
    twin = DeviceView(GPU.driver, dict(reversed(GPU.attributes.items())), {"memory": quantities.parse("40960Mi")})
    assert [selector.matches(each) for each in (GPU, GPU, twin)] == [True] * 3
    assert calls["evaluated"] == 1
    # 1 and true are other values, though Python takes them for equal.
    for value, verdict in ((1, True), (True, False)):
        device = DeviceView("d", {"x": value}, {})
        assert compile_selector("device.attributes['d'].x == 1").matches(device) is verdict
    assert calls["evaluated"] == 3


@pytest.mark.parametrize(
    ("expression", "evaluations"),
    [
        ("device.attributes['d'].x == 1 || device.attributes['d'].x > 7", 2),
        ("device.attributes['d']['x'] in [1, 2] && device.driver == 'd'", 2),
        ("has(device.attributes['d'].x) && device.capacity['d'].m.isLessThan(quantity('3'))", 2),
        ("!has(device.attributes['e'].x)", 1),
        ("device.driver == 'd' || device.allowMultipleAllocations", 1),
        ("cel.bind(own, device.attributes['d'], own.x == 1)", 10),
        ("device.attributes['d'].exists(n, n == 'uuid')", 10),
        ("device.attributes['d'][device.driver + 'x'] == 1", 10),
        ("'d' in device.attributes && device.attributes['d'].x == 1", 10),
        ("device.attributes[?'d'].?x.orValue(0) == 1", 10),
        ("device.attributes['d'].uuid != ''", 10),
        ("device.attributes == device.attributes", 10),
        ("has(device.attributes)", 10),
        ("[device].size() == 1", 10),
    ],
)
def test_an_attribute_that_is_not_read_makes_no_other_verdict(expression, evaluations):
    selector = compile_selector(expression)
    for number in range(10):
        attributes = {"x": number % 2 + 1, "uuid": str(number)}
        device = DeviceView("d", attributes, {"m": Quantity(number % 2 + 1)})
        fresh = type(selector)(expression, selector._program)
        try:
            expected = fresh.matches(device)
        except SelectorError as error:
            with pytest.raises(SelectorError, match=error.message):
                selector.matches(device)
        else:
            assert selector.matches(device) is expected
    assert len(selector._verdicts) == evaluations


def test_a_name_with_and_without_the_driver_is_one_attribute():
    selector = compile_selector("1 == device.attributes['d'].x")
    assert [selector.matches(DeviceView("d", {name: 1}, {})) for name in ("x", "d/x")] == [True, True]
    assert len(selector._verdicts) == 1
    for attributes in ({"x": 1, "d/x": 2}, {"d/x": 2, "x": 1}):
        assert selector.matches(DeviceView("d", attributes, {})) is (list(attributes.values())[-1] == 1)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(selectors, "_REMEMBERED_VERDICTS", 8)
    selector = compile_selector("device.attributes['d'].x % 2 == 0 && device.driver == 'd'")
    for value in range(50):
        assert selector.matches(DeviceView("d", {"x": value}, {})) is (value % 2 == 0)
    assert len(selector._verdicts) == 8
    assert selectors._compiled.cache_info().maxsize == 1024


def test_a_verdict_is_the_same_remembered_or_not():
    for seed in range(1000, 1030):
        for question in random_selectors.cases(seed):
            first, again = ours(question), ours(question)
            assert first == again


def test_expressions_of_random_characters_raise_nothing_else():
    draw = random.Random(7)
    pieces = [
        *"()[]{}.,?:!&|<>=+-*/%\"'\\ \n",
        "device",
        "attributes",
        "in",
        "1",
        "a",
        "has(",
        "cel.bind(",
        "é",
        "\x00",
        "[?",
        "\ud800",
    ]
    seen = Counter()
    for _ in range(2000):
        text = "".join(draw.choice(pieces) for _ in range(draw.randrange(1, 12)))
        try:
            compile_selector(text)
            seen["valid"] += 1
        except SelectorError as error:
            seen[error.problem] += 1
    assert seen["syntax"] > 1000


def test_a_cost_bounds_what_is_evaluated():
    dear = "lists.range(90).all(a, lists.range(90).all(b, a + b >= 0))"
    assert 50_000 < compile_selector(dear).cost <= COSTLIEST
    assert compile_selector(dear).matches(GPU)
    # The library ends an evaluation of more than 10,000 steps of macros, within the cost limit though they may be.
    dearer = compile_selector(dear.replace("90", "250"))
    assert dearer.cost <= COSTLIEST
    with pytest.raises(SelectorError, match="Iteration budget exceeded"):
        dearer.matches(GPU)


def _bound(first, step, last, count):
    """`cel.bind` in itself: each step makes a value of the one before it, which stands as A."""
    made = last.replace("A", f"a{count}")
    for index in reversed(range(count)):
        made = f"cel.bind(a{index + 1}, {step.replace('A', f'a{index}')}, {made})"
    return f"cel.bind(a0, {first}, {made})"


LARGE = [
    _bound("[1, 2, 3, 4]", "A + A", "A.size() > 0", 22),
    _bound("[1, 2, 3, 4]", "optional.of([A]).orValue([])[0] + {'x': true ? A : [1]}.x", "A.size() > 0", 16),
    _bound("[1]", "[A, A]", "A == A", 18),
    _bound("{1: 1}", "{1: A, 2: A}", "A == A", 18),
    _bound("[1]", "[A, A]", "A.flatten(20).size() > 0", 17),
    _bound("[1]", "[A, A]", "sets.contains([A], [A])", 17),
    _bound("'aaaaaaaaaaaaaaaaaaaa'", "'%s%s'.format([A, A])", "A.size() > 0", 20),
    _bound("'aaaaaaaaaa'", "A.replace('a', A)", "A.size() > 0", 3),
    "lists.range(9000).map(a, a).size() > 0",
    "lists.range(2000).filter(a, true).size() > 0",
    "lists.range(600).transformMap(i, v, v).size() == 600",
]
SLOW = [
    "lists.range(9000).all(a, ip('1.2.3.4').family() == 4)",
    "lists.range(3000).all(a, quantity('1').add(a).isInteger())",
    "lists.range(5000).all(a, device.driver.find('[0-9]') != 'x')",
    "lists.range(30).all(a, lists.range(30).all(b, device.driver.substring(1) != 'x'))",
]


@pytest.mark.parametrize(
    ("expression", "name"),
    [*((each, "large values") for each in LARGE), *((each, "slow calls") for each in SLOW)],
)
def test_what_costs_more_here_than_kubernetes_estimates_is_refused_before_it_is_evaluated(expression, name):
    with pytest.raises(SelectorError, match="parts" if name == "large values" else "slow here") as raised:
        compile_selector(expression)
    assert raised.value.problem == "cost"
    assert "the estimated cost" not in str(raised.value)
    result = Comparison("")
    compare([{"expression": expression}], [Said("true", 300)], result)
    assert result.listed_exceptions == {name: 1}
    assert result.different == 0


@pytest.mark.parametrize(
    "expression",
    [
        "(device.attributes['gpu.example.com'].map(k, k) + ['a', 'b']).exists(k, k == 'model')",
        "(device.driver.split('.') + ['x']).size() == 4 && [1, 2] + [3] == [1, 2, 3]",
        _bound("[1, 2, 3, 4]", "A + A", "A.size() == 4096", 10),
        _bound("'abcd'", "A + A", "A.size() == 4096", 10),
        "device.attributes.exists(d, device.attributes[d].exists(n, n == 'model'))",
        "device.attributes['gpu.example.com'].exists(n, n.find('^mod') == 'mod')",
        "lists.range(240).all(a, quantity('1').add(a).isInteger())",
        "lists.range(500).map(a, [a]).size() == 500",
        "device.driver.findAll('[a-z]').distinct().reverse().filter(c, c != 'm').size() > 0",
        "lists.range(9000).all(a, quantity('1').isLessThan(quantity('2')))",
    ],
)
def test_joining_small_lists_and_calling_functions_for_each_attribute_is_accepted(expression):
    assert compile_selector(expression).matches(GPU)


def test_a_key_is_evaluated_once_however_deep_it_stands():
    sizes = []
    for depth in range(1, 11):  # a key that stood there twice would be there 2 ** 10 times
        nested = "device.attributes[" * depth + "'d'" + "].y" * depth
        tree = Tree(selectors._environment()._checker.compile(nested).serialize(), nested)
        defaults.rewrite(tree, of_devices=True)
        sizes.append(len(tree.serialized()))
        assert compile_selector(f"{nested} == 'd'").matches(DeviceView("d", {"y": "d"}, {}))
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) < 1.2 * min(steps) < 2000


@pytest.mark.parametrize(
    "deep", ["({})", "!({})", "(true ? {} : false)", "[1].all(x, {})", "[{}][0]", "({}) && device.driver == 'a'"]
)
def test_what_is_nested_too_deep_is_refused_as_unsupported(deep):
    expression, seen = "true", Counter()
    for _ in range(40):
        expression = deep.format(expression)
        try:
            assert compile_selector(expression).matches(GPU) in (True, False)
            seen["valid"] += 1
        except SelectorError as error:
            seen[error.problem] += 1
    assert seen["valid"] > 5
    assert set(seen) == {"valid", "unsupported"}


def test_devices_of_questions_are_read_whole():
    view = device_of({"driver": "d", "attributes": {"v": {"version": "1.2.3"}, "b": {"bool": True}}, "capacity": {"m": "1Ki"}})
    assert view == DeviceView("d", {"v": Version(1, 2, 3), "b": True}, {"m": quantities.parse("1Ki")}, False)
    assert view.capacity["m"] == Quantity(1024)


def test_a_process_without_selectors_does_not_read_the_library():
    program = "import sys, fairlead.core.dra.selectors, fairlead.cluster.simulated.admission; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "fairlead.core.dra.selectors" in loaded
    assert [name for name in ("cel_expr_python", "google.protobuf", "re2") if f"'{name}'" in loaded] == []


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.example.com'].model == 'a100' && device.attributes['gpu.example.com'].index in [0, 1]",
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
        "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('550.0.0'))",
        "cel.bind(own, device.attributes['gpu.example.com'], own.?link.orValue('') == '' && own.model.lowerAscii().startsWith('a'))",
        "device.attributes['gpu.example.com'].model.matches('^a[0-9]+$') || has(device.attributes['gpu.example.com'].link)",
    ],
)
def test_usual_selectors_call_no_python(expression):
    """Each call of a function in Python costs the library memory that it does not give back."""
    tree = Tree(selectors._environment()._checker.compile(expression).serialize(), expression)
    defaults.rewrite(tree, of_devices=True)
    assert {each.call_expr.function for each in walk(tree.expr)} & (set(IMPLEMENTATIONS) - {"@noSuchOverload"}) == set()
