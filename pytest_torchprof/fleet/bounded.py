"""One file within the bounds of memory and time that every file has, in whatever process."""

from __future__ import annotations

import faulthandler
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.fleet.judging import FileTask, Trouble, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONE_AT_A_TIME: Final = Lock()
"""Both bounds are the process's, and its threads gain nothing from judging several files at once."""


class Bounds(Struct, frozen=True, kw_only=True):
    """What a file may take."""

    memory_bytes: int
    timeout_s: float


def judge_within(task: FileTask, bounds: Bounds) -> bytes | Trouble:
    """Return what a file comes to; this process ends where that takes longer."""
    with _ONE_AT_A_TIME, _memory(bounds.memory_bytes), Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        # No signal and no thread of Python's reaches a process that is in a library's code.
        faulthandler.dump_traceback_later(bounds.timeout_s, exit=True, file=nowhere)
        try:
            return judge(task)
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def _memory(most_bytes: int) -> Iterator[None]:
    """Let this process have no more memory than that, where the system can do so: on Linux."""
    if sys.platform != "linux":
        yield
        return
    import resource  # noqa: PLC0415 - Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
