"""Replay of a job trace on one pool of equal nodes: by a textbook policy, or through the production pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.units import WHOLE
from fairlead.simulation import baselines, foretold, production
from fairlead.simulation.charges import Charges, Run
from fairlead.simulation.durations import Durations, Estimates
from fairlead.simulation.report import JobsResult, summarize
from fairlead.simulation.traces import TraceJob

DEFAULT = "default"
POLICIES: tuple[str, ...] = (*baselines.BASELINES, DEFAULT)


def quotas_of(queues: Mapping[str, int], gpus: int) -> dict[str, float]:
    """GPUs guaranteed to each queue: the pool, in proportion to the nodes that each is listed with."""
    nodes = sum(queues.values())
    return {name: gpus * count / nodes for name, count in queues.items()}


def tree_of(queues: Mapping[str, int], gpus: int) -> list[Queue]:
    """The queues of a table, side by side; over-quota capacity is divided evenly."""
    return [
        Queue(name, resources=(QueueResource("nvidia.com/gpu", quota=int(quota * WHOLE)),))
        for name, quota in quotas_of(queues, gpus).items()
    ]


def simulate(  # noqa: PLR0913 - each is given by name
    jobs: Sequence[TraceJob],
    *,
    nodes: int,
    gpus_per_node: int,
    policy: str = DEFAULT,
    queues: Mapping[str, int] | None = None,
    tree: Sequence[Queue] = (),
    deserved: Mapping[str, float] | None = None,
    durations: Durations = "exact",
    window_days: float = 0.0,
    charges: Charges | None = None,
    time_slicing: bool = True,
    max_loss: float = 60.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    starts: Path | None = None,
) -> JobsResult:
    """Replay `jobs` on `nodes` x `gpus_per_node` GPUs by one of `POLICIES`.

    queues: queue -> nodes; quotas are given in that proportion, and jobs of other queues dropped. tree: the queues as they
    are, for the production pass; deserved: what part of all GPU time each should hold. durations: the estimates for policies
    that plan by run times. time_slicing: whether the production pass preempts by attained service; without, it reserves
    places by run times. max_loss: seconds of work since a checkpoint that a time slice costs at most, 0 for any.
    window_days: over which utilization is counted, 0 for all of the run. progress: called with (jobs finished, jobs in all).
    starts: where the starts that the production pass foretold are written. Raises `OSError`.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is unknown: choose one of {', '.join(POLICIES)}")
    if queues is not None:
        jobs = [job for job in jobs if job.queue in queues]
    quotas = quotas_of(queues, nodes * gpus_per_node) if queues is not None else None
    charges = charges or Charges()
    estimates = Estimates(jobs, durations, seed)
    runs: list[Run]
    if policy == DEFAULT:
        runs = production.simulate(
            jobs,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            queues=tree_of(queues, nodes * gpus_per_node) if queues is not None else tree or (),
            charges=charges,
            estimates=estimates,
            service=msgspec.structs.replace(production.BATCH, max_loss=max_loss) if time_slicing else production.PATIENT,
            policy=production.POLICY if time_slicing else production.RESERVING,
            progress=progress,
        )
        if starts is not None:
            foretold.write(foretold.starts_of(jobs, runs), starts)
    else:
        chosen = next(name for name in baselines.BASELINES if name == policy)
        runs = baselines.simulate(
            jobs,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            policy=chosen,
            charges=charges,
            estimates=estimates,
            progress=progress,
        )
    return summarize(
        jobs,
        runs,
        policy=policy,
        durations=durations,
        gpus=nodes * gpus_per_node,
        window_days=window_days,
        quotas=quotas,
        deserved=deserved,
    )
