"""Names are ordered by their bytes, whatever the server's locale: so an index does not depend on the server's library.

Programs of versions 1 to 3 read the number in `notes`; theirs they refuse, and another one they would write.
"""

import sqlalchemy as sql
from alembic import op

revision = "4"
down_revision = "3"

_NAMES = {
    "jobs": ("uid", "namespace", "kind", "name", "queue", "service_class", "user", "state"),
    "runs": ("uid", "job", "namespace", "name", "queue", "service_class", "user", "node", "outcome"),
    "stays": ("uid", "node", "node_uid", "pool", "currency", "kind"),
    "scalers": ("uid", "namespace", "name", "kind", "target"),
    "notes": ("name", "value"),
}


def upgrade() -> None:
    """From version 3."""
    if op.get_bind().dialect.name == "postgresql":
        for table, columns in _NAMES.items():
            changes = [f'ALTER COLUMN "{name}" TYPE VARCHAR(512) COLLATE "C"' for name in columns]
            op.execute(f"ALTER TABLE {table} {', '.join(changes)}")  # each table is read once
    notes = sql.table("notes", sql.column("name"), sql.column("value"))
    op.execute(notes.delete().where(notes.c.name == "version"))
    op.execute(notes.insert().values(name="version", value="4"))
