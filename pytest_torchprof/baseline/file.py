"""Baseline files: read with one clear error, merged and replaced so that nothing is lost or torn."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import filelock

from pytest_torchprof.baseline import form
from pytest_torchprof.baseline.form import from_plain, plain
from pytest_torchprof.baseline.model import VARYING
from pytest_torchprof.errors import TorchprofError, UnreadableBaseline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_torchprof.baseline.model import Entry

__all__ = ["BaselineFile", "from_plain", "plain", "read", "read_or_empty", "update"]

# The lock lies beside the files: a lock in the temporary folder would not hold between processes with different
# TMPDIRs, users or hosts. It is never removed (removing a lock file lets two processes hold it), so the folder gets a
# .gitignore that hides it, what a killed update leaves, and itself.
LOCK: Final = ".torchprof.lock"
TEMPORARY: Final = ".torchprof."
TEMPORARY_END: Final = ".tmp"
IGNORED: Final = f".gitignore\n{LOCK}\n{TEMPORARY}*{TEMPORARY_END}\n"
LOCK_SECONDS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFile:
    """What one baseline file holds: entries by key."""

    path: Path
    entries: Mapping[str, Entry]


def read(path: Path) -> BaselineFile:
    """Read a baseline file; UnreadableBaseline where it is missing, damaged or of a newer schema."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableBaseline(f"{path}: cannot read this baseline: {error.strerror or error}") from None
    return BaselineFile(path=path, entries=form.loads(data, path))


def read_or_empty(path: Path) -> BaselineFile:
    """Read a baseline file as `read` does; a missing one has no entries."""
    return read(path) if path.exists() else BaselineFile(path=path, entries={})


def update(path: Path, changes: Mapping[str, Entry | None], *, time_tolerance: float = 0.10) -> None:
    """Write ``changes`` into a baseline file, None removing an entry; all other entries stay as they are.

    Several processes may do so at once. A varying number is rewritten only where it moved by more than a third of
    ``time_tolerance``. A kill at any moment leaves the old or the new file. An unreadable file is left as it is
    (UnreadableBaseline); where the folder cannot be written, TorchprofError.
    """
    if not path.exists() and not any(changes.values()):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_writer(path.parent):
            _merge(path, changes, time_tolerance)
    except filelock.Timeout:
        raise TorchprofError(
            f"{path}: not written: another process has held {path.parent / LOCK} for {LOCK_SECONDS} s; "
            "end it, then update again"
        ) from None
    except OSError as error:
        raise TorchprofError(
            f"{path}: the baseline was not written ({error.strerror or error}); what was there is unchanged: "
            "make the folder writable, or choose another with --torchprof-baseline-dir"
        ) from None


def _merge(path: Path, changes: Mapping[str, Entry | None], time_tolerance: float) -> None:
    before = read_or_empty(path).entries
    after = dict(before)
    for key, entry in changes.items():
        if entry is None:
            after.pop(key, None)
        else:
            after[key] = _settled(before.get(key), entry, time_tolerance / 3)
    text = form.dumps(after)
    if not after:
        path.unlink(missing_ok=True)
    elif not before or path.read_bytes() != text:
        _replace(path, text)


def _settled(old: Entry | None, new: Entry, share: float) -> Entry:
    """Return ``new`` with the old entry's varying numbers where they moved by no more than ``share``."""
    if old is None:
        return new
    kept = {
        name: old.varying[name]
        for name in VARYING
        if name in old.varying
        and name in new.varying
        # A tiny allowance for the rounding of the product itself.
        and abs(new.varying[name] - old.varying[name]) <= abs(old.varying[name]) * share * (1 + 1e-9)
    }
    return replace(new, varying={**new.varying, **kept})


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    with filelock.FileLock(folder / LOCK, timeout=LOCK_SECONDS):
        ignored = folder / ".gitignore"
        if not ignored.exists() or not ignored.stat().st_size:
            ignored.write_text(IGNORED, encoding="utf-8")
        # Whoever wrote these was killed: the lock is ours.
        for left in folder.glob(f"{TEMPORARY}*{TEMPORARY_END}"):
            left.unlink(missing_ok=True)
        yield


def _replace(path: Path, text: bytes) -> None:
    """Replace a file by another in one step; the folder's lock must be held."""
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}{TEMPORARY_END}"
    try:
        with temporary.open("xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be synced; the rename itself is whole without it.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
