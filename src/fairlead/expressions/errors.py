"""What may be wrong with an expression."""

from __future__ import annotations

from typing import Literal

Problem = Literal["syntax", "type", "unsupported", "length", "cost", "evaluation"]
"""unsupported: valid in Kubernetes and not here, which docs/design/expressions.md lists."""


class ExpressionError(ValueError):
    """An expression that cannot be compiled, or whose evaluation failed.

    problem: which kind; message: what is wrong; line, column: where, from 1; both 0 where no place is known.
    """

    def __init__(self, problem: Problem, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"{message} (line {line}, column {column})" if line else message)
        self.problem: Problem = problem
        self.message = message
        self.line = line
        self.column = column
