"""Selectors: requirements on labels, and terms on a node's labels and fields.

A label selector is a tuple of requirements, all of which must hold: empty, it matches everything; None matches
nothing. Node selector terms are alternatives. What cannot be parsed is described by `mistake`, in words for users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

NAME_FIELD = "metadata.name"

_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_WITH_VALUES = ("In", "NotIn")
_WITHOUT = ("Exists", "DoesNotExist")
_COMPARING = ("Gt", "Lt")
_INT64 = 1 << 63
_MOST_DIGITS = 19  # of a 64-bit integer, in decimal


class Requirement(msgspec.Struct, frozen=True):
    """`key operator values`, operators as in a node selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


Selector = tuple[Requirement, ...] | None
"""Requirements that must all hold; empty matches everything, None nothing."""


Labels = tuple[tuple[str, str], ...]
"""(key, value), sorted by key."""


class SelectorTerm(msgspec.Struct, frozen=True):
    """Requirements on labels and on fields, all of which must hold."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


def mistake(requirement: Requirement, *, comparing: bool = False) -> str:  # noqa: PLR0911 - the first mistake
    """What is wrong with a requirement on labels; empty if nothing. comparing: whether `Gt` and `Lt` are allowed."""
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if not label_key(key):
        return f"{key!r} is not a label key"
    if operator in _WITH_VALUES:
        if not values:
            return f"{operator} needs values"
    elif operator in _WITHOUT:
        if values:
            return f"{operator} takes no values"
    elif operator in _COMPARING and comparing:
        if len(values) != 1 or integer(values[0]) is None:
            return f"{operator} needs one integer"
    else:
        return f"{operator!r} is not an operator"
    for value in values:
        if not label_value(value):
            return f"{value!r} is not a label value"
    return ""


def label_key(key: str) -> bool:
    """Whether a text can be a label key: an optional DNS prefix, a slash, a name."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or _PREFIX.fullmatch(prefix) is None):
        return False
    return _NAME_PART.fullmatch(name) is not None


def label_value(value: str) -> bool:
    """Whether a text can be a label value."""
    return not value or (len(value) <= 63 and _NAME_PART.fullmatch(value) is not None)


def integer(text: str | None) -> int | None:
    """A decimal 64-bit integer, or None. Any number of leading zeros is one as Go's `strconv.ParseInt` reads it."""
    if text is None or _INTEGER.fullmatch(text) is None:
        return None
    sign, digits = ("-" if text[0] == "-" else ""), text.lstrip("+-").lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    value = int(f"{sign}{digits or '0'}")
    return value if -_INT64 <= value < _INT64 else None


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:  # noqa: PLR0911 - an operator each
    """One requirement on one set of labels."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            left, right = integer(value), integer(requirement.values[0] if len(requirement.values) == 1 else None)
            if left is None or right is None:
                return False
            return left > right if requirement.operator == "Gt" else left < right
    return False


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a label selector."""
    return selector is not None and all(holds(each, labels) for each in selector)


def keys(selectors: Iterable[Selector]) -> set[str]:
    """Every label key that these selectors read."""
    return {each.key for selector in selectors if selector for each in selector}


def term_holds(term: SelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node satisfies a term. An empty term, and one that cannot be parsed, match nothing."""
    if not term.expressions and not term.fields:
        return False
    return (
        not term_mistake(term)
        and all(holds(each, labels) for each in term.expressions)
        and all(_field_holds(each, name) for each in term.fields)
    )


def any_term_holds(terms: Sequence[SelectorTerm], labels: Mapping[str, str], name: str) -> bool:
    """Whether a node satisfies one of the terms; no terms match nothing."""
    return any(term_holds(term, labels, name) for term in terms)


def term_mistake(term: SelectorTerm) -> str:
    """What is wrong with a node selector term; empty if nothing."""
    for requirement in term.expressions:
        if wrong := mistake(requirement, comparing=True):
            return wrong
    for requirement in term.fields:
        if requirement.operator not in _WITH_VALUES:
            return f"{requirement.operator!r} is not an operator for fields"
        if len(requirement.values) != 1:
            return "a requirement on a field needs one value"
    return ""


def _field_holds(requirement: Requirement, name: str) -> bool:
    value = name if requirement.key == NAME_FIELD else ""
    return (value == requirement.values[0]) == (requirement.operator == "In")
