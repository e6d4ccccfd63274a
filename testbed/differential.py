"""Fairlead against the oracle: random clusters through kube-scheduler's real plugins and through our own.

    python -m testbed.differential 0-1999

Every difference is printed with the seed that makes the cluster. Where upstream's own arithmetic is wrong ours differs
on purpose: the random clusters keep clear of those cases, and tests/e2e/test_oracle.py lists each with both answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from fairlead.cli.feasibility import describe
from fairlead.cli.output import progress
from fairlead.cluster.cases import decode
from testbed import build
from testbed.clusters import generate

_BATCH = 250


def differences(seeds: Sequence[int]) -> Iterator[str]:
    """What differs, in words, for the clusters of these seeds."""
    for start in range(0, len(seeds), _BATCH):
        lines = [json.dumps(generate(seed)).encode() for seed in seeds[start : start + _BATCH]]
        for line, answer in zip(lines, ask_oracle(lines), strict=True):
            yield from compare(line, answer)


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


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(argument: str) -> int:
    """Compare the clusters of some seeds on all cores; returns how many differences there are."""
    seeds = _seeds(argument)
    batches = [seeds[start : start + _BATCH] for start in range(0, len(seeds), _BATCH)]
    build.binary("oracle")
    found = 0
    with ProcessPoolExecutor() as pool, progress("clusters") as report:
        report(0, len(seeds))
        for number, each in enumerate(pool.map(_of_batch, batches), 1):
            for line in each:
                print(line)
            found += len(each)
            report(min(number * _BATCH, len(seeds)), len(seeds))
    print(f"{len(seeds)} clusters, {found} differences", file=sys.stderr)
    return found


def _of_batch(seeds: Sequence[int]) -> list[str]:
    return list(differences(seeds))


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
