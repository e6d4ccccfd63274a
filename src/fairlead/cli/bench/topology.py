"""Places on a network with levels: against an integer program, and what one decision costs."""

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
    output: OutputOption = Output.TABLE,
) -> None:
    """Places for gangs on a network with levels: one of --exact and --decide."""
    if exact + decide != 1:
        fail("name one of --exact and --decide", Exit.USAGE)
    find_checkout()
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
