"""`fairlead simulate sharing`, as it is typed."""

import json

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app


@pytest.fixture
def table(tmp_path):
    kinds = [f"('K{number}', 1)" for number in range(4)]
    rows = {
        one: {
            "null": 2 + at,
            **{other: [(2 + at) * 0.9 / (1 + to / 4), (2 + to) * 0.9 / (1 + at / 4)] for to, other in enumerate(kinds)},
        }
        for at, one in enumerate(kinds)
    }
    path = tmp_path / "gavel" / "simulation_throughputs.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"a100": rows}))
    return path


def typed(*words, **environment):
    return CliRunner().invoke(app, ["simulate", "sharing", *words], env={"FAIRLEAD_TRACES": "", **environment})


def test_the_rules_are_compared_on_the_same_jobs(table):
    shown = typed("--matrix", f"{table}:a100", "--jobs", "12", "--draws", "2", "--rounds", "3", "-o", "json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert len(found["rounds"]) == 3
    assert 0 < found["ours"]["worth_per_gpu"] <= found["bound"]
    assert {"worth_per_gpu", "p95_slowdown"} == set(found["random"]) == set(found["matching"])
    shown = typed("--matrix", f"{table}:a100", "--jobs", "12", "--draws", "1", "--rounds", "2")
    assert "best matching" in shown.stdout


def test_jobs_pass_through_the_production_pass_besides(table):
    options = ("--matrix", f"{table}:a100", "--jobs", "12", "--draws", "1", "--rounds", "2", "--hours", "2")
    shown = typed(*options, "-o", "json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["passed"]["worth_per_gpu"] > 1.0
    assert found["blind"]["jobs"] > 12
    assert "production pass, no speeds" in typed(*options).stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--known", "1.5"), "--known"),
        (("--known", "nan"), "--known"),
        (("--restart", "-1"), "--restart"),
        (("--jobs", "3"), "--jobs"),
        (("--matrix", "v100"), "--matrix"),
        (("--matrix", "gavel-v100"), "FAIRLEAD_TRACES"),
        (("--matrix", "none.json:v100"), "none.json"),
    ],
)
def test_what_cannot_be_used_is_refused(words, named):
    shown = typed(*words)
    assert shown.exit_code != 0
    assert named in shown.output


def test_a_model_that_the_file_does_not_have_is_refused(table):
    shown = typed("--matrix", f"{table}:h100")
    assert shown.exit_code != 0
    assert "a100" in shown.output
