"""Plots of replays, to a file."""

from __future__ import annotations

from pathlib import Path

from fairlead.simulation.report import JobsResult


class PlotError(RuntimeError):
    """The plot cannot be drawn: what is missing."""


def draw(result: JobsResult, path: Path) -> None:
    """Mean and 99th percentile of each queue's waits, and its GPU time. The suffix determines the format. Raises `PlotError`."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PlotError("plots need matplotlib: install fairlead[plots]") from error
    names = [each.name for each in result.queues]
    places = list(range(len(names)))
    figure = Figure(figsize=(10, 2.2 + 0.45 * len(names)), layout="constrained")
    waits, use = figure.subplots(1, 2, sharey=True)
    hours = 3600.0
    waits.barh([place - 0.2 for place in places], [each.wait_seconds.mean / hours for each in result.queues], 0.4, label="mean")
    waits.barh([place + 0.2 for place in places], [each.wait_seconds.p99 / hours for each in result.queues], 0.4, label="p99")
    waits.set_xlabel("wait, hours")
    waits.set_yticks(places, names)
    waits.invert_yaxis()
    waits.legend()
    days = result.makespan_seconds / 86_400 or 1.0
    use.barh(places, [each.gpu_hours / 24 / days for each in result.queues], 0.6, label="GPUs used on average")
    quotas = [(place, each.quota_gpus) for place, each in zip(places, result.queues, strict=True) if each.quota_gpus is not None]
    if quotas:
        use.plot([quota for _, quota in quotas], [place for place, _ in quotas], "k|", markersize=18, label="quota")
    use.set_xlabel("GPUs")
    use.legend()
    figure.suptitle(
        f"{result.policy}: {result.jobs:,} jobs on {result.gpus} GPUs, mean wait {result.wait_seconds.mean:,.0f} s, "
        f"utilization {result.utilization:.1%}"
    )
    try:
        figure.savefig(path)
    except OSError as error:
        raise PlotError(f"{path}: {error}") from error
