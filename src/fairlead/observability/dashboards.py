"""Grafana dashboards, as JSON that Grafana imports, made from a list of panels; a test compares their names with the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 24


@dataclass(frozen=True)
class Panel:
    """One panel. queries: (expression, legend). unit: Grafana's name of it. kind: timeseries, stat or bargauge."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"


_QUEUES = 'queue=~"$queue"'
_GPUS = f'{_QUEUES}, resource="nvidia.com/gpu", pool=""'
DASHBOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "fairlead-queues": (
        "Fairlead: queues",
        (
            Panel("GPUs allocated", ((f"fairlead_queue_allocated{{{_GPUS}}}", "{{queue}}"),)),
            Panel("Pending GPUs", ((f"fairlead_queue_pending_gpus{{{_QUEUES}}}", "{{queue}}"),)),
            Panel("Longest wait", ((f"queue:fairlead_wait_seconds:max{{{_QUEUES}}}", "{{queue}}"),), "s"),
            Panel("Pending jobs", ((f"fairlead_queue_pending_jobs{{{_QUEUES}}}", "{{queue}}"),)),
            Panel("Pending jobs by reason", (("fairlead_pending_jobs", "{{reason}}"),)),
            Panel(
                "Allocated, of the fair share",
                (
                    (
                        f"fairlead_queue_allocated{{{_GPUS}}} / on (queue, resource, pool) fairlead_queue_fair_share{{{_GPUS}}}",
                        "{{queue}}",
                    ),
                ),
                "percentunit",
            ),
        ),
    ),
    "fairlead-cluster": (
        "Fairlead: GPUs and the scheduler",
        (
            Panel("GPUs allocated", (("pool:fairlead_gpu_allocation:ratio", "{{pool}}"),), "percentunit"),
            Panel("Utilization of allocated GPUs", (("pool:fairlead_gpu_utilization:ratio", "{{pool}}"),), "percentunit"),
            Panel("Free GPUs, fragmented", (("pool:fairlead_gpu_fragmentation:ratio", "{{pool}}"),), "percentunit"),
            Panel("Idle nodes", (("fairlead_pool_nodes_idle", "{{pool}}"),)),
            Panel(
                "Pods placed",
                (("rate(fairlead_pods_placed_total[5m])", "placed"), ("rate(fairlead_bindings_total[5m])", "bound")),
                "ops",
            ),
            Panel("Victims", (("sum by (reason) (rate(fairlead_victims_total[5m]))", "{{reason}}"),), "ops"),
            Panel("Gangs", (("sum by (outcome) (rate(fairlead_gang_outcomes_total[5m]))", "{{outcome}}"),), "ops"),
            Panel(
                "Passes and bindings, p99",
                (("fairlead:pass_seconds:p99", "pass"), ("fairlead:binding_seconds:p99", "binding")),
                "s",
            ),
            Panel("Time in actions", (("rate(fairlead_core_action_seconds_total[5m])", "{{action}}"),), "percentunit"),
            Panel("Wait before start, p95", (("fairlead:pod_wait_seconds:p95", "p95"),), "s"),
            Panel("AIJobs", (("fairlead_operator_jobs", "{{phase}}"),)),
        ),
    ),
}
"""uid -> (title, panels)."""


def dashboard(uid: str) -> dict[str, Any]:
    """One dashboard as Grafana imports it. Raises KeyError."""
    title, panels = DASHBOARDS[uid]
    return {
        "uid": uid,
        "title": title,
        "tags": ["fairlead"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_source(), *([_queue()] if uid == "fairlead-queues" else [])]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    per_line = _COLUMNS // _WIDTH
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": number % per_line * _WIDTH, "y": number // per_line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _queue() -> dict[str, Any]:
    return {
        "name": "queue",
        "label": "Queue",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": {"query": "label_values(fairlead_queue_pending_jobs, queue)", "refId": "queues"},
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
