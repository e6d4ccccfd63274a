"""Rules for Prometheus. Each alert has its section in docs/runbook.md and a test in which it fires and resolves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RUNBOOK = "docs/runbook.md"
_GPUS = 'resource=~".*/gpu|gpu.intel.com/xe|habana.ai/gaudi", pool=""'


@dataclass(frozen=True)
class Recording:
    """A recording rule. name: level:metric:operations, as Prometheus recommends."""

    name: str
    expr: str


@dataclass(frozen=True)
class Alert:
    """An alerting rule. lasts: how long the expression must hold; summary, description: templates of Prometheus."""

    name: str
    expr: str
    lasts: str
    severity: str
    summary: str
    description: str
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def anchor(self) -> str:
        """Its section in the runbook."""
        return self.name.lower()


RECORDINGS = (
    Recording("queue:fairlead_wait_seconds:max", "time() - max by (queue) (fairlead_queue_oldest_pending_timestamp_seconds)"),
    Recording(
        "pool:fairlead_gpu_allocation:ratio",
        "max by (pool) (fairlead_pool_gpus_allocated) / max by (pool) (fairlead_pool_gpus > 0)",
    ),
    Recording(
        "pool:fairlead_gpu_fragmentation:ratio",
        "max by (pool) (fairlead_pool_gpus_fragmented) / max by (pool) (fairlead_pool_gpus > 0)",
    ),
    Recording(
        "pool:fairlead_gpu_utilization:ratio",
        "sum by (pool) (rate(fairlead_operator_pool_gpu_seconds_used_total[30m]))"
        " / sum by (pool) (rate(fairlead_operator_pool_gpu_seconds_measured_total[30m]) > 0)",
    ),
    Recording(
        "fairlead:pass_seconds:p99",
        "histogram_quantile(0.99, sum by (le) (rate(fairlead_core_pass_duration_seconds_bucket[5m])))",
    ),
    Recording(
        "fairlead:pod_wait_seconds:p95", "histogram_quantile(0.95, sum by (le) (rate(fairlead_pod_wait_seconds_bucket[1h])))"
    ),
    Recording(
        "fairlead:binding_seconds:p99",
        "histogram_quantile(0.99, sum by (le) (rate(fairlead_binding_duration_seconds_bucket[5m])))",
    ),
)

ALERTS = (
    Alert(
        "FairleadDeadlineNear",
        "max by (queue) (fairlead_queue_next_deadline_timestamp_seconds) - time() < 900",
        "1m",
        "warning",
        "A job in queue {{ $labels.queue }} is about to exceed the maxWait of its ServiceClass",
        "{{ $value | humanizeDuration }} of its maxWait remain; a negative value means that maxWait is exceeded.",
    ),
    Alert(
        "FairleadStarvation",
        "queue:fairlead_wait_seconds:max > 6 * 3600 unless on (queue) "
        f"(sum by (queue) (fairlead_queue_allocated{{{_GPUS}}}) >= sum by (queue) (fairlead_queue_fair_share{{{_GPUS}}}))",
        "15m",
        "warning",
        "Queue {{ $labels.queue }} has pending jobs although it holds less than its fair share",
        "Its oldest pending job has waited for {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "FairleadFragmentation",
        'pool:fairlead_gpu_fragmentation:ratio > 0.15 and on () sum(fairlead_pending_jobs{reason="Resources"}) > 0',
        "30m",
        "warning",
        "The free GPUs of pool {{ $labels.pool }} are fragmented while jobs wait",
        "{{ $value | humanizePercentage }} of its GPUs are free on partly allocated nodes.",
    ),
    Alert(
        "FairleadGpusOutsideQueues",
        "max by (resource) (fairlead_gpus_outside_queues) > 0",
        "15m",
        "warning",
        "Pods outside every queue hold {{ $labels.resource }}",
        "{{ $value }} devices are charged to no queue and cannot be reclaimed.",
    ),
    Alert(
        "FairleadLowAllocation",
        "pool:fairlead_gpu_allocation:ratio < 0.5 and on () sum(fairlead_pending_jobs) > 0",
        "1h",
        "warning",
        "GPUs of pool {{ $labels.pool }} are free while jobs wait",
        "Only {{ $value | humanizePercentage }} of them are allocated.",
    ),
    Alert(
        "FairleadLowUtilization",
        "avg by (modelName) (DCGM_FI_DEV_GPU_UTIL) < 30 and on () max(pool:fairlead_gpu_allocation:ratio) > 0.7",
        "1h",
        "info",
        "GPUs of model {{ $labels.modelName }} are allocated but little used",
        "They are busy {{ $value | humanize }} percent of the time.",
    ),
    Alert(
        "FairleadGangStuck",
        'sum(increase(fairlead_gang_outcomes_total{outcome="dismantled"}[30m])) > 2',
        "0m",
        "warning",
        "Gangs are evicted because not all of their members could be bound",
        "{{ $value | humanize }} times in the last 30 minutes.",
    ),
    Alert(
        "FairleadGangNotStarting",
        "max(fairlead_gangs_not_starting) > 0 or max(fairlead_operator_jobs_not_starting) > 0",
        "0m",
        "warning",
        "Gangs have their nodes and do not start",
        "{{ $value | humanize }} gangs: members cannot start because of an image, a volume or a configuration.",
    ),
    Alert(
        "FairleadSchedulerLag",
        "fairlead:pass_seconds:p99 > 1 or max(fairlead_core_stalled_seconds) > 30",
        "5m",
        "critical",
        "The scheduler is slow",
        "The p99 of a pass is above 1 s, or the core has made no progress for 30 s: {{ $value | humanize }} s.",
    ),
    Alert(
        "FairleadSchedulerDown",
        "absent(fairlead_scheduler_leading) or max(fairlead_scheduler_leading) < 1",
        "2m",
        "critical",
        "No scheduler is the leader",
        "No pod is placed, and autoscalers that follow queues keep their current size.",
    ),
    Alert(
        "FairleadCoreErrors",
        "increase(fairlead_core_errors_total[15m]) > 0",
        "0m",
        "warning",
        "The scheduler skipped events or passes",
        "The scheduler's log names the object. This is a bug to report.",
    ),
    Alert(
        "FairleadPassesFailing",
        "increase(fairlead_passes_failed_total[5m]) >= 3",
        "0m",
        "critical",
        "Scheduling passes fail",
        "{{ $value | humanize }} passes failed in the last 5 minutes. No pod is placed while passes fail.",
    ),
    Alert(
        "FairleadInternalErrors",
        "sum by (site) (increase(fairlead_faults_total[15m])) > 0",
        "0m",
        "warning",
        "The scheduler set an object aside after an internal error ({{ $labels.site }})",
        "{{ $value | humanize }} times in the last 15 minutes. The affected pods have the reason InternalError.",
    ),
    Alert(
        "FairleadBindingFailures",
        "rate(fairlead_binding_failures_total[10m]) > 0.2 * rate(fairlead_bindings_total[10m]) > 0",
        "10m",
        "warning",
        "Many bindings are refused or lost",
        "{{ $value | humanize }} per second.",
    ),
    Alert(
        "FairleadQuotaExhausted",
        "max by (queue, resource, pool) (fairlead_queue_allocated) >= max by (queue, resource, pool) (fairlead_queue_limit) "
        "and on (queue) fairlead_queue_pending_jobs > 0",
        "15m",
        "info",
        "Queue {{ $labels.queue }} is at its limit of {{ $labels.resource }} and has pending jobs",
        "It holds {{ $value | humanize }}.",
    ),
    Alert(
        "FairleadBudgetNear",
        "fairlead_operator_queue_cost >= fairlead_operator_queue_budget_warning "
        "unless fairlead_operator_queue_cost > fairlead_operator_queue_budget",
        "15m",
        "info",
        "Queue {{ $labels.queue }} has spent most of its budget",
        "Its cost in the current period is {{ $value | humanize }} {{ $labels.currency }}.",
    ),
    Alert(
        "FairleadCostOverBudget",
        "fairlead_operator_queue_cost > fairlead_operator_queue_budget",
        "15m",
        "warning",
        "Queue {{ $labels.queue }} is over its budget",
        "Its cost in the current period is {{ $value | humanize }} {{ $labels.currency }}.",
    ),
    Alert(
        "FairleadAutoscalerAtMaximum",
        "kube_horizontalpodautoscaler_status_current_replicas >= on (namespace, horizontalpodautoscaler) "
        "kube_horizontalpodautoscaler_spec_max_replicas",
        "15m",
        "warning",
        "HorizontalPodAutoscaler {{ $labels.namespace }}/{{ $labels.horizontalpodautoscaler }} is at its maximum",
        "It has {{ $value | humanize }} replicas and may need more.",
    ),
    Alert(
        "FairleadAutoscalerBlind",
        'kube_horizontalpodautoscaler_status_condition{condition="ScalingActive", status="false"} == 1',
        "10m",
        "warning",
        "HorizontalPodAutoscaler {{ $labels.namespace }}/{{ $labels.horizontalpodautoscaler }} cannot read its metric",
        "It keeps its current size.",
    ),
    Alert(
        "FairleadGpuUseUnknown",
        "increase(fairlead_operator_gpu_use_failures_total[15m]) > 0",
        "30m",
        "warning",
        "The operator cannot query GPU utilization",
        "Idle jobs are not shut down meanwhile, and the usage records lack GPU utilization.",
    ),
    Alert(
        "FairleadOperatorNotTrusted",
        "max by (namespace, pod) (fairlead_operator_untrusted) == 1",
        "0m",
        "warning",
        "The pods of AIJobs are attributed to the operator's user",
        "The admission policies do not trust the operator. Print them again with all trusted users in one command.",
    ),
    Alert(
        "FairleadOperatorFaults",
        "sum by (site) (increase(fairlead_operator_faults_total[15m])) > 0",
        "0m",
        "warning",
        "The operator failed on an object ({{ $labels.site }})",
        "The object has an event InternalError and is retried later. Other objects are not affected.",
    ),
    Alert(
        "FairleadMigReconfigurationTrouble",
        'max by (phase) (fairlead_operator_mig_nodes{phase=~"Failed|Hung|Mismatched"}) > 0',
        "1m",
        "warning",
        "mig-manager did not bring nodes to the configuration that was asked for ({{ $labels.phase }})",
        "{{ $value }} nodes. Failed and Hung: the node is quarantined and takes no pods. Mismatched: it offers other partitions "
        "than its NodePool lists.",
    ),
    Alert(
        "FairleadHistoryNotWritten",
        "increase(fairlead_operator_history_failures_total[15m]) > 0",
        "10m",
        "warning",
        "The history cannot be written",
        "{{ $value | humanize }} writes failed in the last 15 minutes.",
    ),
)


def groups(runbook: str = RUNBOOK) -> dict[str, Any]:
    """The rule file. runbook: where its sections are found, without the anchor."""
    return {
        "groups": [
            {"name": "fairlead.recordings", "rules": [{"record": each.name, "expr": each.expr} for each in RECORDINGS]},
            {"name": "fairlead.alerts", "rules": [_alert(each, runbook) for each in ALERTS]},
        ]
    }


def resource(runbook: str = RUNBOOK, name: str = "fairlead", namespace: str = "kube-system") -> dict[str, Any]:
    """The same as a PrometheusRule, for the Prometheus operator."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app": "fairlead"}}
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": groups(runbook)}


def _alert(alert: Alert, runbook: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasts,
        "labels": {"severity": alert.severity, **alert.labels},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbook}#{alert.anchor}",
        },
    }
