"""Jobs, their runs, and what the writer notes."""

import sqlalchemy as sql
from alembic import op

revision = "1"
down_revision = None

_TEXT = sql.String(512)


def upgrade() -> None:
    """From an empty database."""
    op.create_table(
        "jobs",
        sql.Column("uid", _TEXT, primary_key=True),
        sql.Column("namespace", _TEXT, nullable=False, index=True),
        sql.Column("kind", _TEXT, nullable=False),
        sql.Column("name", _TEXT, nullable=False),
        sql.Column("queue", _TEXT, nullable=False),
        sql.Column("service_class", _TEXT, nullable=False),
        sql.Column("user", _TEXT, nullable=False),
        sql.Column("state", _TEXT, nullable=False),
        sql.Column("submitted_at", sql.Double, nullable=False, index=True),
        sql.Column("started_at", sql.Double),
        sql.Column("ended_at", sql.Double, index=True),
        sql.Column("restarts", sql.Integer, nullable=False),
        sql.Column("interruptions", sql.Integer, nullable=False),
        sql.Column("exit_code", sql.Integer),
        sql.Column("message", sql.Text, nullable=False),
    )
    op.create_table(
        "runs",
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
        sql.Column("ended_at", sql.Double, index=True),
        sql.Column("outcome", _TEXT, nullable=False),
        sql.Column("exit_code", sql.Integer),
    )
    op.create_table("notes", sql.Column("name", _TEXT, primary_key=True), sql.Column("value", _TEXT, nullable=False))
