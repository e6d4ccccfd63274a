"""Reader of Gavel's throughputs: steps per second of job kinds alone and beside each other, by model of GPU (docs/traces.md)."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fairlead.core.pairs.estimate import Speeds
from fairlead.simulation.traces import TraceError

ONE_GPU = ", 1)"
"""How the names of kinds end that use one GPU."""


class Throughputs(msgspec.Struct, frozen=True):
    """kinds: names of kinds of jobs with one GPU. speed[i, j]: of kind i beside kind j, as a part of its speed alone; 0: they
    do not run together. Where one of two does not run, neither counts.
    """

    kinds: tuple[str, ...]
    speed: Speeds

    @property
    def runnable_pairs(self) -> int:
        """How many unordered pairs of kinds run together, with those of one kind."""
        return int(np.triu(self.speed > 0).sum())


def read(path: Path, model: str) -> Throughputs:
    """The throughputs of one model of GPU, of a JSON file that may be compressed (xz). Raises `TraceError`."""
    try:
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            content = json.load(file)
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise TraceError(f"{path}: it cannot be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get(model), dict):
        models = ", ".join(sorted(content)) if isinstance(content, dict) else "none"
        raise TraceError(f"{path}: no GPU model {model!r}; it has: {models}")
    rows: dict[str, Any] = content[model]
    kinds = tuple(name for name in rows if name.endswith(ONE_GPU))
    if not kinds:
        raise TraceError(f"{path}: {model}: no kind of job with one GPU (a name that ends with {ONE_GPU!r})")
    alone = [_alone(path, name, rows[name]) for name in kinds]
    speed = np.zeros((len(kinds), len(kinds)))
    for i, first in enumerate(kinds):
        for j, second in enumerate(kinds):
            own, other = _together(path, first, second, rows[first])
            speed[i, j] = own / alone[i] if own and other else 0.0
    speed[speed.T == 0] = 0.0
    return Throughputs(kinds, speed)


def _alone(path: Path, name: str, row: Any) -> float:
    value = row.get("null") if isinstance(row, dict) else None
    if not isinstance(value, int | float) or not _number(value) or value <= 0:
        raise TraceError(f"{path}: {name}: steps per second alone (null) are {value!r}, not a number above 0")
    return float(value)


def _together(path: Path, first: str, second: str, row: dict[str, Any]) -> tuple[float, float]:
    """Steps per second of both; 0 where the pair was not measured or does not run."""
    value = row.get(second)
    if value is None:
        return 0.0, 0.0
    if not isinstance(value, list) or len(value) != 2 or not all(_number(each) and each >= 0 for each in value):
        raise TraceError(f"{path}: {first} with {second}: {value!r} is not two numbers of steps per second")
    return float(value[0]), float(value[1])


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
