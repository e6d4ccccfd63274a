"""Prometheus metrics. `TABLE` is all there are; docs/metrics.md lists the same, and a test compares the two.

Counters and distributions are plain numbers, kept by the code that counts. Gauges are read from the latest snapshot. A scrape
renders them on its own thread, never on the core's. Label values are few and set by administrators: queues, pools, resources,
reasons; never users, jobs, pods or nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector


class Metric(NamedTuple):
    """One metric. labels: their names, in order."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


_QUEUE, _POOL, _HELD = ("queue",), ("pool",), ("queue", "resource", "pool")
_SHARED = ("pool", "name")

SCHEDULER: dict[str, Metric] = {
    "fairlead_core_events": Metric("counter", "Cluster events applied to the scheduler's state."),
    "fairlead_core_passes": Metric("counter", "Scheduling passes."),
    "fairlead_core_errors": Metric(
        "counter", "Events and passes that failed and were skipped. Any value above 0 is a bug to report."
    ),
    "fairlead_passes_failed": Metric("counter", "Passes aborted by an unexpected error. A pass places nothing after the error."),
    "fairlead_faults": Metric(
        "counter",
        "Contained exceptions by step. The object concerned is set aside; scheduling of all others continues.",
        ("site",),
    ),
    "fairlead_core_pass_seconds": Metric("counter", "Time spent in scheduling passes."),
    "fairlead_core_pass_duration_seconds": Metric("histogram", "Duration of a scheduling pass."),
    "fairlead_core_action_seconds": Metric("counter", "Time spent in each action of the passes.", ("action",)),
    "fairlead_core_last_pass_timestamp_seconds": Metric("gauge", "End of the last pass; 0 before the first."),
    "fairlead_core_stalled_seconds": Metric("gauge", "Time for which the scheduler has had work and made no progress."),
    "fairlead_scheduler_leading": Metric(
        "gauge", "1 while this scheduler is the leader and its caches are synchronized, else 0."
    ),
    "fairlead_pods_placed": Metric("counter", "Pods assigned to a node."),
    "fairlead_pods_refused": Metric("counter", "Pods whose reason for waiting was reported."),
    "fairlead_pods_preempted": Metric("counter", "Pods selected as preemption victims."),
    "fairlead_pod_wait_seconds": Metric("histogram", "Time from the creation of a pod to its assignment to a node."),
    "fairlead_gang_outcomes": Metric("counter", "Outcomes of gangs: placed, preempted, parted, dismantled, ended.", ("outcome",)),
    "fairlead_victims": Metric("counter", "Pods selected for eviction, by reason.", ("reason",)),
    "fairlead_max_waits_exceeded": Metric("counter", "Jobs that waited longer than the maxWait of their ServiceClass."),
    "fairlead_bindings": Metric("counter", "Bindings written."),
    "fairlead_binding_failures": Metric("counter", "Bindings refused or lost."),
    "fairlead_binding_duration_seconds": Metric("histogram", "Time from a decision to the response to its binding."),
    "fairlead_evictions": Metric("counter", "Evictions written."),
    "fairlead_eviction_failures": Metric("counter", "Evictions refused."),
    "fairlead_jobs_suspended": Metric("counter", "Jobs whose suspension was requested."),
    "fairlead_jobs_resumed": Metric("counter", "Suspended jobs that were allowed to resume."),
    "fairlead_preemption_plans_released": Metric("counter", "Preemption plans abandoned because an eviction was refused."),
    "fairlead_conditions_written": Metric("counter", "PodScheduled conditions written."),
    "fairlead_events_written": Metric("counter", "Kubernetes events written."),
    "fairlead_events_dropped": Metric("counter", "Kubernetes events dropped because the write queue was full."),
    "fairlead_api_writes": Metric("counter", "Write requests to the API server."),
    "fairlead_queue_allocated": Metric(
        "gauge", "Amount allocated to a queue and its descendants, in the resource's own unit.", _HELD
    ),
    "fairlead_queue_quota": Metric("gauge", "Quota of a queue.", _HELD),
    "fairlead_queue_limit": Metric("gauge", "Limit of a queue.", _HELD),
    "fairlead_queue_fair_share": Metric("gauge", "Fair share of a queue, for resources that are scarce.", _HELD),
    "fairlead_queue_usage_device_seconds": Metric("gauge", "Decayed usage of a queue in device-seconds.", _QUEUE),
    "fairlead_queue_pending_jobs": Metric("gauge", "Pending jobs of a queue, without its descendants.", _QUEUE),
    "fairlead_queue_pending_pods": Metric("gauge", "Pending pods of a queue, without its descendants.", _QUEUE),
    "fairlead_queue_pending_gpus": Metric(
        "gauge", "GPUs requested by the pending jobs of a queue, without its descendants.", _QUEUE
    ),
    "fairlead_queue_oldest_pending_timestamp_seconds": Metric(
        "gauge", "Creation time of the pending job that has waited longest.", _QUEUE
    ),
    "fairlead_queue_next_deadline_timestamp_seconds": Metric(
        "gauge", "Time at which the first pending job reaches the maxWait of its ServiceClass.", _QUEUE
    ),
    "fairlead_pending_jobs": Metric("gauge", "Pending jobs by reason.", ("reason",)),
    "fairlead_pool_nodes": Metric("gauge", "Nodes of a pool.", _POOL),
    "fairlead_pool_nodes_idle": Metric("gauge", "GPU nodes of a pool on which no GPU is allocated.", _POOL),
    "fairlead_pool_gpus": Metric("gauge", "GPUs of a pool.", _POOL),
    "fairlead_pool_gpus_allocated": Metric("gauge", "Allocated GPUs of a pool, fractions included.", _POOL),
    "fairlead_pool_shared_resource": Metric("gauge", "Amount that the nodes of a pool share.", _SHARED),
    "fairlead_pool_shared_resource_used": Metric(
        "gauge", "What pods with nodes of the pool, and places that are held, take of it.", _SHARED
    ),
    "fairlead_gpus_outside_queues": Metric(
        "gauge", "GPUs of pods that are charged to no queue, because another scheduler or `nodeName` placed them.", ("resource",)
    ),
    "fairlead_gangs_not_starting": Metric("gauge", "Gangs that have nodes and did not start in time."),
    "fairlead_pool_gpus_fragmented": Metric("gauge", "Free GPUs of a pool on nodes with other GPUs allocated.", _POOL),
}

