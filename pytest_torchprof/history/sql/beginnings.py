"""The beginnings of records in a database: only as much of them is read as somebody asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, literal_column, select

from pytest_torchprof.history.sql.schema import RECORD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Connection


def beginnings(
    connection: Connection, most_bytes: int, uuids: Collection[str] | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield id and beginning of each record by their ids, or of those of ``uuids``, within the transaction."""
    if connection.dialect.name != "sqlite":
        chosen = select(RECORD.c.uuid, func.substr(RECORD.c.packed, 1, most_bytes, type_=RECORD.c.packed.type))
        yield from ((uuid, packed) for uuid, packed in connection.execute(_of(chosen, uuids)))
        return
    # SQLite's substr() goes through all pages of a record, which are some hundred kilobytes of each run.
    file: Any = connection.connection.driver_connection
    for row, uuid in connection.execute(_of(select(literal_column("record.rowid"), RECORD.c.uuid), uuids)).all():
        with file.blobopen(RECORD.name, RECORD.c.packed.name, row, readonly=True) as packed:
            yield uuid, packed.read(most_bytes)


def _of(chosen: Any, uuids: Collection[str] | None) -> Any:
    return (chosen if uuids is None else chosen.where(RECORD.c.uuid.in_(uuids))).order_by(RECORD.c.uuid)
