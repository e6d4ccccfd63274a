"""Rules and dashboards: every alert comes and goes, judged by the real promtool; nothing speaks of a metric that is not there."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from fairlead.observability import dashboards, rules
from fairlead.observability.metrics import TABLE
from testbed import alerts, build
from testbed.alerts import STORIES

ROOT = Path(__file__).parents[2]


def test_every_alert_has_its_story_and_its_section_in_the_runbook():
    names = [each.name for each in rules.ALERTS]
    assert sorted(names) == sorted(STORIES)
    assert re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE) == names


@pytest.mark.e2e
@pytest.mark.parametrize("name", STORIES)
def test_an_alert_comes_and_goes(name, tmp_path):
    assert alerts.judge(name, tmp_path) == ""


@pytest.mark.e2e
def test_promtool_finds_nothing_wrong_with_the_rule_file(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rules.groups("https://example.org/runbook")))
    done = subprocess.run([build.binary("promtool"), "check", "rules", path], capture_output=True, text=True, check=False)
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr
    for rule in (each for each in rules.groups()["groups"][1]["rules"]):
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        for text in (rule["annotations"]["summary"], rule["annotations"]["description"]):
            assert text.count("{{") == text.count("}}")


def test_rules_and_dashboards_speak_of_metrics_that_are_there():
    known = {name + suffix for name in TABLE for suffix in ("", "_total", "_bucket", "_sum", "_count")}
    known |= {each.name.removeprefix("queue:").removeprefix("pool:") for each in rules.RECORDINGS}
    spoken = " ".join([each.expr for each in (*rules.RECORDINGS, *rules.ALERTS)])
    spoken += " ".join(query for _, panels in dashboards.DASHBOARDS.values() for panel in panels for query, _ in panel.queries)
    named = set(re.findall(r"fairlead[\w:]+", spoken))
    assert named <= known, named - known
    counters = {name + "_total" for name, metric in TABLE.items() if metric.kind == "counter"}
    assert {name for name in named if name.endswith("_total")} <= counters


@pytest.mark.parametrize("uid", dashboards.DASHBOARDS)
def test_panels_of_a_dashboard_do_not_lie_on_each_other(uid):
    made = dashboards.dashboard(uid)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]]
    assert len(set(places)) == len(places) >= 6
    assert len({panel["id"] for panel in made["panels"]}) == len(places)
