"""The planted bugs of testbed/mutation still have their places in the code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testbed.mutation.bugs import LostError, load, plant
from testbed.mutation.run import RESULTS, Copy, _known, table

ROOT = Path(__file__).parents[1]
BUGS = load()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_snippet_is_in_one_place_and_what_stands_there_instead_compiles(bug):
    change = plant(bug, ROOT)
    assert change.text != change.path.read_text()
    compile(change.text, str(change.path), "exec")


def test_bugs_have_names_of_their_own_and_say_where_they_come_from_and_what_a_user_sees():
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 36
    assert all(bug.source and bug.symptom for bug in BUGS)


def test_a_snippet_that_is_nowhere_or_in_two_places_is_an_error_that_names_the_places(tmp_path):
    package = tmp_path / "src/fairlead/core"
    package.mkdir(parents=True)
    bug = BUGS[0]
    with pytest.raises(LostError, match=f"{bug.name}.*no file"):
        plant(bug, tmp_path)
    for name in ("one.py", "two.py"):
        (package / name).write_text(f"{bug.old}\n")
    with pytest.raises(LostError, match=r"core/one.py \(1\), src/fairlead/core/two.py \(1\)"):
        plant(bug, tmp_path)


def test_the_lines_of_a_snippet_are_those_that_hold_it(tmp_path):
    bug = next(bug for bug in BUGS if bug.name == "failed-bind-keeps-its-place")
    (tmp_path / "src/fairlead/core").mkdir(parents=True)
    (tmp_path / "src/fairlead/core/one.py").write_text(f"# one\n# two\n{bug.old}\n# six\n")
    assert list(plant(bug, tmp_path).lines) == [3, 4, 5]


def test_the_last_results_are_those_of_the_bugs_and_at_least_94_per_cent_were_caught():
    results = _known()
    assert [each.name for each in results] == [bug.name for bug in BUGS], f"run `make mutation`: {RESULTS} is of other bugs"
    assert not [each.name for each in results if each.fate == "broken"]
    assert sum(each.fate == "caught" for each in results) >= 0.94 * len(results)
    assert table(results).count("\n") == len(results) + 1


@pytest.mark.parametrize(
    ("conftest", "module", "test", "outcome"),
    [
        ("", "", "assert True", ("survived", "")),
        ("", "", "assert False", ("caught", "tests/test_one.py::test_it")),
        ("", "import no_such_module", "assert True", ("broken", "tests/test_one.py")),
        ("", "raise ValueError", "assert True", ("broken", "tests/test_one.py")),
        ("import no_such_module", "", "assert True", ("broken", "conftest.py")),
    ],
)
def test_only_a_test_that_fails_catches_a_bug(tmp_path, conftest, module, test, outcome):
    root, copied = tmp_path / "root", tmp_path / "copied"
    (root / "tests").mkdir(parents=True)
    (root / "tests/test_one.py").write_text(f"{module}\n\ndef test_it():\n    {test}\n")
    (root / "tests/conftest.py").write_text(conftest)
    (root / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    e2e\n")
    for name in ("testbed/__init__.py", "testbed/mutation/__init__.py", "testbed/mutation/chosen.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text((ROOT / name).read_text() if (ROOT / name).exists() else "")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    assert Copy(root, copied).test(["tests/test_one.py::test_it"], 600.0) == outcome
