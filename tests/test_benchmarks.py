"""The page of figures: what its marks name is measured by a command, and stands there as it was measured."""

import re
from pathlib import Path

import pytest

from benchmarks import run
from fairlead.simulation.growth.dimensions import BY_NAME


def test_every_marked_figure_is_one_of_a_command_and_stands_as_it_was_measured():
    page = run.PAGE.read_text()
    known = {figure for each in run.FIGURES.values() for figure in each}
    marked = [mark[1] for mark in run.MARKED.finditer(page)]
    assert set(marked) == known
    assert run.FIGURES.keys() <= run.COMMANDS.keys()
    assert run.filled(page, run.kept()) == page


def test_claims_of_the_readme_are_figures_of_the_page():
    claims = (Path(__file__).parents[1] / "README.md").read_text().split("## Measured\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in claims.splitlines() if line.startswith("| ")][1:]
    page = run.PAGE.read_text()
    assert len(rows) == 5
    for row in rows:
        figures = re.findall(r"\d[\d,]*\.?\d+", row[1])
        assert figures
        assert [figure for figure in figures if figure not in page] == []


def test_every_dimension_has_a_figure():
    marked = {mark[1] for mark in run.MARKED.finditer(run.PAGE.read_text())}
    assert {name for name in marked if name.startswith("growth, ")} == {f"growth, {name}" for name in BY_NAME}


@pytest.mark.parametrize(
    ("name", "result", "figures"),
    [
        ("core, 1 shape", {"placements_per_second": 46400.4}, {"core, 1 shape": "46,400/s"}),
        (
            "steady",
            {"pass_ms_p99": 41.6, "core_cpu": 44.4, "rss_mb": 512.0},
            {"steady": "p99 42 ms, 44 % of a core, 512 MB"},
        ),
        ("contract", {"cases": 284}, {}),
    ],
)
def test_a_figure_is_read_from_the_result(name, result, figures):
    assert run.read(name, result) == figures


def test_a_page_gets_the_figure_its_date_and_its_commit():
    page = "| a | <!--lifecycles-->old<!--/--> | <!--steady-->not measured<!--/--> |"
    figures = {"lifecycles": {"text": "5,000/s", "command": "c", "date": "2026-01-02", "commit": "abc1234"}}
    assert run.filled(page, figures) == (
        "| a | <!--lifecycles-->**5,000/s** (2026-01-02, abc1234)<!--/--> | <!--steady-->not measured<!--/--> |"
    )
