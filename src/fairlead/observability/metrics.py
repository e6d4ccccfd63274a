"""Prometheus metrics. `TABLE` is all there are; docs/metrics.md lists the same, and a test compares the two.

Counters and distributions are kept where things happen, as plain numbers; gauges are read from the latest picture. Whoever
scrapes renders them, off the threads that decide. Labels have few values, all of administrators' making: queues, pools,
resources, reasons; never users, jobs, pods or nodes.
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

SCHEDULER: dict[str, Metric] = {
    "fairlead_core_events": Metric("counter", "Events applied by the core."),
    "fairlead_core_passes": Metric("counter", "Passes of the core."),
    "fairlead_core_errors": Metric(
        "counter", "Events or passes that failed and were skipped; above 0 it is a bug worth reporting."
    ),
    "fairlead_passes_failed": Metric("counter", "Passes that failed outside every guard: nothing was placed after the failure."),
    "fairlead_faults": Metric(
        "counter", "Exceptions that were contained, by step; what they concerned is set aside, the rest goes on.", ("site",)
    ),
    "fairlead_core_pass_seconds": Metric("counter", "Time spent in passes."),
    "fairlead_core_pass_duration_seconds": Metric("histogram", "How long a pass took."),
    "fairlead_core_action_seconds": Metric("counter", "Time spent in each action of passes.", ("action",)),
    "fairlead_core_last_pass_timestamp_seconds": Metric("gauge", "When the last pass ended; 0 before the first."),
    "fairlead_core_stalled_seconds": Metric("gauge", "For how long the core has made no progress though it has work."),
    "fairlead_scheduler_leading": Metric("gauge", "1 while this scheduler leads and has heard of everything, else 0."),
    "fairlead_pods_placed": Metric("counter", "Pods that were given a node."),
    "fairlead_pods_refused": Metric("counter", "Pods that were told why they wait."),
    "fairlead_pods_preempted": Metric("counter", "Pods chosen as victims."),
    "fairlead_pod_wait_seconds": Metric("histogram", "From a pod's creation until it was given a node."),
    "fairlead_gang_outcomes": Metric("counter", "What became of gangs: placed, preempted, dismantled, ended.", ("outcome",)),
    "fairlead_victims": Metric("counter", "Pods that were to go, by why.", ("reason",)),
    "fairlead_max_waits_exceeded": Metric("counter", "Jobs that waited longer than their class of service allows."),
    "fairlead_bindings": Metric("counter", "Bindings written."),
    "fairlead_binding_failures": Metric("counter", "Bindings refused or lost."),
    "fairlead_binding_duration_seconds": Metric("histogram", "From a decision until its binding was answered."),
    "fairlead_evictions": Metric("counter", "Evictions written."),
    "fairlead_eviction_failures": Metric("counter", "Evictions refused."),
    "fairlead_jobs_suspended": Metric("counter", "Jobs whose suspension was asked for."),
    "fairlead_jobs_resumed": Metric("counter", "Suspended jobs that may run again."),
    "fairlead_preemption_plans_released": Metric("counter", "Preemptions given up because an eviction was refused."),
    "fairlead_conditions_written": Metric("counter", "PodScheduled conditions written."),
    "fairlead_events_written": Metric("counter", "Kubernetes events written."),
    "fairlead_events_dropped": Metric("counter", "Kubernetes events dropped because too many waited."),
    "fairlead_api_writes": Metric("counter", "Requests to the API server that change something."),
    "fairlead_queue_allocated": Metric("gauge", "What a queue and those below it hold, in the resource's own unit.", _HELD),
    "fairlead_queue_quota": Metric("gauge", "What a queue is guaranteed.", _HELD),
    "fairlead_queue_limit": Metric("gauge", "What a queue may hold at most.", _HELD),
    "fairlead_queue_fair_share": Metric("gauge", "A queue's fair share of what is scarce.", _HELD),
    "fairlead_queue_usage_device_seconds": Metric("gauge", "Device-seconds that a queue used of late, decayed.", _QUEUE),
    "fairlead_queue_pending_jobs": Metric("gauge", "Jobs that wait in a queue itself.", _QUEUE),
    "fairlead_queue_pending_pods": Metric("gauge", "Pods that wait in a queue itself.", _QUEUE),
    "fairlead_queue_pending_gpus": Metric("gauge", "GPUs for which jobs wait in a queue itself.", _QUEUE),
    "fairlead_queue_oldest_pending_timestamp_seconds": Metric("gauge", "When the job was made that has waited longest.", _QUEUE),
    "fairlead_queue_next_deadline_timestamp_seconds": Metric(
        "gauge", "When the first job has waited for as long as its class allows.", _QUEUE
    ),
    "fairlead_pending_jobs": Metric("gauge", "Jobs that wait, by why.", ("reason",)),
    "fairlead_pool_nodes": Metric("gauge", "Nodes of a pool.", _POOL),
    "fairlead_pool_nodes_idle": Metric("gauge", "Nodes of a pool with GPUs of which none is used.", _POOL),
    "fairlead_pool_gpus": Metric("gauge", "GPUs of a pool.", _POOL),
    "fairlead_pool_gpus_allocated": Metric("gauge", "GPUs of a pool that pods hold, fractions too.", _POOL),
    "fairlead_gpus_outside_queues": Metric(
        "gauge", "GPUs that pods hold for which no queue is charged: other schedulers placed them, or `nodeName`.", ("resource",)
    ),
    "fairlead_gangs_not_starting": Metric("gauge", "Gangs that got their nodes and did not start in time, until they start."),
    "fairlead_pool_gpus_fragmented": Metric("gauge", "Free GPUs of a pool on nodes whose other GPUs are used.", _POOL),
}

OPERATOR: dict[str, Metric] = {
    "fairlead_operator_suspensions": Metric("counter", "Workloads suspended because the scheduler meant it."),
    "fairlead_operator_resumptions": Metric("counter", "Workloads resumed because the scheduler meant it."),
    "fairlead_operator_looks": Metric("counter", "Looks at pod groups that have a target."),
    "fairlead_operator_pod_groups_created": Metric("counter", "PodGroups made for workloads that have none."),
    "fairlead_operator_provisioning_requests": Metric("counter", "ProvisioningRequests made for gangs that asked for it."),
    "fairlead_operator_pods_created": Metric("counter", "Members of AIJobs created."),
    "fairlead_operator_pods_deleted": Metric("counter", "Members of AIJobs deleted."),
    "fairlead_operator_job_restarts": Metric("counter", "AIJobs that started again as a whole."),
    "fairlead_operator_jobs_finished": Metric("counter", "AIJobs that came to their end."),
    "fairlead_operator_jobs": Metric("gauge", "AIJobs by phase.", ("phase",)),
    "fairlead_operator_nodes_quarantined": Metric("counter", "Nodes that were quarantined for gangs."),
    "fairlead_operator_gpu_use_failures": Metric("counter", "Times that the use or the errors of GPUs could not be asked."),
    "fairlead_operator_history_rows": Metric("counter", "Rows written into the history."),
    "fairlead_operator_history_failures": Metric("counter", "Times that the history could not be written."),
    "fairlead_operator_pool_gpu_seconds_used": Metric("counter", "GPU-seconds of a pool that jobs held and used.", ("pool",)),
    "fairlead_operator_pool_gpu_seconds_measured": Metric(
        "counter", "GPU-seconds of a pool that jobs held while their use was measured.", ("pool",)
    ),
    "fairlead_operator_queue_cost": Metric(
        "gauge", "What a queue with a budget, and those below it, cost within its period.", ("queue", "currency")
    ),
    "fairlead_operator_queue_budget": Metric("gauge", "What a queue may cost within its period.", ("queue", "currency")),
    "fairlead_operator_queue_budget_warning": Metric("gauge", "From which cost of a queue on to warn.", ("queue", "currency")),
    "fairlead_operator_untrusted": Metric(
        "gauge", "1 while the API server stamps what the operator makes for AIJobs with the operator's own user."
    ),
    "fairlead_operator_waiting_pods": Metric("gauge", "Members of AIJobs that were made and have no node yet."),
    "fairlead_operator_jobs_not_starting": Metric(
        "gauge", "AIJobs that go on and whose last start failed: members had nodes and did not start."
    ),
    "fairlead_operator_faults": Metric(
        "counter", "Unexpected errors while one object was handled, by where; above 0 it is a bug worth reporting.", ("site",)
    ),
    "fairlead_operator_api_writes": Metric("counter", "Requests to the API server that change something."),
}

TABLE: dict[str, Metric] = {**SCHEDULER, **OPERATOR}


class Distribution:
    """How often values fell into ranges. bounds: their upper ends, seconds, rising. Written by one thread, read by others."""

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
