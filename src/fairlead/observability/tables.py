"""The tables of the history's database, and how one of an earlier version is brought to this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import sqlalchemy as sql

VERSION: Final = "3"
_TEXT = sql.String(512)
_MOST_BYTES = 1 << 24  # of a day's total

METADATA = sql.MetaData()
JOBS = sql.Table(
    "jobs",
    METADATA,
    sql.Column("uid", _TEXT, primary_key=True),
    sql.Column("namespace", _TEXT, nullable=False),
    sql.Column("kind", _TEXT, nullable=False),
    sql.Column("name", _TEXT, nullable=False),
    sql.Column("queue", _TEXT, nullable=False),
    sql.Column("service_class", _TEXT, nullable=False),
    sql.Column("user", _TEXT, nullable=False),
    sql.Column("state", _TEXT, nullable=False),
    sql.Column("submitted_at", sql.Double, nullable=False),
    sql.Column("started_at", sql.Double),
    sql.Column("ended_at", sql.Double, index=True),
    sql.Column("restarts", sql.Integer, nullable=False),
    sql.Column("interruptions", sql.Integer, nullable=False),
    sql.Column("exit_code", sql.Integer),
    sql.Column("message", sql.Text, nullable=False),
)
RUNS = sql.Table(
    "runs",
    METADATA,
    sql.Column("uid", _TEXT, primary_key=True),
    sql.Column("job", _TEXT, nullable=False, index=True),
    sql.Column("namespace", _TEXT, nullable=False),
    sql.Column("name", _TEXT, nullable=False),
    sql.Column("queue", _TEXT, nullable=False),
    sql.Column("service_class", _TEXT, nullable=False),
    sql.Column("user", _TEXT, nullable=False),
    sql.Column("node", _TEXT, nullable=False, index=True),
    sql.Column("gpus", sql.Double, nullable=False),
    sql.Column("cpus", sql.Double, nullable=False),
    sql.Column("started_at", sql.Double, nullable=False),
    sql.Column("ended_at", sql.Double),
    sql.Column("outcome", _TEXT, nullable=False),
    sql.Column("exit_code", sql.Integer),
    sql.Column("used", sql.Double, nullable=False, server_default="0"),
    sql.Column("measured", sql.Double, nullable=False, server_default="0"),
)
STAYS = sql.Table(
    "stays",
    METADATA,
    sql.Column("uid", _TEXT, primary_key=True),
    sql.Column("node", _TEXT, nullable=False, index=True),
    sql.Column("node_uid", _TEXT, nullable=False),
    sql.Column("pool", _TEXT, nullable=False),
    sql.Column("gpus", sql.Double, nullable=False),
    sql.Column("cpus", sql.Double, nullable=False),
    sql.Column("price", sql.BigInteger),
    sql.Column("currency", _TEXT, nullable=False),
    sql.Column("kind", _TEXT, nullable=False),
    sql.Column("started_at", sql.Double, nullable=False, index=True),
    sql.Column("ended_at", sql.Double, index=True),
)
SCALERS = sql.Table(
    "scalers",
    METADATA,
    sql.Column("uid", _TEXT, primary_key=True),
    sql.Column("namespace", _TEXT, nullable=False),
    sql.Column("name", _TEXT, nullable=False),
    sql.Column("kind", _TEXT, nullable=False),
    sql.Column("target", _TEXT, nullable=False),
    sql.Column("min_replicas", sql.Integer, nullable=False),
    sql.Column("max_replicas", sql.Integer, nullable=False),
    sql.Column("started_at", sql.Double, nullable=False, index=True),
    sql.Column("ended_at", sql.Double, index=True),
)
DAYS = sql.Table(
    "days",
    METADATA,
    sql.Column("day", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("total", sql.LargeBinary(_MOST_BYTES), nullable=False),
)
"""What came of each day that is over, as JSON: derived from runs and stays, and removed where those change."""
NOTES = sql.Table("notes", METADATA, sql.Column("name", _TEXT, primary_key=True), sql.Column("value", _TEXT, nullable=False))

_LISTED = ("submitted_at", "namespace", "name", "user", "queue", "state", "ended_at", "uid")
_INDEXES = (
    sql.Index("ix_jobs_listed", *(JOBS.c[each] for each in _LISTED), mysql_length=dict.fromkeys(_LISTED[1:6] + _LISTED[7:], 64)),
    sql.Index("ix_jobs_name", JOBS.c.name, JOBS.c.namespace, mysql_length=dict.fromkeys(("name", "namespace"), 255)),
    sql.Index("ix_jobs_user", JOBS.c.user, JOBS.c.submitted_at),
    sql.Index("ix_runs_ended_at_started_at", RUNS.c.ended_at, RUNS.c.started_at),
)
"""All that a list chooses and orders jobs by, so that the rarest jobs are found without a row of others; jobs of a name, and of a
user; what was at some time between."""


class _Upgrade(msgspec.Struct):
    """To a version: columns and indexes that are new, and names of indexes, by their columns, that are there no more."""

    version: str
    columns: Sequence[sql.Column[float]] = ()
    indexes: Sequence[sql.Index] = ()
    dropped: Sequence[tuple[sql.Table, str]] = ()


UPGRADES: Final = {
    "1": _Upgrade("2", columns=[RUNS.c.used, RUNS.c.measured]),
    "2": _Upgrade("3", indexes=_INDEXES, dropped=[(JOBS, "namespace"), (JOBS, "submitted_at"), (RUNS, "ended_at")]),
}
"""From which version."""


def upgrade(connection: sql.Connection, found: str) -> str:
    """Bring the tables to the next version; which one that is."""
    step = UPGRADES[found]
    for column in step.columns:
        kind = column.type.compile(connection.dialect)
        connection.execute(sql.text(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind} DEFAULT 0 NOT NULL"))
    for index in step.indexes:
        index.create(connection, checkfirst=True)
    for table, column_name in step.dropped:
        _old_index(table, column_name).drop(connection, checkfirst=True)
    connection.execute(sql.update(NOTES).where(NOTES.c.name == "version").values(value=step.version))
    return step.version


def _old_index(table: sql.Table, column: str) -> sql.Index:
    """An index as an earlier version had it, beside the table as it is now."""
    before = sql.Table(table.name, sql.MetaData(), sql.Column(column, table.c[column].type))
    return sql.Index(f"ix_{table.name}_{column}", before.c[column])