OPERATOR: dict[str, Metric] = {
    "fairlead_operator_suspensions": Metric("counter", "Workloads suspended at the scheduler's request."),
    "fairlead_operator_resumptions": Metric("counter", "Workloads resumed at the scheduler's request."),
    "fairlead_operator_reconciles": Metric("counter", "Reconciliations of PodGroups that have a target state."),
    "fairlead_operator_pod_groups_created": Metric("counter", "PodGroups created for workloads without one."),
    "fairlead_operator_provisioning_requests": Metric("counter", "ProvisioningRequests created for gangs that request one."),
    "fairlead_operator_pods_created": Metric("counter", "Members of AIJobs created."),
    "fairlead_operator_pods_deleted": Metric("counter", "Members of AIJobs deleted."),
    "fairlead_operator_job_restarts": Metric("counter", "Restarts of whole AIJobs."),
    "fairlead_operator_jobs_finished": Metric("counter", "AIJobs that succeeded or failed."),
    "fairlead_operator_jobs": Metric("gauge", "AIJobs by phase.", ("phase",)),
    "fairlead_operator_nodes_quarantined": Metric("counter", "Nodes quarantined for gangs."),
    "fairlead_operator_mig_reconfigurations": Metric(
        "counter", "Reconfigurations of nodes through mig-manager that ended, by outcome.", ("outcome",)
    ),
    "fairlead_operator_mig_nodes": Metric(
        "gauge",
        "Nodes by phase of their reconfiguration: Settling, Applying; Failed, Hung and Mismatched need attention.",
        ("phase",),
    ),
    "fairlead_operator_gpu_use_failures": Metric("counter", "Failed queries of GPU utilization or GPU errors."),
    "fairlead_operator_history_rows": Metric("counter", "Rows written to the history."),
    "fairlead_operator_history_failures": Metric("counter", "Failed writes to the history."),
    "fairlead_operator_pool_gpu_seconds_used": Metric("counter", "GPU-seconds of a pool that jobs held and used.", ("pool",)),
    "fairlead_operator_pool_gpu_seconds_measured": Metric(
        "counter", "GPU-seconds of a pool that jobs held while utilization was measured.", ("pool",)
    ),
    "fairlead_operator_queue_cost": Metric(
        "gauge", "Cost within the budget period of a queue with a budget, descendants included.", ("queue", "currency")
    ),
    "fairlead_operator_queue_budget": Metric("gauge", "Budget of a queue for its period.", ("queue", "currency")),
    "fairlead_operator_queue_budget_warning": Metric(
        "gauge", "Cost of a queue above which a warning is given.", ("queue", "currency")
    ),
    "fairlead_operator_untrusted": Metric(
        "gauge", "1 while the API server records the operator's own user on the pods of AIJobs."
    ),
    "fairlead_operator_waiting_pods": Metric("gauge", "Members of AIJobs without a node."),
    "fairlead_operator_jobs_not_starting": Metric(
        "gauge", "Unfinished AIJobs whose last start failed: members had nodes and did not start."
    ),
    "fairlead_operator_faults": Metric(
        "counter", "Unexpected errors while handling one object, by site. Any value above 0 is a bug to report.", ("site",)
    ),
    "fairlead_operator_api_writes": Metric("counter", "Write requests to the API server."),
}

