"""Files that appear whole or not at all: each is written beside its path and moved there in one step."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

UNFINISHED: Final = ".torchprof.*.tmp"
"""The name pattern of files that remain if a process was killed while it wrote one."""


def replacing(path: Path, *, lasting: bool = False) -> AbstractContextManager[Path]:
    """Hand out a file to write, which then replaces ``path``; if writing fails, it is removed.

    Its name is new, so that nothing is written through a link. With ``lasting`` it is on the disk when the block ends,
    so that not even a power cut leaves half of it.
    """
    return _moved_to(path, os.replace, lasting=lasting)


def creating(path: Path) -> AbstractContextManager[Path]:
    """Hand out a file to write, which then is ``path`` and on the disk; FileExistsError if by then there is another.

    Of any number of processes that do so at once one alone succeeds.
    """
    return _moved_to(path, _move_where_free, lasting=True)


@contextmanager
def _moved_to(path: Path, move: Callable[[Path, Path], None], *, lasting: bool) -> Iterator[Path]:
    unfinished = path.with_name(f".torchprof.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        yield unfinished
        if lasting:
            _sync(unfinished, os.O_RDWR)
        move(unfinished, path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    if lasting:
        # Not every file system lets a folder be synced; the rename is atomic without it.
        with suppress(OSError):
            _sync(path.parent, os.O_RDONLY)


def _move_where_free(unfinished: Path, path: Path) -> None:
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        raise
    except OSError:
        # FAT has no links, and some file systems of a network have none.
        _rename_where_free(unfinished, path)
    else:
        unfinished.unlink()


def _rename_where_free(unfinished: Path, path: Path) -> None:
    if sys.platform == "win32":
        unfinished.rename(path)  # There no rename replaces a file.
        return
    import fcntl  # noqa: PLC0415 - Windows has none

    folder = os.open(path.parent, os.O_RDONLY)
    try:
        # Whoever is ended lets go of it.
        fcntl.flock(folder, fcntl.LOCK_EX)
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        unfinished.rename(path)
    finally:
        os.close(folder)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
