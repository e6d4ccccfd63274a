"""Choices that the command line lists are those that the code behind it knows."""

from typing import get_args

import pytest
from typer.testing import CliRunner

from fairlead.cli import choices
from fairlead.cli.main import app
from fairlead.core.pods.scores import STRATEGIES
from fairlead.simulation import chaos, cycle, durations, jobs, judged
from testbed import answers, bench, hpa, platform


@pytest.mark.parametrize(
    ("listed", "known"),
    [
        (choices.Strategy, STRATEGIES),
        (choices.CycleScenario, cycle.SCENARIOS),
        (choices.WorldsKind, judged.KINDS),
        (choices.Workload, bench.WORKLOADS),
        (choices.AnswersScenario, answers.SCENARIOS),
        (choices.HpaMetric, hpa.METRICS),
        (choices.PlatformScenario, platform.SCENARIOS),
        (choices.FaultsWorkload, chaos.WORKLOADS),
        (choices.JobsPolicy, jobs.POLICIES),
        (choices.Durations, durations.DURATIONS),
    ],
)
def test_what_is_listed_is_what_there_is(listed, known):
    assert sorted(get_args(listed)) == sorted(known)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("placement", "--strategy"),
        ("cycle", "--scenario"),
        ("worlds", "--kind"),
        ("job", "--scenario"),
        ("cluster", "--workload"),
        ("answers", "--scenario"),
        ("hpa", "--metric"),
        ("platform", "--scenario"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(command, option):
    done = CliRunner().invoke(app, ["bench", command, option, "nothing"])
    assert done.exit_code == 2
    assert "nothing" in done.output
    assert "is not one of" in done.output


def test_commands_are_shown_by_what_they_are_for():
    shown = CliRunner().invoke(app, ["--help"]).output
    places = [shown.index(f"─ {panel} ─") for panel in ("Jobs", "Inspect", "Policy", "Run", "Measure")]
    assert places == sorted(places)
    assert "─ Commands ─" not in shown, "each has a panel"


@pytest.mark.parametrize(
    ("command", "option", "listed"), [("jobs", "--trace", choices.Trace), ("faults", "--workload", choices.FaultsWorkload)]
)
def test_a_wrong_choice_of_a_simulation_is_refused_with_those_there_are(command, option, listed):
    done = CliRunner().invoke(app, ["simulate", command, option, "nothing"])
    assert done.exit_code == 2
    assert all(each in done.output for each in get_args(listed))
