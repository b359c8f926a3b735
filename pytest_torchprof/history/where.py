"""The meaning of WHERE: a folder, a prefix of an object store, an SQLite file, or a PostgreSQL database.

Nothing is opened and no library loaded here: a run says at its beginning what it cannot use at its end.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_torchprof.history.store import StoreUnusable
from pytest_torchprof.reasons.stores import (
    AddressWithoutFile,
    FileInsteadOfStore,
    FolderInsteadOfSqlite,
    LibrariesNotInstalled,
    NoAddressOfDatabase,
    NoStoreOfRecords,
    SqliteOnNetwork,
)
from pytest_torchprof.system.remote.addresses import install_command, not_installed
from pytest_torchprof.text import without_passwords

OBJECT_STORES: Final = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "memory": "fsspec"}
"""The protocols whose objects appear whole and can be written once, and the module that each needs."""
POSTGRESQL: Final = "postgresql+psycopg"
_ALSO_POSTGRESQL: Final = ("postgresql", "postgres", POSTGRESQL)
_DATABASE: Final = re.compile(
    r"(?:[^:@/?]*(?::[^@]*)?@)?(?:\[[^\[\]@]*\]|[^:@/?\[]*)(?::\d*)?(?:/[^?@]*)?(?:\?.*)?", re.DOTALL
)
"""USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE; what does not fit would be read with a part of the password as host."""
_SQLITE: Final = (".db", ".sqlite")
MOUNTS: Final = Path("/proc/mounts")
_NETWORK: Final = re.compile(
    r"(fuse\.)?(9p|afs|beegfs|ceph|ceph-fuse|cephfs|cifs|gcsfuse|glusterfs|gpfs|juicefs|lustre|ncpfs|nfs|nfs4|ocfs2|"
    r"orangefs|panfs|pvfs2|rclone|s3fs|smb3|smbfs|sshfs|virtiofs|wekafs)"
)
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class StoreKind(StrEnum):
    """The kind of store that a history is kept in."""

    FOLDER = "folder"
    OBJECTS = "objects"
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class Where(Struct, frozen=True):
    """Which store is meant."""

    kind: StoreKind
    address: str
    """A path, or a URL, which may hold a password."""

    @property
    def shown(self) -> str:
        """The name in messages: never with a password."""
        return without_passwords(self.address)

    def __repr__(self) -> str:
        """Return it without a password, for tracebacks show what variables hold."""
        return f"{type(self).__name__}({self.kind.value!r}, {self.shown!r})"


def where_of(text: str, folder: Path) -> Where:
    """Return which store a text means; paths are relative to a folder.

    Raises StoreUnusable for a text that means none, for a library that is not installed, and for SQLite on a network.
    """
    scheme, separator, behind = text.partition("://")
    if not separator:
        path = folder / text
        if is_database(path) and not path.is_dir():
            return _sqlite(path)
        if path.is_file():
            raise StoreUnusable.of(str(path), FileInsteadOfStore())
        return Where(StoreKind.FOLDER, str(path))
    if scheme == "sqlite":
        # As SQLAlchemy has it: three slashes before a relative path, four before an absolute one.
        if not behind.startswith("/") or behind in ("/", "/:memory:"):
            raise StoreUnusable.of(without_passwords(text), AddressWithoutFile())
        return _sqlite(folder / behind[1:])
    if scheme in _ALSO_POSTGRESQL:
        if _DATABASE.fullmatch(behind) is None:
            raise StoreUnusable.of(without_passwords(text), NoAddressOfDatabase())
        where = Where(StoreKind.POSTGRESQL, f"{POSTGRESQL}://{behind}")
        return _with_modules(where, "sqlalchemy", "alembic", "psycopg")
    if scheme in OBJECT_STORES:
        return _with_modules(Where(StoreKind.OBJECTS, text), "fsspec", OBJECT_STORES[scheme])
    raise StoreUnusable.of(without_passwords(text), NoStoreOfRecords())


def is_database(path: Path) -> bool:
    """Whether a path is that of an SQLite file, by its name."""
    return path.suffix in _SQLITE


def _sqlite(path: Path) -> Where:
    if path.is_dir():
        raise StoreUnusable.of(str(path), FolderInsteadOfSqlite())
    if (system := network_file_system(path)) is not None:
        raise StoreUnusable.of(str(path), SqliteOnNetwork(system))
    return _with_modules(Where(StoreKind.SQLITE, str(path)), "sqlalchemy", "alembic")


def network_file_system(path: Path) -> str | None:
    """Return the type of the network file system that a path is on; None on a local disk, or if Linux does not say."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError:
        return None
    resolved = path.resolve()
    deepest, system = -1, ""
    for line in filter(None, lines):
        _, point, kind, *_ = line.split(" ")
        folder = Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), point))
        # Of two mounts at one folder the later one is seen.
        if resolved.is_relative_to(folder) and len(folder.parts) >= deepest:
            deepest, system = len(folder.parts), kind
    return system if _NETWORK.fullmatch(system) else None


def _with_modules(where: Where, *modules: str) -> Where:
    if missing := not_installed(modules):
        why = LibrariesNotInstalled(missing, install_command(missing, "history"))
        raise StoreUnusable.of(where.shown, why)
    return where
