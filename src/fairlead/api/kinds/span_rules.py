"""Rules in CEL for the durations of a kind: a pattern has no bounds, and what is beyond them was read as no duration at all."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from fairlead.api import spans
from fairlead.api.kinds.common import SPAN
from fairlead.api.kinds.rules import Rule

_POSITIVE = frozenset({"timeLimit", "expectedDuration", "startTimeout", "idleDuration", "timeWindow", "period", "default", "max"})
"""Fields in which no time at all makes no sense: a job that may run for nothing, a budget of no days."""


def span_rules(spec: type[Any]) -> Iterator[tuple[str, str]]:
    """(expression, message) for each duration in a spec, outside lists."""
    for path in _spans(spec, ()):
        field, value = ".".join(path), ".".join(("self", *path))
        given = " && ".join(f"has({'.'.join(('self', *path[: depth + 1]))})" for depth in range(len(path)))
        seconds = spans.in_cel(value)
        upto = f"{seconds} <= {spans.LONGEST}"
        if path[-1] in _POSITIVE:
            yield f"!({given}) || ({seconds} > 0.0 && {upto})", f"{field} must be longer than 0s, and at most 36500d (a century)"
        else:
            yield f"!({given}) || {upto}", f"{field} must be at most 36500d (a century)"


def _spans(kind: type[Any], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        path = (*above, field.encode_name)
        for each in _parts(hints[field.name]):
            if isinstance(each, Rule) and each.meta.pattern == SPAN:
                yield path
            elif isinstance(each, type) and issubclass(each, msgspec.Struct):
                yield from _spans(each, path)


def _parts(hint: Any) -> Iterator[Any]:
    """The types that a value may have, and their rules."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, Union, UnionType):
        for each in arguments:
            yield from _parts(each)
    else:
        yield hint
