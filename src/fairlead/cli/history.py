"""`fairlead history`: what jobs there were and what they used, as sacct shows them."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from fairlead.api import spans
from fairlead.api.quantity import QuantityError
from fairlead.cli.connection import KubeconfigOption, NamespaceOption, span
from fairlead.cli.leader import snake
from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Exit, Output, OutputOption, console, emit, fail
from fairlead.observability.history import Entry, HistoryError, Job, Run, SchemaError, State, Wanted

HISTORY_API = "/apis/history.fairlead.dev/v1alpha1"
DEFAULT_FILE = "~/.fairlead/history.db"
"""Where `fairlead local` keeps its history."""

DatabaseOption = Annotated[
    str,
    typer.Option(
        envvar="FAIRLEAD_DATABASE",
        help="URL of the history database, as given to the operator with --history.",
        show_default=f"what the cluster serves, else {DEFAULT_FILE}",
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
    user: Annotated[str, typer.Option("--user", "-u", help="Only jobs of this user.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only jobs of this queue.")] = "",
    state: Annotated[
        list[State] | None, typer.Option("--state", "-t", case_sensitive=False, help="Only jobs in this state; may be repeated.")
    ] = None,
    since: Annotated[str, typer.Option(help="Jobs that existed after this time, such as 7d (ago) or 2026-11-01T12:00.")] = "7d",
    until: Annotated[str, typer.Option(help="Jobs submitted before this time.", show_default="now")] = "",
    runs: Annotated[
        bool, typer.Option("--runs", help="The pods of the latest job called NAME: where and when they ran.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Maximum number of jobs, latest first.")] = 1000,
    database: DatabaseOption = "",
    kubeconfig: KubeconfigOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Running and finished jobs with their usage, including jobs whose objects are deleted."""
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
        entries, found = (_from_database if database else _from_cluster)(database or kubeconfig, wanted, now, runs=runs)
    except HistoryError as error:
        history_failed(error)
    if name and not entries:
        fail(f"{name}: no such job since {since}{_narrowed(wanted)}; --since and --namespace set where to search", Exit.NOT_FOUND)
    if runs:
        emit(Runs(found), output, lambda: console().print(_runs_table(found, now)))
        return
    records = Records([_record(entry, now) for entry in entries])
    emit(records, output, lambda: console().print(_table(records.jobs)))


def _narrowed(wanted: Wanted) -> str:
    """What else was asked of the jobs, as it was given."""
    given = [("user", wanted.user), ("queue", wanted.queue), ("state", ", ".join(wanted.states)), ("namespace", wanted.namespace)]
    shown = [f"{what} {value}" for what, value in given if value]
    if wanted.until is not None:
        shown.append("submitted before --until")
    return f" ({', '.join(shown)})" if shown else ""


def history_failed(error: HistoryError, flag: str = "") -> NoReturn:
    """End with what is wrong with a history database. flag: that names it."""
    code = Exit.REFUSED if isinstance(error, SchemaError) else Exit.FAILED
    fail(f"{flag}: {error}" if flag else str(error), code)


def _from_database(url: str, wanted: Wanted, now: float, *, runs: bool) -> tuple[list[Entry], list[Run]]:
    """Jobs, and the runs of the first if they are wanted. Raises `HistoryError`."""
    from fairlead.observability.store import History

    with closing(History(url, create=False)) as store:
        entries = store.jobs(wanted, now)
        return entries, store.runs(entries[0].job.uid) if runs and entries else []


def _from_cluster(kubeconfig: str, wanted: Wanted, now: float, *, runs: bool) -> tuple[list[Entry], list[Run]]:
    """The same from the operator; where no cluster serves it, from this user's own file."""
    from fairlead.cluster.kubernetes.client import ApiError, Unreachable
    from fairlead.cluster.kubernetes.config import ConfigError

    path = Path(DEFAULT_FILE).expanduser()
    try:
        return asyncio.run(_ask(kubeconfig, wanted, runs=runs))
    except (ConfigError, Unreachable, ApiError) as error:
        refused = {400: Exit.USAGE, 401: Exit.REFUSED, 403: Exit.REFUSED}
        if isinstance(error, ApiError) and error.code in refused:
            fail(error.message, refused[error.code])
        if not path.exists():
            answer = " ".join(str(error).split())[:200]
            why = f"no history found: the cluster serves none ({answer}), and there is none at {DEFAULT_FILE}"
            fail(f"{why}: give its URL with --database or FAIRLEAD_DATABASE", Exit.UNREACHABLE)
    return _from_database(f"sqlite:///{path}", wanted, now, runs=runs)


async def _ask(kubeconfig: str, wanted: Wanted, *, runs: bool) -> tuple[list[Entry], list[Run]]:
    """Ask for all namespaces, and where that is forbidden for the kubeconfig's.

    Raises `ApiError`, `ConfigError`, `Unreachable`.
    """
    from fairlead.cluster.kubernetes.client import ApiError, Client
    from fairlead.cluster.kubernetes.config import load

    config = load(kubeconfig or None)
    query = {key: str(value) for key, value in msgspec.structs.asdict(wanted).items() if value}
    query = {key: value for key, value in query.items() if key not in ("namespace", "states")}
    if wanted.states:
        query["state"] = ",".join(wanted.states)
    async with Client(config, connections=2, read_only=True) as client:
        places = [f"namespaces/{wanted.namespace}/"] if wanted.namespace else ["", f"namespaces/{config.namespace}/"]
        for place in places:
            try:
                answer = msgspec.json.decode(await client.get(f"{HISTORY_API}/{place}jobs", **query))
                break
            except ApiError as error:
                if error.code != 403 or place == places[-1]:
                    raise
        entries = [_entry(item["status"]) for item in answer["items"]]
        if not runs or not entries:
            return entries, []
        job = entries[0].job
        answer = msgspec.json.decode(await client.get(f"{HISTORY_API}/namespaces/{job.namespace}/jobs/{job.uid}/runs"))
        return entries, [msgspec.convert(snake(item["status"]), Run) for item in answer["items"]]


def _entry(status: dict[str, Any]) -> Entry:
    known = snake(status)
    used = {name: known.pop(name) for name in ("runs", "gpu_seconds", "cpu_seconds")}
    return Entry(job=msgspec.convert(known, Job), **used)


def moment(text: str, now: float, flag: str) -> float:
    """A time as people write it: how long ago, or an ISO date in local time. Seconds since 1970."""
    try:
        return now - spans.seconds(text)
    except QuantityError:
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            fail(
                f"{flag} {text!r} is neither a duration such as 7d nor a time such as 2026-11-01 or 2026-11-01T12:00", Exit.USAGE
            )


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


def _table(records: list[Record]) -> Listing:
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
    return Listing(columns, rows)


def _runs_table(runs: list[Run], now: float) -> Listing:
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
    return Listing(columns, rows)


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%m-%d %H:%M:%S")  # noqa: DTZ006 - local time is what people read
