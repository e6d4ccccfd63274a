"""Our allocator against upstream's: random clusters through both, and an independent checker where they differ.

A difference is listed where its cause is a known one and the checker sides with us: our allocation breaks no rule, or theirs
does and nothing else is possible. Everything else counts as different.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from fairlead.core.dra.refusals import Refusal
from testbed import build
from testbed.dra import checker
from testbed.dra.clusters import generate
from testbed.dra.ours import Answer, Case, as_json

VERSIONS = ("v0.36.3", "v0.37.2")
_BATCH = 100
Json = dict[str, Any]


class Comparison(msgspec.Struct):
    """What a comparison found. cases: nodes of clusters that were judged, once per version; dropped: those that took too long.

    found: upstream finds an allocation; same_choice: and ours is the same, device by device. refused_allocations: ours that
    upstream refuses, without those of a listed exception. listed_exceptions: by cause.
    """

    clusters: int = 0
    cases: int = 0
    dropped: int = 0
    found: int = 0
    same_choice: int = 0
    gave_up: int = 0
    different: int = 0
    refused_allocations: int = 0
    listed_exceptions: dict[str, int] = {}
    seconds: float = 0.0
    examples: list[str] = []

    def add(self, part: Comparison) -> None:
        """Add up two parts."""
        for name in ("clusters", "cases", "dropped", "found", "same_choice", "gave_up", "different", "refused_allocations"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for cause, count in part.listed_exceptions.items():
            self.listed_exceptions[cause] = self.listed_exceptions.get(cause, 0) + count
        self.examples += part.examples


def ask_judge(version: str, cases: Sequence[Json]) -> list[Json]:
    """The judge's verdicts, case by case."""
    lines = "\n".join(json.dumps(each) for each in cases).encode()
    reply = subprocess.run([str(build.binary(f"dra-{version}"))], input=lines, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in reply.stdout.splitlines()]


def with_ours(case: Json) -> tuple[Json, dict[str, Answer]]:
    """A case with our allocations, and our answers."""
    answers = Case(case).answers()
    ours = {node: as_json(answer) for node, answer in answers.items() if not isinstance(answer, Refusal)}
    return {**case, "ours": ours}, answers


def compare(case: Json, answers: dict[str, Answer], verdicts: dict[str, Json]) -> Comparison:
    """One cluster: our answers and the judge's verdicts, node by node. case: with our allocations."""
    result = Comparison(clusters=1)
    for node in case["nodes"]:
        name = node["metadata"]["name"]
        verdict, answer = verdicts[name], answers[name]
        result.cases += 1
        if verdict.get("slow"):
            result.dropped += 1
            continue
        refused = isinstance(answer, Refusal)
        result.gave_up += isinstance(answer, Refusal) and "gave up" in answer.kind.value
        result.found += verdict["found"]
        result.same_choice += not refused and verdict.get("chosen") == as_json(answer)  # type: ignore[arg-type]
        if refused != verdict["found"] and (refused or verdict["ours"]):
            continue
        cause = _cause(case, node, None if refused else case["ours"][name], verdict)
        if cause:
            result.listed_exceptions[cause] = result.listed_exceptions.get(cause, 0) + 1
            continue
        if refused or not verdict["found"]:
            result.different += 1
        else:
            result.refused_allocations += 1
        what = f"we refuse: {answer.text()}" if isinstance(answer, Refusal) else f"upstream: {verdict}"
        result.examples.append(f"{case['id']} {name}: {what}"[:500])
    return result


def _cause(case: Json, node: Json, ours: list[list[Json]] | None, verdict: Json) -> str:
    """The listed exception that a difference is; empty: none, or the checker does not side with us."""
    if ours is not None:
        if checker.violations(case, node, ours):
            return ""
        return next(iter(_causes_of_refusal(case, f"{verdict.get('error', '')} {verdict.get('oursError', '')}")), "")
    wrong = checker.violations(case, node, verdict["chosen"])
    try:
        if not wrong or checker.possible(case, node):
            return ""
    except checker.TooLarge:
        return ""
    return next(iter(_causes_of_acceptance(case, wrong)), "")


def _causes_of_refusal(case: Json, said: str) -> Iterator[str]:
    """Why upstream may refuse what is valid."""
    if "CEL runtime error" in said:
        yield "an erring selector ends the search"
    if "claim constraint would not be satisfied" in said:
        yield "a constraint that fails for one choice of All ends the search"
    if "currently being updated" in said or "currently invalid" in said:
        yield "counters of pools elsewhere block All"
    asks = [ask for claim in case["claims"] for each in claim["spec"]["devices"]["requests"] for _, ask in checker.asks_of(each)]
    if any(ask.get("adminAccess") for ask in asks):
        yield "#140729 admin access needs free counters and capacity"
    if _same_pool_names(case):
        yield "#140434 counters keyed without driver"


def _causes_of_acceptance(case: Json, wrong: list[str]) -> Iterator[str]:
    """Why upstream may accept what is not valid."""
    kinds = {each.partition(":")[0] for each in wrong}
    if kinds == {"counters"} and case["seen"]:
        yield "#140802 withdrawn devices free their counters"
    if kinds == {"counters"} and _same_pool_names(case):
        yield "#140434 counters keyed without driver"
    if kinds == {"distinct"}:
        yield "#140438 distinctAttribute forgets devices of one request"
    if kinds == {"all"}:
        yield "#140769 All leaves out devices without free capacity"


def _same_pool_names(case: Json) -> bool:
    with_counters = {
        (each["spec"]["driver"], each["spec"]["pool"]["name"]) for each in case["slices"] if "sharedCounters" in each["spec"]
    }
    names = [name for _, name in with_counters]
    return len(names) != len(set(names))


def run(seeds: Sequence[int], report: Callable[[int, int], None], versions: Sequence[str] = VERSIONS) -> Comparison:
    """Compare the clusters of these seeds with each version of the judge, on all cores. report: takes (done, total)."""
    for version in versions:
        build.binary(f"dra-{version}")
    begun = time.perf_counter()
    work = [(version, seeds[start : start + _BATCH]) for version in versions for start in range(0, len(seeds), _BATCH)]
    result, done = Comparison(), 0
    with ProcessPoolExecutor() as pool:
        for (_, batch), part in zip(work, pool.map(_of_batch, work), strict=True):
            result.add(part)
            done += len(batch)
            report(done, len(seeds) * len(versions))
    result.seconds = round(time.perf_counter() - begun, 1)
    return result


def _of_batch(work: tuple[str, Sequence[int]]) -> Comparison:
    version, seeds = work
    cases, answers = zip(*(with_ours(generate(seed)) for seed in seeds), strict=True)
    result = Comparison()
    for case, answer, verdicts in zip(cases, answers, ask_judge(version, cases), strict=True):
        result.add(compare(case, answer, verdicts["nodes"]))
    return result


def record(seeds: Sequence[int], path: Path) -> None:
    """Write the verdicts of each version for these seeds: what `make test` compares with, without a judge."""
    cases = [with_ours(generate(seed))[0] for seed in seeds]
    verdicts = {version: [_brief(each) for each in ask_judge(version, cases)] for version in VERSIONS}
    text = json.dumps({"versions": list(VERSIONS), "seeds": list(seeds), "verdicts": verdicts}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _brief(answer: Json) -> Json:
    """A verdict without what differs from run to run."""
    kept = ("found", "slow", "error", "chosen", "ours", "oursError")
    return {node: {key: each[key] for key in kept if key in each} for node, each in answer["nodes"].items()}
