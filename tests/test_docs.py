"""The docs lag nowhere that a program can see."""

import re
from pathlib import Path

import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.observability.metrics import OPERATOR, SCHEDULER, TABLE
from fairlead.operator.app import Operator
from fairlead.operator.app import Options as OperatorOptions
from fairlead.scheduler.app import Scheduler
from fairlead.scheduler.options import Options
from tests.pages import PAGES

ROOT = Path(__file__).parents[1]


def test_every_metric_is_documented_as_it_is():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    documented = {name: (kind, labels.replace("`", ""), text) for name, kind, labels, text in rows}
    assert documented == {
        name + ("_total" if metric.kind == "counter" else ""): (metric.kind, ", ".join(metric.labels), metric.text)
        for name, metric in TABLE.items()
    }


async def test_every_metric_of_the_table_is_served_and_no_other(tmp_path):
    client = Client(Config("http://nowhere"))
    scheduler = Scheduler(client, Options(address="127.0.0.1:0"))
    operator = Operator(client, OperatorOptions(history=f"sqlite:///{tmp_path}/history.db"))
    assert {name for name, _ in scheduler._values()} == set(SCHEDULER)
    assert {name for name, _ in operator._values()} == set(OPERATOR)
    for process in (scheduler, operator):
        assert process.metrics.render()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page):
    files = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("*/**/*.py")
        if not path.relative_to(ROOT).parts[0].startswith(".")
    ]
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text())
    missing = [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)]
    assert not missing, f"{page.name} names modules that do not exist"


def test_every_dependency_has_its_reason():
    names = re.findall(r'^  "([a-z-]+)>=', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    reasons = (ROOT / "docs/dependencies.md").read_text().lower()
    assert [name for name in names if name not in reasons] == []


def test_every_reason_is_documented_and_every_documented_one_exists():
    rows = [line for line in (ROOT / "docs/reasons.md").read_text().splitlines() if line.startswith("| `")]
    documented = {code for line in rows for code in re.findall(r"`(\w+)`", line.split("|")[1])}
    queues = {
        "ParentNotFound",
        "ParentNotAccepted",
        "ServiceClassNotFound",
        "PoolNotFound",
        "ResourceNotFound",
        "QuotaAboveLimit",
        "QuotaAboveParent",
        "OverLimit",
    }
    reservations = {"QueueNotFound", "NoNodes", "TooFewNodes", "SameNodes"}
    accepted = {"Accepted", "Unsupported", "SeveralDefaults"} | queues | reservations
    assert documented - accepted == set(ReasonCode)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
