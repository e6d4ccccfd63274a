"""What an evaluation builds and calls in the worst case, where Kubernetes' estimate of the cost does not bound it.

Kubernetes counts one unit for joining two lists, however long, since cel-go joins them when they are read; the library here
copies, also at each step of `map` and `filter`. Kubernetes counts nothing for what a format or a replacement gives, nor for
elements of elements when lists are compared. And a function in Python costs far more than a unit, and memory that the library
does not give back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead.expressions.messages import CIDR, IP
from fairlead.expressions.spans import UNBOUNDED, UNKNOWN, Span
from fairlead.expressions.tree import Tree, Type, children, kind_of

BIGGEST: Final = 250_000
"""Parts of all that an evaluation may build: elements, entries and tens of characters. Some 16 MB of lists."""
MOST_CALLS: Final = 500
"""Calls of functions in Python in an evaluation."""
_MOST_STEPS: Final = 10_000
"""The library ends an evaluation after as many steps of macros."""
_CEILING: Final = 1 << 63
_CHARACTERS: Final = 10
_BUILDING: Final = ("_+_", "format", "replace", "join", "flatten", "_==_", "_!=_", "@in")
_MEMBERS: Final = {
    "_+_", "reverse", "slice", "distinct", "sort", "@sortByAssociatedKeys", "dyn", "_?_:_", "orValue", "or"
}  # fmt: skip
"""Functions whose result has the elements of their arguments."""
_AS_MANY: Final = ("distinct", "sort", "@sortByAssociatedKeys", "reverse")
"""Functions whose result has no more elements than what they are called on."""
_PAIRWISE: Final = ("sets.contains", "sets.equivalent", "sets.intersects", "distinct")
_PLAIN: Final = 10
"""An element that weighs more is no number and no short text: comparing two of them is more than a unit."""
_SCALARS: Final = ("bool", "double", "duration", "int", "timestamp", "uint", "null")
_CONVERTED: Final = (IP, CIDR, "any", "dyn")


@dataclass(frozen=True)
class Bounds:
    """parts: of all that is built; calls: of functions in Python."""

    parts: int
    calls: int


@dataclass(frozen=True)
class _Weight:
    """The parts of a value, with those of its elements, and of one element at most."""

    whole: int = 1
    each: int = 1


def bounds(tree: Tree, sizes: Mapping[int, Span], in_python: frozenset[str]) -> Bounds:
    """The most that an evaluation builds and calls. sizes: of parts of the tree by identity; in_python: names of functions."""
    meter = _Meter(tree, sizes, in_python)
    meter.weight(tree.expr, 1)
    return Bounds(meter.parts, meter.calls)


class _Meter:
    def __init__(self, tree: Tree, sizes: Mapping[int, Span], in_python: frozenset[str]) -> None:
        self._tree = tree
        self._sizes = sizes
        self._in_python = in_python
        self._locals: dict[str, list[_Weight]] = {}
        self.parts = 0
        self.calls = 0

    def weight(self, expr: Any, repeated: int) -> _Weight:
        """The weight of a value, all of whose parts are counted as often as it is evaluated."""
        kind = kind_of(expr)
        if kind == "comprehension":
            found = self._comprehension(expr, repeated)
        elif kind == "ident" and self._locals.get(expr.ident_expr.name):
            found = self._locals[expr.ident_expr.name][-1]
        elif kind == "const":
            const = expr.const_expr
            found = _Weight(1 + max(len(const.string_value), len(const.bytes_value)) // _CHARACTERS)
        else:
            parts = [self.weight(each, repeated) for each in children(expr)]
            if kind == "call":
                found = self._call(expr, parts, repeated)
            elif kind in ("list", "struct"):
                found = _Weight(1 + _sum(parts), max((each.whole for each in parts), default=1))
                self._count(found.whole, repeated)
            else:  # what a variable or a field holds
                found = self._known(expr, _Weight(*(max((each.each for each in parts), default=1),) * 2))
        return _Weight() if self._tree.type_of(expr)[0] in _SCALARS else found

    def _call(self, expr: Any, parts: list[_Weight], repeated: int) -> _Weight:
        call = expr.call_expr
        function = call.function
        if self._is_in_python(call):
            self.calls = min(self.calls + repeated, _CEILING)
            self._count(_sum(parts), repeated)
        whole = 1 + _sum(parts)
        if function == "_?_:_":
            whole = max(each.whole for each in parts)
        elif function in ("_[_]", "_[?_]", "_?._"):
            return self._known(expr, _Weight(parts[0].each, parts[0].each))
        elif function == "replace" and len(parts) > 2:
            whole = min(parts[0].whole * (1 + _CHARACTERS * parts[2].whole), 1 + self._size(expr, _CEILING) // _CHARACTERS)
        elif function == "join":
            whole = min(parts[0].whole * (1 + _sum(parts[1:])), _CEILING)
        if function in _BUILDING:
            self._count(whole, repeated)
        elif function in _PAIRWISE and max(part.each for part in parts) > _PLAIN:
            self._count(parts[0].whole * parts[-1].whole, repeated)
        if function == "lists.range":
            return self._known(expr, _Weight())
        each = max((part.each for part in parts), default=1) if function in _MEMBERS else whole
        return _Weight(whole, each)

    def _is_in_python(self, call: Any) -> bool:
        if call.function not in self._in_python:
            return call.function in ("split", "substring") and (call.function != "split" or not _written(call.args[0]))
        first: Type = self._tree.type_of(call.target if call.HasField("target") else call.args[0])
        if call.function in ("indexOf", "lastIndexOf"):
            return bool(first[0] != "string")
        if call.function == "string":
            return first[0] in _CONVERTED
        return not (call.function in ("quantity", "semver") and len(call.args) == 1 and _written(call.args[0]))

    def _comprehension(self, expr: Any, repeated: int) -> _Weight:
        made = expr.comprehension_expr
        items, start = self.weight(made.iter_range, repeated), self.weight(made.accu_init, repeated)
        steps = 0
        if kind_of(made.iter_range) != "list" or made.iter_range.list_expr.elements:
            steps = min(repeated * self._most(made.iter_range), _MOST_STEPS)
        names = [name for name in (made.iter_var, made.iter_var2) if name]
        for name in names:
            self._locals.setdefault(name, []).append(_Weight(items.each, items.each))
        self._locals.setdefault(made.accu_var, []).append(start)
        step = _Weight(0, 0)
        if steps:
            self.weight(made.loop_condition, steps)
            step = self.weight(made.loop_step, steps)
        for name in names:
            self._locals[name].pop()
        start_kind = kind_of(made.accu_init)
        if steps and start_kind in ("list", "struct"):  # each step copies what the steps before it have made
            copied = self._most(made.iter_range) * (step.whole if start_kind == "struct" else 1)
            self._count(copied, (steps + 1) // 2)
            self._locals[made.accu_var][-1] = _Weight(
                min(start.whole + self._most(made.iter_range) * step.whole, _CEILING), max(start.each, step.each)
            )
        result = self.weight(made.result, repeated)
        self._locals[made.accu_var].pop()
        return result

    def _most(self, expr: Any) -> int:
        """How many elements a value has at most, as far as an evaluation may visit them."""
        found = self._sizes.get(expr.id)
        if found is None and kind_of(expr) == "list":
            return len(expr.list_expr.elements)
        most = min(found[1], _MOST_STEPS) if found is not None else _MOST_STEPS
        if kind_of(expr) == "call" and expr.call_expr.function in _AS_MANY and expr.call_expr.HasField("target"):
            return min(most, self._most(expr.call_expr.target))  # the estimate takes the square, which is their cost
        return most

    def _known(self, expr: Any, least: _Weight) -> _Weight:
        """The weight of what has a size that is declared or computed."""
        size = self._size(expr, 0)
        is_text = self._tree.type_of(expr)[0] in ("string", "bytes", "any", "dyn")
        found = 1 + size // (_CHARACTERS if is_text else 1)
        return _Weight(max(found, least.whole), least.each)

    def _size(self, expr: Any, otherwise: int) -> int:
        found = self._sizes.get(expr.id, UNKNOWN)[1]
        return found if found < UNBOUNDED else otherwise

    def _count(self, parts: int, repeated: int) -> None:
        self.parts = min(self.parts + parts * repeated, _CEILING)


def _sum(parts: list[_Weight]) -> int:
    return min(sum(each.whole for each in parts), _CEILING)


def _written(expr: Any) -> bool:
    return bool(kind_of(expr) == "const" and expr.const_expr.string_value)
