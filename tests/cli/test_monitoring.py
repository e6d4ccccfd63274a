"""`fairlead monitoring` prints what Prometheus and Grafana import."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.observability import dashboards, rules

URL = "https://example.org/runbook"


def printed(*arguments):
    done = CliRunner().invoke(app, ["monitoring", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_rules_are_yaml_for_prometheus_or_its_operator_and_link_to_the_runbook():
    assert yaml.safe_load(printed("rules", "--runbook", URL)) == rules.groups(URL)
    assert yaml.safe_load(printed("rules", "--resource")) == rules.resource()
    assert json.loads(printed("rules", "-o", "json")) == rules.groups()


@pytest.mark.parametrize("name", dashboards.DASHBOARDS)
def test_a_dashboard_is_json_for_grafana(name):
    assert json.loads(printed("dashboard", name)) == dashboards.dashboard(name)


def test_a_dashboard_that_is_not_there_is_wrong_usage_and_the_known_ones_are_named():
    done = CliRunner().invoke(app, ["monitoring", "dashboard", "none"])
    assert done.exit_code == 2
    assert "fairlead-queues" in done.output
