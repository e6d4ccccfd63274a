"""`fairlead bench topology`: gangs that must be in one rack, on a real API server, beside kube-scheduler.

Each scheduler has a control plane of its own, with the same nodes, pods and gangs, and they alternate. A run counts only if all
pods are bound and every gang is in one rack. kube-scheduler places them by its alpha support, with the
feature gates of `racks.GATES`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

import msgspec

from testbed import bench
from testbed.topology import decide, racks

SCHEDULERS = ("fairlead", "kube-scheduler")
_NOTES = ("pods_per_second: from the first to the last binding", "etcd runs with --unsafe-no-fsync")


class Sizes(msgspec.Struct, frozen=True):
    """So many gangs of so many pods."""

    gangs: int
    members: int

    @property
    def name(self) -> str:
        """As it is called in the result."""
        return f"{self.gangs}x{self.members}"


class TopologyBench(msgspec.Struct):
    """By case, `gangs x members`.

    ratios: Fairlead's pods a second over kube-scheduler's, the median of the rounds. pods_per_second: by case and scheduler,
    medians. decision_ms: what the choice for 1,000 pods in 100 subgroups costs, by nodes, milliseconds of CPU time; growth: at
    the largest number of nodes against the smallest.
    """

    nodes: int
    racks: int
    repeats: int
    ratios: dict[str, float]
    pods_per_second: dict[str, dict[str, float]]
    cpu_seconds: dict[str, dict[str, float]]
    decision_ms: dict[str, float]
    growth: float
    notes: list[str]


def run(nodes: int, cases: tuple[Sizes, ...], repeats: int, progress: Callable[[str], None]) -> TopologyBench:
    """All cases under both schedulers, then the decisions alone. Raises `BenchError`."""
    ratios, rates, cpu = {}, {}, {}
    for case in cases:
        given = bench.Workload(nodes=nodes, pods=case.gangs * case.members, gang=case.members, kind="racks")
        compared = bench.compare(given, SCHEDULERS, repeats, partial(_tell, progress, case))
        ratios[case.name] = compared.ratios["kube-scheduler"]
        rates[case.name] = {name: each.pods_per_second for name, each in compared.schedulers.items()}
        cpu[case.name] = {name: median(run.cpu_seconds for run in each.runs) for name, each in compared.schedulers.items()}
    progress("decisions")
    decided = decide.run()
    return TopologyBench(
        nodes,
        racks.RACKS,
        repeats,
        ratios,
        rates,
        cpu,
        decided.decision_ms,
        decided.growth,
        [
            f"kube-scheduler with {racks.GATES}",
            *_NOTES,
        ],
    )


def _tell(progress: Callable[[str], None], case: Sizes, step: str) -> None:
    progress(f"{case.name}: {step}")
