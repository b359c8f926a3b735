"""Records to be taken into a history: files, folders of them, archives as CI services keep artifacts, other stores."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.history.folder import contents
from pytest_torchprof.history.packing import MOST_BYTES
from pytest_torchprof.history.record import SUFFIX, BadRecord, RunRecord
from pytest_torchprof.history.store import StoreUnusable, decoded, records_of
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import is_database, where_of
from pytest_torchprof.reasons.records import ArchiveInArchive, LargerThanRecords, LinkOut, RecordUnreadable
from pytest_torchprof.reasons.stores import NoHistoryThere
from pytest_torchprof.system.archives import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.history.notes import Note


def records_in(source: str) -> Iterator[RunRecord | BadRecord]:
    """Yield the records of a source, and the faults of the others.

    A source is a file, a folder with all below it, a ZIP archive, or another store; StoreUnusable if that is not there.
    """
    path = Path(source)
    if "://" not in source:
        if path.is_dir():
            return _records_in_folder(path)
        if path.suffix == ".zip":
            return _records_in_archive(path)
        if not is_database(path):
            return _records_in_files([path])
    store = store_at(where_of(source, Path()))
    if not store.is_there:
        raise StoreUnusable.of(store.shown, NoHistoryThere())
    return records_of(store)


def notes_in(source: str) -> Iterable[Note | BadRecord]:
    """Return the notes of a source that is a store; files and archives have none."""
    if "://" not in source and not Path(source).is_dir() and not is_database(Path(source)):
        return []
    return store_at(where_of(source, Path())).notes()


def _records_in_files(files: Iterable[Path]) -> Iterator[RunRecord | BadRecord]:
    for packed in contents(files):
        yield packed if isinstance(packed, BadRecord) else decoded(*packed)


def _records_in_folder(folder: Path) -> Iterator[RunRecord | BadRecord]:
    for file in sorted(folder.rglob(f"*{SUFFIX}")):
        # An artifact that somebody else has packed may name any file of this machine.
        if file.is_symlink() and not file.resolve().is_relative_to(folder.resolve()):
            yield BadRecord.of(str(file), LinkOut(str(folder)))
        else:
            yield from _records_in_files([file])


def _records_in_archive(path: Path) -> Iterator[RunRecord | BadRecord]:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".zip"):
                    yield BadRecord.of(f"{path}: {member.filename}", ArchiveInArchive())
                elif member.filename.endswith(SUFFIX):
                    yield _record_of(archive, member, f"{path}: {member.filename}")
    except DAMAGED as error:
        yield BadRecord.of(str(path), RecordUnreadable(str(error)))


def _record_of(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> RunRecord | BadRecord:
    if member.file_size > MOST_BYTES:
        return BadRecord.of(name, LargerThanRecords(MOST_BYTES >> 20))
    try:
        return decoded(name, archive.read(member))
    except DAMAGED as error:
        return BadRecord.of(name, RecordUnreadable(str(error)))
