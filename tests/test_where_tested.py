"""The index of tests is complete, and names what is there."""

from __future__ import annotations

from pathlib import Path

from testbed import where_tested
from testbed.mutation.survey import Survey

ROOT = Path(__file__).parents[1]


def test_each_module_is_in_the_index_with_tests_that_are_there():
    assert where_tested.problems(ROOT, where_tested.rows((ROOT / where_tested.INDEX).read_text())) == []


def test_what_is_missing_gone_or_untested_is_said(tmp_path):
    package = tmp_path / "src/fairlead/core"
    (package / "deep").mkdir(parents=True)
    (tmp_path / "tests/core").mkdir(parents=True)
    (tmp_path / "tests/core/test_a.py").touch()
    (package / "__init__.py").touch()
    (package / "names.py").write_text("A = 1\n")
    (package / "deep/runs.py").write_text("def run(): ...\n")
    (package / "new.py").write_text("class A:\n    def run(self): ...\n")
    assert where_tested.modules(tmp_path) == {"core/names": False, "core/deep/runs": True, "core/new": True}
    text = where_tested.written(
        "# Tests\n", {"core/names": ["-"], "core/deep/runs": ["core/test_a", "core/test_b"], "old": ["-"]}
    )
    assert where_tested.problems(tmp_path, where_tested.rows(text)) == [
        "core/new has no row: run `python -m testbed.where_tested`",
        "there is no file tests/core/test_b.py",
        "there is no module old",
    ]
    assert where_tested.problems(tmp_path, {"core/names": ["-"], "core/deep/runs": ["-"], "core/new": ["core/test_a"]}) == [
        "core/deep/runs has functions, so it has tests"
    ]


def test_files_are_named_until_little_is_added():
    tests = [
        "tests/core/test_a.py::test_one",
        "tests/core/test_a.py::test_two",
        "tests/core/test_b.py::test",
        "tests/test_c.py::test",
    ]
    ran = {line: [0, 1] for line in range(50)} | {line: [2] for line in range(50, 99)} | {99: [3]}
    survey = Survey(tests, [1.0] * 4, {"src/fairlead/core/x.py": ran})
    assert where_tested.chosen(survey, "core/x") == ["core/test_a", "core/test_b"]
    assert where_tested.chosen(survey, "core/y") == []
