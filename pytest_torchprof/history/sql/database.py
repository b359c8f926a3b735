"""The records of a history in an SQLite file or a PostgreSQL database.

Each is written in one transaction, whole or not at all; a schema is changed by who asks for it, never by a writer.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from datetime import UTC
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import URL, create_engine, delete, event, exists, func, make_url, select, text
from sqlalchemy.exc import DataError
from sqlalchemy.pool import NullPool

from pytest_torchprof.history.guarding import guarding
from pytest_torchprof.history.notes import Note
from pytest_torchprof.history.record import BadRecord, RunRecord, decode, digest_of, encode
from pytest_torchprof.history.sql.beginnings import beginnings
from pytest_torchprof.history.sql.comparing import compared
from pytest_torchprof.history.sql.migrating import make, migrate, revision_of
from pytest_torchprof.history.sql.of_tests import TestTables
from pytest_torchprof.history.sql.rows import rows_of
from pytest_torchprof.history.sql.schema import (
    COMMIT,
    FROM_RECORDS,
    MACHINE,
    MEASUREMENT,
    NOTE,
    RECORD,
    REVISIONS,
    RUN,
    SHARED,
)
from pytest_torchprof.history.store import StoreUnusable, another_of_the_same_id
from pytest_torchprof.history.where import StoreKind
from pytest_torchprof.reasons.records import BeyondDatabases, NoNote
from pytest_torchprof.reasons.stores import EarlierSchema, LaterSchema, NoHistoryThere, StoreUse
from pytest_torchprof.system.remote.addresses import reason_without_secrets
from pytest_torchprof.text import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Engine, Row, Table

    from pytest_torchprof.history.rows_differ import RowsDiffer
    from pytest_torchprof.history.where import Where

_CONNECT_S: Final = 5
_PATIENCE_S: Final = 30
"""How long a writer waits for others."""
_LOCK: Final = 0x746F72636870726F
"""PostgreSQL's lock of the schema: shared by writers, held alone by who changes it or makes the tables anew."""
_MOST_PARAMETERS: Final = 500
"""How many values a statement has at most: SQLite takes no more than some thousand."""
_AT_ONCE: Final = 16
"""How many records are fetched together, and held in memory."""


