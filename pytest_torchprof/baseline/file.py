"""Baseline files: read with one clear error, merged and replaced so that nothing is lost or torn."""

from __future__ import annotations

import contextlib
from errno import ENOSPC
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.baseline.conflict import Versions, find_overlap
from pytest_torchprof.baseline.conflict import resolve as resolve_entries
from pytest_torchprof.baseline.form import MOST_BYTES, dumps, loads, write_entry
from pytest_torchprof.baseline.path import FOLDER
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError, UnreadableBaseline
from pytest_torchprof.recording.text import is_special
from pytest_torchprof.system.replacing import UNFINISHED, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_torchprof.baseline.conflict import ChangedByBoth
    from pytest_torchprof.baseline.entry import Entry
    from pytest_torchprof.baseline.form import WrittenEntry

# The lock lies beside the files: a lock in the temporary folder would not hold between processes with different
# TMPDIRs, users or hosts. It is never removed (if a lock file is removed, two processes can hold it), so the folder
# gets a .gitignore that hides the lock, the remains of a killed update, and itself.
LOCK: Final = ".torchprof.lock"
IGNORED: Final = f".gitignore\n{LOCK}\n{UNFINISHED}\n"
LOCK_SECONDS: Final = 120


class BaselineFile(Struct, frozen=True, kw_only=True):
    """The contents of one baseline file: entries by key."""

    path: Path
    entries: Mapping[str, Entry]


def read(path: Path) -> BaselineFile:
    """Read a baseline file; UnreadableBaseline if it is missing, damaged or of a newer schema."""
    return BaselineFile(path=path, entries={key: written.entry for key, written in read_written(path).items()})


def read_or_empty(path: Path) -> BaselineFile:
    """Read a baseline file as `read` does; a missing one has no entries."""
    return read(path) if path.exists() else BaselineFile(path=path, entries={})


def update(path: Path, changes: Mapping[str, Entry | None]) -> None:
    """Write ``changes`` into a baseline file; None removes an entry, and all other entries stay as they are.

    An entry that changed keeps the lines of its launch order that are still true. Several processes may update one file
    at once; a kill at any moment leaves the old or the new file. Raises UnreadableBaseline, leaving an unreadable file
    as it is; TorchprofError if the folder cannot be written.
    """
    if not path.exists() and not any(changes.values()):
        return
    with writing(path):
        _merge(path, changes)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the lock of a file's folder; TorchprofError if the folder cannot be written."""
    if path.parent.name == FOLDER and path.parent.is_symlink():
        from pytest_torchprof.reasons.not_written import BaselineBehindLink  # noqa: PLC0415 - for what fails alone

        raise TorchprofError.because(BaselineBehindLink(str(path), str(path.parent)))
    from filelock import Timeout  # noqa: PLC0415 - only who writes pays

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_writer(path.parent):
            yield
    except Timeout:
        from pytest_torchprof.reasons.not_written import BaselineLocked  # noqa: PLC0415 - for what fails alone

        raise TorchprofError.because(BaselineLocked(str(path), str(path.parent / LOCK), LOCK_SECONDS)) from None
    except OSError as error:
        from pytest_torchprof.reasons.not_written import BaselineNotWritten  # noqa: PLC0415 - for what fails alone

        why = BaselineNotWritten(str(path), str(error.strerror or error), is_full=error.errno == ENOSPC)
        raise TorchprofError.because(why) from None


class MergedTexts(Struct, frozen=True, kw_only=True):
    """The versions of a file that a merge has joined, as text; the base is None if it is not known."""

    base: str | None
    ours: str
    theirs: str


def resolve(path: Path, left: MergedTexts, merged: MergedTexts | None) -> tuple[ChangedByBoth, ...]:
    """Write the merge of two versions of a file and return the entries that both changed.

    ``left`` are the sides as the file has them, ``merged`` those of version control; None if it has none. Raises
    UnreadableBaseline if a side is damaged; TorchprofError if the folder cannot be written.
    """
    of_file = _versions(path, left)
    resolution = resolve_entries(of_file if merged is None else _versions(path, merged), of_file)
    with writing(path):
        replace_text(path, dumps(resolution.entries))
    return resolution.overlaps


