"""Places on a network with levels: on a real API server, against an integer program, and what one decision costs."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from fairlead.cli.bench.common import app, find_checkout
from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress


@app.command()
def topology(
    exact: Annotated[bool, typer.Option("--exact", help="Small random instances, compared with an integer program.")] = False,
    instances: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many of --exact.")] = 1000,
    first: Annotated[int, typer.Option(min=0, help="The first seed of --exact.")] = 0,
    decide: Annotated[
        bool, typer.Option("--decide", help="What the choice for 1,000 pods in 100 subgroups costs, 5,000 and 10,000 nodes.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of --decide; medians are shown.")] = 5,
    nodes: Annotated[int, typer.Option(min=50, max=100_000, help="Nodes of 50 racks.")] = 5000,
    gangs: Annotated[str, typer.Option(help="Gangs, each in one rack, as NUMBERxMEMBERS, comma-separated.")] = "750x4,3x1000",
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Runs of each scheduler, alternating.")] = 3,
    output: OutputOption = Output.TABLE,
) -> None:
    """Gangs in racks on a real API server beside kube-scheduler; or one of --exact and --decide. Needs a checkout."""
    if exact + decide > 1:
        fail("name one of --exact and --decide", Exit.USAGE)
    find_checkout()
    if not (exact or decide):
        _on_servers(nodes, gangs, repeats, output)
        return
    if exact:
        from testbed.topology import exact as judge

        with progress("instances") as report:
            judged = judge.run(instances, report, first)
        emit(judged, output, lambda: print_table("bench topology --exact", msgspec.to_builtins(judged)))
        failed = judged.wrong_verdicts or judged.broken or judged.undecided
    else:
        from testbed.topology import decide as decisions

        with progress("gangs") as report:
            decided = decisions.run(rounds=rounds, progress=report)
        emit(decided, output, lambda: print_table("bench topology --decide", msgspec.to_builtins(decided)))
        failed = decided.broken
    if failed:
        raise typer.Exit(int(Exit.FAILED))


def _on_servers(nodes: int, gangs: str, repeats: int, output: Output) -> None:
    from testbed import bench
    from testbed.topology import cluster

    cases = []
    for each in gangs.split(","):
        number, _, members = each.strip().partition("x")
        if not (number.isdecimal() and members.isdecimal() and int(number) > 0 and int(members) > 1):
            fail(f"--gangs {each!r}: expected NUMBERxMEMBERS of at least 2 members, e.g. 750x4", Exit.USAGE)
        cases.append(cluster.Sizes(int(number), int(members)))
    try:
        result = cluster.run(nodes, tuple(cases), repeats, lambda step: typer.echo(step, err=True))
    except bench.BenchError as error:
        fail(str(error))

    def table() -> None:
        rows: list[dict[str, object]] = [
            {"gangs": case, "ratio": ratio, **{f"{name} pods/s": rate for name, rate in result.pods_per_second[case].items()}}
            for case, ratio in result.ratios.items()
        ]
        print_table(f"{nodes} nodes in {result.racks} racks", list(rows))
        print_table("1,000 pods in 100 subgroups", [{"nodes": each, "ms": ms} for each, ms in result.decision_ms.items()])
        for note in result.notes:
            typer.echo(note)

    emit(result, output, table)
