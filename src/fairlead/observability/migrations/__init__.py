"""The schema of a history's database: which one is there, and its migration to the present one, by Alembic.

Versions "1" to "3" were numbered in table `notes`; since "4" the number is Alembic's, in table `history_version`. A migration is
one transaction on both databases: it is done, or nothing is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sqlalchemy as sql

from fairlead.observability.history import SchemaError
from fairlead.observability.tables import METADATA, NOTES

LATEST: Final = "4"
TABLE: Final = "history_version"
_NUMBERED: Final = ("1", "2", "3")
_KNOWN: Final = (*_NUMBERED, LATEST)


def present(connection: sql.Connection) -> str | None:
    """The version of the schema that is there; None: the database is empty. Raises `SchemaError` where it is no history."""
    tables = set(sql.inspect(connection).get_table_names())
    if TABLE in tables:
        table = sql.table(TABLE, sql.column("version_num"))
        return str(connection.scalar(sql.select(table.c.version_num)))
    if "notes" in tables:
        found = connection.scalar(sql.select(NOTES.c.value).where(NOTES.c.name == "version"))
        if found is not None:
            return str(found)
    foreign = sorted(tables & set(METADATA.tables))
    if foreign:
        raise SchemaError(f"this database is no history: it has a table {foreign[0]!r} of something else; use another database")
    return None


def require(found: str | None) -> None:
    """Raises `SchemaError` unless the schema that was found is the present one."""
    refuse_later(found)
    if found is None:
        raise SchemaError("the history database is empty: an operator makes its tables when it leads")
    if found != LATEST:
        raise SchemaError(
            f"the history database has schema version {found}, this program reads {LATEST}: "
            "an operator of this version upgrades it"
        )


def refuse_later(found: str | None) -> None:
    """Raises `SchemaError` for a schema that a later program made."""
    if found is not None and found not in _KNOWN:
        raise SchemaError(
            f"the history database has schema version {found}, this program knows versions up to {LATEST}: use the version of "
            "Fairlead that upgraded it or a later one, or restore the backup from before the upgrade (docs/history.md)"
        )


def upgrade(connection: sql.Connection) -> None:
    """Bring the database to the present schema, within the transaction that the connection has."""
    found = present(connection)
    refuse_later(found)
    if found == LATEST:
        return
    from alembic import command  # noqa: PLC0415 - only what migrates loads it
    from alembic.config import Config  # noqa: PLC0415

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    if found in _NUMBERED:
        command.stamp(config, found)
    command.upgrade(config, LATEST)
