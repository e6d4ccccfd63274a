"""What Kubernetes refuses of an expression, and the library does not: mixed literals, and constants that are not valid."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

from fairlead.expressions.errors import ExpressionError
from fairlead.expressions.tree import Tree, Type, children, kind_of, walk

_CONVERSIONS: Final = ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint")
"""Functions whose constant arguments Kubernetes converts before an evaluation."""
_PATTERNS: Final = {"matches": (0, 1), "find": (0,), "findAll": (0,)}
"""Where regular expressions stand; `matches` may be called without a dot, and both of its arguments are checked then."""
_MESSAGES: Final = "google.protobuf."
_CLAUSE: Final = re.compile(r"%%|%(?:\.[0-9]+)?(.?)", re.DOTALL)
_TAKEN: Final = {
    "s": ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"),
    "d": ("int", "uint"),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": ("int", "uint", "bool"),
    "x": ("int", "uint", "string", "bytes"),
    "X": ("int", "uint", "string", "bytes"),
    "o": ("int", "uint"),
}
"""The types of values that a clause of a format takes."""


def check(tree: Tree) -> None:
    """Raise `ExpressionError` (type) at the first literal that is not valid."""
    formatted = {
        each.id
        for expr in walk(tree.expr)
        if kind_of(expr) == "call" and expr.call_expr.function == "format"
        for part in children(expr)
        for each in walk(part)
    }
    for expr in walk(tree.expr):
        kind = kind_of(expr)
        if kind == "call":
            _check_call(tree, expr)
        elif kind == "struct":
            _check_struct(tree, expr, mixed=expr.id in formatted)
        elif kind == "list" and expr.id not in formatted:
            optional = set(expr.list_expr.optional_indices)
            _check_alike(tree, [(each, index in optional) for index, each in enumerate(expr.list_expr.elements)])


def _check_struct(tree: Tree, expr: Any, *, mixed: bool) -> None:
    made = expr.struct_expr
    if made.message_name and not made.message_name.startswith(_MESSAGES):
        raise _wrong(tree, expr, f"undeclared reference to '{made.message_name}'")
    if not made.message_name and not mixed:
        _check_alike(tree, [(entry.map_key, False) for entry in made.entries])
        _check_alike(tree, [(entry.value, entry.optional_entry) for entry in made.entries])


def _check_alike(tree: Tree, members: list[tuple[Any, bool]]) -> None:
    """Members of a literal are of one type, and a type that is not known is another than one that is."""
    first: Type | None = None
    for member, optional in members:
        found = tree.type_of(member)
        if optional and found[0] == "optional_type" and len(found) > 1:
            found = found[1]
        if first is None:
            first = found
        elif first != found:
            raise _wrong(tree, member, f"expected type '{shown(first)}' but found '{shown(found)}'")


def _check_call(tree: Tree, expr: Any) -> None:
    call = expr.call_expr
    for index in _PATTERNS.get(call.function, ()):
        text = _text(call.args[index]) if index < len(call.args) else None
        if text is not None:
            _check_pattern(tree, call.args[index], text)
    constant = _constant(expr)
    if constant is not None and kind_of(expr) == "call":
        problem = _conversion(constant)
        if problem:
            raise _wrong(tree, call.args[0], f"invalid {call.function} argument: {problem}")
    if call.function == "format" and call.HasField("target") and kind_of(call.args[0]) == "list":
        text = _text(call.target)
        if text is not None:
            _check_format(tree, expr, text, call.args[0].list_expr.elements)


def _check_format(tree: Tree, expr: Any, text: str, values: Any) -> None:
    """A constant format has a clause for each of its values, of a type that the clause takes."""
    clauses = [match for match in _CLAUSE.finditer(text) if match[0] != "%%"]
    for clause, value in zip(clauses, values, strict=False):
        taken = _TAKEN.get(clause[1])
        if taken is None:
            raise _wrong(tree, expr, f"unrecognized formatting clause {clause[0]!r}")
        wrong = _not_taken(tree, value, taken, deep=clause[1] == "s")
        if wrong is not None:
            raise _wrong(tree, wrong, f"a clause {clause[0]!r} does not take {shown(tree.type_of(wrong))}")
    if len(clauses) != len(values):
        raise _wrong(tree, expr, f"{len(clauses)} formatting clauses for {len(values)} values")


def _not_taken(tree: Tree, value: Any, taken: tuple[str, ...], *, deep: bool) -> Any:
    """The part of a value that a clause does not take; None if there is none."""
    if tree.type_of(value)[0] not in ("dyn", *taken):
        return value
    parts = children(value) if deep and kind_of(value) in ("list", "struct") else []
    return next((wrong for each in parts if (wrong := _not_taken(tree, each, taken, deep=True)) is not None), None)


def _text(expr: Any) -> str | None:
    if kind_of(expr) == "const" and expr.const_expr.HasField("string_value"):
        return str(expr.const_expr.string_value)
    return None


def _literal(const: Any) -> str:
    """The source text of a constant."""
    fields = const.ListFields()
    name: str = fields[0][0].name if fields else "null_value"
    value: Any = fields[0][1] if fields else None
    if name == "string_value":
        return '"' + "".join(f"\\U{ord(each):08x}" for each in value) + '"'
    if name == "bytes_value":
        return 'b"' + "".join(f"\\x{each:02x}" for each in value) + '"'
    if name == "uint64_value":
        return f"{value}u"
    return "null" if name == "null_value" else repr(value).lower()


def _constant(expr: Any) -> str | None:
    """The source text of a constant, or of conversions of one; None for all else."""
    if kind_of(expr) == "const":
        return _literal(expr.const_expr)
    call = expr.call_expr
    if kind_of(expr) != "call" or call.function not in _CONVERSIONS or len(call.args) != 1 or call.HasField("target"):
        return None
    inner = _constant(call.args[0])
    return f"{call.function}({inner})" if inner is not None else None


@lru_cache(maxsize=1024)
def _conversion(source: str) -> str:
    """What is wrong with a conversion of a constant; empty if nothing is."""
    try:
        found = _bare().compile(source).eval()
    except RuntimeError:
        return ""  # an overload that only Kubernetes has: it is converted by the evaluation
    return str(found.value()) if found.type() == cel.Type.ERROR else ""


@lru_cache(maxsize=1)
def _bare() -> Any:
    return cel.NewEnv()


def _check_pattern(tree: Tree, expr: Any, text: str) -> None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(text, options)
    except re2.error as error:
        raise _wrong(tree, expr, f"invalid regular expression {text!r}: {error}") from error


def shown(found: Type) -> str:
    """A type as CEL writes it."""
    name = str(found[0])
    return f"{name}({', '.join(shown(each) for each in found[1:])})" if len(found) > 1 else name


def _wrong(tree: Tree, expr: Any, message: str) -> ExpressionError:
    return ExpressionError("type", message, *tree.position(expr))
