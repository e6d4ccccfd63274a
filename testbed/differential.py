"""Fairlead against the oracle: random clusters through kube-scheduler's real plugins and through our own.

`fairlead bench differential` runs it. Every difference names the seed that makes its cluster. Where upstream's own
arithmetic is wrong ours differs on purpose: the random clusters keep clear of those cases, and
tests/e2e/test_oracle.py lists each with both answers.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import msgspec

from fairlead.cli.feasibility import describe
from fairlead.cluster.cases import decode
from testbed import build
from testbed.random_clusters.cluster import generate

_BATCH = 250


def differences(seeds: Sequence[int]) -> list[str]:
    """What differs, in words, for the clusters of these seeds."""
    return [each for start in range(0, len(seeds), _BATCH) for each in _of_batch(seeds[start : start + _BATCH]).found]


def ask_oracle(lines: Sequence[bytes], *, alone: bool = False) -> list[dict[str, Any]]:
    """The oracle's answer for each cluster. alone: ask each filter by itself, too."""
    command = [str(build.binary("oracle")), *(["-alone"] if alone else [])]
    reply = subprocess.run(command, input=b"\n".join(lines), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in reply.stdout.splitlines()]


def compare(line: bytes, answer: dict[str, Any]) -> Iterator[str]:
    """What differs between our judgement of a cluster and the oracle's."""
    ours = describe(decode(line))
    name = ours["id"]
    if [pod["pod"] for pod in ours["pods"]] != [pod["pod"] for pod in answer["pods"]]:
        yield f"{name}: other pods: {[pod['pod'] for pod in ours['pods']]}"
        return
    for mine, theirs in zip(ours["pods"], answer["pods"], strict=True):
        for key in ("gated", "feasible", "rejects", "scores"):
            if mine[key] != theirs[key]:
                yield f"{name} {mine['pod']} {key}: {_unlike(mine[key], theirs[key])}"
        chosen, choices = mine["preempts"], theirs["preempts"]
        if (chosen is None) != (choices is None) or (chosen is not None and chosen not in choices):
            yield f"{name} {mine['pod']} preempts: {chosen}, oracle {choices}"


def _unlike(mine: Any, theirs: Any) -> str:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))
        return "; ".join(f"{key}: {_unlike(mine.get(key), theirs.get(key))}" for key in keys)
    return f"{mine}, oracle {theirs}"


class Comparison(msgspec.Struct):
    """What a comparison found. pods: judged; feasible: that fit somewhere; preemptions: for which one was chosen."""

    clusters: int
    pods: int
    feasible: int
    preemptions: int
    differences: int
    seconds: float
    found: list[str]


def run(seeds: Sequence[int], report: Callable[[int, int], None]) -> Comparison:
    """Compare the clusters of these seeds, on all cores. report: takes (done, total)."""
    build.binary("oracle")
    begun = time.perf_counter()
    batches = [seeds[start : start + _BATCH] for start in range(0, len(seeds), _BATCH)]
    result = Comparison(len(seeds), 0, 0, 0, 0, 0.0, [])
    done = 0
    with ProcessPoolExecutor() as pool:
        for batch, part in zip(batches, pool.map(_of_batch, batches), strict=True):
            result.pods += part.pods
            result.feasible += part.feasible
            result.preemptions += part.preemptions
            result.found += part.found
            done += len(batch)
            report(done, len(seeds))
    result.differences = len(result.found)
    result.seconds = time.perf_counter() - begun
    return result


def _of_batch(seeds: Sequence[int]) -> Comparison:
    part = Comparison(len(seeds), 0, 0, 0, 0, 0.0, [])
    lines = [json.dumps(generate(seed)).encode() for seed in seeds]
    for line, answer in zip(lines, ask_oracle(lines), strict=True):
        for pod in answer["pods"]:
            part.pods += 1
            part.feasible += bool(pod["feasible"])
            part.preemptions += bool(pod["preempts"])
        part.found += compare(line, answer)
    return part
