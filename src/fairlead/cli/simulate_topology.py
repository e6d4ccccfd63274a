"""`fairlead simulate topology`: gangs of whole nodes on a real fabric, under all rules on the same arrivals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.choices import TopologyProtocol
from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress
from fairlead.cli.seeds import seeds_of

if TYPE_CHECKING:
    from fairlead.simulation.topology.report import FloorsResult, ProductionResult

_LOADS = "0.92,0.80"
_ARRIVALS = 12_000
_PREFERRED_WAIT = 1200.0


def topology(
    fabric: Annotated[
        str, typer.Option(help="CSV of hosts with the columns PSW and ASW; or a folder of --traces with topo.csv.")
    ] = "lingjun2023",
    protocol: Annotated[
        TopologyProtocol,
        typer.Option(
            help="production: through the production pass, with queues and backfill; "
            "floors: in one line, a gang starts whenever enough nodes are free anywhere."
        ),
    ] = "production",
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 1-10 or 1,7,42.")] = "1-10",
    loads: Annotated[str, typer.Option(help="Offered loads, separated by commas; 1 is what all nodes can do.")] = _LOADS,
    arrivals: Annotated[
        int, typer.Option(min=8, max=1_000_000, help="Gangs of each seed; the first quarter is not counted.")
    ] = _ARRIVALS,
    preferred_wait: Annotated[
        float,
        typer.Option(min=0, max=1e9, help="production: seconds that a gang waits at most for as few leaves as it needs."),
    ] = _PREFERRED_WAIT,
    traces: Annotated[Path | None, typer.Option(envvar="FAIRLEAD_TRACES", help="The folder of traces (docs/traces.md).")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Gangs on a network with levels: how many leaves they span, beside the fewest possible, and how long they wait."""
    from fairlead.simulation.topology import fabric as fabrics
    from fairlead.simulation.topology import floors, report
    from fairlead.simulation.traces import TraceError

    numbers = seeds_of(seeds)
    chosen = _loads(loads)
    try:
        read = fabrics.read(_file(fabric, traces))
    except TraceError as error:
        fail(str(error))
    if max(floors.SIZES) > read.hosts:
        fail(f"{fabric}: {read.hosts} hosts, the largest gang has {max(floors.SIZES)}")
    if protocol == "production":
        with progress("gangs") as shown:
            played = report.in_production(read, numbers, chosen, preferred_wait=preferred_wait, arrivals=arrivals, progress=shown)
        emit(played, output, lambda: _show_production(played))
        return
    with progress("gangs") as shown:
        result = report.compare(read, numbers, chosen, arrivals=arrivals, progress=shown)
    emit(result, output, lambda: _show(result))


def _file(fabric: str, traces: Path | None) -> Path:
    return Path(fabric) if traces is None or Path(fabric).is_file() else traces / fabric / "topo.csv"


def _loads(loads: str) -> list[float]:
    try:
        found = [float(load) for load in loads.split(",")]
    except ValueError:
        found = [math.nan]
    if not all(math.isfinite(load) and 0 < load <= 10 for load in found):
        fail(f"--loads {loads!r} must be numbers above 0 and at most 10, separated by commas", Exit.USAGE)
    return found


def _show(result: FloorsResult) -> None:
    for load, one in result.loads.items():
        rows: list[Mapping[str, object]] = [
            {
                "rule": name,
                "mean": f"{one.mean[name]:.3f}",
                "lowest": f"{min(by_seed.values()):.3f}",
                "highest": f"{max(by_seed.values()):.3f}",
            }
            for name, by_seed in one.leaves_over_ideal.items()
        ]
        rows += [
            {"rule": "clairvoyant schedule", "mean": f"{one.mean_schedule:.3f}"},
            {"rule": "clairvoyant bound", "mean": f"{one.mean_bound:.3f}"},
        ]
        print_table(
            f"leaves over the ideal, load {load}: below best-fit on {one.below_best_fit} of {result.seeds} seeds, "
            f"{one.way_to_schedule:.0%} of the way to the schedule, {one.way_to_bound:.0%} to the bound",
            rows,
        )


def _show_production(result: ProductionResult) -> None:
    for load, one in result.loads.items():
        rows: list[Mapping[str, object]] = [
            {
                "rule": name,
                "leaves over ideal": f"{one.mean[name]:.3f}",
                "lowest": f"{min(by_seed.values()):.3f}",
                "highest": f"{max(by_seed.values()):.3f}",
                "mean wait": f"{one.wait[name]:.2f}",
                "longest wait": f"{one.longest_wait[name]:.0f}",
            }
            for name, by_seed in one.leaves_over_ideal.items()
        ]
        print_table(f"load {load}, {result.seeds} seeds; waits in units of {result.seconds_per_unit:g} s", rows)
