"""The stores by what WHERE means: the library of each is loaded when it is asked for."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.history.folder import HistoryFolder
from pytest_torchprof.history.store import StoreUnusable
from pytest_torchprof.history.where import StoreKind
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.stores import LibraryNotLoaded, RecordsAlone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.history.sql.database import HistoryDatabase
    from pytest_torchprof.history.store import Store, Tables
    from pytest_torchprof.history.where import Where


def store_at(where: Where) -> Store:
    """Return the store, which is not opened yet; StoreUnusable where its library cannot be loaded."""
    if where.kind is StoreKind.FOLDER:
        return HistoryFolder(Path(where.address))
    if where.kind is StoreKind.OBJECTS:
        with _loading(where):
            from pytest_torchprof.history.objects import HistoryObjects  # noqa: PLC0415 - fsspec is optional

        return HistoryObjects(where)
    return database_at(where)


def has_tables(where: Where) -> bool:
    """Whether the store keeps what is in its records in tables too."""
    return where.kind in (StoreKind.SQLITE, StoreKind.POSTGRESQL)


def tables_at(where: Where) -> Tables:
    """Return the store that has tables; TorchprofError for one that keeps records alone."""
    if not has_tables(where):
        raise TorchprofError.because(RecordsAlone(where.shown))
    return database_at(where)


def database_at(where: Where) -> HistoryDatabase:
    """Return the database that is meant, which is not reached yet; StoreUnusable where its library cannot be loaded."""
    with _loading(where):
        from pytest_torchprof.history.sql.database import HistoryDatabase  # noqa: PLC0415 - SQLAlchemy is optional

    return HistoryDatabase(where)


@contextmanager
def _loading(where: Where) -> Iterator[None]:
    """Raise StoreUnusable where a library is there, and is too old or damaged."""
    try:
        yield
    except ImportError as error:
        raise StoreUnusable.of(where.shown, LibraryNotLoaded(str(error))) from None