class HistoryDatabase:
    """The records in a database; any number of processes may write to it at once."""

    def __init__(self, where: Where) -> None:
        """Name the store; it is reached when it is asked."""
        self.shown = where.shown
        self._where = where
        self._file = Path(where.address) if where.kind is StoreKind.SQLITE else None

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of SQLite with those beside it; none of a server."""
        if self._file is None:
            return ()
        return tuple(self._file.with_name(f"{self._file.name}{end}") for end in ("", "-wal", "-shm", "-journal"))

    @property
    def is_there(self) -> bool:
        """Whether it has a schema; StoreUnusable where that cannot be told."""
        if self._file is not None and not self._file.exists():
            return False
        with self._connected(StoreUse.READ) as connection:
            return revision_of(connection) is not None

    @contextmanager
    def _read(self) -> Iterator[Connection | None]:
        """Yield a connection to the newest schema; None where there is no schema yet."""
        if self._file is not None and not self._file.exists():
            yield None
            return
        with self._connected(StoreUse.READ) as connection:
            revision = revision_of(connection)
            if revision is not None:
                self._refuse_other_schema(revision)
            yield None if revision is None else connection

    def add(self, record: RunRecord) -> bool:
        """Keep a record, and return whether it was new.

        Raises BadRecord where another one of the same id is there, or where no database has numbers or dates as it has,
        StoreUnusable if it cannot be written.
        """
        with self._written(StoreUse.WRITE) as connection:
            if (revision := revision_of(connection)) is not None:
                self._refuse_other_schema(revision)
                return self._add(connection, record)
        self._make()
        return self.add(record)

    def packed(
        self, uuids: Collection[str] | None = None, *, most_bytes: int | None = None
    ) -> Generator[tuple[str, bytes] | BadRecord]:
        """Yield name and content of each record by their ids; only those of ``uuids``, and only so much of each."""
        chosen = select(RECORD.c.uuid, RECORD.c.packed).order_by(RECORD.c.uuid)
        if uuids is not None:
            chosen = chosen.where(RECORD.c.uuid.in_(uuids))
        with self._read() as connection:
            if connection is None:
                return
            if most_bytes is not None:
                for uuid, beginning in beginnings(connection, most_bytes, uuids):
                    yield f"{self.shown}: {uuid}", beginning
                return
            with connection.execution_options(yield_per=_AT_ONCE).execute(chosen) as stored:
                for uuid, packed in stored:
                    yield f"{self.shown}: {uuid}", packed

    @contextmanager
    def asked(self) -> Iterator[TestTables]:
        """Yield the tables to be asked of a few tests, as they are at one moment; StoreUnusable."""
        with self._connected(StoreUse.READ) as connection:
            self._refuse_other_schema(revision_of(connection))
            yield TestTables(connection)

    def remove(self, uuids: Iterable[str]) -> int:
        """Remove the records of these ids with all that is theirs alone, and return how many were there."""
        chosen = [*uuids]
        with self._written(StoreUse.WRITE, alone=True) as connection:
            self._refuse_other_schema(revision_of(connection))
            removed = 0
            for at in range(0, len(chosen), _MOST_PARAMETERS):
                some = chosen[at : at + _MOST_PARAMETERS]
                connection.execute(delete(MEASUREMENT).where(MEASUREMENT.c.run.in_(some)))
                connection.execute(delete(RUN).where(RUN.c.uuid.in_(some)))
                removed += connection.execute(delete(RECORD).where(RECORD.c.uuid.in_(some))).rowcount
            for table in SHARED:
                user = RUN if table in (COMMIT, MACHINE) else MEASUREMENT
                column = user.c[table.name]
                connection.execute(delete(table).where(~exists().where(column == table.c.id)))
        return removed

    def add_note(self, note: Note) -> bool:
        """Keep a note in the place of an earlier one under its key, and return whether anything changed."""
        values = {"kind": note.kind.value, "key": note.key, "value": [note.about, note.text], "when": note.when}
        insert = self._inserting(NOTE)
        upsert = insert.on_conflict_do_update(
            index_elements=[NOTE.c.kind, NOTE.c.key],
            set_={"value": insert.excluded.value, "when": insert.excluded.when},
            where=NOTE.c.when < insert.excluded.when,
        )
        with self._written(StoreUse.WRITE) as connection:
            if (revision := revision_of(connection)) is not None:
                self._refuse_other_schema(revision)
                return connection.scalar(upsert.returning(NOTE.c.key), values) is not None
        self._make()
        return self.add_note(note)

    def notes(self) -> list[Note | BadRecord]:
        """Return the notes by their keys, and the fault of one that cannot be read."""
        with self._read() as connection:
            stored = () if connection is None else connection.execute(select(NOTE).order_by(NOTE.c.key)).all()
        return [self._note(row) for row in stored]

    def _note(self, row: Row[Any]) -> Note | BadRecord:
        # SQLite gives a time back without its zone.
        when = row.when if row.when.tzinfo else row.when.replace(tzinfo=UTC)
        try:
            about, text = row.value
            return msgspec.convert({"kind": row.kind, "about": about, "text": text, "when": when}, Note)
        except (ValueError, TypeError) as error:
            return BadRecord.of(f"{self.shown}: {row.kind} {row.key}", NoNote(str(error)))

    def upgrade(self) -> tuple[str | None, str]:
        """Give it the newest schema; return which it had, None for an empty database, and which it has."""
        with self._written(StoreUse.UPGRADE, alone=True) as connection:
            had = revision_of(connection)
            self._refuse_newer_schema(had)
            migrate(connection)
            return had, REVISIONS[-1]

    def rebuild(self) -> tuple[int, list[BadRecord]]:
        """Make all tables anew from the records; return of how many, and the faults of the others."""
        if not self.is_there:
            raise StoreUnusable.of(self.shown, NoHistoryThere())
        good, bad = 0, []
        with self._written(StoreUse.REBUILD, alone=True) as connection:
            self._refuse_other_schema(revision_of(connection))
            for table in reversed(FROM_RECORDS):
                connection.execute(delete(table))
            for uuid in connection.scalars(select(RECORD.c.uuid).order_by(RECORD.c.uuid)).all():
                packed: bytes = connection.execute(select(RECORD.c.packed).where(RECORD.c.uuid == uuid)).scalar_one()
                try:
                    rows = rows_of(decode(packed, f"{self.shown}: {uuid}"))
                except BadRecord as problem:
                    bad.append(problem.kept_as(uuid))
                else:
                    self._insert(connection, rows)
                    good += 1
        return good, bad

    def compared(self) -> Iterator[RunRecord | BadRecord | RowsDiffer]:
        """Yield each record by its id, its fault, or how its rows in the tables differ from it."""
        with self._connected(StoreUse.READ) as connection:
            if self._file is None:
                # What is written or removed meanwhile would be a difference.
                connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            self._refuse_other_schema(revision_of(connection))
            yield from compared(connection, self.shown)

    def _make(self) -> None:
        with self._written(StoreUse.WRITE, alone=True) as connection:
            # Another process may have done so a moment ago.
            if revision_of(connection) is None:
                make(connection)

    def _add(self, connection: Connection, record: RunRecord) -> bool:
        name, digest = f"{self.shown}: {record.uuid}", digest_of(record)
        values = {"uuid": record.uuid, "digest": digest, "packed": encode(record)}
        new = connection.scalar(self._insert_if_new(RECORD).returning(RECORD.c.uuid), values)
        if new is None:
            known = connection.execute(
                select(RECORD.c.digest, RECORD.c.packed).where(RECORD.c.uuid == record.uuid)
            ).one()
            # The digest that another version has made of the same record may be another one.
            if known.digest == digest or digest_of(decode(known.packed, name)) == digest:
                return False
            raise another_of_the_same_id(name)
        try:
            self._insert(connection, rows_of(record))
        except (DataError, OverflowError) as error:
            why = BeyondDatabases(reason_without_secrets(error, self._where.address))
            raise BadRecord.of(name, why) from None
        return True

    def _insert(self, connection: Connection, rows: Mapping[Table, Sequence[Any]]) -> None:
        for table, own in rows.items():
            if own:
                connection.execute(self._insert_if_new(table) if table in SHARED else table.insert(), own)

    def _insert_if_new(self, table: Table) -> Any:
        return self._inserting(table).on_conflict_do_nothing()

    def _inserting(self, table: Table) -> Any:
        name = "postgresql" if self._file is None else "sqlite"
        # Each is slow to import, and reading needs none.
        return import_module(f"sqlalchemy.dialects.{name}").insert(table)

    def _refuse_other_schema(self, revision: str | None) -> None:
        self._refuse_newer_schema(revision)
        if revision != REVISIONS[-1]:
            command = f"torchprof history upgrade {quoted(self.shown)}"
            raise StoreUnusable.of(self.shown, EarlierSchema(revision, REVISIONS[-1], command))

    def _refuse_newer_schema(self, revision: str | None) -> None:
        if revision is not None and revision not in REVISIONS:
            raise StoreUnusable.of(self.shown, LaterSchema(revision))

    @contextmanager
    def _connected(self, use: StoreUse) -> Iterator[Connection]:
        with guarding(self._where, use), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def _written(self, use: StoreUse, *, alone: bool = False) -> Iterator[Connection]:
        """Yield a connection whose transaction is committed at the end, and taken back where something is raised."""
        with guarding(self._where, use):
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._writer.begin() as connection:
                if self._file is None:
                    connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE_S}s'"))
                    lock = func.pg_advisory_xact_lock if alone else func.pg_advisory_xact_lock_shared
                    connection.execute(select(lock(_LOCK)))
                yield connection

    # An engine keeps no connection, but the statements that it has compiled, and what it knows of the server.

    @cached_property
    def _reader(self) -> Engine:
        return self._engine(writes=False)

    @cached_property
    def _writer(self) -> Engine:
        return self._engine(writes=True) if self._file is not None else self._reader

    def _engine(self, *, writes: bool) -> Engine:
        if self._file is not None:
            return _sqlite_engine(self._file, writes=writes)
        url = make_url(self._where.address)
        # Without it, a host that does not answer is waited for as long as TCP likes.
        waits = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_S}
        return create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=waits)


def _sqlite_engine(file: Path, *, writes: bool) -> Engine:
    url = URL.create("sqlite", database=str(file))
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args={"timeout": _PATIENCE_S})

    # Python's module begins transactions when it likes, and none before a change of the schema.
    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None
        if writes:
            _write_ahead(connection)
            connection.execute("PRAGMA foreign_keys = ON")

    def begun(connection: Connection) -> None:
        # A writer that has read before it writes would not be let wait for another one.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    return engine


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Let readers and a writer not wait for one another; this change itself waits for nobody without help."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return
