"""`fairlead simulate topology` and `fairlead bench topology`, as they are typed."""

import json

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app


@pytest.fixture
def fabric(tmp_path):
    path = tmp_path / "lab" / "topo.csv"
    path.parent.mkdir()
    path.write_text("PSW,ASW\n" + "".join(f"P{leaf % 3},S{leaf}\n" for leaf in range(20) for _ in range(8)))
    return path


def typed(*words, **environment):
    return CliRunner().invoke(app, list(words), env=environment)


def test_all_rules_are_compared(fabric):
    shown = typed(
        *("simulate", "topology", "--fabric", str(fabric), "--protocol", "floors"),
        *("--seeds", "1-2", "--loads", "0.8", "--arrivals", "80", "-o", "json"),
    )
    assert shown.exit_code == 0, shown.output
    one = json.loads(shown.stdout)["loads"]["0.8"]
    assert set(one["leaves_over_ideal"]["fairlead"]) == set(one["clairvoyant_bound"]) == {"1", "2"}
    table = typed(
        *("simulate", "topology", "--fabric", "lab", "--protocol", "floors", "--seeds", "1", "--arrivals", "60"),
        FAIRLEAD_TRACES=str(fabric.parents[1]),
    )
    assert table.exit_code == 0, table.output
    assert "clairvoyant bound" in table.stdout


def test_the_production_pass_is_compared_with_best_fit_in_one_line(fabric):
    words = ("simulate", "topology", "--fabric", str(fabric), "--loads", "0.8", "--arrivals", "60")
    shown = typed(*words, "--seeds", "1-2", "-o", "json")
    assert shown.exit_code == 0, shown.output
    result = json.loads(shown.stdout)
    one = result["loads"]["0.8"]
    assert result["preferred_wait"] == 1200
    for key in ("leaves_over_ideal", "mean_wait"):
        assert set(one[key]) == {"production", "best-fit"}
        assert all(set(by_seed) == {"1", "2"} for by_seed in one[key].values())
    table = typed(*words, "--seeds", "1", "--preferred-wait", "0")
    assert table.exit_code == 0, table.output
    assert "longest wait" in table.stdout


@pytest.mark.parametrize("gangs", ["4", "0x4", "3x1", "ax4", "3x4,"])
def test_gangs_that_cannot_be_read_are_refused(gangs):
    shown = typed("bench", "topology", "--gangs", gangs)
    assert shown.exit_code != 0
    assert "NUMBERxMEMBERS" in shown.output


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--loads", "0.8,x"), "--loads"),
        (("--loads", "-1"), "--loads"),
        (("--seeds", "9-x"), "--seeds"),
        (("--fabric", "none.csv"), "none.csv"),
        (("--protocol", "pass"), "pass"),
    ],
)
def test_what_cannot_be_used_is_refused(fabric, words, named):
    given = words if "--fabric" in words else ("--fabric", str(fabric), *words)
    shown = typed("simulate", "topology", *given, FAIRLEAD_TRACES="")
    assert shown.exit_code != 0
    assert named in shown.output


def test_a_fabric_smaller_than_the_largest_gang_is_refused(tmp_path):
    path = tmp_path / "topo.csv"
    path.write_text("PSW,ASW\nP1,S1\n")
    shown = typed("simulate", "topology", "--fabric", str(path))
    assert shown.exit_code != 0
    assert "64" in shown.output


def test_bench_topology_measures_one_thing():
    assert typed("bench", "topology", "--exact", "--decide").exit_code != 0
    shown = typed("bench", "topology", "--exact", "--instances", "5", "-o", "json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["instances"] == 5
