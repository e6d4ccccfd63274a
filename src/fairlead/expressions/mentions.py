"""Which attributes and capacities of a device an expression reads, if it reads them by constant names alone."""

from __future__ import annotations

from typing import Any, Final

from fairlead.expressions.tree import Tree, kind_of, walk

_MAPS: Final = ("device.attributes", "device.capacity")
_READING: Final = ("_[_]", "_?._")
_PLAIN: Final = ("device.driver", "device.allowMultipleAllocations")

Mention = tuple[str, str, str]
"""`device.attributes` or `device.capacity`, the domain and the name."""


def mentions(tree: Tree) -> tuple[Mention, ...] | None:
    """What is read, in order; None where it may be anything: a macro over a map, a name that is computed, `in`, `[?...]`."""
    found, seen = set[Mention](), set[int]()
    for expr in walk(tree.expr):  # what holds a part comes before it
        name = _variable(tree, expr)
        if (name in _MAPS or (kind_of(expr) == "ident" and name == "device")) and expr.id not in seen:
            return None
        outer, read = _step(tree, expr)
        inner, domain = _step(tree, outer) if outer is not None else (None, None)
        if inner is not None and read is not None and domain is not None and _variable(tree, inner) in _MAPS:
            found.add((_variable(tree, inner), domain, read))
            seen.add(inner.id)
        if name in (*_MAPS, *_PLAIN) and kind_of(expr) == "select":
            seen.add(expr.select_expr.operand.id)
    return tuple(sorted(found))


def _variable(tree: Tree, expr: Any) -> str:
    return expr.ident_expr.name if kind_of(expr) == "ident" else tree.names.get(expr.id, "")


def _step(tree: Tree, expr: Any) -> tuple[Any, str | None]:
    """What a part of an expression reads from, and the constant name that it reads there; None, None if it does not."""
    kind = kind_of(expr)
    if kind == "select" and not tree.names.get(expr.id):
        return expr.select_expr.operand, expr.select_expr.field
    if kind == "call" and expr.call_expr.function in _READING and kind_of(expr.call_expr.args[1]) == "const":
        key = expr.call_expr.args[1].const_expr
        return (expr.call_expr.args[0], key.string_value) if key.HasField("string_value") else (None, None)
    return None, None
