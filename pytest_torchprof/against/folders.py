"""The folders of comparisons: below the root directory, or for one run alone if that cannot be written."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock

from pytest_torchprof.against.git import GitRefused, ask_git
from pytest_torchprof.recording.files import HIDDEN, hide

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS: Final = "runs"
"""Below the kept folder, the folder of a single run."""
_LOCK: Final = ".lock"
COMPILED: Final = "torchprof-compiled-"
"""The beginning of the name of the folder that compilers use where they cannot use the kept one."""
HERE: Final = "here"
"""Beside it, the folder of the working tree's side; the others are those of commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolders:
    """The folders that a run writes to."""

    kept: Path
    """Results that later runs use again."""
    caches: Path
    """Caches of compilers."""
    results: Path
    """Files that are removed after the run."""


@contextmanager
def run_folders(rootdir: Path) -> Iterator[RunFolders]:
    """Yield the folders of a run; those that it does not keep are removed after it."""
    with _kept_folder(rootdir) as kept, _own_folder(kept) as results, _compilers_folder(kept, results) as caches:
        yield RunFolders(kept=kept, caches=caches, results=results)


@contextmanager
def _kept_folder(rootdir: Path) -> Iterator[Path]:
    """Yield the folder below the root directory that is kept from run to run, or one for this run alone.

    The latter if the working tree cannot be written, or if the folder contains something that is not ours.
    """
    folder = rootdir / HIDDEN / "against"
    if _is_ours(folder) and _is_writable(folder):
        yield folder.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="torchprof-against-") as alone:
            yield Path(alone).resolve()


def _is_ours(folder: Path) -> bool:
    """Return whether only earlier runs can have made the folder's content: there is no link to it, and git tracks none.

    A checkout may bring links of any depth, and files that are not ours to remove.
    """
    if any(path.is_symlink() for path in (folder.parent, folder, *_entries(folder), *_entries(*_entries(folder)))):
        return False
    try:
        return not ask_git(folder.parent.parent, "ls-files", "-z", "--", f"{HIDDEN}/{folder.name}")
    except GitRefused:  # There is no repository, which is reported later.
        return True


def _entries(*folders: Path) -> list[Path]:
    """Return the entries of folders; another run may remove them meanwhile."""
    entries: list[Path] = []
    for folder in folders:
        with suppress(OSError):
            entries += folder.iterdir()
    return entries


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hide(folder.parent)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def _own_folder(kept: Path) -> Iterator[Path]:
    """Yield a folder that is removed after this run; those that killed runs left are removed now."""
    runs = kept / RUNS
    runs.mkdir(exist_ok=True)
    with filelock.FileLock(kept / "runs.lock"):
        _clear(runs)
        folder = Path(tempfile.mkdtemp(dir=runs))
        lock = filelock.FileLock(f"{folder}{_LOCK}")
        lock.acquire()
    try:
        yield folder
    finally:
        _remove(folder, lock)


@contextmanager
def _compilers_folder(kept: Path, own: Path) -> Iterator[Path]:
    """Yield the folder for compilers' caches of both sides: the kept folder, or another for this run."""
    # torch.compile passes paths to the C++ compiler unquoted, which takes a path with spaces for several.
    if not any(map(str.isspace, str(kept))):
        yield kept
    else:
        with tempfile.TemporaryDirectory(prefix=COMPILED) as folder:
            (own / COMPILED).symlink_to(folder)
            yield Path(folder)


def _clear(runs: Path) -> None:
    """Remove the folders whose lock no process holds."""
    for name in {entry.name.removesuffix(_LOCK) for entry in runs.iterdir()}:
        lock = filelock.FileLock(runs / f"{name}{_LOCK}")
        with suppress(filelock.Timeout):
            lock.acquire(timeout=0)
            _remove(runs / name, lock)


def _remove(folder: Path, lock: filelock.BaseFileLock) -> None:
    if (link := folder / COMPILED).is_symlink():
        elsewhere = link.readlink()
        # A link that a checkout brings may lead anywhere.
        if elsewhere.parent == Path(tempfile.gettempdir()) and elsewhere.name.startswith(COMPILED):
            shutil.rmtree(elsewhere, ignore_errors=True)
    # Processes of a killed run may still write there; the next run removes the rest.
    shutil.rmtree(folder, ignore_errors=True)
    Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()
