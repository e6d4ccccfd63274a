"""How Alembic reaches the database: by the connection, and in the transaction, that `upgrade` has."""

from alembic import context

from fairlead.observability.migrations import TABLE

context.configure(connection=context.config.attributes["connection"], version_table=TABLE)
context.run_migrations()
