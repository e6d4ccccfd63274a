"""`fairlead replay LOG`: a decision log through a fresh core, compared byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress


class Pass(msgspec.Struct, frozen=True):
    """One pass of a log. outputs: what it decided, as in the log."""

    number: int
    at: float
    outputs: list[object]
    nodes: int
    tasks: int


def replay(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A decision log, from `fairlead scheduler --record`.")],
    number: Annotated[int | None, typer.Option("--pass", min=1, help="Stop after this pass and print its decisions.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Replay a decision log through the scheduler's core. Ends with 1 at the first difference."""
    import structlog

    from fairlead.scheduler.decision_log import LogError, Player, encode

    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    try:
        player = Player(log)
        with progress("replaying") as report:
            result = player.play(number, report)
    except LogError as error:
        fail(str(error), Exit.USAGE)
    except OSError as error:
        fail(f"cannot read {log}: {error.strerror}", Exit.NOT_FOUND)
    if number is not None and result.identical:
        if result.passes < number:
            fail(f"{log} has {result.passes} passes", Exit.NOT_FOUND)
        shown = Pass(
            number, result.last, msgspec.json.decode(encode(player.outputs)), len(player.state.nodes), len(player.state.tasks)
        )

        def one() -> None:
            typer.echo(f"pass {number} at {result.last:.3f}: {shown.nodes} nodes, {shown.tasks} pods known")
            for each in player.outputs:
                typer.echo(encode(each).decode())

        emit(shown, output, one)
        return

    def table() -> None:
        rows = {
            "identical": "yes" if result.identical else "no",
            "passes": result.passes,
            "events": result.events,
            "decisions": result.outputs,
            "hours": (result.last - result.first) / 3600,
            "written by": f"fairlead {result.version}",
        }
        print_table(str(log), rows)
        if result.difference is not None:
            typer.echo(f"pass {result.difference.number} recorded: {result.difference.recorded}")
            typer.echo(f"pass {result.difference.number} replayed: {result.difference.replayed}")
        if result.truncated:
            typer.echo("the last line is incomplete: the process ended while writing it")

    emit(result, output, table)
    if not result.identical:
        raise typer.Exit(int(Exit.FAILED))
