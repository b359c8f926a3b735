"""Reasons why the store of a history cannot be used: it is none, it is not reached, or it is of another version."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import KnownAsItsCause, Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.text import all_of

_FORMS: Final = (
    "a folder, a file that ends in .db or .sqlite, sqlite:///PATH, postgresql+psycopg://USER@HOST/DATABASE, "
    "s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
)


class OfStore(KnownAsItsCause, Reason, frozen=True):
    """Why one store cannot be used."""

    FOR_THE_DOCTOR = False

    store: str
    """The store's name in messages: never with a password."""
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"{self.store}: {self.why.text}"


class RecordsStay(KnownAsItsCause, Reason, frozen=True):
    """Why a store cannot be used, to which records were to be sent that wait for it."""

    FOR_THE_DOCTOR = False

    why: decoding.AnyReason
    folder: str
    """Where they wait."""

    @property
    def text(self) -> str:
        return f"{self.why.text}; the records stay in {self.folder}"


class FileInsteadOfStore(Reason, frozen=True):
    """A file has the name, and is no database by it."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "name one of those"
    SENTENCE = f"is a file; expected {_FORMS}"


class NoStoreOfRecords(Reason, frozen=True):
    """An address is that of no store."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "name one of those"
    SENTENCE = f"is no store of records; expected {_FORMS}"


class AddressWithoutFile(Reason, frozen=True):
    """The address of an SQLite file does not have its path."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "write the path behind three slashes"
    SENTENCE = "names no file; expected sqlite:///PATH"


class NoAddressOfDatabase(Reason, frozen=True):
    """The address of a PostgreSQL database cannot be read without doubt."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "write these characters so"
    SENTENCE = "is no address of a database; in names and passwords @ is written as %40, : as %3A, / as %2F"


class FolderInsteadOfSqlite(Reason, frozen=True):
    """A folder has the name that is to be an SQLite file's."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "name a file"
    SENTENCE = "is a folder; expected a file for SQLite"


class SqliteOnNetwork(Reason, frozen=True):
    """An SQLite file is on a network file system."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "use a folder, or PostgreSQL"
    SENTENCE = (
        "lies on a network file system ({file_system}), whose locks do not keep two machines from writing to an SQLite "
        "file at once: use a folder, or PostgreSQL"
    )

    file_system: str
    """Its type, as Linux calls it."""


class LibrariesNotInstalled(Reason, frozen=True):
    """The libraries that reach a store are not installed."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "install it with that command"

    modules: tuple[str, ...]
    command: str
    """The one that installs them."""

    @property
    def sentence(self) -> str:
        are = "is" if len(self.modules) == 1 else "are"
        return f"needs {all_of(self.modules, len(self.modules))}, which {are} not installed: {self.command}"


class LibraryNotLoaded(Reason, frozen=True):
    """The library that reaches a store is installed, and is too old or damaged."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    SENTENCE = "cannot load its library: {error}"
    REMEDY = "pip install --upgrade 'pytest-torchprof[history]'"

    error: str


class StoreUse(Phrase):
    """The use of a store that failed."""

    READ = "read", "cannot be read"
    WRITE = "write", "cannot be written"
    UPGRADE = "upgrade", "cannot be upgraded"
    REBUILD = "rebuild", "cannot be made anew"


class StoreFails(Reason, frozen=True):
    """The system, a server or a library refuses what was to be done with a store."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "correct what the error names"
    SENTENCE = "{use}: {error}"

    use: StoreUse
    error: str


class StoreSilent(Reason, frozen=True):
    """A store does not answer."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "see whether the server runs, and whether this machine reaches it"
    SENTENCE = "no answer within {waited_s:.6g} s"

    waited_s: float


class NoHistoryThere(Reason, frozen=True):
    """Nothing was ever kept where a history is looked for."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "check the path or the address"
    SENTENCE = "there is no history"


class EarlierSchema(Reason, frozen=True):
    """An earlier version has made the tables of a database, or none has made any."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "run that command"

    revision: str | None
    """The revision of its tables; None where there are none."""
    needed: str
    command: str
    """The one that upgrades it."""

    @property
    def sentence(self) -> str:
        has = "no schema" if self.revision is None else f"schema {self.revision}"
        return f"has {has}, and this pytest-torchprof needs {self.needed}: run {self.command}"


class LaterSchema(Reason, frozen=True):
    """A later version has made the tables of a database."""

    CODE = Code.UNUSABLE_STORE
    FOR_THE_DOCTOR = False
    ADVICE = "upgrade pytest-torchprof"
    SENTENCE = "has schema {revision}, made by a newer pytest-torchprof than this: update it"

    revision: str


class RecordsAlone(Reason, frozen=True):
    """Tables are asked for of a store that has none."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "name a database"
    SENTENCE = "{store}: keeps records alone, and has no tables; only SQLite and PostgreSQL do"

    store: str
