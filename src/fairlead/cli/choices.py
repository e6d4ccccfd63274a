"""What options may be: a wrong one is refused, and all are listed, before anything is imported for a command."""

from __future__ import annotations

from typing import Literal

Strategy = Literal["ai", "binpack", "fgd", "spread"]
LogLevel = Literal["debug", "info", "warning", "error"]
CycleScenario = Literal["mixed", "verdict", "reclaim", "hero", "consolidate"]
WorldsKind = Literal["evictions", "victims"]
Workload = Literal[
    "pods",
    "queues",
    "relist",
    "spread",
    "anti-affinity",
    "affinity",
    "preferred-affinity",
    "unschedulable",
    "preempt",
    "claims",
    "claims-pair",
    "claims-matched",
    "racks",
]
AnswersScenario = Literal["verdict", "reclaim"]
HpaMetric = Literal["cpu", "queue"]
PlatformScenario = Literal["defaults", "quota", "alerts"]
JobScenario = Literal["start", "array", "worker-kill", "suspend", "elastic", "operator-kill"]
Trace = Literal["philly", "synthetic"]
TopologyProtocol = Literal["production", "floors"]
FaultsWorkload = Literal["pods", "aijobs"]
JobsPolicy = Literal["fifo", "sjf", "easy-total", "easy", "las", "default"]
Durations = Literal["exact", "limit", "learned"]
