"""Nodes, autoscalers and days that are added up; indexes for every list.

Programs of versions 1 and 2 made the first two of these tables, too, without another number: they may be there.
"""

import sqlalchemy as sql
from alembic import op

revision = "3"
down_revision = "2"

_TEXT = sql.String(512)


def upgrade() -> None:
    """From version 2."""
    op.create_table(
        "stays",
        sql.Column("uid", _TEXT, primary_key=True),
        sql.Column("node", _TEXT, nullable=False),
        sql.Column("node_uid", _TEXT, nullable=False),
        sql.Column("pool", _TEXT, nullable=False),
        sql.Column("gpus", sql.Double, nullable=False),
        sql.Column("cpus", sql.Double, nullable=False),
        sql.Column("price", sql.BigInteger),
        sql.Column("currency", _TEXT, nullable=False),
        sql.Column("kind", _TEXT, nullable=False),
        sql.Column("started_at", sql.Double, nullable=False),
        sql.Column("ended_at", sql.Double),
        if_not_exists=True,
    )
    op.create_table(
        "scalers",
        sql.Column("uid", _TEXT, primary_key=True),
        sql.Column("namespace", _TEXT, nullable=False),
        sql.Column("name", _TEXT, nullable=False),
        sql.Column("kind", _TEXT, nullable=False),
        sql.Column("target", _TEXT, nullable=False),
        sql.Column("min_replicas", sql.Integer, nullable=False),
        sql.Column("max_replicas", sql.Integer, nullable=False),
        sql.Column("started_at", sql.Double, nullable=False),
        sql.Column("ended_at", sql.Double),
        if_not_exists=True,
    )
    op.create_table(
        "days",
        sql.Column("day", sql.Integer, primary_key=True, autoincrement=False),
        sql.Column("total", sql.LargeBinary(1 << 24), nullable=False),
        if_not_exists=True,
    )
    for table, columns in (("stays", ("node", "started_at", "ended_at")), ("scalers", ("started_at", "ended_at"))):
        for column in columns:
            op.create_index(f"ix_{table}_{column}", table, [column], if_not_exists=True)
    listed = ["submitted_at", "namespace", "name", "user", "queue", "state", "ended_at", "uid"]
    op.create_index("ix_jobs_listed", "jobs", listed)
    op.create_index("ix_jobs_name", "jobs", ["name", "namespace"])
    op.create_index("ix_jobs_user", "jobs", ["user", "submitted_at"])
    op.create_index("ix_runs_ended_at_started_at", "runs", ["ended_at", "started_at"])
    for table, column in (("jobs", "namespace"), ("jobs", "submitted_at"), ("runs", "ended_at")):
        op.drop_index(f"ix_{table}_{column}", table)
