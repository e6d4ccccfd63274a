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


@app.command()
def cluster(
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes of at least 8 GPUs.")] = 500,
    pods: Annotated[int, typer.Option(min=2, max=1_000_000, help="One-GPU pods.")] = 4000,
    gang: Annotated[int, typer.Option(min=1, max=10_000, help="Pods of a gang; 1: no gangs.")] = 1,
    arrival_rate: Annotated[
        float | None, typer.Option(min=0.1, max=10_000, help="Pods created per second; absent: all first.")
    ] = None,
    schedulers: Annotated[str, typer.Option(help="Which to compare, comma-separated.")] = "fairlead,kube-scheduler,bare-binder",
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Rounds, the schedulers alternating.")] = 5,
    workload: Annotated[str, typer.Option(help="pods, or relist: force a relist at the end.")] = "pods",
    events: Annotated[bool, typer.Option(help="Have Fairlead write events.")] = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Schedulers side by side on a real API server. Needs a checkout with its testbed."""
    import sys
    from pathlib import Path

    sys.path.append(str(Path(__file__).parents[3]))  # the checkout, where the testbed lies beside src/
    try:
        from testbed import bench
    except ImportError as error:
        fail(f"the testbed is not importable ({error}): run this from a checkout of the project", Exit.NOT_FOUND)
    names = [name.strip() for name in schedulers.split(",") if name.strip()]
    unknown = [name for name in names if name not in bench.SCHEDULERS]
    if unknown or not names:
        fail(f"--schedulers {schedulers!r}: choose from {', '.join(bench.SCHEDULERS)}", Exit.USAGE)
    if workload not in bench.WORKLOADS:
        fail(f"--workload {workload!r} is unknown: choose one of {', '.join(bench.WORKLOADS)}", Exit.USAGE)
    given = bench.Workload(nodes=nodes, pods=pods, gang=gang, arrival_rate=arrival_rate, kind=workload, events=events)
    try:
        result = bench.compare(given, names, repeats, lambda step: typer.echo(step, err=True))
    except bench.BenchError as error:
        fail(str(error))

    def table() -> None:
        rows: list[dict[str, object]] = [
            {
                "scheduler": name,
                "pods/s": summary.pods_per_second,
                "with events": summary.pods_per_second_events or "-",
                "p50 ms": summary.latency_ms.p50,
                "p99 ms": summary.latency_ms.p99,
                "CPU s": summary.cpu_seconds,
                "RSS MB": summary.rss_mb,
                "writes/pod": summary.api_writes_per_pod,
                "ratio": result.ratios.get(name, "-"),
            }
            for name, summary in result.schedulers.items()
        ]
        print_table(f"{nodes} nodes, {pods} pods, gangs of {gang}", list(rows))
        for note in result.notes:
            typer.echo(note)

    emit(result, output, table)
