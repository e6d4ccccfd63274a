"""`fairlead history`: what jobs there were and what they used, as sacct shows them."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.api import spans
from fairlead.api.quantity import QuantityError
from fairlead.cli.output import Column, Exit, Output, OutputOption, console, emit, fail, listing
from fairlead.cli.picture import NamespaceOption, span
from fairlead.observability.history import Entry, HistoryError, Run, State, Wanted

if TYPE_CHECKING:
    from rich.table import Table

    from fairlead.observability.store import History

DEFAULT_FILE = "~/.fairlead/history.db"
"""Where `fairlead local` keeps its history."""

DatabaseOption = Annotated[
    str,
    typer.Option(
        envvar="FAIRLEAD_DATABASE",
        help="The history's database: the URL that the operator was given as --history.",
        show_default=DEFAULT_FILE,
    ),
]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Times in seconds since 1970; seconds: from its start to its end, or to now; runs: pods that had a place."""

    namespace: str
    name: str
    kind: str
    queue: str
    service_class: str
    user: str
    state: str
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    wait_seconds: float
    seconds: float
    runs: int
    gpu_hours: float
    cpu_hours: float
    restarts: int
    interruptions: int
    exit_code: int | None
    message: str


class Records(msgspec.Struct, frozen=True):
    """The result of the command."""

    jobs: list[Record]


class Runs(msgspec.Struct, frozen=True):
    """The result with --runs."""

    runs: list[Run]


def history(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only jobs of this name.")] = "",
    namespace: NamespaceOption = "",
    user: Annotated[str, typer.Option("--user", "-u", help="Only this user's.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only of this queue.")] = "",
    state: Annotated[
        list[State] | None, typer.Option("--state", "-t", case_sensitive=False, help="Only in this state; may be repeated.")
    ] = None,
    since: Annotated[
        str, typer.Option(help="Jobs that were there after this time, such as 7d (ago) or 2026-11-01T12:00.")
    ] = "7d",
    until: Annotated[str, typer.Option(help="Jobs that were submitted before this time.", show_default="now")] = "",
    runs: Annotated[
        bool, typer.Option("--runs", help="The pods of the latest job of that NAME: where and when they ran.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many, the latest.")] = 1000,
    database: DatabaseOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Jobs that run and that ended, with what they used; also those whose objects are long gone."""
    now = time.time()
    wanted = Wanted(
        namespace=namespace,
        name=name,
        user=user,
        queue=queue,
        states=[str(each) for each in state or ()],
        since=moment(since, now, "--since"),
        until=moment(until, now, "--until") if until else None,
        limit=1 if runs else limit,
    )
    if runs and not name:
        fail("--runs needs the NAME of a job", Exit.USAGE)
    try:
        store = opened(database)
        entries = store.jobs(wanted, now)
        if runs and not entries:
            fail(f"{name}: no such job since {since}; --since and --namespace say where it is looked for", Exit.NOT_FOUND)
        found = Runs(store.runs(entries[0].job.uid)) if runs else None
        store.close()
    except HistoryError as error:
        fail(str(error))
    if found is not None:
        emit(found, output, lambda: console().print(_runs_table(found.runs, now)))
        return
    records = Records([_record(entry, now) for entry in entries])
    emit(records, output, lambda: console().print(_table(records.jobs)))


def opened(database: str) -> History:
    """The history that is meant; ends the command where there is none. Raises `HistoryError`."""
    from fairlead.observability.store import History

    if not database:
        path = Path(DEFAULT_FILE).expanduser()
        if not path.exists():
            fail(f"which history? --database or FAIRLEAD_DATABASE tells its URL; there is none at {DEFAULT_FILE}", Exit.USAGE)
        database = f"sqlite:///{path}"
    return History(database, create=False)


def moment(text: str, now: float, flag: str) -> float:
    """A time as people write it: how long ago, or an ISO date in local time. Seconds since 1970."""
    try:
        return now - spans.seconds(text)
    except QuantityError:
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            fail(f"{flag} {text!r} is neither a span such as 7d nor a time such as 2026-11-01 or 2026-11-01T12:00", Exit.USAGE)


def _record(entry: Entry, now: float) -> Record:
    job = entry.job
    end = job.ended_at if job.ended_at is not None else now
    return Record(
        namespace=job.namespace,
        name=job.name,
        kind=job.kind,
        queue=job.queue,
        service_class=job.service_class,
        user=job.user,
        state=str(job.state),
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        wait_seconds=max(0.0, (job.started_at if job.started_at is not None else end) - job.submitted_at),
        seconds=max(0.0, end - job.started_at) if job.started_at is not None else 0.0,
        runs=entry.runs,
        gpu_hours=entry.gpu_seconds / 3600,
        cpu_hours=entry.cpu_seconds / 3600,
        restarts=job.restarts,
        interruptions=job.interruptions,
        exit_code=job.exit_code if job.ended_at is not None else None,  # until then it may start again
        message=job.message,
    )


_STYLES = {
    State.RUNNING: "green",
    State.PENDING: "yellow",
    State.SUSPENDED: "blue",
    State.FAILED: "red",
    State.LOST: "magenta",
    State.CANCELLED: "magenta",
}


def _table(records: list[Record]) -> Table:
    from rich.text import Text

    columns = [
        Column("JOB", flexible=True, least=18),
        Column("KIND", flexible=True),
        Column("QUEUE", flexible=True),
        Column("USER", flexible=True),
        Column("STATE"),
        Column("EXIT", right=True),
        Column("SUBMITTED"),
        Column("WAITED", right=True),
        Column("RAN", right=True),
        Column("GPU-H", right=True),
        Column("RESTARTS", right=True),
    ]
    rows = [
        [
            Text(f"{each.namespace}/{each.name}"),
            Text(each.kind),
            Text(each.queue),
            Text(each.user),
            Text(each.state, _STYLES.get(State(each.state), "")),
            "" if each.exit_code is None else str(each.exit_code),
            _when(each.submitted_at),
            span(each.wait_seconds),
            span(each.seconds) if each.started_at is not None else "",
            f"{each.gpu_hours:,.2f}",
            f"{each.restarts}+{each.interruptions}" if each.interruptions else str(each.restarts),
        ]
        for each in records
    ]
    table: Table = listing(columns, rows)
    return table


def _runs_table(runs: list[Run], now: float) -> Table:
    from rich.text import Text

    columns = [
        Column("POD", flexible=True, least=18),
        Column("NODE", flexible=True),
        Column("GPUS", right=True),
        Column("STARTED"),
        Column("RAN", right=True),
        Column("OUTCOME", flexible=True),
        Column("EXIT", right=True),
    ]
    rows = [
        [
            Text(each.name),
            Text(each.node),
            f"{each.gpus:g}",
            _when(each.started_at),
            span((each.ended_at if each.ended_at is not None else now) - each.started_at),
            Text(each.outcome or "Running"),
            "" if each.exit_code is None else str(each.exit_code),
        ]
        for each in runs
    ]
    table: Table = listing(columns, rows)
    return table


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%m-%d %H:%M:%S")  # noqa: DTZ006 - local time is what people read
