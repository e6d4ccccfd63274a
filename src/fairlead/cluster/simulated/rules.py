"""CEL rules of schemas and admission policies over JSON objects, whose fields have no declared types here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from fairlead.expressions.errors import ExpressionError

__all__ = ["ExpressionError", "evaluated"]

_VARIABLES: Final = ("self", "object", "oldObject", "request", "params")


def evaluated(expression: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression. Raises `ExpressionError` if it cannot be compiled, or its evaluation fails."""
    return _program(expression).evaluate(variables)


@lru_cache(maxsize=1024)
def _program(expression: str) -> Any:
    return _environment().compile(expression, costliest=None)


@lru_cache(maxsize=1)
def _environment() -> Any:
    # The library and protobuf are read when the first rule is.
    from fairlead.expressions.environment import Environment

    return Environment(dict.fromkeys(_VARIABLES, "dyn"))
