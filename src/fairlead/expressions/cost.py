"""The cost of an expression in the worst case, as Kubernetes estimates it before it stores one.

The rules are those of cel-go 0.26 (`checker/cost.go`) and of Kubernetes 1.36 (`apiserver/pkg/cel/library/cost.go`): a unit is a
simple operation; traversing a string costs a tenth of its length; a macro costs its body times the most elements it may visit.
It bounds an evaluation, but for a unit here and there that upstream's own estimate lacks, so no evaluation counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fairlead.expressions.call_costs import Call, Operand, call_cost
from fairlead.expressions.messages import DEVICE, QUANTITY, SEMVER, URL
from fairlead.expressions.spans import NOTHING, ONE, UNBOUNDED, UNKNOWN, Sizes, Span, plus, times, union
from fairlead.expressions.tree import Tree, Type, kind_of

_LIST, _MAP, _STRUCT = 10, 30, 40
_SCALARS: Final = ("bool", "double", "duration", "int", "timestamp", "uint")


@dataclass(frozen=True)
class _Entries:
    """The sizes of keys and values of a list or map that an expression makes."""

    container: str
    key: Span
    value: Span


@dataclass(frozen=True)
class _Local:
    path: tuple[str, ...] | None
    size: Span | None
    entries: _Entries | None = None


def estimate(tree: Tree, sizes: Sizes) -> tuple[int, dict[int, Span]]:
    """The most that one evaluation may cost, and the sizes of parts of the tree by identity, as far as they are known."""
    estimator = _Estimator(tree, sizes)
    return estimator.cost(tree.expr)[1], {**estimator.sizes, **estimator.counts}


class _Estimator:
    def __init__(self, tree: Tree, sizes: Sizes) -> None:
        self._tree = tree
        self._known = sizes
        self._paths: dict[int, tuple[str, ...] | None] = {}
        self._locals: dict[str, list[_Local]] = {}
        self.sizes: dict[int, Span] = {}
        self.counts: dict[int, Span] = {}
        self._entries: dict[int, _Entries] = {}

    def cost(self, expr: Any) -> Span:
        kind = kind_of(expr)
        of_kind: Callable[[Any], Span] | None = getattr(self, f"_{kind}", None)
        return of_kind(expr) if of_kind is not None else NOTHING

    # -- kinds of expressions --------------------------------------------------------------------

    def _ident(self, expr: Any) -> Span:
        name = expr.ident_expr.name
        local = self._local(name)
        path = local.path if local else tuple(name.split("."))
        self._paths[expr.id] = path
        return (1, 1) if local else (len(path or ()), len(path or ()))

    def _select(self, expr: Any) -> Span:
        made = expr.select_expr
        if expr.id in self._tree.names:  # a variable whose name has a dot: the library leaves it a selection
            steps = self._tree.names[expr.id].split(".")
            self._paths[expr.id] = tuple(steps)
            return len(steps), len(steps)
        cost = self.cost(made.operand)
        if made.test_only:
            return cost
        if self._kind(made.operand) in ("map", "struct", "type_param"):
            cost = plus(cost, ONE)
        path = self._path(made.operand)
        self._paths[expr.id] = (*(path or ()), made.field)
        return cost

    def _list(self, expr: Any) -> Span:
        elements = expr.list_expr.elements
        cost, size = NOTHING, (UNBOUNDED if elements else 0, 0)
        for each in elements:
            cost = plus(cost, self.cost(each))
            size = union(size, self._size(each) or UNKNOWN)
        self._entries[expr.id] = _Entries("list", ONE, size)
        return plus(cost, (_LIST, _LIST))

    def _struct(self, expr: Any) -> Span:
        made = expr.struct_expr
        cost, keys, values = NOTHING, (UNBOUNDED, 0), (UNBOUNDED, 0)
        if not made.entries:
            keys = values = NOTHING
        for entry in made.entries:
            if not made.message_name:
                cost = plus(cost, self.cost(entry.map_key))
                keys = union(keys, self._size(entry.map_key) or UNKNOWN)
            cost = plus(cost, self.cost(entry.value))
            values = union(values, self._size(entry.value) or UNKNOWN)
        if made.message_name:
            return plus(cost, (_STRUCT, _STRUCT))
        self._entries[expr.id] = _Entries("map", keys, values)
        return plus(cost, (_MAP, _MAP))

    def _comprehension(self, expr: Any) -> Span:
        made = expr.comprehension_expr
        cost = plus(self.cost(made.iter_range), self.cost(made.accu_init))
        self._push(
            made.accu_var, _Local(self._path(made.accu_init), self._size(made.accu_init), self._entries_of(made.accu_init))
        )
        if _is_bind(made):
            cost = plus(cost, self.cost(made.result))
            self._locals[made.accu_var].pop()
            self._copy_sizes(expr, made.result)
            return cost
        self._push_iterated(made)
        loop = plus(self.cost(made.loop_condition), self.cost(made.loop_step))
        for name in filter(None, (made.iter_var, made.iter_var2)):
            self._locals[name].pop()
        cost = plus(cost, self.cost(made.result))
        self._locals[made.accu_var].pop()
        count = self.counts[made.iter_range.id] = self._size(made.iter_range) or UNKNOWN
        cost = plus(cost, times(count, loop))
        start = kind_of(made.accu_init)
        if start == "const":
            size = self._size(made.accu_init)
            if size is not None:
                self.sizes[expr.id] = size
        elif start in ("list", "struct"):
            self.sizes[expr.id] = count
            entries = self._entries_of(made.loop_step)
            if entries is not None:
                self._entries[expr.id] = entries
        return cost

    def _push_iterated(self, made: Any) -> None:
        entries = self._entries_of(made.iter_range)
        is_list = (entries.container if entries else self._kind(made.iter_range)) == "list"
        path = self._path(made.iter_range) or ()
        key, value = (entries.key, entries.value) if entries else (None, None)
        if made.iter_var2:
            self._push(made.iter_var, _Local((*path, "@indices" if is_list else "@keys"), key))
            self._push(made.iter_var2, _Local((*path, "@items" if is_list else "@values"), value))
        else:
            self._push(made.iter_var, _Local((*path, "@items" if is_list else "@keys"), value if is_list else key))

    def _call(self, expr: Any) -> Span:
        call = expr.call_expr
        if call.function == "dyn":
            of_argument = self.cost(call.args[0])
            self._copy_sizes(expr, call.args[0])
            return plus(ONE, of_argument)
        costs = [self.cost(each) for each in call.args]
        operands = [self._operand(each) for each in call.args]
        overloads = self._tree.overloads.get(expr.id, [])
        if not overloads:
            return NOTHING
        before, target = NOTHING, None
        if call.HasField("target"):
            before, target = self.cost(call.target), self._operand(call.target)
            sorted_by = (operands[0] if operands else target).type
            if len(sorted_by) == 2:  # the checker left all overloads of a list whose elements it did not know
                overloads = [each for each in overloads if f"_{sorted_by[1][0]}_sort" in each] or overloads
        cost: Span = (UNBOUNDED, 0)
        size: Span | None = None
        for overload in overloads:
            of_overload, result = self._overload(expr, call.function, overload, target, operands, costs)
            cost = union(cost, of_overload)
            if result is not None:
                size = result if size is None else union(size, result)
            if overload in ("index_list", "index_map"):
                entries = self._entries_of(call.args[0])
                size = entries.value if entries else None
                step = "@items" if overload == "index_list" else "@values"
                self._paths[expr.id] = (*(self._path(call.args[0]) or ()), step)
            if size is None:
                size = self._size(expr)
        if size is not None:
            self.sizes[expr.id] = size
        return plus(before, cost)

    # -- calls ---------------------------------------------------------------------------------------

    def _overload(
        self, expr: Any, function: str, overload: str, target: Operand | None, args: list[Operand], costs: list[Span]
    ) -> Call:
        if overload in ("logical_or", "logical_and"):
            return (costs[0][0], plus(costs[0], costs[1])[1]), None
        if overload == "conditional":
            return self._conditional(expr, args, costs)
        if overload in ("add_string", "add_bytes", "add_list"):
            self._join_entries(expr, self._entries_of(args[0].expr), self._entries_of(args[1].expr))
        cost, size = call_cost(self._known, function, overload, target, args)
        return plus(cost, *costs), size

    def _conditional(self, expr: Any, args: list[Operand], costs: list[Span]) -> Call:
        left, right = self._entries_of(args[1].expr), self._entries_of(args[2].expr)
        self._join_entries(expr, left, right)
        size = union(args[1].size or UNKNOWN, args[2].size or UNKNOWN)
        return plus(costs[0], union(costs[1], costs[2])), size

    # -- sizes, paths and local variables ---------------------------------------------------------------

    def _operand(self, expr: Any) -> Operand:
        path = self._path(expr)
        if path and path[0] in ("__result__", "@result"):
            path = None
        return Operand(expr, self._tree.type_of(expr), path, self._size(expr))

    def _size(self, expr: Any) -> Span | None:
        if expr.id in self.sizes:
            return self.sizes[expr.id]
        written = _written_size(expr)
        if written is not None:
            return written, written
        known = self._known.at(self._path(expr))
        if known is not None:
            self.sizes[expr.id] = known
            return known
        if _is_scalar(self._tree.type_of(expr)):
            return ONE
        local = self._local(expr.ident_expr.name) if kind_of(expr) == "ident" else None
        return local.size if local else None

    def _entries_of(self, expr: Any) -> _Entries | None:
        if expr.id in self._entries:
            return self._entries[expr.id]
        local = self._local(expr.ident_expr.name) if kind_of(expr) == "ident" else None
        return local.entries if local else None

    def _join_entries(self, expr: Any, left: _Entries | None, right: _Entries | None) -> None:
        if left is not None and right is not None:
            self._entries[expr.id] = _Entries(left.container, union(left.key, right.key), union(left.value, right.value))

    def _copy_sizes(self, to: Any, source: Any) -> None:
        size, entries = self._size(source), self._entries_of(source)
        if size is not None:
            self.sizes[to.id] = size
        if entries is not None:
            self._entries[to.id] = entries

    def _path(self, expr: Any) -> tuple[str, ...] | None:
        if kind_of(expr) == "ident":
            local = self._local(expr.ident_expr.name)
            if local is not None:
                return local.path
        return self._paths.get(expr.id)

    def _local(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _kind(self, expr: Any) -> str:
        name = self._tree.type_of(expr)[0]
        return "struct" if name in (DEVICE, QUANTITY, SEMVER, URL) else str(name)


def _is_bind(made: Any) -> bool:
    """Whether a comprehension is what `cel.bind` becomes: it visits nothing, and its accumulator is the variable."""
    return (
        kind_of(made.iter_range) == "list"
        and not made.iter_range.list_expr.elements
        and kind_of(made.loop_condition) == "const"
        and not made.loop_condition.const_expr.bool_value
        and made.accu_var != "__result__"
    )


def _is_scalar(found: Type) -> bool:
    return found[0] in _SCALARS or (found[0] == "optional_type" and len(found) > 1 and _is_scalar(found[1]))


def _written_size(expr: Any) -> int | None:
    match kind_of(expr):
        case "const":
            const = expr.const_expr
            if const.HasField("string_value"):
                return len(const.string_value)
            return len(const.bytes_value) if const.HasField("bytes_value") else 1
        case "list":
            return len(expr.list_expr.elements)
        case "struct" if not expr.struct_expr.message_name:
            return len(expr.struct_expr.entries)
    return None
