"""Whether the tables of a database say what its records say: each row is compared with what its record makes of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from pytest_torchprof.history.record import BadRecord, RunRecord, decode
from pytest_torchprof.history.rows_differ import OtherRow, RowsDiffer
from pytest_torchprof.history.sql.rows import rows_of
from pytest_torchprof.history.sql.schema import MEASUREMENT, RECORD, RUN, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Table

_AT_ONCE = 500
"""How many rows are asked for by their ids together: SQLite takes no more than some thousand."""


def compared(connection: Connection, store: str) -> Iterator[RunRecord | BadRecord | RowsDiffer]:
    """Yield each record, its fault, or how its rows differ from it; one at a time is held in memory.

    A row that several records share is compared once, with the first of them.
    """
    known: set[tuple[str, str]] = set()
    for uuid in connection.scalars(select(RECORD.c.uuid).order_by(RECORD.c.uuid)).all():
        packed: bytes = connection.execute(select(RECORD.c.packed).where(RECORD.c.uuid == uuid)).scalar_one()
        try:
            record = decode(packed, f"{store}: {uuid}")
        except BadRecord as problem:
            yield problem.kept_as(uuid)
            continue
        others = [*_others(connection, record, known)]
        yield RowsDiffer(record=uuid, rows=tuple(others)) if others else record
    for table, column in ((RUN, RUN.c.uuid), (MEASUREMENT, MEASUREMENT.c.run)):
        stray = select(column).where(column.not_in(select(RECORD.c.uuid))).distinct().order_by(column)
        for uuid in connection.scalars(stray).all():
            yield RowsDiffer(record=uuid, rows=(OtherRow(table=table.name, row=uuid, of_no_record=True),))


def _others(connection: Connection, record: RunRecord, known: set[tuple[str, str]]) -> Iterator[OtherRow]:
    for table, own in rows_of(record).items():
        rows = own
        if table in SHARED:
            rows = [row for row in own if (table.name, row["id"]) not in known]
            known.update((table.name, row["id"]) for row in rows)
        yield from _differing(table, _stored(connection, table, record.uuid, rows), rows)


def _stored(connection: Connection, table: Table, run: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that a table has of a run, or under the ids of these."""
    if table not in SHARED:
        mine = select(table).where((table.c.uuid if table is RUN else table.c.run) == run)
        return [{**row} for row in connection.execute(mine).mappings()]
    ids = [row["id"] for row in rows]
    parts = (ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE))
    return [
        {**row} for part in parts for row in connection.execute(select(table).where(table.c.id.in_(part))).mappings()
    ]


def _differing(
    table: Table, stored: Sequence[Mapping[str, Any]], meant: Sequence[Mapping[str, Any]]
) -> Iterator[OtherRow]:
    key = "position" if table is MEASUREMENT else table.primary_key.columns[0].name
    there, rows = {row[key]: row for row in stored}, {row[key]: row for row in meant}
    for name, row in rows.items():
        if name not in there:
            yield OtherRow(table=table.name, row=str(name), is_missing=True)
            continue
        differing = {
            column: (_plain(there[name][column]), _plain(value))
            for column, value in row.items()
            if _plain(there[name][column]) != _plain(value)
        }
        if differing:
            yield OtherRow(table=table.name, row=str(name), columns=differing)
    for name in there.keys() - rows.keys():
        yield OtherRow(table=table.name, row=str(name), of_no_record=True)


def _plain(value: Any) -> Any:
    # SQLite gives a time back without its zone.
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
