"""`fairlead bench`: the numbers of benchmarks/README.md, one command each."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress

app = typer.Typer(help="Measure; every row of benchmarks/README.md is one of these.", no_args_is_help=True)


@app.command()
def placement(
    nodes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Nodes of 8 GPUs.")] = 5000,
    pods: Annotated[int, typer.Option(min=1, max=10_000_000, help="One-GPU pods to place.")] = 40_000,
    shapes: Annotated[int, typer.Option(min=1, max=100_000, help="Classes of identical pods.")] = 1,
    gang: Annotated[int, typer.Option(min=1, max=100_000, help="Pods of a gang; 1: no gangs.")] = 1,
    queues: Annotated[int, typer.Option(min=1, max=10_000, help="Queues with quota.")] = 10,
    strategy: Annotated[str, typer.Option(help="ai, binpack, fgd or spread.")] = "ai",
    output: OutputOption = Output.TABLE,
) -> None:
    """How many placements per second the core decides, without any cluster."""
    from fairlead.core.scores import STRATEGIES
    from fairlead.simulation import bench

    if strategy not in STRATEGIES:
        fail(f"--strategy {strategy!r} is unknown: choose one of {', '.join(sorted(STRATEGIES))}", Exit.USAGE)
    with progress("placing") as report:
        result = bench.placement(
            nodes=nodes, pods=pods, shapes=shapes, gang=gang, queues=queues, strategy=strategy, progress=report
        )
    emit(result, output, lambda: print_table("bench placement", msgspec.to_builtins(result)))
