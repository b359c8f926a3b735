"""One file within the bounds of memory and time that every file has, in whatever process."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from pytest_torchprof.fleet.judging import FileTask, Trouble, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.fleet.bounds import Bounds

_ONE_AT_A_TIME: Final = Lock()
"""Both bounds are the process's, and its threads gain nothing from judging several files at once."""


def judge_within(task: FileTask, bounds: Bounds) -> bytes | Trouble:
    """Return the result of a file; this process ends if judging it takes longer than its bound."""
    with _ONE_AT_A_TIME, _memory(bounds.memory_bytes), _time(bounds.timeout_s):
        return judge(task)


@contextmanager
def _time(most_s: float) -> Iterator[None]:
    """Let this process end once the time is up, even in the code of a library, which Python does not interrupt."""
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        # The system ends it. A thread that waits would have to be begun and joined for each file.
        signal.setitimer(signal.ITIMER_REAL, most_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        faulthandler.dump_traceback_later(most_s, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def _memory(most_bytes: int) -> Iterator[None]:
    """Limit the memory of this process where the system can do so: on Linux."""
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