TABLE: dict[str, Metric] = {**SCHEDULER, **OPERATOR}


class Distribution:
    """Counts of values by range. bounds: upper ends in seconds, ascending. Written by one thread, read by others."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: the upper end and how many are not above it."""
        running, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), list(self.counts), strict=True):
            running += count
            found.append((bound, float(running)))
        return found


Value = float | Mapping[tuple[str, ...], float] | Distribution
Values = Iterable[tuple[str, Value]]
"""(name in the table, value): a number, numbers by label values, or a distribution."""


class Metrics:
    """Renders what is counted anyway; nothing is added to the paths that count."""

    def __init__(self, values: Callable[[], Values]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Values(values))

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)


class _Values(Collector):
    def __init__(self, values: Callable[[], Values]) -> None:
        self.values = values

    def collect(self) -> Iterator[Family]:
        for name, value in self.values():
            yield _family(name, value)


def _family(name: str, value: Value) -> Family:
    metric = TABLE[name]
    if isinstance(value, Distribution):
        return HistogramMetricFamily(name, metric.text, buckets=value.buckets(), sum_value=value.total)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    if isinstance(value, Mapping):
        family: CounterMetricFamily | GaugeMetricFamily = kind(name, metric.text, labels=metric.labels)
        for labels, number in value.items():
            family.add_metric(labels, number)
        return family
    return kind(name, metric.text, value=value)


class _Decisions(Protocol):
    events: int
    passes: int
    placed: int
    refused: int
    preempted: int
    overdue: int
    errors: int
    failed: int
    faults: dict[str, int]
    pass_seconds: float
    last_pass: float
    durations: Distribution
    waits: Distribution
    actions: dict[str, float]
    gangs: dict[str, int]
    victims: dict[str, int]


class _Writes(Protocol):
    bound: int
    bind_failed: int
    evicted: int
    suspended: int
    resumed: int
    evict_failed: int
    plans_released: int
    conditions: int
    events: int
    events_dropped: int
    latencies: Distribution


def of_scheduler(decisions: _Decisions, writes: _Writes, api_writes: int) -> Values:
    """What a scheduler counts."""
    return [
        ("fairlead_core_events", decisions.events),
        ("fairlead_core_passes", decisions.passes),
        ("fairlead_core_errors", decisions.errors),
        ("fairlead_passes_failed", decisions.failed),
        ("fairlead_faults", _by_label(decisions.faults)),
        ("fairlead_core_pass_seconds", decisions.pass_seconds),
        ("fairlead_core_pass_duration_seconds", decisions.durations),
        ("fairlead_core_action_seconds", _by_label(decisions.actions)),
        ("fairlead_core_last_pass_timestamp_seconds", decisions.last_pass),
        ("fairlead_pods_placed", decisions.placed),
        ("fairlead_pods_refused", decisions.refused),
        ("fairlead_pods_preempted", decisions.preempted),
        ("fairlead_pod_wait_seconds", decisions.waits),
        ("fairlead_gang_outcomes", _by_label(decisions.gangs)),
        ("fairlead_victims", _by_label(decisions.victims)),
        ("fairlead_max_waits_exceeded", decisions.overdue),
        ("fairlead_bindings", writes.bound),
        ("fairlead_binding_failures", writes.bind_failed),
        ("fairlead_binding_duration_seconds", writes.latencies),
        ("fairlead_evictions", writes.evicted),
        ("fairlead_jobs_suspended", writes.suspended),
        ("fairlead_jobs_resumed", writes.resumed),
        ("fairlead_eviction_failures", writes.evict_failed),
        ("fairlead_preemption_plans_released", writes.plans_released),
        ("fairlead_conditions_written", writes.conditions),
        ("fairlead_events_written", writes.events),
        ("fairlead_events_dropped", writes.events_dropped),
        ("fairlead_api_writes", api_writes),
    ]


def _by_label(counts: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(label,): number for label, number in list(counts.items())}
