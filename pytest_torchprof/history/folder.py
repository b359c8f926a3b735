"""A folder of records, each in a file of its own that is written once and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.history.notes import NOTE_SUFFIX, Note, decode_note, encode_note
from pytest_torchprof.history.packing import MOST_BYTES
from pytest_torchprof.history.record import SUFFIX, BadRecord, RunRecord, encode, read
from pytest_torchprof.history.store import StoreUnusable, another_of_the_same_id, in_the_way
from pytest_torchprof.reasons.records import LargerThanRecords, NoFileOfRecord, RecordUnreadable
from pytest_torchprof.reasons.stores import StoreFails, StoreUse
from pytest_torchprof.recording.text import is_special
from pytest_torchprof.system.replacing import creating, replacing

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable
    from pathlib import Path

OUTBOX: Final = ".torchprof/outbox"
"""The folder below pytest's root directory where records wait that a history could not take."""


class HistoryFolder(Struct, frozen=True):
    """A folder with the records of a project's runs; any number of processes may write to it at once."""

    path: Path

    @property
    def shown(self) -> str:
        """Its path."""
        return str(self.path)

    @property
    def files(self) -> tuple[Path, ...]:
        """The folder itself."""
        return (self.path,)

    @property
    def is_there(self) -> bool:
        """Whether there is such a folder."""
        return self.path.is_dir()

    def add(self, record: RunRecord) -> bool:
        """Keep a record, and return whether it was new.

        Raises BadRecord where the folder has another one of the same id, StoreUnusable if it cannot be written.
        """
        file = self.path / f"{record.uuid}{SUFFIX}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                try:
                    with creating(file) as unfinished:
                        unfinished.write_bytes(encode(record))
                except FileExistsError:
                    pass  # Another process was first.
                else:
                    return True
            known = read(file)
        except BadRecord as problem:
            raise in_the_way(problem, str(file)) from None
        except OSError as error:
            raise self._failing(StoreUse.WRITE, error) from None
        if known == record:
            return False
        raise another_of_the_same_id(str(file))

    def remove(self, uuids: Iterable[str]) -> int:
        """Remove the records of these ids, and return how many were there; StoreUnusable if one cannot be removed."""
        removed = 0
        for uuid in uuids:
            try:
                (self.path / f"{uuid}{SUFFIX}").unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._failing(StoreUse.WRITE, error) from None
            removed += 1
        return removed

    def add_note(self, note: Note) -> bool:
        """Keep a note in the place of an earlier one under its key, and return whether anything changed."""
        file = self.path / f"{note.key}{NOTE_SUFFIX}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if file.exists():
                known = decode_note(str(file), file.read_bytes())
                if isinstance(known, Note) and known.when >= note.when:
                    return False
            with replacing(file, lasting=True) as unfinished:
                unfinished.write_bytes(encode_note(note))
        except OSError as error:
            raise self._failing(StoreUse.WRITE, error) from None
        return True

    def notes(self) -> list[Note | BadRecord]:
        """Return the notes by their keys, and the fault of one that cannot be read."""
        packed = contents(self._files(NOTE_SUFFIX))
        return [note if isinstance(note, BadRecord) else decode_note(*note) for note in packed]

    def packed(
        self, uuids: Collection[str] | None = None, *, most_bytes: int | None = None
    ) -> Generator[tuple[str, bytes] | BadRecord]:
        """Yield name and content of its files by their names, and the fault of one that cannot be read.

        ``uuids``: only those of these records. StoreUnusable where the folder itself cannot be read.
        """
        files = self._files(SUFFIX)
        only = (file for file in files if uuids is None or file.name.removesuffix(SUFFIX) in uuids)
        yield from contents(only, most_bytes)

    def _files(self, suffix: str) -> list[Path]:
        if not self.is_there:
            return []
        try:
            return sorted(file for file in self.path.iterdir() if file.name.endswith(suffix))
        except OSError as error:
            raise self._failing(StoreUse.READ, error) from None

    def _failing(self, use: StoreUse, error: OSError) -> StoreUnusable:
        return StoreUnusable.of(self.shown, StoreFails(use, str(error.strerror or error)))


def contents(files: Iterable[Path], most_bytes: int | None = None) -> Generator[tuple[str, bytes] | BadRecord]:
    """Yield name and content of files, or only its beginning, and the fault of one that cannot be read."""
    for file in files:
        if is_special(file):
            yield BadRecord.of(str(file), NoFileOfRecord())
            continue
        try:
            with file.open("rb") as opened:
                content = None if file.stat().st_size > MOST_BYTES else opened.read(most_bytes)
        except OSError as error:
            yield BadRecord.of(str(file), RecordUnreadable(str(error.strerror or error)))
            continue
        if content is None:
            yield BadRecord.of(str(file), LargerThanRecords(MOST_BYTES >> 20))
        else:
            yield str(file), content
