"""The migration that alembic runs: on the connection that it is given, in the transaction that this has begun."""

from __future__ import annotations

from alembic import context

from pytest_torchprof.history.sql.schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    # SQLite can take a schema back too, once Python's module for it leaves transactions alone.
    transactional_ddl=True,
)
context.run_migrations()
