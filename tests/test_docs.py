"""The docs lag nowhere that a program can see."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.api.reasons import ReasonCode
from fairlead.cli.main import app
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.observability.metrics import Metrics, of_scheduler
from fairlead.operator import intents
from fairlead.operator.app import of_history, of_operator
from fairlead.operator.jobs import controller
from fairlead.operator.recorder import Recorder
from fairlead.scheduler.applier import WriteCounters
from fairlead.scheduler.core_loop import Counters

ROOT = Path(__file__).parents[1]


async def test_every_metric_is_documented_and_every_documented_one_exists(tmp_path):
    operators = of_operator(intents.Counters(), controller.Counters(), 0, 0, 0)
    recorder = Recorder(Client(Config("http://nowhere")), f"sqlite:///{tmp_path}/history.db")
    counts = [*of_scheduler(Counters(), WriteCounters(), 0), *operators, *of_history(recorder)]
    text = Metrics(lambda: counts).render().decode()
    served = set(re.findall(r"^(fairlead_\w+_total) ", text, re.MULTILINE))
    documented = set(re.findall(r"`(fairlead_\w+)`", (ROOT / "docs/metrics.md").read_text()))
    assert served == documented


def test_every_dependency_has_its_reason():
    names = re.findall(r'^  "([a-z-]+)>=', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    reasons = (ROOT / "docs/dependencies.md").read_text().lower()
    assert [name for name in names if name not in reasons] == []


@pytest.mark.parametrize("page", ["README.md", "benchmarks/README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))])
def test_commands_named_in_the_docs_exist(page):
    for command in set(re.findall(r"`?fairlead ((?:simulate|bench) \w+|demo|scheduler|crds)", (ROOT / page).read_text())):
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0, command


def test_every_reason_is_documented_and_every_documented_one_exists():
    rows = [line for line in (ROOT / "docs/reasons.md").read_text().splitlines() if line.startswith("| `")]
    documented = {code for line in rows for code in re.findall(r"`(\w+)`", line.split("|")[1])}
    accepted = {"InForce", "Unsupported", "MissingParent", "QuotaAboveLimit", "QuotaAboveParent", "OverLimit"}
    assert documented - accepted == set(ReasonCode)


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks/README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
