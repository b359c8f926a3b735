"""Which schema a database has, and how it gets another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, String, Table, inspect, select

from pytest_torchprof.history.sql.schema import METADATA, REVISIONS, VERSION_TABLE

if TYPE_CHECKING:
    from sqlalchemy import Connection

VERSION = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""The table that alembic keeps, as it makes it."""


def revision_of(connection: Connection) -> str | None:
    """Return which schema a database has; None where it has none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.scalar(select(VERSION.c.version_num))
    return revision


def make(connection: Connection) -> None:
    """Give a database without a schema the newest one, to which all versions lead too; that needs no alembic."""
    METADATA.create_all(connection, checkfirst=False)
    VERSION.create(connection, checkfirst=False)
    connection.execute(VERSION.insert(), {"version_num": REVISIONS[-1]})


def migrate(connection: Connection, revision: str = REVISIONS[-1]) -> None:
    """Give a database a schema, within the transaction that the connection has begun."""
    from alembic import command  # noqa: PLC0415 - slow to import, and only who upgrades a store needs it
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    command.upgrade(config, revision)
