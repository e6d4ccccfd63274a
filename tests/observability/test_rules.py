"""Rules and dashboards: every alert comes and goes, judged by the real promtool; nothing speaks of a metric that is not there."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from fairlead.observability import dashboards, rules
from fairlead.observability.metrics import TABLE
from testbed import build

ROOT = Path(__file__).parents[2]
MINUTE = 60
GPU = 'resource="nvidia.com/gpu", pool=""'

# Alert -> (series, as promtool writes them, one value a minute; minute when it fires; minute when it is over; its labels).
STORIES = {
    "FairleadDeadlineNear": (
        {'fairlead_queue_next_deadline_timestamp_seconds{queue="vision"}': "1200x20 _x30"},
        10,
        30,
        {"queue": "vision"},
    ),
    "FairleadStarvation": (
        {
            'fairlead_queue_oldest_pending_timestamp_seconds{queue="vision"}': "0x500 30000x100",
            'fairlead_queue_oldest_pending_timestamp_seconds{queue="sated"}': "0x600",
            f'fairlead_queue_allocated{{queue="vision", {GPU}}}': "4x600",
            f'fairlead_queue_fair_share{{queue="vision", {GPU}}}': "8x600",
            f'fairlead_queue_allocated{{queue="sated", {GPU}}}': "9x600",
            f'fairlead_queue_fair_share{{queue="sated", {GPU}}}': "8x600",
        },
        400,
        510,
        {"queue": "vision"},
    ),
    "FairleadFragmentation": (
        {
            'fairlead_pool_gpus_fragmented{pool="h100"}': "20x60 2x60",
            'fairlead_pool_gpus{pool="h100"}': "100x120",
            'fairlead_pending_jobs{reason="Resources"}': "3x120",
        },
        40,
        70,
        {"pool": "h100"},
    ),
    "FairleadLowAllocation": (
        {
            'fairlead_pool_gpus_allocated{pool="h100"}': "20x100 90x60",
            'fairlead_pool_gpus{pool="h100"}': "100x160",
            'fairlead_pending_jobs{reason="NodeAffinity"}': "3x160",
        },
        70,
        110,
        {"pool": "h100"},
    ),
    "FairleadLowUtilization": (
        {
            'DCGM_FI_DEV_GPU_UTIL{modelName="H100", gpu="0"}': "10x100 90x60",
            'DCGM_FI_DEV_GPU_UTIL{modelName="H100", gpu="1"}': "20x100 90x60",
            'fairlead_pool_gpus_allocated{pool="h100"}': "90x160",
            'fairlead_pool_gpus{pool="h100"}': "100x160",
        },
        70,
        110,
        {"modelName": "H100"},
    ),
    "FairleadGangStuck": ({'fairlead_gang_outcomes_total{outcome="dismantled"}': "0x5 1+1x9 10x60"}, 16, 60, {}),
    "FairleadSchedulerLag": ({"fairlead_core_stalled_seconds": "0 60x20 0x20"}, 10, 30, {}),
    "FairleadSchedulerDown": ({"fairlead_scheduler_leading": "1x5 0x10 1x20"}, 10, 20, {}),
    "FairleadCoreErrors": ({'fairlead_core_errors_total{pod="s"}': "0x5 1x60"}, 8, 40, {"pod": "s"}),
    "FairleadBindingFailures": (
        {
            'fairlead_binding_failures_total{pod="s"}': "0+30x40 1200x60",
            'fairlead_bindings_total{pod="s"}': "0+60x100",
        },
        30,
        60,
        {"pod": "s"},
    ),
    "FairleadQuotaExhausted": (
        {
            f'fairlead_queue_allocated{{queue="vision", {GPU}}}': "8x60 4x60",
            f'fairlead_queue_limit{{queue="vision", {GPU}}}': "8x120",
            'fairlead_queue_pending_jobs{queue="vision"}': "2x120",
        },
        30,
        70,
        {"queue": "vision", "resource": "nvidia.com/gpu"},
    ),
    "FairleadBudgetNear": (
        {
            'fairlead_operator_queue_cost{queue="vision", currency="USD"}': "85x60 110x60",
            'fairlead_operator_queue_budget_warning{queue="vision", currency="USD"}': "80x120",
            'fairlead_operator_queue_budget{queue="vision", currency="USD"}': "100x120",
        },
        30,
        70,
        {"queue": "vision", "currency": "USD"},
    ),
    "FairleadCostOverBudget": (
        {
            'fairlead_operator_queue_cost{queue="vision", currency="USD"}': "110x60 90x60",
            'fairlead_operator_queue_budget{queue="vision", currency="USD"}': "100x120",
        },
        30,
        70,
        {"queue": "vision", "currency": "USD"},
    ),
    "FairleadAutoscalerAtMaximum": (
        {
            'kube_horizontalpodautoscaler_status_current_replicas{namespace="ai", horizontalpodautoscaler="w"}': "5x60 3x60",
            'kube_horizontalpodautoscaler_spec_max_replicas{namespace="ai", horizontalpodautoscaler="w"}': "5x120",
        },
        30,
        70,
        {"namespace": "ai", "horizontalpodautoscaler": "w"},
    ),
}


def test_every_alert_has_its_story_and_its_section_in_the_runbook():
    names = [each.name for each in rules.ALERTS]
    assert sorted(names) == sorted(STORIES)
    assert re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE) == names


@pytest.mark.e2e
@pytest.mark.parametrize("name", STORIES)
def test_an_alert_comes_and_goes(name, tmp_path):
    series, fires, over, labels = STORIES[name]
    alert = next(each for each in rules.ALERTS if each.name == name)

    def at(minute, *, firing):
        expected = [{"exp_labels": {"severity": alert.severity, **labels}}] if firing else []
        return {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": expected}

    # promtool compares annotations, too: left out of the rules here, they are looked at in the rule file below.
    plain = rules.groups()
    for group in plain["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(plain))
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [at(0, firing=False), at(fires, firing=True), at(over, firing=False)],
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run([build.binary("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
