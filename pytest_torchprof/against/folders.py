"""Where comparisons keep what they measure: below the root directory, or for one run alone where that cannot be."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock

from pytest_torchprof.recording.folder import HIDDEN, hide

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS: Final = "runs"
"""Below the kept folder, what each run needs while it lasts."""
HERE: Final = "here"
"""Beside it, what the working tree's side keeps; the other folders are those of commits."""


@contextmanager
def kept_folder(rootdir: Path) -> Iterator[Path]:
    """Yield the folder below the root directory that is kept from run to run, or one for this run alone.

    The latter where the working tree cannot be written, or what stands in the folder's place is a link.
    """
    folder = rootdir / HIDDEN / "against"
    if _is_writable(folder):
        yield folder.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="torchprof-against-") as alone:
            yield Path(alone).resolve()


def _is_writable(folder: Path) -> bool:
    if folder.parent.is_symlink() or folder.is_symlink():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hide(folder.parent)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def run_folder(kept: Path) -> Iterator[Path]:
    """Yield a folder that goes with this run; those that killed runs have left go now."""
    runs = kept / RUNS
    runs.mkdir(exist_ok=True)
    with filelock.FileLock(kept / "runs.lock"):
        _clear(runs)
        folder = Path(tempfile.mkdtemp(dir=runs))
        lock = filelock.FileLock(f"{folder}.lock")
        lock.acquire()
    try:
        yield folder
    finally:
        _remove(folder, lock)


def _clear(runs: Path) -> None:
    """Remove the folders of which no process holds the lock any more, and the locks."""
    for held in runs.glob("*.lock"):
        lock = filelock.FileLock(held)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            continue
        _remove(held.with_suffix(""), lock)


def _remove(folder: Path, lock: filelock.BaseFileLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()
