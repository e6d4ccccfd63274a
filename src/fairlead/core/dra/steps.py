"""Recursion without the interpreter's stack: searches go as deep as there are devices or nodes.

A step is a generator that yields the steps it needs, receives the result of each, and returns its own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

Steps = Generator["Steps", bool, bool]


def walk(first: Steps) -> bool:
    """The result of a step. What one raises ends all of them."""
    stack: list[Generator[Any, Any, bool]] = [first]
    result: bool | None = None
    while True:
        try:
            child = stack[-1].send(result)
        except StopIteration as ended:
            stack.pop()
            result = ended.value
            if not stack:
                return bool(result)
            continue
        stack.append(child)
        result = None
