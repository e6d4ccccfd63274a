"""`fairlead simulate mig`: partitions of GPUs, placed by all rules on the same streams; jobs that accept any profile."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress

if TYPE_CHECKING:
    from fairlead.simulation.mig.report import StreamResult

_RATE = 0.02


def mig(
    moves: Annotated[bool, typer.Option("--moves", help="Also with moves of running partitions (--rate).")] = False,
    rate: Annotated[float, typer.Option(help="The most moves per request, with --moves.")] = _RATE,
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 1-10 or 1,7,42.")] = "1-10",
    gpus: Annotated[int, typer.Option(min=1, max=4096, help="GPUs: A100-40GB.")] = 64,
    load: Annotated[float, typer.Option(help="What the requests ask for, as a multiple of all compute slices.")] = 1.0,
    requests: Annotated[
        int, typer.Option(min=8, max=1_000_000, help="Requests of each seed; the first quarter is not counted.")
    ] = 6000,
    output: OutputOption = Output.TABLE,
) -> None:
    """How much of partitioned GPUs is allocated: a stream of MIG requests under simple rules and Fairlead's."""
    from fairlead.cli.simulate import parse_seeds
    from fairlead.simulation.mig import report

    if not math.isfinite(load) or not 0 < load <= 10:
        fail(f"--load {load} must be above 0 and at most 10", Exit.USAGE)
    if not math.isfinite(rate) or not 0 <= rate <= 10:
        fail(f"--rate {rate} must be at least 0 and at most 10", Exit.USAGE)
    try:
        numbers = parse_seeds(seeds)
    except ValueError as error:
        fail(f"--seeds {seeds!r} is not a list of numbers and ranges: {error}", Exit.USAGE)
    with progress(f"MIG requests on {gpus} GPUs") as shown:
        result = report.compare(numbers, gpus=gpus, load=load, requests=requests, rate=rate if moves else 0.0, progress=shown)
    emit(result, output, lambda: _show(result))


def _show(result: StreamResult) -> None:
    rows: list[dict[str, object]] = [
        {"rule": name, **{f"{mix} %": f"{by_rule[name]:.2f}" for mix, by_rule in result.allocated.items()}}
        for name in next(iter(result.allocated.values()))
    ]
    print_table(f"compute slices allocated: {result.gpus} GPUs, load {result.load:g}, {result.seeds} seeds", rows)
