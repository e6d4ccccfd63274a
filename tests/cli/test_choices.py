"""Choices that the command line lists are those that the code behind it knows."""

from typing import get_args

import pytest
import structlog
from typer.testing import CliRunner

from fairlead.cli import choices
from fairlead.cli.main import app
from fairlead.core.pods.scores import STRATEGIES
from fairlead.observability import logs
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


@pytest.mark.parametrize(
    ("command", "option", "listed"),
    [
        ("scheduler", "--strategy", choices.Strategy),
        *((command, "--log-level", choices.LogLevel) for command in ("scheduler", "operator", "local", "agent")),
    ],
)
def test_a_wrong_choice_of_a_process_is_refused_with_those_there_are(command, option, listed):
    done = CliRunner().invoke(app, [command, option, "nothing"])
    assert done.exit_code == 2
    assert all(f"'{each}'" in done.output for each in get_args(listed))


@pytest.mark.parametrize("level", get_args(choices.LogLevel))
def test_every_log_level_is_one_of_the_log(level, monkeypatch):
    """However it is written. A kubeconfig that is not there ends the command after its logs are set up."""
    levels = []
    monkeypatch.setattr(logs, "configure", levels.append)
    for given in (level, level.upper()):
        done = CliRunner().invoke(app, ["scheduler", "--log-level", given, "--kubeconfig", "absent"])
        assert done.exit_code == 5, done.output
    assert levels == [level, level]
    monkeypatch.undo()
    assert structlog.make_filtering_bound_logger(level)


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
