"""NUMA nodes: placements in a closed world, judged by the kubelet's own managers."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from fairlead.cli.bench.common import app, find_checkout
from fairlead.cli.output import Exit, Output, OutputOption, emit, print_table, progress


@app.command()
def numa(
    cases: Annotated[int, typer.Option(min=1, max=10_000_000, help="Pods that come; 25 in each world of four nodes.")] = 10_000,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Pods on machines with NUMA nodes, admitted by the kubelet's own topology, CPU and memory managers."""
    find_checkout()
    from testbed.numa import closed

    with progress("pods") as report:
        result = closed.run(cases, first, report)
    emit(result, output, lambda: print_table("bench numa", msgspec.to_builtins(result)))
    if result.refused_by_kubelet:
        raise typer.Exit(int(Exit.FAILED))
