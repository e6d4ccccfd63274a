"""Prometheus metrics. Names and meanings are listed in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class _Decisions(Protocol):
    events: int
    passes: int
    placed: int
    refused: int
    preempted: int
    overdue: int
    errors: int
    pass_seconds: float


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


Count = tuple[str, str, float]
"""Name, what it counts, and the value now."""


class Metrics:
    """Renders counters that are kept anyway; nothing is added to the paths that count."""

    def __init__(self, counts: Callable[[], Iterable[Count]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Counts(counts))

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)


class _Counts(Collector):
    def __init__(self, counts: Callable[[], Iterable[Count]]) -> None:
        self.counts = counts

    def collect(self) -> Iterator[Metric]:
        for name, text, value in self.counts():
            yield CounterMetricFamily(name, text, value=value)


def of_scheduler(decisions: _Decisions, writes: _Writes, api_writes: int) -> tuple[Count, ...]:
    """What a scheduler counts."""
    return (
        ("fairlead_core_events", "Events applied by the core.", decisions.events),
        ("fairlead_core_passes", "Passes of the core.", decisions.passes),
        ("fairlead_core_errors", "Events or passes that failed and were skipped.", decisions.errors),
        ("fairlead_core_pass_seconds", "Time spent in passes.", decisions.pass_seconds),
        ("fairlead_pods_placed", "Pods that were given a node.", decisions.placed),
        ("fairlead_pods_refused", "Pods that were told why they wait.", decisions.refused),
        ("fairlead_pods_preempted", "Pods chosen as victims.", decisions.preempted),
        ("fairlead_max_waits_exceeded", "Jobs that waited longer than their class of service allows.", decisions.overdue),
        ("fairlead_bindings", "Bindings written.", writes.bound),
        ("fairlead_binding_failures", "Bindings refused or lost.", writes.bind_failed),
        ("fairlead_evictions", "Evictions written.", writes.evicted),
        ("fairlead_jobs_suspended", "Jobs whose suspension was asked for.", writes.suspended),
        ("fairlead_jobs_resumed", "Suspended jobs that may run again.", writes.resumed),
        ("fairlead_eviction_failures", "Evictions refused.", writes.evict_failed),
        (
            "fairlead_preemption_plans_released",
            "Preemptions given up because an eviction was refused.",
            writes.plans_released,
        ),
        ("fairlead_conditions_written", "PodScheduled conditions written.", writes.conditions),
        ("fairlead_events_written", "Kubernetes events written.", writes.events),
        ("fairlead_events_dropped", "Kubernetes events dropped because too many waited.", writes.events_dropped),
        ("fairlead_api_writes", "Requests to the API server that change something.", api_writes),
    )
