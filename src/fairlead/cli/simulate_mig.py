"""`fairlead simulate mig`: partitions of GPUs, placed by all rules on the same streams; jobs that accept any profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress
from fairlead.cli.seeds import seeds_of

if TYPE_CHECKING:
    from fairlead.simulation.mig.report import SpeedsResult, StreamResult

_RATE = 0.02
_GPUS, _GPUS_OF_JOBS = 64, 8
_REQUESTS, _JOBS = 6000, 1000
_LOADS = (0.8, 1.0)


def mig(
    moves: Annotated[bool, typer.Option("--moves", help="Also with moves of running partitions (see --rate).")] = False,
    rate: Annotated[float | None, typer.Option(help="The most moves per request; with --moves. Default 0.02.")] = None,
    speeds: Annotated[
        Path | None, typer.Option(help="JSON: workload -> profile -> seconds per step. Jobs that accept any of their profiles.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 1-10 or 1,7,42.")] = "1-10",
    gpus: Annotated[int | None, typer.Option(min=1, max=4096, help="GPUs, A100-40GB. Default 64; with --speeds 8.")] = None,
    load: Annotated[
        float | None, typer.Option(help="Load; 1 is what all GPUs can do. Default 1; with --speeds both 0.8 and 1.")
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(
            min=8, max=1_000_000, help="Requests of each seed: default 6000, the first quarter is not counted; or jobs: 1000."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Partitioned GPUs: what is allocated of them under each rule, or how long jobs take that accept any profile."""
    from fairlead.simulation.mig import report
    from fairlead.simulation.mig.speeds import SpeedsError, read

    if load is not None and not (math.isfinite(load) and 0 < load <= 10):
        fail(f"--load {load} must be above 0 and at most 10", Exit.USAGE)
    if rate is not None and not (math.isfinite(rate) and 0 <= rate <= 10):
        fail(f"--rate {rate} must be at least 0 and at most 10", Exit.USAGE)
    if rate is not None and not moves:
        fail("--rate applies only with --moves", Exit.USAGE)
    numbers = seeds_of(seeds)
    if speeds is None:
        with progress("MIG requests") as shown:
            result = report.compare(
                numbers,
                gpus=gpus or _GPUS,
                load=load or 1.0,
                requests=requests or _REQUESTS,
                rate=(_RATE if rate is None else rate) if moves else 0.0,
                progress=shown,
            )
        emit(result, output, lambda: _show(result))
        return
    if moves:
        fail("--moves does not apply to --speeds: jobs that accept any profile are not moved", Exit.USAGE)
    try:
        workloads = read(speeds)
    except SpeedsError as error:
        fail(str(error))
    loads: Sequence[float] = _LOADS if load is None else (load,)
    times = report.compare_speeds(workloads, numbers, gpus=gpus or _GPUS_OF_JOBS, loads=loads, jobs=requests or _JOBS)
    emit(times, output, lambda: _show_times(times))


def _show(result: StreamResult) -> None:
    rows: list[Mapping[str, object]] = [
        {"rule": name, **{f"{mix} %": f"{by_rule[name]:.2f}" for mix, by_rule in result.allocated.items()}}
        for name in next(iter(result.allocated.values()))
    ]
    print_table(f"compute slices allocated: {result.gpus} GPUs, load {result.load:g}, {result.seeds} seeds", rows)


def _show_times(result: SpeedsResult) -> None:
    rows: list[Mapping[str, object]] = [
        {
            "load": load,
            "any profile": f"{result.mean_jct[load]:.2f}",
            "best static": f"{result.best_static[load]:.2f}",
            "whole GPUs": f"{result.whole_gpus[load]:.2f}",
            "partitioning": ", ".join(f"{count} x {way}" for way, count in result.static_layout[load].items()),
        }
        for load in result.mean_jct
    ]
    print_table(f"mean completion time, in run times on a whole GPU: {result.gpus} GPUs, {result.seeds} seeds", rows)
