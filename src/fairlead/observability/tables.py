"""The tables of the history's database, as the present schema has them; `migrations` brings earlier ones to it."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sql
from typing_extensions import override

_MOST: Final = 512
_MOST_BYTES: Final = 1 << 24  # of a day's total


class _Name(sql.TypeDecorator[str]):
    """A text of bounded length that every database keeps alike, and orders by its bytes.

    What is longer is cut off, and U+0000, which PostgreSQL cannot keep, becomes U+FFFD.
    """

    impl = sql.String
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: sql.Dialect) -> sql.types.TypeEngine[str]:
        return dialect.type_descriptor(sql.String(_MOST, collation="C" if dialect.name == "postgresql" else None))

    @override
    def process_bind_param(self, value: str | None, dialect: sql.Dialect) -> str | None:
        return _clean(value[:_MOST]) if value is not None else None


class _Message(sql.TypeDecorator[str]):
    """A text of any length."""

    impl = sql.Text
    cache_ok = True

    @override
    def process_bind_param(self, value: str | None, dialect: sql.Dialect) -> str | None:
        return _clean(value) if value is not None else None


def _clean(text: str) -> str:
    return text.replace("\0", "\ufffd") if "\0" in text else text


_TEXT = _Name()
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
    sql.Column("message", _Message, nullable=False),
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
sql.Index("ix_jobs_listed", *(JOBS.c[each] for each in _LISTED))
"""All that a list chooses and orders jobs by, so that the rarest jobs are found without a row of others."""
sql.Index("ix_jobs_name", JOBS.c.name, JOBS.c.namespace)
sql.Index("ix_jobs_user", JOBS.c.user, JOBS.c.submitted_at)
sql.Index("ix_runs_ended_at_started_at", RUNS.c.ended_at, RUNS.c.started_at)
"""What was at some time between."""
