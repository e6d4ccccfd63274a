"""`fairlead simulate`: traces through the production pass, on a clock of their own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress

app = typer.Typer(help="Replay a trace through the production scheduler.", no_args_is_help=True)

_MOST_SEEDS = 10_000


def parse_seeds(text: str) -> list[int]:
    """`42`, `42-51` or `1,5,42-51` as a list. Raises `ValueError`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        start, end = int(first), int(last) if dash else int(first)
        if end < start or len(seeds) + end - start >= _MOST_SEEDS:
            raise ValueError(f"range {part!r} is empty or longer than {_MOST_SEEDS}")
        seeds += range(start, end + 1)
    return seeds


@app.command()
def placement(
    nodes: Annotated[Path, typer.Option(help="Node list in openb format (CSV or CSV.xz).")],
    pods: Annotated[Path, typer.Option(help="Pod list in openb format (CSV or CSV.xz).")],
    strategy: Annotated[str, typer.Option(help="ai, binpack, fgd or spread.")] = "ai",
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 42-51 or 1,7,42.")] = "42-51",
    inflate: Annotated[float, typer.Option(help="GPU requests as a multiple of capacity.")] = 1.3,
    output: OutputOption = Output.TABLE,
) -> None:
    """How well a strategy packs: the openb fragmentation experiment."""
    from fairlead.core.scores import STRATEGIES
    from fairlead.simulation import placement as experiment
    from fairlead.simulation.traces import TraceError, read_nodes, read_pods

    if strategy not in STRATEGIES:
        fail(f"--strategy {strategy!r} is unknown: choose one of {', '.join(sorted(STRATEGIES))}", Exit.USAGE)
    if not math.isfinite(inflate) or not 0 < inflate <= 10:
        fail(f"--inflate {inflate} must be above 0 and at most 10", Exit.USAGE)
    try:
        numbers = parse_seeds(seeds)
    except ValueError as error:
        fail(f"--seeds {seeds!r} is not a list of numbers and ranges: {error}", Exit.USAGE)
    try:
        trace_nodes, trace_pods = read_nodes(nodes), read_pods(pods)
    except TraceError as error:
        fail(str(error))
    if not any(node.gpus for node in trace_nodes):
        fail(f"{nodes}: no node has GPUs")
    if not trace_pods:
        fail(f"{pods}: no pods")
    with progress(f"{pods.name} with {strategy}") as report:
        done = 0

        def across(arrived: int, of: int) -> None:
            nonlocal done
            done += arrived == 0
            report((done - 1) * of + arrived, of * len(numbers))

        result = experiment.simulate(trace_nodes, trace_pods, strategy=strategy, seeds=numbers, inflate=inflate, progress=across)

    def table() -> None:
        rows: list[dict[str, object]] = [
            {
                "arrived %": column,
                "allocation %": result.allocation[column],
                "deviation": result.allocation_deviation[column],
                "idle GPUs": result.unallocated_gpus[column],
                "fragmented %": result.fragmentation[column],
            }
            for column in result.allocation
            if int(column) % 10 == 0 and int(column) >= 50
        ]
        print_table(f"{strategy} on {pods.name}: {len(numbers)} seeds, {result.pods_per_second:,.0f} pods/s", list(rows))

    emit(result, output, table)


@app.command()
def jobs(
    jobs: Annotated[Path, typer.Option(help="Job table: submit_time, duration_s, num_gpus, vc (CSV or CSV.xz).")],
    nodes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Nodes in the pool.")],
    gpus_per_node: Annotated[int, typer.Option(min=1, max=1024, help="GPUs of each node.")],
    trace: Annotated[str, typer.Option(help="Form of the table: philly.")] = "philly",
    policy: Annotated[str, typer.Option(help="fifo or sjf.")] = "fifo",
    output: OutputOption = Output.TABLE,
) -> None:
    """How long jobs wait: a job trace, event by event."""
    from fairlead.simulation import jobs as replay
    from fairlead.simulation.traces import TraceError, read_jobs

    if trace != "philly":
        fail(f"--trace {trace!r} is unknown: philly is the one that is read", Exit.USAGE)
    if policy not in ("fifo", "sjf"):
        fail(f"--policy {policy!r} is unknown: choose fifo or sjf", Exit.USAGE)
    try:
        table_jobs = read_jobs(jobs)
    except TraceError as error:
        fail(str(error))
    with progress(f"{jobs.name}, {policy}") as report:
        result = replay.simulate(
            table_jobs,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            policy="fifo" if policy == "fifo" else "sjf",
            progress=report,
        )

    def show() -> None:
        flat = {
            name: f"mean {value['mean']:,.0f}  p50 {value['p50']:,.0f}  p99 {value['p99']:,.0f}"
            if isinstance(value, dict)
            else value
            for name, value in msgspec.to_builtins(result).items()
        }
        print_table(f"{jobs.name} on {nodes} x {gpus_per_node} GPUs", flat)

    emit(result, output, show)
