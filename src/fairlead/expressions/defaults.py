"""Changes of a checked expression before it is evaluated: what Kubernetes' values do, and plain maps do not.

- `device.attributes` and `device.capacity` give an empty map for a domain that they do not have; `in` and macros do not see it.
  Reading a key becomes `key in map ? map[key] : {}`.
- A version or quantity before `==` is equal or unequal to its own kind only; compared with another it is an error, so that
  `device.attributes["gpu.example.com"].driverVersion == "1.2.3"` is no silent mistake.
- No number is made of a bool.
- An empty text split by an empty separator gives no parts, and a range of a negative number no numbers.
- `a.includes(b)`: whether a list contains a value, or a scalar is it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fairlead.expressions import messages, quantities, versions
from fairlead.expressions.messages import DEVICE, FIELD, QUANTITY, SEMVER
from fairlead.expressions.tree import Tree, Type, kind_of, walk

_OUTER: Final[tuple[Type, ...]] = (
    ("map", ("string",), ("map", ("string",), ("any",))),
    ("map", ("string",), ("map", ("string",), (QUANTITY,))),
)
_ORDER: Final = {"isGreaterThan": ("_>_", "greater_string"), "isLessThan": ("_<_", "less_string"), "compareTo": ("", "")}
_READ: Final = ("quantity", "semver")
_STRICT: Final = (QUANTITY, SEMVER)
_OPEN: Final = (*_STRICT, "any", "dyn")
"""Types of values that may be versions or quantities."""
_FIELDS: Final = ("attributes", "capacity")


def rewrite(tree: Tree, *, of_devices: bool) -> None:
    """Change the tree in place. of_devices: also what only device selectors have."""
    for expr in list(walk(tree.expr))[::-1]:  # parts before what holds them
        kind = kind_of(expr)
        if kind == "call":
            _rewrite_function(tree, expr)
            if of_devices:
                _rewrite_call(tree, expr)
        elif of_devices and kind == "select" and _is_outer(tree, expr.select_expr.operand):
            _rewrite_select(tree, expr)


def _is_outer(tree: Tree, expr: Any) -> bool:
    if kind_of(expr) == "select" and expr.select_expr.field in _FIELDS:
        return tree.type_of(expr.select_expr.operand) == (DEVICE,) or tree.type_of(expr) in _OUTER
    return tree.type_of(expr) in _OUTER


def _rewrite_select(tree: Tree, expr: Any) -> None:
    operand, field = expr.select_expr.operand, expr.select_expr.field
    if expr.select_expr.test_only:  # there is always a map; an error of the operand is one of the whole

        def made(held: Callable[[], Any]) -> Any:
            return tree.call("_==_", "equals", held(), held())

    else:

        def made(held: Callable[[], Any]) -> Any:
            there = tree.select(held(), field, test_only=True)
            return tree.call("_?_:_", "conditional", there, tree.select(held(), field, test_only=False), tree.empty_map())

    _replace(tree, expr, tree.bound(operand, made))


def _rewrite_function(tree: Tree, expr: Any) -> None:
    """Functions that the library evaluates otherwise, at the edges of what they take."""
    call = expr.call_expr
    if call.function == "split" and not (kind_of(call.args[0]) == "const" and call.args[0].const_expr.string_value):
        call.function = "@split"
    elif call.function == "substring":
        call.function = "@substring"
    elif call.function in ("int", "uint", "double") and tree.type_of(call.args[0])[0] in ("any", "dyn"):
        _replace(tree, expr, tree.bound(call.args[0], lambda value: _number(tree, expr, value)))
    elif call.function in _ORDER and call.HasField("target"):
        _rewrite_order(tree, expr)
    elif call.function in _READ and len(call.args) == 1 and kind_of(call.args[0]) == "const":
        _rewrite_constant(tree, expr)
    elif call.function == "lists.range":
        _replace(tree, expr, tree.bound(call.args[0], lambda count: _range(tree, count)))


def _rewrite_order(tree: Tree, expr: Any) -> None:
    """Versions and quantities are compared by their texts, which sort as they do."""
    call = expr.call_expr
    kinds = tree.type_of(call.target), tree.type_of(call.args[0])

    def made(one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        def compared(operator: str, overload: str) -> Any:
            texts = (tree.select(each(), FIELD, test_only=False) for each in (one, other))
            return tree.call(operator, overload, *texts)

        if call.function == "compareTo":
            differs = tree.call("_?_:_", "conditional", compared("_>_", "greater_string"), tree.integer(1), tree.integer(-1))
            result = tree.call("_?_:_", "conditional", compared("_==_", "equals"), tree.integer(0), differs)
        else:
            result = compared(*_ORDER[call.function])
        if kinds[0] == kinds[1] and kinds[0][0] in _STRICT:
            return result
        alike = tree.call("_==_", "equals", tree.call("type", "type", one()), tree.call("type", "type", other()))
        failure = tree.call("@noSuchOverload", "no_such_overload", tree.call("!_", "logical_not", tree.copied(alike)))
        return tree.call("_?_:_", "conditional", alike, result, failure)

    _replace(tree, expr, tree.bound(call.target, lambda one: tree.bound(call.args[0], lambda other: made(one, other))))


def _rewrite_constant(tree: Tree, expr: Any) -> None:
    """A constant version or quantity is read once; one that is not valid is left to the evaluation, where it is an error."""
    text = expr.call_expr.args[0].const_expr.string_value
    try:
        if expr.call_expr.function == "quantity":
            made = tree.message(QUANTITY, FIELD, messages.quantity_text(quantities.parse(text)))
        else:
            made = tree.message(SEMVER, FIELD, messages.version_text(versions.parse(text)))
    except ValueError:
        return
    _replace(tree, expr, made)


def _number(tree: Tree, expr: Any, value: Callable[[], Any]) -> Any:
    call = expr.call_expr
    is_bool = tree.call("_==_", "equals", tree.call("type", "type", value()), tree.named("bool"))
    converted = tree.call(call.function, tree.overloads[expr.id][0], value())
    return tree.call("_?_:_", "conditional", is_bool, tree.call("@noNumber", "no_number", value()), converted)


def _range(tree: Tree, count: Callable[[], Any]) -> Any:
    negative = tree.call("_<_", "less_int64", count(), tree.integer(0))
    return tree.call("_?_:_", "conditional", negative, tree.empty_list(), tree.call("lists.range", "list_range", count()))


def _rewrite_call(tree: Tree, expr: Any) -> None:
    call = expr.call_expr
    if call.function == "includes":
        _rewrite_includes(tree, expr)
    elif call.function == "_==_":  # `!=` gives true for another kind, also in Kubernetes
        _rewrite_equality(tree, expr)
    elif call.function in ("_[_]", "_[?_]", "_?._") and _is_outer(tree, call.args[0]):

        def made(held: Callable[[], Any], key: Callable[[], Any]) -> Any:
            there = tree.call("@in", "in_map", key(), held())
            found = tree.call("_[_]", "index_map", held(), key())
            either = tree.call("_?_:_", "conditional", there, found, tree.empty_map())
            return either if call.function == "_[_]" else tree.call("optional.of", "optional_of", either)

        _replace(tree, expr, tree.bound(call.args[0], lambda held: tree.bound(call.args[1], lambda key: made(held, key))))


def _rewrite_equality(tree: Tree, expr: Any) -> None:
    left, right = expr.call_expr.args
    kinds = tree.type_of(left), tree.type_of(right)
    if kinds[0][0] not in _OPEN or (kinds[0] == kinds[1] and kinds[0][0] in _STRICT):
        return

    def made(one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        alike = tree.call("_==_", "equals", tree.call("type", "type", one()), tree.call("type", "type", other()))
        strict = [tree.call("_==_", "equals", tree.call("type", "type", one()), tree.named(name)) for name in _STRICT]
        fails = tree.call("_&&_", "logical_and", tree.call("!_", "logical_not", alike), tree.call("_||_", "logical_or", *strict))
        failure = tree.call("@noSuchOverload", "no_such_overload", tree.call("!_", "logical_not", alike))
        compared = tree.call("_==_", "equals", one(), other())
        return tree.call("_?_:_", "conditional", fails, tree.copied(failure), compared)

    _replace(tree, expr, tree.bound(left, lambda one: tree.bound(right, lambda other: made(one, other))))


def _rewrite_includes(tree: Tree, expr: Any) -> None:
    """`a.includes(b)`: whether a list contains a value, or a scalar is it."""
    call = expr.call_expr
    target, wanted = call.target, call.args[0]
    if tree.type_of(target)[0] == "list":
        made = tree.call("@in", "in_list", tree.copied(wanted), tree.copied(target))
    else:
        made = tree.call("_==_", "equals", tree.copied(target), tree.copied(wanted))
    _replace(tree, expr, made)


def _replace(tree: Tree, expr: Any, made: Any) -> None:
    """Put an expression in the place of another, whose type it keeps."""
    tree.inherit(made, expr)
    expr.CopyFrom(made)
