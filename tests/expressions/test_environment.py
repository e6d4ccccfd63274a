"""Expressions over other variables than devices: what rules of schemas and admission policies use."""

import sys

import pytest

from fairlead.cluster.simulated.rules import evaluated
from fairlead.expressions import urls
from fairlead.expressions.environment import Environment, ExpressionError
from fairlead.expressions.spans import Node, Sizes

PLAIN = Environment({"x": "int", "items": "list<string>", "object": "dyn"}, sizes=Sizes({"items": Node(100, item=Node(10))}))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("object.roles.map(r, has(r.replicas) ? r.replicas : 1).sum() <= 3", True),
        ("object.spec.?name.orValue('none')", "none"),
        ("object.labels == {'a': 'b'} && !has(object.nothing)", True),
        ("[dyn(object.labels)].filter(l, type(l) == map && 'a' in l).size()", 1),
        ("items.join('-') + string(x)", "a-b3"),
        ("items.map(i, i + '!')", ["a!", "b!"]),
        ("object.none == null ? 1.5 : 2.0", 1.5),
        ("items.transformMap(i, v, v)", {0: "a", 1: "b"}),
    ],
)
def test_values_are_those_of_python(expression, value):
    data = {
        "object": {"roles": [{"replicas": 2}, {}], "spec": {}, "labels": {"a": "b"}, "none": None},
        "items": ["a", "b"],
        "x": 3,
    }
    assert PLAIN.compile(expression, costliest=None).evaluate(data) == value


def test_a_cost_counts_the_sizes_that_are_declared():
    assert PLAIN.compile("items.all(i, i == 'a')").cost == 502
    with pytest.raises(ExpressionError, match="estimated cost"):
        PLAIN.compile("object.all(i, i == 'a')")
    assert PLAIN.compile("object.all(i, i == 'a')", costliest=None).evaluate({"object": ["a"]}) is True


def test_a_type_that_does_not_fit_is_an_error_of_the_evaluation():
    program = PLAIN.compile("x + 1 == 2")
    for data in ({}, {"x": "1"}, {"x": 1 << 63}):
        with pytest.raises(ExpressionError) as raised:
            program.evaluate(data)
        assert raised.value.problem == "evaluation"
    assert program.evaluate({"x": 1}) is True


def test_rules_of_schemas_are_evaluated_without_a_cost_limit():
    assert (
        evaluated("self.roles.all(r, self.roles.exists_one(s, s.name == r.name))", {"self": {"roles": [{"name": "a"}]}}) is True
    )
    with pytest.raises(ExpressionError, match="no_such"):
        evaluated("self.no_such == 1", {"self": {}})
    with pytest.raises(ExpressionError, match="undeclared"):
        evaluated("unheard.of", {"self": {}})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "https://a.example:8080/p%20q?k=1&k=2&m=#f",
            ("https", "a.example:8080", "a.example", "8080", "/p%20q", {"k": ["1", "2"], "m": [""]}),
        ),
        ("HTTP://[::1]:80", ("http", "[::1]:80", "::1", "80", "", {})),
        ("/only a path", ("", "", "", "", "/only%20a%20path", {})),
        ("https://user:secret@h/", ("https", "h", "h", "", "/", {})),
    ],
)
def test_the_parts_of_a_url(text, parts):
    url = urls.parse(text)
    assert (url.scheme, url.host, url.hostname, url.port, url.path, url.query) == parts


@pytest.mark.parametrize("text", ["", "a/b", "https://h:x/", "http://[::1", "https://h/%zz", "https://a b/", ":x", "/a\x00"])
def test_what_is_no_url_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        urls.parse(text)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("object.a", None),
        ("object", {"a": None, "l": [None, 1]}),
        ("object.l", [None, 1]),
        ("[object.l]", [[None, 1]]),
        ("object.a == null", True),
    ],
)
def test_results_without_a_value_cost_none_no_reference(expression, value):
    """The library gives None away without counting it: after some thousand of them the interpreter would end."""
    program = PLAIN.compile(expression, costliest=None)
    data = {"object": {"a": None, "l": [None, 1]}}
    assert program.evaluate(data) == value
    before = sys.getrefcount(None)
    for _ in range(2000):
        program.evaluate(data)
    assert sys.getrefcount(None) > before - 1000
