"""`fairlead simulate interference`, as it is typed."""

import json

from typer.testing import CliRunner

from fairlead.cli.main import app


def typed(*words):
    return CliRunner().invoke(app, ["simulate", "interference", "--seeds", "3", "--nodes", "4", "--jobs", "40", *words])


def test_both_are_compared():
    shown = typed("-o", "json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert set(found["mean_slowdown"]) == {"ours", "blind"}
    assert found["limits_broken"] == 0
    assert found["runs"][0]["seed"] == 3
    table = typed()
    assert table.exit_code == 0, table.output
    assert "limits broken" in table.stdout


def test_a_load_that_is_none():
    for load in ("0", "-1", "nan", "3"):
        refused = typed("--load", load)
        assert refused.exit_code == 2
        assert "--load" in refused.output
