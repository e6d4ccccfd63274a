"""Label selectors as they stand in query strings: `app=web,tier in (a,b),!canary`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Labels = Mapping[str, str]
Test = Callable[[Labels], bool]

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_COMPARED = re.compile(r"^\s*([^\s!=,()<>]+)\s*(==|=|!=|>|<)\s*([^\s!=,()]*)\s*$")
_PRESENT = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")
_NAME = re.compile(r"^([a-z0-9A-Z][-a-z0-9A-Z.]*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")


class LabelQueryError(ValueError):
    """A text that is no label selector."""


def parse(text: str) -> Test | None:
    """A label selector; None if it selects everything. Raises LabelQueryError."""
    if not text.strip():
        return None
    tests = [_requirement(part) for part in re.split(r",(?![^(]*\))", text)]
    return lambda found: all(test(found) for test in tests)


def _requirement(text: str) -> Test:
    if match := _SET.match(text):
        key, operator, values = match[1], match[2], {each.strip() for each in match[3].split(",")}
        _check(key, text)
        if operator == "in":
            return lambda found: found.get(key) in values
        return lambda found: found.get(key) not in values
    if match := _COMPARED.match(text):
        key, operator, value = match[1], match[2], match[3]
        _check(key, text)
        if operator == "!=":
            return lambda found: found.get(key) != value
        if operator in "><":
            bound = _number(value)
            if bound is None:
                raise _unparsable(text)

            def compared(found: Mapping[str, str]) -> bool:
                number = _number(found.get(key))
                return number is not None and (number > bound if operator == ">" else number < bound)

            return compared
        return lambda found: found.get(key) == value
    if match := _PRESENT.match(text):
        absent, key = bool(match[1]), match[2]
        _check(key, text)
        return lambda found: (key in found) is not absent
    raise _unparsable(text)


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _check(key: str, text: str) -> None:
    if not _NAME.match(key):
        raise _unparsable(text)


def _unparsable(text: str) -> LabelQueryError:
    return LabelQueryError(f"unable to parse requirement: {text.strip()!r} is not a valid label selector requirement")
