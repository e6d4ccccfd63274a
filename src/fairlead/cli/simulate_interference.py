"""`fairlead simulate interference`: jobs that press on what a node's pods share, with and without what was learned of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress
from fairlead.cli.seeds import seeds_of

if TYPE_CHECKING:
    from fairlead.simulation.interference.report import InterferenceResult


def interference(
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 1-10 or 1,7,42.")] = "1-10",
    nodes: Annotated[int, typer.Option(min=2, max=1000, help="Nodes of 8 GPUs.")] = 64,
    jobs: Annotated[int, typer.Option(min=8, max=100_000, help="Jobs of each seed; the first quarter is not counted.")] = 2000,
    load: Annotated[float, typer.Option(help="GPUs that jobs ask for in the mean, as a part of all.")] = 0.65,
    output: OutputOption = Output.TABLE,
) -> None:
    """Slowdowns of jobs by their neighbours: with what is learned while they run, and without, on the same arrivals."""
    from fairlead.simulation.interference import report

    numbers = seeds_of(seeds)
    if not math.isfinite(load) or not 0 < load <= 2:
        fail(f"--load {load} must be above 0 and at most 2", Exit.USAGE)
    with progress("jobs") as shown:
        result = report.compare(numbers, nodes=nodes, count=jobs, load=load, progress=shown)
    emit(result, output, lambda: _show(result))


def _show(result: InterferenceResult) -> None:
    rows: list[Mapping[str, object]] = [
        {
            "scheduler": name,
            "mean slowdown": f"{result.mean_slowdown[name]:.3f}",
            "p95": f"{result.p95_slowdown[name]:.3f}",
            "allocation %": f"{result.allocation[name]:.1%}",
            "mean wait s": f"{result.mean_wait[name]:.0f}",
        }
        for name in ("ours", "blind")
    ]
    title = f"{result.slowdown_ratio:.2f}x the mean slowdown without pressure, {result.limits_broken} limits broken"
    print_table(f"{title}: {result.seeds} seeds, {result.gpus} GPUs", rows)
