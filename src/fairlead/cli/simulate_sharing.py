"""`fairlead simulate sharing`: two jobs on one GPU by measured throughputs of pairs, under several rules on the same jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress

if TYPE_CHECKING:
    from fairlead.simulation.sharing.report import SharingResult
    from fairlead.simulation.sharing.throughputs import Throughputs

_GAVEL = "gavel-"


def sharing(
    matrix: Annotated[
        str, typer.Option(help="gavel-MODEL (v100, p100, k80) of the folder of --traces, or FILE:MODEL in Gavel's format.")
    ] = "gavel-v100",
    known: Annotated[float, typer.Option(help="Part of all pairs of kinds that is measured before the first round.")] = 0.25,
    jobs: Annotated[int, typer.Option(min=2, max=2000, help="Jobs of one GPU each; an even number.")] = 200,
    draws: Annotated[int, typer.Option(min=1, max=1000, help="Draws of jobs.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of a run; what ran is measured after each.")] = 16,
    restart: Annotated[float, typer.Option(help="Part of a round that a job loses where its partner changes.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Seed of the draws; 7: those with which the floors were measured.")] = 7,
    traces: Annotated[Path | None, typer.Option(envvar="FAIRLEAD_TRACES", help="The folder of traces (docs/traces.md).")] = None,
    hours: Annotated[
        float,
        typer.Option(min=0, max=1000, help="Hours of jobs through the production pass on a full cluster; 0: none."),
    ] = 0.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Jobs in pairs on GPUs: jobs' worth per GPU where throughputs are learned, beside random pairs and the best matching."""
    from fairlead.simulation.sharing import report, throughputs
    from fairlead.simulation.traces import TraceError

    for name, value in (("--known", known), ("--restart", restart)):
        if not math.isfinite(value) or not 0 <= value <= 1:
            fail(f"{name} {value} must be between 0 and 1", Exit.USAGE)
    if jobs % 2:
        fail(f"--jobs {jobs} must be even: two are a GPU", Exit.USAGE)
    file, model = _file(matrix, traces)
    try:
        table = throughputs.read(file, model)
    except TraceError as error:
        fail(str(error))
    with progress("draws") as shown:
        result = report.compare(
            table,
            matrix,
            known=known,
            jobs=jobs,
            draws=draws,
            rounds=rounds,
            restart=restart,
            seed=seed,
            progress=shown,
        )
    if hours:
        result = _with_pass(result, table, hours, seed)
    emit(result, output, lambda: _show(result))


def _with_pass(result: SharingResult, table: Throughputs, hours: float, seed: int) -> SharingResult:
    """The same with jobs through the production pass: as many as run in pairs, and a quarter as many that wait."""
    from fairlead.simulation.sharing.world import World

    runs = []
    for learns in (True, False):
        world = World(table, gpus=result.jobs // 2, waiting=result.jobs // 4, seed=seed, learns=learns)
        with progress("hundredths") as shown:
            runs.append(world.play(hours * 3600, shown))
    return msgspec.structs.replace(result, passed=runs[0], blind=runs[1])


def _file(matrix: str, traces: Path | None) -> tuple[Path, str]:
    """The file and the model of GPU of a matrix."""
    path, colon, model = matrix.rpartition(":")
    if colon:
        return Path(path), model
    if not matrix.startswith(_GAVEL):
        fail(f"--matrix {matrix!r} must be gavel-MODEL or FILE:MODEL", Exit.USAGE)
    if traces is None:
        fail(f"--matrix {matrix} needs the folder of traces: --traces, or FAIRLEAD_TRACES (docs/traces.md)", Exit.USAGE)
    return traces / "gavel" / "simulation_throughputs.json.xz", matrix.removeprefix(_GAVEL)


def _show(result: SharingResult) -> None:
    named = {"ours": result.ours, "random runnable pairs": result.random, "best matching, all known": result.matching}
    rows: list[Mapping[str, object]] = [
        {
            "rule": name,
            "jobs' worth per GPU": f"{rule.worth_per_gpu:.3f}",
            "p95 slowdown": "-" if rule.p95_slowdown is None else f"{rule.p95_slowdown:.2f}",
        }
        for name, rule in named.items()
    ]
    for name, run in (("production pass", result.passed), ("production pass, no speeds", result.blind)):
        if run is not None:
            slowdown = "-" if run.p95_slowdown is None else f"{run.p95_slowdown:.2f}"
            rows.append({"rule": name, "jobs' worth per GPU": f"{run.worth_per_gpu:.3f}", "p95 slowdown": slowdown})
    rows.append({"rule": "bound", "jobs' worth per GPU": f"{result.bound:.3f}"})
    print_table(
        f"{result.matrix}: {result.jobs} jobs of {result.kinds} kinds, {result.known:.0%} of the pairs known at first; "
        f"{result.rounds[0]:.3f} in the first round, {result.rounds[-1]:.3f} in the last",
        rows,
    )
