"""Where the records of a project's runs are kept: what every store can do, whatever it is."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from pytest_torchprof.history.record import (
    BEGINNING_BYTES,
    BadRecord,
    NewerRecord,
    RunHead,
    RunRecord,
    decode,
    head_in,
    read_head,
)
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.records import InTheWay, SameId
from pytest_torchprof.reasons.stores import OfStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator
    from pathlib import Path

    from pytest_torchprof.history.notes import Note
    from pytest_torchprof.history.rows_differ import RowsDiffer
    from pytest_torchprof.reasons.reason import Reason


class StoreUnusable(TorchprofError):
    """A history that cannot be reached, read or written; its text names it, without a password."""

    code = Code.UNUSABLE_STORE

    @classmethod
    def of(cls, shown: str, cause: Reason) -> StoreUnusable:
        """Return the error of a store that is called so."""
        return cls.because(OfStore(shown, cause))

    @property
    def cause(self) -> Reason:
        """Why, without the store's name."""
        return self.reason.why if isinstance(self.reason, OfStore) else self.reason

    @property
    def why(self) -> str:
        """Why, in words, without the store's name."""
        return self.cause.text


class Store(Protocol):
    """Takes records and gives them back; any number of processes may write to it at once."""

    @property
    def shown(self) -> str:
        """The name in messages: never with a password."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The paths on this machine that are its own: a folder, or the files of a database."""

    @property
    def is_there(self) -> bool:
        """Whether somebody has made it; StoreUnusable where that cannot be told."""

    def add(self, record: RunRecord) -> bool:
        """Keep a record, and return whether it was new.

        Raises BadRecord where another one of the same id is there, StoreUnusable if it cannot be kept.
        """

    def packed(
        self, uuids: Collection[str] | None = None, *, most_bytes: int | None = None
    ) -> Generator[tuple[str, bytes] | BadRecord]:
        """Yield name and content of each record by their ids, and the fault of one that cannot be read.

        ``uuids``: only those. ``most_bytes``: only the beginning of each. Nothing is yielded of a store that is not
        there. Raises StoreUnusable if it cannot be read.
        """

    def remove(self, uuids: Iterable[str]) -> int:
        """Remove the records of these ids, each whole, and return how many were there.

        Raises StoreUnusable if it cannot be written.
        """

    def add_note(self, note: Note) -> bool:
        """Keep a note in the place of an earlier one under its key, and return whether anything changed.

        Raises StoreUnusable if it cannot be kept.
        """

    def notes(self) -> Iterable[Note | BadRecord]:
        """Return the notes by their keys, and the fault of one that cannot be read; StoreUnusable."""


class Tables(Protocol):
    """A store that keeps what is in its records in tables too."""

    @property
    def shown(self) -> str:
        """The name in messages: never with a password."""

    def upgrade(self) -> tuple[str | None, str]:
        """Give it the newest schema; return which it had, None for an empty database, and which it has."""

    def rebuild(self) -> tuple[int, list[BadRecord]]:
        """Make all tables anew from the records; return of how many, and the faults of the others."""

    def compared(self) -> Iterator[RunRecord | BadRecord | RowsDiffer]:
        """Yield each record by its id, its fault, or how its rows in the tables differ from it."""


def records_of(store: Store, uuids: Collection[str] | None = None) -> Generator[RunRecord | BadRecord]:
    """Yield the records of a store, and the faults of those that cannot be believed; StoreUnusable.

    ``uuids``: only those of these ids.
    """
    with closing(store.packed(uuids)) as all_packed:
        for packed in all_packed:
            yield packed if isinstance(packed, BadRecord) else decoded(*packed)


def heads_of(store: Store) -> Generator[RunHead | BadRecord]:
    """Yield which run each record of a store is of, and the faults of those that cannot be told; StoreUnusable.

    Of each record its beginning is read, if that tells.
    """
    heads: list[RunHead | BadRecord] = []
    with closing(store.packed(most_bytes=BEGINNING_BYTES)) as beginnings:
        for beginning in beginnings:
            head = beginning if isinstance(beginning, BadRecord) else _head(head_in, *beginning)
            if head is None:
                break
            heads.append(head)
        else:
            yield from heads
            return
    # One of them is damaged, or has a very long head.
    with closing(store.packed()) as all_packed:
        for packed in all_packed:
            head = packed if isinstance(packed, BadRecord) else _head(read_head, *packed)
            if head is not None:
                yield head


def _head(read: Callable[[bytes, str], RunHead | None], name: str, content: bytes) -> RunHead | BadRecord | None:
    try:
        return read(content, name)
    except BadRecord as problem:
        return problem


def decoded(name: str, content: bytes) -> RunRecord | BadRecord:
    """Return the record in a content that is called so, or its fault."""
    try:
        return decode(content, name)
    except BadRecord as problem:
        return problem


def another_of_the_same_id(name: str) -> BadRecord:
    """Return the refusal of a record whose id another one has, which is called so."""
    return BadRecord.because(SameId(name))


def in_the_way(problem: BadRecord, name: str) -> BadRecord:
    """Return the refusal of a record in whose place a damaged one lies, which is called so."""
    if isinstance(problem, NewerRecord):
        return problem
    return BadRecord.because(InTheWay(problem.reason, name))
