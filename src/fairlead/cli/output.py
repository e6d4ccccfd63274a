"""How commands speak: tables, JSON or YAML on stdout; progress and errors on stderr; exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from typing import Annotated, Any, NoReturn

import msgspec
import typer


class Output(StrEnum):
    """The form of a command's result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Exit(IntEnum):
    """Exit codes that scripts can rely on."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    UNREACHABLE = 5


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table, json or yaml")]


def fail(message: str, code: Exit = Exit.FAILED) -> NoReturn:
    """Print what is wrong and what to do to stderr, and end with a code."""
    typer.echo(f"fairlead: {message}", err=True)
    raise typer.Exit(int(code))


def emit(result: Any, output: Output, table: Callable[[], None]) -> None:
    """Print a result in the form that was asked for."""
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    elif output is Output.YAML:
        import yaml

        typer.echo(yaml.safe_dump(msgspec.to_builtins(result), sort_keys=False), nl=False)
    else:
        table()


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; yields a function of (done, total). Silent where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report


def console() -> Any:
    """The console of stdout; as wide as it takes where it is no terminal."""
    from rich.console import Console

    found = Console(file=sys.stdout)
    return found if found.is_terminal else Console(file=sys.stdout, width=10_000, soft_wrap=False)


def print_table(title: str, rows: Mapping[str, object] | list[Mapping[str, object]]) -> None:
    """A table that fits the terminal: one object as name and value, several as columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    if isinstance(rows, list):
        for column in rows[0] if rows else ():
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(_text(value) for value in row.values()))
    else:
        table.add_column("what")
        table.add_column("value", overflow="fold")
        for name, value in rows.items():
            table.add_row(name, _text(value))
    Console(file=sys.stdout).print(table)


def _text(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
