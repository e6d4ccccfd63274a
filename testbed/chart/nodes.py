"""Objects that depend on values, as trees: dicts, lists and scalars, with an `If` wherever a condition decides."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec


class If(NamedTuple):
    """What stands in place of a node: `then` where the condition holds, a pipeline of Go's templates, else `other`."""

    condition: str
    then: Any
    other: Any


class Absent:
    """In place of what is not there."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


def merged(condition: str, then: Any, other: Any, same: Mapping[Any, Any]) -> Any:
    """One tree of two. same: markers in `then` -> what they stand for where the condition does not hold."""
    if replaced(then, same) == other:
        return then
    if isinstance(then, dict) and isinstance(other, dict):
        keys = _woven(list(then), list(other))
        found = {key: merged(condition, then.get(key, ABSENT), other.get(key, ABSENT), same) for key in keys}
        if any(not _may_be_absent(each) for each in found.values()):
            return found
    if isinstance(then, list) and isinstance(other, list):
        elements = _aligned(condition, then, other, same)
        if any(not _may_be_absent(each) for each in elements):
            return elements
    return _decided(condition, then, other)


def _decided(condition: str, then: Any, other: Any) -> Any:
    """`If`, with one condition of two where the second one decides on the same."""
    if isinstance(other, If) and other.then == then:
        return If(f"or {_operand(condition)} {_operand(other.condition)}", then, other.other)
    if isinstance(then, If) and then.other == other:
        return If(f"and {_operand(condition)} {_operand(then.condition)}", then.then, other)
    return If(condition, then, other)


def _operand(condition: str) -> str:
    return f"({condition})" if " " in condition else condition


def replaced(node: Any, same: Mapping[Any, Any]) -> Any:
    """The tree with other texts and numbers in place of some."""
    if not same:
        return node
    if isinstance(node, If):
        return If(node.condition, replaced(node.then, same), replaced(node.other, same))
    if isinstance(node, dict):
        return {replaced(key, same): replaced(value, same) for key, value in node.items()}
    if isinstance(node, list):
        return [replaced(each, same) for each in node]
    if isinstance(node, str):
        for marker, text in same.items():
            if isinstance(marker, str):
                node = node.replace(marker, text)
        return node
    return same.get(node, node) if isinstance(node, int) and not isinstance(node, bool) else node


def _may_be_absent(node: Any) -> bool:
    if isinstance(node, If):
        return _may_be_absent(node.then) or _may_be_absent(node.other)
    return node is ABSENT


def _aligned(condition: str, then: Sequence[Any], other: Sequence[Any], same: Mapping[Any, Any]) -> list[Any]:
    """Elements of two lists in one, in the order of both."""
    left, right = ([repr(replaced(each, given)) for each in nodes] for nodes, given in ((then, same), (other, {})))
    found: list[Any] = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if what == "equal":
            found += then[a:b]
        elif b - a == d - c and _alike(then[a:b], other[c:d]):
            found += [merged(condition, one, two, same) for one, two in zip(then[a:b], other[c:d], strict=True)]
        else:
            found += [_decided(condition, each, ABSENT) for each in then[a:b]]
            found += [_decided(condition, ABSENT, each) for each in other[c:d]]
    return found


def _alike(then: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether elements are the same things, by their names or since there are no others."""
    return all(
        isinstance(one, dict)
        and isinstance(two, dict)
        and (len(then) == 1 if "name" not in one and "name" not in two else one.get("name") == two.get("name"))
        for one, two in zip(then, other, strict=True)
    )


def _woven(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """All keys of two mappings, in the order of both as far as they agree."""
    found: list[str] = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        found += first[a:b]
        if what != "equal":
            found += [each for each in second[c:d] if each not in first]
    return list(dict.fromkeys(found))


class Choice(msgspec.Struct, frozen=True):
    """A value on which the shape of objects depends. then, other: what it is where the condition holds, and where not; either may
    be a further choice. same: markers in `then` -> what they stand for otherwise.
    """

    condition: str
    then: Any
    other: Any
    same: dict[Any, Any] = {}
