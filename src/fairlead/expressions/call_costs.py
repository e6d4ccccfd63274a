"""What a call costs in the worst case, by its function and overload, as Kubernetes 1.36 estimates it.

Functions of the language as in cel-go 0.26 (`checker/cost.go`, `ext/lists.go`, `ext/sets.go`), Kubernetes' own as in
`apiserver/pkg/cel/library/cost.go`, which goes before: some of its rules hold for a function's name, whatever its overload.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from fairlead.expressions.messages import CIDR, IP, QUANTITY, SEMVER, URL
from fairlead.expressions.spans import NOTHING, ONE, UNBOUNDED, UNKNOWN, Sizes, Span, plus, scaled, times
from fairlead.expressions.tree import Type, kind_of

_TRAVERSAL: Final = 0.1
_REGEX: Final = 0.25
_LIST: Final = 10
_ORDERED_BY_SIZE: Final = {
    f"{name}_{kind}" for name in ("less", "less_equals", "greater", "greater_equals") for kind in ("string", "bytes")
} | {"equals", "not_equals"}
_MOST_VALUES: Final = 48
"""Values of a list attribute at most, which is what `includes` may visit."""
_UNIT_CALLS: Final = {
    "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub",
    "major", "minor", "patch", "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery",
    "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast",
    "isGlobalUnicast",
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """What the cost of a call depends on."""

    expr: Any
    type: Type
    path: tuple[str, ...] | None
    size: Span | None


Call = tuple[Span, Span | None]
"""The cost of a call without its arguments, and the size of its result."""


def call_cost(sizes: Sizes, function: str, overload: str, target: Operand | None, args: list[Operand]) -> Call:
    """The cost of a call, and the size of its result. target: what stands before the dot."""
    calls = _Calls(sizes)
    return (
        calls.of_kubernetes(function, overload, target, args)
        or calls.of_lists(overload, target, args)
        or calls.of_language(overload, target, args)
    )


class _Calls:
    def __init__(self, known: Sizes) -> None:
        self._known = known

    def _bound(self, operand: Operand) -> Span:
        return operand.size or self._known.at(operand.path) or UNKNOWN

    def of_lists(self, overload: str, target: Operand | None, args: list[Operand]) -> Call | None:
        """Functions of the extensions for sets and lists; those of lists allocate their result."""
        if overload.startswith("list_sets_"):
            cost = times(self._bound(args[0]), self._bound(args[1]))
            return plus(scaled(cost, 2 if "equivalent" in overload else 1), ONE), None
        size = self._bound(target) if target else UNKNOWN
        factor = 1.0
        match overload:
            case "list_slice":
                most = (_integer(args[1], size[1]) - _integer(args[0], 0)) % (UNBOUNDED + 1)
                size = (most, most)
            case "list_range":
                most = _integer(args[0], UNBOUNDED)
                size = (most, most)
            case "list_reverse" | "list_flatten":
                pass
            case "list_flatten_int":
                factor = float(_integer(args[0], UNBOUNDED))
            case "list_distinct":
                size, factor = times(size, size), 2.0
            case _ if overload.endswith(("_sort", "_sortByAssociatedKeys")):
                if "AssociatedKeys" in overload:
                    size = self._bound(args[0])
                size, factor = times(size, size), 2 + (_TRAVERSAL if "_string_" in overload or "_bytes_" in overload else 0)
            case _:
                return None
        return plus(scaled(size, factor), ONE, (_LIST, _LIST)), size

    def of_language(self, overload: str, target: Operand | None, args: list[Operand]) -> Call:  # noqa: PLR0911
        own = (target.size or UNKNOWN) if target else UNKNOWN
        first = (args[0].size or UNKNOWN) if args else UNKNOWN
        match overload:
            case "string_format" if target:
                return scaled(own, _TRAVERSAL), None
            case "string_to_bytes":
                return scaled(first, _TRAVERSAL), (first[0], min(first[1] * 4, UNBOUNDED))
            case "bytes_to_string":
                return scaled(first, _TRAVERSAL), (first[0] // 4, first[1])
            case "strings_quote":
                return scaled(first, _TRAVERSAL), (first[0] + 2, min(first[1] * 2 + 2, UNBOUNDED))
            case "starts_with_string" | "ends_with_string":
                return scaled(first, _TRAVERSAL), None
            case "in_list":
                return args[1].size or UNKNOWN, None
            case "matches_string" if target:
                return times(scaled(plus(own, ONE), _TRAVERSAL), scaled(first, _REGEX)), None
            case "contains_string" if target:
                return times(scaled(own, _TRAVERSAL), scaled(first, _TRAVERSAL)), None
            case "add_string" | "add_bytes" | "add_list":
                size = plus(first, args[1].size or UNKNOWN)
                return (ONE if overload == "add_list" else scaled(size, _TRAVERSAL)), size
            case _ if overload in _ORDERED_BY_SIZE:
                most = min(first[1], (args[1].size or UNKNOWN)[1])
                return scaled((1 if most else 0, most), _TRAVERSAL), None
        return ONE, None

    def of_kubernetes(self, function: str, overload: str, target: Operand | None, args: list[Operand]) -> Call | None:  # noqa: C901, PLR0911, PLR0912
        """What Kubernetes' own estimator has for a call; None: nothing."""
        if function in _UNIT_CALLS or overload == "cidr_ip":
            return ONE, None
        match function:
            case "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" if target:
                return self._of_elements(target), None
            case "url" | "quantity" | "isQuantity" | "semver" | "isSemver" | "cidr" | "isIP" | "isCIDR" | "ip" if args:
                size = self._bound(args[0])
                return scaled(size, _TRAVERSAL), size if function == "url" and len(args) == 1 else None
            case "ip.isCanonical":
                return scaled(self._bound(args[0]), 2 * _TRAVERSAL), None
            case "lowerAscii" | "upperAscii" | "substring" | "trim" if target:
                size = self._bound(target)
                return scaled(size, _TRAVERSAL), size
            case "replace" if target and len(args) >= 2:
                return self._replace(self._bound(target), self._bound(args[0]), self._bound(args[1]))
            case "split" if target:
                return self._split(target, args)
            case "join" if target:
                return self._join(target, args)
            case "find" | "findAll" if target and args:
                size = self._bound(target)
                cost = times(scaled(plus(size, ONE), _TRAVERSAL), scaled(self._bound(args[0]), _REGEX))
                return cost, (0, size[1])
            case "containsIP" | "containsCIDR" if args:
                return self._contains(function, overload, args[0]), None
            case "includes" if target:
                return (0, _MOST_VALUES), None
            case "_==_" if len(args) == 2 and args[0].type == args[1].type:
                if args[0].type[0] in (IP, CIDR, QUANTITY, SEMVER):
                    return ONE, None
                if args[0].type[0] == URL:
                    size = args[1].size or ONE
                    return scaled((1, size[1]), _TRAVERSAL), None
        return None

    def _of_elements(self, target: Operand) -> Span:
        size = self._bound(target)
        if len(target.type) == 1:
            return scaled(size, _TRAVERSAL)
        each = ONE
        if target.type[1][0] in ("string", "bytes"):
            path = (*target.path, "@items") if target.path is not None else None
            each = plus(each, scaled(self._known.at(path) or UNKNOWN, _TRAVERSAL))
        return times(size, each)

    @staticmethod
    def _replace(size: Span, old: Span, new: Span) -> Call:
        if old[0] == 0:
            most, kept_most = min(size[1] + 1, UNBOUNDED), size[1]
        elif new[1] <= old[0]:
            most, kept_most = 0, size[1]
        else:
            most, kept_most = ceil(size[1] / old[0]), 0
        if old[1] == 0:
            least, kept_least = min(size[0] + 1, UNBOUNDED), size[0]
        elif old[1] <= new[0]:
            least, kept_least = 0, size[0]
        else:
            least, kept_least = ceil(size[0] / old[1]), 0
        result = plus(times((least, most), new), (kept_least, kept_most))
        return scaled(size, 2 * _TRAVERSAL), result

    def _split(self, target: Operand, args: list[Operand]) -> Call:
        size = self._bound(target)
        most = size[1]
        if len(args) > 1 and kind_of(args[1].expr) == "const" and args[1].expr.const_expr.HasField("int64_value"):
            most = args[1].expr.const_expr.int64_value % (UNBOUNDED + 1)
        return scaled(size, 2 * _TRAVERSAL), (0, most)

    def _join(self, target: Operand, args: list[Operand]) -> Call:
        count, size = self._bound(target), NOTHING
        if len(target.type) > 1:
            path = (*target.path, "@items") if target.path is not None else None
            size = times(count, self._known.at(path) or UNKNOWN)
        if args:
            size = plus(size, times(self._bound(args[0]), (max(count[0] - 1, 0), max(count[1] - 1, 0))))
        return scaled(size, _TRAVERSAL), size

    def _contains(self, function: str, overload: str, member: Operand) -> Span:
        address = (4, 16)
        cost = scaled(plus(address, address), _TRAVERSAL)
        if function == "containsCIDR":
            cost = plus(cost, scaled(address, _TRAVERSAL), ONE)
        return plus(cost, scaled(self._bound(member), _TRAVERSAL)) if overload.endswith("_string") else cost


def _integer(operand: Operand, default: int) -> int:
    """A constant integer, at least 0."""
    if kind_of(operand.expr) != "const" or not operand.expr.const_expr.HasField("int64_value"):
        return default
    return int(max(operand.expr.const_expr.int64_value, 0))
