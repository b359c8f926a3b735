"""A second process for a command that has its own to itself and a large recording to look at.

Decoding and folding take two thirds of a command's time. Two processes unpack the file each for itself, but decode a
part each; what is folded is passed on as columns, at a tenth of what folding it costs. On two free cores a trace of
75 MB is read in 0.20 s instead of 0.28; where others work on them it takes a little longer than in one process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from pytest_torchprof.recording.text import size

if TYPE_CHECKING:
    from collections.abc import Callable


def possible() -> bool:
    """Return whether this process may be forked, and a second one would run beside it.

    Only a process with a single thread, native ones counted, may be: of any other a fork holds locks that nobody will
    release.
    """
    try:
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - pathlib's import costs more than it saves here
        return threads == 1 and len(os.sched_getaffinity(0)) > 1
    except (OSError, AttributeError):
        return False


class Other:
    """A forked process that works something out; on leaving the ``with`` it is over, whether it was asked or not."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        """Start it; what ``work`` raises only means that there is no answer."""
        self._receiving, sending = os.pipe()
        self._process = os.fork()
        self._over = False
        if not self._process:  # pragma: no cover - what a fork runs is not seen by the process that is looked at
            status = 1
            try:
                os.close(self._receiving)
                found = work()
                with open(sending, "wb") as pipe:  # noqa: PTH123
                    pipe.write(found)
                status = 0
            finally:
                # Whatever happened: nothing of the process that was forked is this one's to close or to print.
                os._exit(status)
        os.close(sending)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._over:
            os.kill(self._process, 9)
            os.close(self._receiving)
            os.waitpid(self._process, 0)

    def answer(self) -> bytes | None:
        """Wait for it and return what it found, None if it failed."""
        with open(self._receiving, "rb") as pipe:  # noqa: PTH123
            found = pipe.read()
        _, status = os.waitpid(self._process, 0)
        self._over = True
        return None if status else found


# Below this one process is done before the other has passed on what it found.
_LARGE = 16 * 1024**2
# The other process has to unpack all of it, and to pass on what it found.
_FIRST = 0.54


def border(path: str) -> int | None:
    """Return at which byte of its text the file is best shared by two processes; None if one should read it all."""
    try:
        whole = size(path)
    except OSError:
        return None
    return int(_FIRST * whole) if whole >= _LARGE and possible() else None
