"""How much of what runs held was used."""

import sqlalchemy as sql
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """From version 1."""
    for name in ("used", "measured"):
        op.add_column("runs", sql.Column(name, sql.Double, nullable=False, server_default="0"))
