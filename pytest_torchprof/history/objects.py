"""A prefix of an object store, by fsspec: an object for each record, written once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.history.guarding import guarding
from pytest_torchprof.history.notes import NOTE_SUFFIX, Note, decode_note, encode_note
from pytest_torchprof.history.record import SUFFIX, BadRecord, RunRecord, decode, encode
from pytest_torchprof.history.store import another_of_the_same_id, in_the_way
from pytest_torchprof.reasons.records import RecordUnreadable
from pytest_torchprof.reasons.stores import StoreUse
from pytest_torchprof.system.remote.addresses import reason_without_secrets
from pytest_torchprof.system.remote.opening import opened

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable
    from pathlib import Path

    from pytest_torchprof.history.where import Where

_AT_ONCE: Final = 16
"""How many objects are fetched together, and held in memory."""


class HistoryObjects:
    """The records below a prefix; any number of processes may write to it at once."""

    files: tuple[Path, ...] = ()

    def __init__(self, where: Where) -> None:
        """Name the store; it is not reached before it is needed."""
        self.shown = where.shown
        self._where = where

    @property
    def is_there(self) -> bool:
        """Whether a record is below the prefix; StoreUnusable if that cannot be decided."""
        with guarding(self._where, StoreUse.READ):
            files, prefix = self._opened()
            return bool(_names(files, prefix))

    def add(self, record: RunRecord) -> bool:
        """Keep a record, and return whether it was new.

        Raises BadRecord where another one of the same id is there, StoreUnusable if it cannot be written.
        """
        with guarding(self._where, StoreUse.WRITE):
            files, prefix = self._opened()
            name = f"{prefix}/{record.uuid}{SUFFIX}"
            try:
                files.pipe_file(name, encode(record), mode="create")
            except FileExistsError:
                known: bytes = files.cat_file(name)
            else:
                return True
        shown = f"{self.shown}/{record.uuid}{SUFFIX}"
        try:
            if decode(known, shown) == record:
                return False
        except BadRecord as problem:
            raise in_the_way(problem, shown) from None
        raise another_of_the_same_id(shown)

    def remove(self, uuids: Iterable[str]) -> int:
        """Remove the records of these ids, and return how many were there; StoreUnusable if one cannot be removed."""
        with guarding(self._where, StoreUse.WRITE):
            files, prefix = self._opened()
            there = {*_names(files, prefix)} & {f"{prefix}/{uuid}{SUFFIX}" for uuid in uuids}
            for name in sorted(there):
                files.rm_file(name)
        return len(there)

    def add_note(self, note: Note) -> bool:
        """Keep a note in the place of an earlier one under its key, and return whether anything changed."""
        with guarding(self._where, StoreUse.WRITE):
            files, prefix = self._opened()
            name = f"{prefix}/{note.key}{NOTE_SUFFIX}"
            if name in _names(files, prefix, NOTE_SUFFIX):
                known = decode_note(name, files.cat_file(name))
                if isinstance(known, Note) and known.when >= note.when:
                    return False
            files.pipe_file(name, encode_note(note))
        return True

    def notes(self) -> list[Note | BadRecord]:
        """Return the notes by their keys, and the fault of one that cannot be read."""
        packed = self._packed(NOTE_SUFFIX)
        return [note if isinstance(note, BadRecord) else decode_note(*note) for note in packed]

    def packed(
        self, uuids: Collection[str] | None = None, *, most_bytes: int | None = None
    ) -> Generator[tuple[str, bytes] | BadRecord]:
        """Yield name and content of each record by their names, and the fault of one that cannot be read."""
        yield from self._packed(SUFFIX, uuids, most_bytes)

    def _packed(
        self, suffix: str, only: Collection[str] | None = None, most_bytes: int | None = None
    ) -> Generator[tuple[str, bytes] | BadRecord]:
        with guarding(self._where, StoreUse.READ):
            files, prefix = self._opened()
            names = _names(files, prefix, suffix)
        if only is not None:
            names = [name for name in names if name.rpartition("/")[2].removesuffix(suffix) in only]
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            with guarding(self._where, StoreUse.READ):
                # The one way to fetch several that takes names as they are, and not as patterns.
                contents = files.cat_ranges(some, [None] * len(some), [most_bytes] * len(some), on_error="return")
                self._refuse_cut_connection(contents)
            for name, content in zip(some, contents, strict=True):
                shown = f"{self.shown}/{name.rpartition('/')[2]}"
                if isinstance(content, Exception):
                    error = reason_without_secrets(content, self._where.address)
                    yield BadRecord.of(shown, RecordUnreadable(error))
                else:
                    yield shown, content

    def _refuse_cut_connection(self, contents: list[bytes | Exception]) -> None:
        """Raise an error of the connection, which is not one object's: the answer would cover a part of the store."""
        for content in contents:
            if isinstance(content, Exception) and not isinstance(content, FileNotFoundError | PermissionError):
                raise content

    def _opened(self) -> tuple[Any, str]:
        files, prefix = opened(self._where.address)
        return files, prefix.rstrip("/")


def _names(files: Any, prefix: str, suffix: str = SUFFIX) -> list[str]:
    try:
        listed = files.ls(prefix, detail=False)
    except FileNotFoundError:
        return []
    return sorted(name for name in listed if name.endswith(suffix))
