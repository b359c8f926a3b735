"""Records to be taken into a history: files, folders of them, and archives as CI services keep artifacts."""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Final

from pytest_torchprof.history.record import MOST_BYTES, SUFFIX, BadRecord, RunRecord, decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DAMAGED: Final = (EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error)
"""What zipfile raises for archives that are damaged, encrypted, or packed in a rare way."""


def records_in(path: Path) -> Iterator[RunRecord | BadRecord]:
    """Yield the records of a file, a folder with all below it, or a ZIP archive, and what is wrong with the others."""
    if path.is_dir():
        for file in sorted(path.rglob(f"*{SUFFIX}")):
            yield record_in(file)
    elif path.suffix == ".zip":
        yield from _records_in_archive(path)
    else:
        yield record_in(path)


def record_in(file: Path) -> RunRecord | BadRecord:
    """Return the record in a file, or what is wrong with it."""
    try:
        return decode(file.read_bytes(), str(file))
    except BadRecord as problem:
        return problem
    except OSError as error:
        return BadRecord(f"{file}: cannot be read: {error.strerror or error}")


def _records_in_archive(path: Path) -> Iterator[RunRecord | BadRecord]:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(SUFFIX):
                    yield _record_of(archive, member, f"{path}: {member.filename}")
    except _DAMAGED as error:
        yield BadRecord(f"{path}: cannot be read: {error}")


def _record_of(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> RunRecord | BadRecord:
    if member.file_size > MOST_BYTES:
        return BadRecord(f"{name}: larger than {MOST_BYTES >> 20} MiB, which no run's record is")
    try:
        return decode(archive.read(member), name)
    except BadRecord as problem:
        return problem
    except _DAMAGED as error:
        return BadRecord(f"{name}: cannot be read: {error}")