def overlaps_merged(path: Path, merged: MergedTexts) -> tuple[ChangedByBoth, ...]:
    """Return the entries that both sides changed and version control merged by itself; raises what `resolve` raises."""
    versions = _versions(path, merged)
    overlaps = (find_overlap(key, written.entry, versions) for key, written in read_written(path).items())
    return tuple(overlap for overlap in overlaps if overlap is not None)


def _versions(path: Path, texts: MergedTexts) -> Versions:
    ancestor: dict[str, WrittenEntry] = {}
    with contextlib.suppress(UnreadableBaseline):  # if both sides have merged before, git's own version has markers
        ancestor = loads(_encoded(texts.base), path) if texts.base else {}
    return Versions(base=ancestor, ours=_side(path, texts.ours, "ours"), theirs=_side(path, texts.theirs, "theirs"))


def _side(path: Path, text: str, which: str) -> dict[str, WrittenEntry]:
    """Return the entries of one side of a merge; UnreadableBaseline says which side is damaged, and what to do."""
    try:
        return loads(_encoded(text), path)
    except UnreadableBaseline as problem:
        if problem.code == Code.BASELINE_NEWER:
            raise
        from pytest_torchprof.reasons.baselines import MergeSideUnreadable  # noqa: PLC0415 - for what is refused alone

        raise UnreadableBaseline.because(MergeSideUnreadable(str(path), which)) from None


def read_text(path: Path) -> str:
    """Return the contents of a baseline file, valid or not; UnreadableBaseline if it cannot be opened."""
    return _read_bytes(path).decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    """Return a text of `read_text` as its original bytes."""
    return text.encode("utf-8", "surrogateescape")


def _read_bytes(path: Path) -> bytes:
    from pytest_torchprof.reasons import baselines as why  # noqa: PLC0415 - only who reads a baseline pays

    if is_special(path):
        raise UnreadableBaseline.because(why.BaselineSpecial(str(path)))
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableBaseline.because(why.BaselineNotOpened(str(path), str(error.strerror or error))) from None


def read_written(path: Path) -> dict[str, WrittenEntry]:
    """Read the entries of a baseline file in the form in which it writes them; raises UnreadableBaseline."""
    return loads(_read_bytes(path), path)


def _merge(path: Path, changes: Mapping[str, Entry | None]) -> None:
    before = read_written(path) if path.exists() else {}
    written = {key: write_entry(entry, before.get(key)) for key, entry in changes.items() if entry is not None}
    after = {key: entry for key, entry in {**before, **written}.items() if changes.get(key, entry) is not None}
    if not after:
        path.unlink(missing_ok=True)
    elif after != before:
        replace_text(path, text_of(path, after))


def text_of(path: Path, entries: Mapping[str, WrittenEntry]) -> bytes:
    """Return the text of a file with these entries; TorchprofError if a file may not be so large."""
    text = dumps(entries)
    if len(text) > MOST_BYTES:
        from pytest_torchprof.reasons.not_written import BaselineTooLargeToWrite  # noqa: PLC0415 - for what fails alone

        raise TorchprofError.because(BaselineTooLargeToWrite(str(path), MOST_BYTES // 1024**2))
    return text


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    from filelock import FileLock  # noqa: PLC0415 - only who writes pays

    with FileLock(folder / LOCK, timeout=LOCK_SECONDS):
        ignored = folder / ".gitignore"
        if ignored.is_symlink():
            ignored.unlink()  # Links are not followed: a checkout may link to anywhere.
        if not ignored.exists() or not ignored.stat().st_size:
            ignored.write_text(IGNORED, encoding="utf-8")
        # The process that wrote these was killed: the lock is ours.
        for left in folder.glob(UNFINISHED):
            left.unlink(missing_ok=True)
        yield


def replace_text(path: Path, text: bytes) -> None:
    """Replace a file by another in one step; the folder's lock must be held."""
    with replacing(path, lasting=True) as unfinished:
        unfinished.write_bytes(text)
        if path.exists():
            unfinished.chmod(path.stat().st_mode & 0o777)
