"""What autoscaling cost: of each HorizontalPodAutoscaler's target, all replicas, and those beyond its minimum.

Which replicas are beyond it is a matter of moments: of those that hold a place at a moment, the ones that came first are what
would be there without the autoscaler, as many as its minimum then was; the rest is what it added. Prices are those of the
ledger's stays, shares of nodes as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from fairlead.observability.history import Job, Run, Scaler, Stay


class Scaled(msgspec.Struct, kw_only=True):
    """What an autoscaler's target held, in all and beyond the minimum; cost: by currency. most: replicas at once."""

    name: str
    target: str
    most: int = 0
    gpu_hours: float = 0.0
    added_gpu_hours: float = 0.0
    replica_hours: float = 0.0
    added_replica_hours: float = 0.0
    cost: dict[str, float] = {}
    added_cost: dict[str, float] = {}


def scaled(
    scalers: Iterable[Scaler],
    stays: Iterable[Stay],
    runs: Iterable[tuple[Run, Job | None]],
    since: float,
    until: float,
    now: float,
) -> list[Scaled]:
    """By autoscaler, what added most first.

    scalers, stays, runs (with their jobs): all that touch the window. now: until when what goes on counts.
    """
    until = min(until, now)
    of: dict[tuple[str, str, str], list[Run]] = {}
    for run, job in runs:
        for target in _targets(run, job):
            of.setdefault(target, []).append(run)
    on: dict[str, list[Stay]] = {}
    for stay in stays:
        on.setdefault(stay.node, []).append(stay)
    found: dict[str, Scaled] = {}
    for scaler in scalers:
        key = f"{scaler.namespace}/{scaler.name}"
        line = found.setdefault(key, Scaled(name=key, target=f"{scaler.kind}/{scaler.target}"))
        begin, end = max(since, scaler.started_at), min(until, now if scaler.ended_at is None else scaler.ended_at)
        mine = of.get((scaler.namespace, scaler.kind, scaler.target), [])
        _sum(line, mine, on, scaler.min_replicas, begin, end)
    return sorted(found.values(), key=lambda line: (-sum(line.added_cost.values()), -line.added_gpu_hours, line.name))


def _targets(run: Run, job: Job | None) -> list[tuple[str, str, str]]:
    """What an autoscaler may call the workload of a run: a Deployment's pods are those of its ReplicaSets."""
    if job is None:
        return []
    keys = [(run.namespace, job.kind, job.name)]
    if job.kind == "ReplicaSet":
        keys.append((run.namespace, "Deployment", job.name.rpartition("-")[0]))
    return keys


def _sum(line: Scaled, runs: Sequence[Run], on: dict[str, list[Stay]], least: int, begin: float, end: float) -> None:
    """Moment by moment: between two at which anything changes all is as it is."""
    held = [(run, run.started_at, end if run.ended_at is None else run.ended_at) for run in runs]
    held = [(run, start, stop) for run, start, stop in held if start < end and stop > begin]
    held.sort(key=lambda each: (each[1], each[0].uid))
    moments = {begin, end} if begin < end else set()
    for run, start, stop in held:
        moments |= {start, stop}
        for stay in on.get(run.node, ()):
            moments |= {stay.started_at, *([stay.ended_at] if stay.ended_at is not None else [])}
    order = sorted(moment for moment in moments if begin <= moment <= end)
    for first, last in pairwise(order):
        there = [run for run, start, stop in held if start <= first and stop >= last]
        line.most = max(line.most, len(there))
        hours = (last - first) / 3600
        for place, run in enumerate(there):
            added = place >= least
            line.replica_hours += hours
            line.gpu_hours += run.gpus * hours
            line.added_replica_hours += hours * added
            line.added_gpu_hours += run.gpus * hours * added
            paid = _at(on.get(run.node, ()), first, last)
            if paid is None or paid.price is None:
                continue
            whole, mine = (paid.gpus, run.gpus) if paid.gpus else (paid.cpus, run.cpus)
            amount = paid.price / 1_000_000 * hours * mine / whole if whole else 0.0
            line.cost[paid.currency] = line.cost.get(paid.currency, 0.0) + amount
            line.added_cost[paid.currency] = line.added_cost.get(paid.currency, 0.0) + amount * added


def _at(stays: Iterable[Stay], first: float, last: float) -> Stay | None:
    """The node as it was all through."""
    for stay in stays:
        if stay.started_at <= first and (stay.ended_at is None or stay.ended_at >= last):
            return stay
    return None
