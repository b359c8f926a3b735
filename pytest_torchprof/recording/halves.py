"""A large file read by two processes, each of which folds a part: for a command, whose process does nothing else.

Decoding and folding take two thirds of a command's time. Two processes unpack the file each for itself, but decode a
part each; what is folded is passed on as columns, at a tenth of what folding it costs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_torchprof.recording.pieces import size

if TYPE_CHECKING:
    from collections.abc import Callable

# Below this one process is done before the other has passed on what it found.
_LARGE = 16 * 1024**2
# The other process has to unpack all of it, and to pass on what it found.
_FIRST = 0.6


def border(path: str) -> int | None:
    """Return at which byte of its text the file is best shared by two processes; None if one should read it all.

    Only a process with a single thread may be forked: of any other the fork holds locks that nobody will release.
    """
    try:
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - pathlib's import costs more than it saves here
        if threads != 1 or len(os.sched_getaffinity(0)) < 2 or (whole := size(path)) < _LARGE:
            return None
    except (OSError, AttributeError):
        return None
    return int(_FIRST * whole)


class Other:
    """A forked process that works something out."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        """Start it; what ``work`` raises only means that there is no answer."""
        self._receiving, sending = os.pipe()
        self._process = os.fork()
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

    def answer(self) -> bytes | None:
        """Wait for it and return what it found, None if it failed."""
        with open(self._receiving, "rb") as pipe:  # noqa: PTH123
            found = pipe.read()
        _, status = os.waitpid(self._process, 0)
        return None if status else found

    def stop(self) -> None:
        """End it, wherever it is."""
        os.kill(self._process, 9)
        os.close(self._receiving)
        os.waitpid(self._process, 0)
