"""Which tests run which lines of the code, and how long each takes: from one run of the fast tests under coverage.

A test that never runs a line cannot notice a bug there, so only the others are tried, the quickest first.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
from coverage import CoverageData

from testbed.mutation.bugs import PACKAGE, Change

FAST = "not e2e and not slow"
KEPT = Path(".cache/mutation/survey.json")
"""Where it is kept."""
COVERAGE = "coverage.json"
"""The report of coverage of the same run, beside it: `python -m testbed.floors --report` reads it."""


class Survey(msgspec.Struct):
    """seconds: test -> how long it takes; ran: file below the root -> line -> places in `tests` of those that ran it."""

    tests: list[str]
    seconds: list[float]
    ran: dict[str, dict[int, list[int]]]

    def concerned(self, change: Change, root: Path) -> list[str]:
        """The tests that run what a bug changes, the quickest first; all where that cannot be said."""
        ran = self.ran.get(str(change.path.relative_to(root)), {})
        for lines in (change.lines, _function_around(change)):
            if found := {test for line in lines for test in ran.get(line, ())}:
                break
        else:
            found = set(range(len(self.tests)))
        return [self.tests[test] for test in sorted(found, key=lambda test: (self.seconds[test], self.tests[test]))]

    def cost(self, tests: list[str]) -> float:
        """Seconds that these tests take."""
        known = dict(zip(self.tests, self.seconds, strict=True))
        return sum(known[test] for test in tests)


def take(root: Path, file: Path, workers: int) -> Survey:
    """Run the fast tests of a tree, and keep what was learnt in a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data, report, config = (Path(folder) / name for name in ("coverage", "report", "config"))
        config.write_text(f"[run]\nbranch = true\nsource_pkgs = fairlead\ndata_file = {data}\n")
        command = [sys.executable, "-m", "pytest", "-q", "-m", FAST, "-n", str(workers), "--sample", "1"]
        command += ["-p", "testbed.mutation.chosen", "-p", "no:cacheprovider", "--cov", f"--cov-config={config}"]
        command += ["--cov-context=test", f"--cov-report=json:{file.with_name(COVERAGE).absolute()}", "tests"]
        environment = os.environ | {"MUTATION_REPORT": str(report), "COVERAGE_FILE": str(data)}
        if subprocess.run(command, cwd=root, env=environment, check=False).returncode not in (0, 1):
            raise RuntimeError("the tests could not be run")
        survey = read(data, report)
    file.write_bytes(msgspec.json.encode(survey))
    return survey


def read(data: Path, report: Path) -> Survey:
    """What a run under coverage says. data: of coverage, with a context for each test; report: of the plugin `chosen`.

    Tests that fail without any bug are left out.
    """
    seconds: dict[str, float] = defaultdict(float)
    entries: list[dict[str, Any]] = [json.loads(line) for line in report.read_text().splitlines()]
    failed = {entry["test"] for entry in entries if entry["failed"]}
    for entry in entries:
        if entry["test"] not in failed:
            seconds[entry["test"]] += entry["seconds"]
    numbers = {test: number for number, test in enumerate(seconds)}
    covered = CoverageData(str(data))
    covered.read()
    ran: dict[str, dict[int, list[int]]] = {}
    for path in covered.measured_files():
        if PACKAGE.as_posix() not in path:
            continue
        name = f"{PACKAGE}/{path.partition(f'{PACKAGE.as_posix()}/')[2]}"
        lines = ran[name] = {}
        for line, contexts in covered.contexts_by_lineno(path).items():
            tests = {context.rpartition("|")[0] for context in contexts if "|" in context}
            lines[line] = sorted(numbers[test] for test in tests if test in numbers)
    return Survey(list(seconds), list(seconds.values()), ran)


def _function_around(change: Change) -> range:
    """The lines of the innermost function that holds a change; none where it is in no function."""
    tree = ast.parse(change.path.read_text())
    functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    around = [
        range(each.lineno, (each.end_lineno or each.lineno) + 1)
        for each in functions
        if each.lineno <= change.lines[0] <= (each.end_lineno or each.lineno)
    ]
    return min(around, key=len, default=range(0))
