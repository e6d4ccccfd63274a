"""What device selectors take: to load the library, to compile an expression, to evaluate it, to find a verdict again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.core.dra.selectors import DeviceView, Selector, SelectorError, compile_selector
from testbed.selectors.differential import device_of
from testbed.selectors.random_selectors import cases

_PROGRAM = """
import resource, time
begun = time.perf_counter()
import fairlead.core.dra.selectors as selectors
selectors.compile_selector("true")
print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class Taken(msgspec.Struct):
    """Medians over random selectors. load_ms: until a new process has its first; peak_mb: memory of that process."""

    expressions: int
    load_ms: float
    peak_mb: float
    compile_us: float
    evaluate_us: float
    again_us: float


def run(seeds: Sequence[int]) -> Taken:
    """Measure with the selectors of these seeds that compile."""
    shown = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    compile_selector("true")
    compiled: list[float] = []
    evaluated: list[float] = []
    again: list[float] = []
    for seed in seeds:
        for question in cases(seed):
            taken = _of(question)
            if taken is not None:
                for kept, each in zip((compiled, evaluated, again), taken, strict=True):
                    kept.append(each)
    middle = len(compiled) // 2
    medians = [round(sorted(each)[middle] * 1e6, 1) for each in (compiled, evaluated, again)]
    return Taken(len(compiled), round(float(shown[0]) * 1e3, 1), round(int(shown[1]) / 1024, 1), *medians)


def _of(question: dict[str, Any]) -> tuple[float, float, float] | None:
    """Seconds to compile, to evaluate, and to find the verdict again; None for what does not compile."""
    device = device_of(question)
    begun = time.perf_counter()
    try:
        selector = compile_selector(question["expression"])
    except SelectorError:
        return None
    done = time.perf_counter()
    return done - begun, _matched(selector, device), _matched(selector, device)


def _matched(selector: Selector, device: DeviceView) -> float:
    begun = time.perf_counter()
    with contextlib.suppress(SelectorError):
        selector.matches(device)
    return time.perf_counter() - begun
