"""Files that appear whole or not at all: each is written beside its path and moved there in one step."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNFINISHED: Final = ".torchprof.*.tmp"
"""The name pattern of files that remain if a process was killed while it wrote one."""


@contextmanager
def replacing(path: Path, *, lasting: bool = False) -> Iterator[Path]:
    """Yield a file to write, which then replaces ``path``; if writing fails, it is removed.

    Its name is new, so that nothing is written through a link. With ``lasting`` it is on the disk when the block ends,
    so that not even a power cut leaves half of it.
    """
    unfinished = path.parent / f".torchprof.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        yield unfinished
        if lasting:
            _sync(unfinished, os.O_RDWR)
        os.replace(unfinished, path)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    if lasting:
        # Not every file system lets a folder be synced; the rename is atomic without it.
        with suppress(OSError):
            _sync(path.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
