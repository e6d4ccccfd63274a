"""Plant each bug in a copy of the tree and see whether the fast tests notice it.

Two copies side by side, one bug at a time in each. `python -m testbed.mutation.run --help` lists the options.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from testbed.mutation import survey as surveys
from testbed.mutation.bugs import Bug, load, plant
from testbed.mutation.survey import Survey

RESULTS = Path(__file__).parent / "results.json"
_LEAST, _PATIENCE = 90.0, 5.0
"""A run may take so many seconds, and so many times as long as its tests took without a bug, before it counts as hanging."""
_LONGEST = 600.0  # seconds for files of tests
_MOMENTS = count(2_000_000_000)  # a time for each version of a file, so that no compiled one is taken for another


class Result(msgspec.Struct):
    """What came of one bug. fate: caught, survived, hung, or broken (the tests could not be collected).

    by: the first test that failed, or what could not be collected; tests: so many were to be run.
    """

    name: str
    source: str
    symptom: str
    file: str
    fate: str
    by: str
    tests: int
    seconds: float


class Copy:
    """A copy of the tree in which bugs are planted."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root, check=True, capture_output=True, text=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            source, target = root / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def test(self, tests: list[str], limit: float) -> tuple[str, str]:
        """(caught, survived, hung or broken, the first test that failed) of a run of these tests."""
        chosen, report = self.folder / ".chosen", self.folder / ".report"
        chosen.write_text("\n".join(tests))
        report.unlink(missing_ok=True)
        files = sorted({test.partition("::")[0] for test in tests})
        whole = files == sorted(tests)  # files of tests were given, not tests
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-m", surveys.FAST, "-p", "testbed.mutation.chosen"]
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = outside | {
            "PYTHONPATH": str(self.folder / "src"),
            "PYTHONPYCACHEPREFIX": str(self.folder / ".pycache"),
            "MUTATION_CHOSEN": "" if whole else str(chosen),
            "MUTATION_REPORT": str(report),
        }
        with (self.folder / ".output").open("w") as written:
            run = subprocess.Popen(
                [*command, "-p", "no:cacheprovider", *files],
                cwd=self.folder, env=environment, stdout=written, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = run.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, 9)
                run.wait()
                return "hung", self._last(report)
        if code == pytest.ExitCode.OK:
            return "survived", ""
        first = {entry["phase"]: entry["test"] for entry in reversed(_entries(report)) if entry["failed"]}
        if "collect" in first:
            return "broken", first["collect"]
        if code == pytest.ExitCode.TESTS_FAILED and "run" in first:
            return "caught", first["run"]
        output = (self.folder / ".output").read_text()
        if code == pytest.ExitCode.USAGE_ERROR and "while loading conftest" in output:
            return "broken", "conftest.py"
        raise RuntimeError(f"pytest ended with {code}:\n{output[-3000:]}")

    @staticmethod
    def _last(report: Path) -> str:
        done = [entry["test"] for entry in _entries(report)]
        return f"after {done[-1]}" if done else "before the first test"


def _entries(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []


def try_bug(bug: Bug, copy: Copy, survey: Survey, first: str, files: list[str]) -> Result:
    """What comes of one bug. first: the test that caught it the last time, if any; files: of tests, instead of the survey's."""
    change = plant(bug, copy.folder)
    tests = files or survey.concerned(change, copy.folder)
    if first in survey.tests and not files:
        tests = [first, *(test for test in tests if test != first)]
    begin, whole = time.monotonic(), change.path.read_text()
    _write(change.path, change.text)
    try:
        fate, by = copy.test(tests, _LONGEST if files else _LEAST + _PATIENCE * survey.cost(tests)) if tests else ("survived", "")
    finally:
        _write(change.path, whole)
    file, seconds = str(change.path.relative_to(copy.folder)), round(time.monotonic() - begin, 1)
    return Result(bug.name, bug.source, bug.symptom, file, fate, by, len(tests), seconds)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    moment = next(_MOMENTS)
    os.utime(path, (moment, moment))


def table(results: Iterable[Result]) -> str:
    """The results as a table of Markdown."""
    lines = ["| bug | after | caught by |", "|---|---|---|"]
    for each in results:
        by = f"`{each.by.rpartition('/')[2]}`" if each.fate == "caught" else f"**{each.fate}** {each.by}".strip()
        lines.append(f"| {each.name} | {each.source.partition(':')[0]} | {by} |")
    return "\n".join(lines)


def main() -> int:
    """Parse the command line, run, and report; 1 if too few were caught, or a bug is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="bugs to plant; all without any")
    parser.add_argument("--workers", type=int, default=2, help="bugs side by side")
    parser.add_argument("--least", type=float, default=94.0, help="per cent to be caught")
    parser.add_argument("--survey", type=Path, default=surveys.KEPT, help="which tests run which lines; made if it is not there")
    parser.add_argument(
        "--tests", nargs="+", default=[], metavar="FILE", help="run these files of tests; nothing is written down"
    )
    options = parser.parse_args()
    root, before = Path.cwd(), {each.name: each for each in _known()}
    bugs = [bug for bug in load() if not options.names or bug.name in options.names]
    if unknown := set(options.names) - {bug.name for bug in bugs}:
        parser.error(f"no such bugs: {', '.join(sorted(unknown))}")
    if options.survey.exists():
        survey = msgspec.json.decode(options.survey.read_bytes(), type=Survey)
    else:
        survey = surveys.take(root, options.survey, options.workers)
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(options.workers):
            copies.put(Copy(root, Path(folder) / str(number)))

        def work(bug: Bug) -> Result:
            copy = copies.get()
            try:
                first = before[bug.name].by if bug.name in before else ""
                result = try_bug(bug, copy, survey, first, options.tests)
            finally:
                copies.put(copy)
            print(f"{result.fate:9}{result.seconds:7.1f} s  {bug.name}  {result.by}", flush=True)
            return result

        with ThreadPoolExecutor(options.workers) as pool:
            results = list(pool.map(work, bugs))
        catchers = sorted({each.by for each in results if each.fate == "caught" and "::" in each.by})
        clean = copies.get().test(catchers, _LONGEST) if catchers else ("survived", "")
    if clean[0] != "survived":
        print(f"{clean[1]} fails without any bug, too: nothing of this counts")
        return 1
    if broken := [each.name for each in results if each.fate == "broken"]:
        print(f"the tests cannot be collected with {', '.join(broken)}: nothing was written down; correct the entries")
        return 1
    if options.tests:
        return 0
    known = before | {each.name: each for each in results}
    RESULTS.write_bytes(
        msgspec.json.format(msgspec.json.encode([known[bug.name] for bug in load() if bug.name in known])) + b"\n"
    )
    caught = sum(each.fate == "caught" for each in results)
    print(f"\n{table(results)}\n\n{caught} of {len(results)} caught ({100 * caught / len(results):.1f} %)")
    return int(100 * caught < options.least * len(results))


def _known() -> list[Result]:
    return msgspec.json.decode(RESULTS.read_bytes(), type=list[Result]) if RESULTS.exists() else []


if __name__ == "__main__":
    sys.exit(main())
