"""Files that appear whole or not at all: each is written beside its place and takes it in one step."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNFINISHED: Final = ".torchprof.*.tmp"
"""What a folder holds beside its files where a process was killed while it wrote one."""


@contextmanager
def replacing(path: Path, *, lasting: bool = False) -> Iterator[Path]:
    """Yield a file to write, which then takes the place of ``path``; where writing fails, it is removed.

    Its name is new, so that nothing is written through a link. ``lasting``: it is on the disk when the block ends, so
    that not even a power cut leaves half of it.
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
        # Not every file system lets a folder be synced; the rename itself is whole without it.
        with suppress(OSError):
            _sync(path.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
