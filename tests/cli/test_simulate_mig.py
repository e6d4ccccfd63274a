"""`fairlead simulate mig`, as it is typed."""

import json

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app

TABLE = {
    "a": {"1g.5gb": 2.0, "3g.20gb": 1.2, "7g.40gb": 1.0},
    "b": {"3g.20gb": 1.6, "7g.40gb": 1.0},
}


def invoke(*arguments):
    return CliRunner().invoke(app, ["simulate", "mig", *arguments])


def test_rules_are_compared_in_json_and_as_a_table():
    arguments = ("--seeds", "1-2", "--gpus", "4", "--requests", "60")
    result = json.loads(invoke(*arguments, "--moves", "--rate", "0.1", "-o", "json").stdout)
    assert set(result["allocated"]) == {"uniform", "small", "middle"}
    assert {"first_fit", "lookahead", "fairlead", "fairlead_moves", "fluid_bound"} < set(result["allocated"]["small"])
    assert result["most_moves_per_pod"] <= 0.1
    assert "fairlead_moves" not in json.loads(invoke(*arguments, "-o", "json").stdout)["allocated"]["small"]
    assert "lookahead" in invoke(*arguments).stdout


def test_jobs_that_accept_any_profile(tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(TABLE))
    arguments = ("--speeds", str(path), "--seeds", "1", "--gpus", "2", "--requests", "20")
    result = json.loads(invoke(*arguments, "-o", "json").stdout)
    assert list(result["mean_jct"]) == list(result["best_static"]) == list(result["whole_gpus"]) == ["0.8", "1"]
    assert list(json.loads(invoke(*arguments, "--load", "0.5", "-o", "json").stdout)["mean_jct"]) == ["0.5"]
    assert "best static" in invoke(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--load", "0"), 2, "--load"),
        (("--load", "nan"), 2, "--load"),
        (("--moves", "--rate", "-1"), 2, "--rate"),
        (("--rate", "0.1"), 2, "only with --moves"),
        (("--seeds", "x"), 2, "--seeds"),
        (("--gpus", "0"), 2, "gpus"),
        (("--speeds", "none.json"), 1, "none.json"),
        (("--speeds", "none.json", "--moves"), 2, "--moves does not apply"),
    ],
)
def test_wrong_usage_is_refused_with_the_option(arguments, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke(*arguments)
    assert done.exit_code == code, done.output
    assert said in done.output
