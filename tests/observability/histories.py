"""Histories from seeds: rows as they are drawn, and databases as programs of earlier versions made them, by SQL alone."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sql

from fairlead.observability.database import Database
from fairlead.observability.history import Job, Run, Scaler, State, Stay
from fairlead.observability.ledger import DAY

SCHEMAS = Path(__file__).parent / "schemas"
NOW = 9.6 * DAY
VERSIONS = {"1": ("jobs", "runs"), "2": ("jobs", "runs", "stays", "scalers"), "3": ("jobs", "runs", "stays", "scalers", "days")}
"""The tables of each version, without notes."""


def at(draw: random.Random) -> float:
    """Some moment, often a midnight or next to one."""
    whole = draw.randrange(11) * DAY
    return whole + draw.choice((0.0, 0.0004, -0.0004, 0.001, draw.uniform(0, DAY), draw.uniform(0, DAY)))


def ends(draw: random.Random, started: float) -> float | None:
    return max(started, at(draw)) if draw.random() < 0.8 else None


def drawn_stay(draw: random.Random, number: int) -> Stay:
    started = max(0.0, at(draw))
    return Stay(
        uid=f"s{number}",
        node=f"n{draw.randrange(3)}",
        node_uid="u",
        pool="p",
        gpus=draw.choice((8.0, 4.0, 0.0)),
        cpus=64.0,
        price=draw.choice((None, 7_777_777, 32_000_000)),
        currency=draw.choice(("USD", "EUR")),
        kind="Spot",
        started_at=started,
        ended_at=ends(draw, started),
    )


def drawn_run(draw: random.Random, number: int) -> Run:
    started = max(0.0, at(draw))
    return Run(
        uid=f"r{number}",
        job=f"j{draw.randrange(9)}",
        namespace=draw.choice("ab"),
        name=f"r{number}",
        queue=draw.choice(("q1", "q2", "")),
        service_class=draw.choice(("", "batch")),
        user=draw.choice(("ann", "bob")),
        node=f"n{draw.randrange(4)}",
        gpus=draw.choice((1.0, 0.333, 8.0, 0.0)),
        cpus=2.0,
        started_at=started,
        ended_at=ends(draw, started),
        used=draw.choice((0.0, 100.0)),
        measured=draw.choice((0.0, 200.0, 777.0)),
    )


def drawn_job(draw: random.Random, number: int) -> Job:
    submitted = draw.choice((float(draw.randrange(9)) * DAY, at(draw)))
    return Job(
        uid=f"j{number}",
        namespace=draw.choice("ab"),
        kind="AIJob",
        name=f"job-{draw.randrange(4)}-{number % 7}",
        queue=draw.choice(("q1", "q2")),
        user=draw.choice(("ann", "bob")),
        state=draw.choice(list(State)),
        submitted_at=submitted,
        ended_at=ends(draw, submitted),
    )


# -- whole histories -----------------------------------------------------------------------------

Rows = dict[str, list[dict[str, Any]]]
"""By table."""
_TEXTS = ("", "it's over", "línea 1\nline 2", 'a "quoted" \\ % :name', "日本語 🚀", "x" * 600)


def drawn(seed: int) -> Rows:
    """A history with all that may be in one: no column is always of one kind."""
    draw = random.Random(seed)
    jobs = [drawn_job(draw, number) for number in range(24)]
    for job in jobs:
        job.message, job.exit_code = draw.choice(_TEXTS), draw.choice((None, 0, 1, 137, -1))
        job.started_at = draw.choice((None, job.submitted_at + draw.uniform(0, 999)))
        job.restarts, job.interruptions = draw.randrange(3), draw.randrange(3)
        job.service_class = draw.choice(("", "batch"))
    jobs[2].name = "job-0-0"
    jobs[0].user = jobs[1].name = "ünïcode-" + "n" * 500
    runs = [drawn_run(draw, number) for number in range(60)]
    for run in runs:
        run.job = f"j{draw.randrange(27)}"  # of some the job is not there
        run.outcome, run.exit_code = draw.choice(("", "Succeeded", "Failed: OOMKilled")), draw.choice((None, 0, 9))
    stays = [each for node in range(4) for each in _stays_of(draw, node)]
    stays[0].price = 3_000_000_001  # more than 32 bits
    scalers = [
        Scaler(
            uid=f"h{number}",
            namespace="a",
            name=f"scaler-{number % 3}",
            kind="AIJob",
            target=jobs[number].name,
            min_replicas=draw.randrange(2),
            max_replicas=9,
            started_at=(started := max(0.0, at(draw))),
            ended_at=ends(draw, started),
        )
        for number in range(6)
    ]
    rows: dict[str, list[Any]] = {"jobs": jobs, "runs": runs, "stays": stays, "scalers": scalers}
    return {table: [msgspec.to_builtins(each) for each in some] for table, some in rows.items()}


def _stays_of(draw: random.Random, node: int) -> list[Stay]:
    """A node as it was, one time after the other."""
    found = [msgspec.structs.replace(drawn_stay(draw, 3 * node + number), node=f"n{node}") for number in range(3)]
    moments = sorted(max(0.0, at(draw)) for _ in range(6))
    for number, each in enumerate(found):
        each.started_at, each.ended_at = moments[2 * number], draw.choice(moments[2 * number + 1 : 2 * number + 3])
    found[-1].ended_at = draw.choice((moments[-1], None))
    return found


def made(url: str, version: str, rows: Rows) -> None:
    """A database as a program of a version made it, with as much of these rows as that version keeps."""
    with _connected(url) as connection:
        dialect = connection.dialect.name
        for statement in (SCHEMAS / f"version_{version}_{dialect}.sql").read_text().split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
        tables = [sql.Table(name, sql.MetaData(), autoload_with=connection) for name in VERSIONS[version]]
        for table in tables:
            for row in rows.get(table.name, ()):
                kept = {name: value for name, value in row.items() if name in table.c}
                connection.execute(table.insert().values(kept))
        notes = sql.table("notes", sql.column("name"), sql.column("value"))
        connection.execute(notes.insert().values(name="alive_at", value=repr(5.0 * DAY)))


def everything(url: str, tables: tuple[str, ...] = VERSIONS["3"]) -> dict[str, list[tuple[Any, ...]]]:
    """All rows, in the order of their keys; columns by name. Notes without those of the schema and of the writer."""
    with _connected(url) as connection:
        found = {}
        for name in tables:
            rows = connection.execute(sql.Table(name, sql.MetaData(), autoload_with=connection).select()).mappings()
            found[name] = sorted(tuple(sorted((key, _plain(value)) for key, value in row.items())) for row in rows)
        notes = connection.exec_driver_sql("SELECT name, value FROM notes").all()
        return found | {"notes": sorted(tuple(row) for row in notes if row[0] not in ("version", "writer"))}


def schema(url: str) -> dict[str, Any]:
    """Tables, columns, indexes and keys."""
    with _connected(url) as connection:
        tables = sql.inspect(connection)
        return {
            name: (
                [(each["name"], str(each["type"]), each["nullable"], each["default"]) for each in tables.get_columns(name)],
                sorted((each["name"], each["column_names"], each["unique"]) for each in tables.get_indexes(name)),
                tables.get_pk_constraint(name)["constrained_columns"],
            )
            for name in sorted(tables.get_table_names())
        }


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Statements in one transaction; the rows of the last one."""
    with _connected(url) as connection:
        for statement in statements:
            result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []


def _plain(value: Any) -> Any:
    """What can be compared beside a value of the same column."""
    return (value is not None, value) if value is None or isinstance(value, int | float) else value


@contextlib.contextmanager
def _connected(url: str) -> Iterator[sql.Connection]:
    database = Database(url)
    try:
        with database.engine.begin() as connection:
            yield connection
    finally:
        database.close()
