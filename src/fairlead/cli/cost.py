"""`fairlead cost`: what GPUs were held, by whom, what lay idle, and what it cost."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.history import DEFAULT_FILE, DatabaseOption, history_failed, moment
from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Exit, Output, OutputOption, console, emit, fail
from fairlead.observability.history import HistoryError
from fairlead.observability.ledger import Holder, Ledger, Line, ledger, ledger_with_days
from fairlead.observability.scaling import Scaled, scaled

if TYPE_CHECKING:
    from fairlead.observability.store import History


class By(StrEnum):
    """What costs are added up by."""

    QUEUE = "queue"
    USER = "user"
    JOB = "job"
    CLASS = "class"
    NAMESPACE = "namespace"
    SCALER = "scaler"


_NONE = "(none)"
_KEYS: dict[By, Callable[[Holder], str]] = {
    By.QUEUE: lambda each: each.queue or _NONE,
    By.USER: lambda each: each.user or _NONE,
    By.CLASS: lambda each: each.service_class or _NONE,
    By.NAMESPACE: lambda each: each.namespace,
}


def cost(
    by: Annotated[
        By, typer.Option(help="What to group by; scaler: replicas that HorizontalPodAutoscalers added to their minimum.")
    ] = By.QUEUE,
    since: Annotated[str, typer.Option(help="Start of the period, such as 30d (ago) or 2026-11-01T12:00.")] = "30d",
    until: Annotated[str, typer.Option(help="End of the period.", show_default="now")] = "",
    export: Annotated[Path | None, typer.Option("--csv", help="Write the lines to a file as CSV; - for stdout.")] = None,
    database: DatabaseOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """GPU-hours held and idle, and their cost at the prices of the NodePools, from the history."""
    from fairlead.observability.store import History

    now = time.time()
    begin, end = moment(since, now, "--since"), moment(until, now, "--until") if until else now
    if begin >= end:
        fail(f"--since {since} is not before --until {until or 'now'}", Exit.USAGE)
    path = Path(DEFAULT_FILE).expanduser()
    if not database and not path.exists():
        why = f"no history database at {DEFAULT_FILE}"
        fail(f"{why}: give --database or FAIRLEAD_DATABASE, the URL that the operator has as --history", Exit.NOT_FOUND)
    try:
        with closing(History(database or f"sqlite:///{path}", create=False)) as store:
            if by is By.SCALER:
                stays, runs = store.held(begin, end)
                kinds = store.kinds(begin, end)
                held = [(run, kinds.get(run.job)) for run, _ in runs]
                _scaling(scaled(store.scalers(begin, end), stays, held, begin, end, now), export, output)
                return
            found = _ledger(store, by, begin, end, now)
    except HistoryError as error:
        history_failed(error)
    if export is not None:
        _write(found, by, export)
        return
    emit(found, output, lambda: console().print(_table(found, by)))
    if output is Output.TABLE:
        for remark in _remarks(found):
            typer.echo(remark)


def _ledger(store: History, by: By, begin: float, end: float, now: float) -> Ledger:
    """The ledger of a window; of jobs there are too many for days to be added up by them."""
    if by is not By.JOB:
        return ledger_with_days(*store.held_by_days(begin, end), begin, end, _KEYS[by], now)
    stays, runs = store.held(begin, end)
    jobs = {run.uid: job for run, job in runs}
    return ledger(stays, (run for run, _ in runs), begin, end, lambda run: jobs[run.uid], now)


def _scaling(found: list[Scaled], export: Path | None, output: Output) -> None:
    """What autoscalers added to their minimum."""
    currencies = sorted({currency for line in found for currency in line.cost})
    if export is not None:
        hours = ["most", "replica_hours", "added_replica_hours", "gpu_hours", "added_gpu_hours"]
        costs = [f"{kind}_{currency}" for currency in currencies for kind in ("cost", "added_cost")]
        rows = [
            [line.name, line.target, *(getattr(line, each) for each in hours)]
            + [part.get(currency, 0.0) for currency in currencies for part in (line.cost, line.added_cost)]
            for line in found
        ]
        _export(["scaler", "target", *hours, *costs], rows, export)
        return
    columns = [Column("SCALER", flexible=True), Column("TARGET", flexible=True), Column("MOST", right=True)]
    columns += [Column(name, right=True) for name in ("REPLICA HOURS", "ADDED", "GPU HOURS", "ADDED")]
    columns += [Column(name, right=True) for currency in currencies for name in (f"COST {currency}", "ADDED")]

    def row(line: Scaled) -> list[str]:
        hours = (line.replica_hours, line.added_replica_hours, line.gpu_hours, line.added_gpu_hours)
        costs = [part.get(currency, 0.0) for currency in currencies for part in (line.cost, line.added_cost)]
        return [line.name, line.target, str(line.most), *(f"{each:,.1f}" for each in hours), *(f"{each:,.2f}" for each in costs)]

    emit({"lines": found}, output, lambda: console().print(Listing(columns, [row(line) for line in found])))
    if output is Output.TABLE and not found:
        typer.echo("the history has no HorizontalPodAutoscaler in this period")


def _currencies(found: Ledger) -> list[str]:
    return sorted({currency for line in (*found.lines, found.idle, found.nodes) for currency in line.cost})


def _table(found: Ledger, by: By) -> Any:
    currencies = _currencies(found)
    columns = [Column(by.value.upper(), flexible=True), Column("GPU HOURS", right=True)]
    columns += [Column("USED", right=True)] if found.nodes.measured_gpu_hours else []
    columns += [Column("CPU HOURS", right=True)]
    columns += [Column(f"COST {currency}", right=True) for currency in currencies]

    def row(name: str, line: Line) -> list[str]:
        costs = [f"{line.cost.get(currency, 0.0):,.2f}" for currency in currencies]
        used = [_used(line)] if found.nodes.measured_gpu_hours else []
        return [name, f"{line.gpu_hours:,.1f}", *used, f"{line.cpu_hours:,.1f}", *costs]

    rows = [row(line.name, line) for line in found.lines]
    return Listing(columns, [*rows, row("idle", found.idle), row("all nodes", found.nodes)])


def _used(line: Line) -> str:
    """How much of what was held was used, where that was measured."""
    return f"{100 * line.used_gpu_hours / line.measured_gpu_hours:.0f} %" if line.measured_gpu_hours else ""


def _remarks(found: Ledger) -> list[str]:
    remarks = []
    if found.nodes.unpriced_gpu_hours:
        remarks.append(
            f"{found.nodes.unpriced_gpu_hours:,.1f} GPU-hours have no price: set spec.price in the NodePool of their nodes"
        )
    remarks += [
        f"{left:+,.2f} {currency}: jobs hold more than the nodes offered; the accounting needs a check"
        for currency, left in found.balance.items()
        if left
    ]
    if not found.nodes.gpu_hours and not found.nodes.cpu_hours:
        remarks.append("the history has no node in this period")
    return remarks


def _write(found: Ledger, by: By, path: Path) -> None:
    """One line each, then what was idle, and all nodes."""
    currencies = _currencies(found)
    hours = ["gpu_hours", "used_gpu_hours", "measured_gpu_hours", "cpu_hours", "unpriced_gpu_hours"]
    head = [by.value, *hours, *(f"cost_{currency}" for currency in currencies)]
    lines = [(line.name, line) for line in found.lines] + [("idle", found.idle), ("nodes", found.nodes)]
    rows = [
        [name, *(getattr(line, each) for each in hours), *(line.cost.get(each, 0.0) for each in currencies)]
        for name, line in lines
    ]
    _export(head, rows, path)


def _export(head: list[str], rows: list[list[Any]], path: Path) -> None:
    try:
        with open(sys.stdout.fileno(), "w", closefd=False) if str(path) == "-" else path.open("w", newline="") as file:
            csv.writer(file).writerows([head, *rows])
    except OSError as error:
        fail(f"--csv {path}: {error.strerror}", Exit.USAGE)
