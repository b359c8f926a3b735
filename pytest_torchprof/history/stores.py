"""The stores by what WHERE means: the library of each is loaded when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.history.folder import HistoryFolder
from pytest_torchprof.history.where import StoreKind
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from pytest_torchprof.history.store import Store, Tables
    from pytest_torchprof.history.where import Where


def store_at(where: Where) -> Store:
    """Return the store; it is not opened yet."""
    if where.kind is StoreKind.FOLDER:
        return HistoryFolder(Path(where.address))
    if where.kind is StoreKind.OBJECTS:
        from pytest_torchprof.history.objects import HistoryObjects  # noqa: PLC0415 - fsspec is optional

        return HistoryObjects(where)
    from pytest_torchprof.history.sql.database import HistoryDatabase  # noqa: PLC0415 - SQLAlchemy is optional

    return HistoryDatabase(where)


def tables_at(where: Where) -> Tables:
    """Return the store that has tables; TorchprofError for one that keeps records alone."""
    if where.kind in (StoreKind.FOLDER, StoreKind.OBJECTS):
        problem = f"{where.shown}: keeps records alone, and has no tables; only SQLite and PostgreSQL do"
        raise TorchprofError(problem, Code.BAD_USAGE)
    from pytest_torchprof.history.sql.database import HistoryDatabase  # noqa: PLC0415 - as above

    return HistoryDatabase(where)
