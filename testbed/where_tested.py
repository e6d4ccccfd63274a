"""The index of tests/README.md: for each module the files of tests that run most of it.

A test reads it and says what is missing or gone. `python -m testbed.where_tested` writes rows for modules that have none,
from the survey of `testbed.mutation`; rows that are there stay as they were written.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from testbed.mutation.bugs import PACKAGE
from testbed.mutation.survey import KEPT, Survey

INDEX = Path("tests/README.md")
NOTHING = "-"
"""Stands for the tests of a module in which nothing can be run: names, types, tables."""
MEASURED = "benchmarks"
"""Stands for those of a measurement that is run by hand."""
_MOST, _LEAST = 3, 0.04
"""So many files are named at most, and none that adds less than so much of a module."""
_ROW = re.compile(r"^\| `([\w/.]+)` \| (.*) \|$", re.MULTILINE)


def modules(root: Path) -> dict[str, bool]:
    """Module below the package, without `.py` -> whether there is a function in it. Those that are empty are left out."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        tree = ast.parse(path.read_text())
        runs = any(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in ast.walk(tree))
        if runs or path.stem not in ("__init__", "__main__"):
            found[str(path.relative_to(root / PACKAGE).with_suffix(""))] = runs
    return found


def rows(text: str) -> dict[str, list[str]]:
    """Module -> files of tests, below tests/ and without `.py`, as the index has them."""
    return {name: [each.strip("`") for each in tests.split()] for name, tests in _ROW.findall(text)}


def problems(root: Path, index: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with an index, in words."""
    there = modules(root)
    files = {str(path.relative_to(root / "tests").with_suffix("")) for path in (root / "tests").rglob("test_*.py")}
    named = {each for tests in index.values() for each in tests} - {NOTHING, MEASURED}
    found = [f"{each} has no row: run `python -m testbed.where_tested`" for each in there.keys() - index.keys()]
    found += [f"there is no module {each}" for each in index.keys() - there.keys()]
    found += [f"there is no file tests/{each}.py" for each in named - files]
    found += [
        f"{each} has functions, so it has tests" for each in index.keys() & there.keys() if _untested(index[each]) and there[each]
    ]
    return sorted(found)


def _untested(tests: Sequence[str]) -> bool:
    return not tests or NOTHING in tests


def chosen(survey: Survey, module: str) -> list[str]:
    """The files of tests that run most of a module between them."""
    ran: dict[str, set[int]] = defaultdict(set)
    for line, tests in survey.ran.get(f"{PACKAGE}/{module}.py", {}).items():
        for test in tests:
            ran[survey.tests[test].partition("::")[0].removeprefix("tests/").removesuffix(".py")].add(line)
    left = set().union(*ran.values()) if ran else set()
    least = _LEAST * len(left)
    found: list[str] = []
    while left and len(found) < _MOST:
        best = max(sorted(ran), key=lambda file: len(ran[file] & left))
        if len(ran[best] & left) < least:
            break
        found.append(best)
        left -= ran[best]
    return sorted(found)


def written(head: str, index: Mapping[str, Sequence[str]]) -> str:
    """The page: its head, and a table for each package."""
    packages: dict[str, list[str]] = defaultdict(list)
    for module in sorted(index):
        packages[module.rpartition("/")[0]].append(module)
    lines = [head.rstrip(), ""]
    for package, theirs in sorted(packages.items()):
        lines += [f"### {package or 'fairlead'}", "", "| module | tests |", "|---|---|"]
        lines += [f"| `{module}` | {' '.join(f'`{each}`' for each in index[module])} |" for module in theirs]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Write what is missing; 1 if something is to be written by hand."""
    root = Path.cwd()
    text = (root / INDEX).read_text()
    head, _, _ = text.partition("\n### ")
    known, there = rows(text), modules(root)
    survey = msgspec.json.decode((root / KEPT).read_bytes(), type=Survey)
    index = {each: known.get(each) or chosen(survey, each) or [NOTHING] for each in there}
    (root / INDEX).write_text(written(head, index))
    wrong = problems(root, index)
    print(*wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
