"""Whether alerts come and go: judged by the real promtool, and in a real Prometheus that scrapes a real scheduler.

`STORIES` tells of each alert a course of the series behind it; `Watch` is a Prometheus whose alerts wait for nothing.
"""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fairlead.observability import rules
from testbed import build
from testbed.controlplane import free_port

GPU = 'resource="nvidia.com/gpu", pool=""'

# Alert -> (series, as promtool writes them, one value a minute; minute when it fires; minute when it is over; its labels).
STORIES: dict[str, tuple[dict[str, str], int, int, dict[str, str]]] = {
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
    "FairleadGpusOutsideQueues": (
        {'fairlead_gpus_outside_queues{resource="nvidia.com/gpu"}': "0x10 8x50 0x30"},
        30,
        75,
        {"resource": "nvidia.com/gpu"},
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
    "FairleadGangNotStarting": (
        {"fairlead_gangs_not_starting": "0x60", "fairlead_operator_jobs_not_starting": "0x10 2x20 0x30"},
        12,
        35,
        {},
    ),
    "FairleadSchedulerLag": ({"fairlead_core_stalled_seconds": "0 60x20 0x20"}, 10, 30, {}),
    "FairleadSchedulerDown": ({"fairlead_scheduler_leading": "1x5 0x10 1x20"}, 10, 20, {}),
    "FairleadCoreErrors": ({'fairlead_core_errors_total{pod="s"}': "0x5 1x60"}, 8, 40, {"pod": "s"}),
    "FairleadPassesFailing": ({'fairlead_passes_failed_total{pod="s"}': "0x5 4+4x9 40x60"}, 12, 40, {"pod": "s"}),
    "FairleadInternalErrors": ({'fairlead_faults_total{site="serve"}': "0x5 1x60"}, 8, 40, {"site": "serve"}),
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
    "FairleadAutoscalerBlind": (
        {
            'kube_horizontalpodautoscaler_status_condition{namespace="ai", horizontalpodautoscaler="w", '
            'condition="ScalingActive", status="false"}': "0x5 1x40 0x60",
        },
        30,
        60,
        {"namespace": "ai", "horizontalpodautoscaler": "w", "condition": "ScalingActive", "status": "false"},
    ),
    "FairleadGpuUseUnknown": ({'fairlead_operator_gpu_use_failures_total{pod="o"}': "0x5 1+1x60 61x60"}, 60, 100, {"pod": "o"}),
    "FairleadOperatorNotTrusted": ({'fairlead_operator_untrusted{pod="o"}': "0x5 1x60 0x30"}, 8, 80, {"pod": "o"}),
    "FairleadOperatorFaults": ({'fairlead_operator_faults_total{pod="o", site="jobs"}': "0x5 1x60"}, 8, 40, {"site": "jobs"}),
    "FairleadMigReconfigurationTrouble": (
        {
            'fairlead_operator_mig_nodes{phase="Failed", pod="o"}': "0x5 1x60 0x30",
            'fairlead_operator_mig_nodes{phase="Applying", pod="o"}': "3x100",
        },
        8,
        80,
        {"phase": "Failed"},
    ),
    "FairleadHistoryNotWritten": (
        {'fairlead_operator_history_failures_total{pod="o"}': "0x5 1+1x60 61x60"},
        40,
        100,
        {"pod": "o"},
    ),
}


def judge(name: str, folder: Path) -> str:
    """What promtool has against the story of an alert; empty: it fires and is over when it is to. folder: to write in."""
    series, fires, over, labels = STORIES[name]
    alert = next(each for each in rules.ALERTS if each.name == name)

    def at(minute: int, *, firing: bool) -> dict[str, Any]:
        expected = [{"exp_labels": {"severity": alert.severity, **labels}}] if firing else []
        return {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": expected}

    # promtool compares annotations, too: left out of the rules here.
    plain = rules.groups()
    for group in plain["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (folder / "rules.yaml").write_text(yaml.safe_dump(plain))
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [at(0, firing=False), at(fires, firing=True), at(over, firing=False)],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run([build.binary("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


class Watch:
    """A Prometheus that asks one address every second. firing: the alerts that are told now."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str) -> Any:
        """The data of an answer of its API; None where there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=10) as reply:
                return json.loads(reply.read())["data"]
        except OSError:
            return None

    def firing(self) -> set[str]:
        """Names of alerts."""
        alerts = (self.ask("alerts") or {}).get("alerts", [])
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


@contextmanager
def watching(address: str, folder: Path) -> Iterator[Watch]:
    """A real Prometheus with our rules; it waits for nothing before it tells an alert. folder: for its files."""
    port = free_port()
    found = rules.groups()
    for rule in found["groups"][1]["rules"]:
        rule["for"] = "0s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(found))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "scheduler", "static_configs": [{"targets": [address]}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        str(build.binary("prometheus")),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--query.lookback-delta=5s",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Watch(port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
