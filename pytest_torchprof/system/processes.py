"""Other processes: started, waited for and ended in one way, which leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Process = subprocess.Popen[bytes]

PATIENCE_S: Final = 10.0
"""How long a process may take to end that was asked to."""


class Ended(NamedTuple):
    """A process that has ended, and what it wrote."""

    status: int | None
    """None where it did not end within its limit, and was ended."""
    output: str = ""
    errors: str = ""


def start(words: Sequence[str], *, own_group: bool = False, **settings: Any) -> Process:
    """Start a process, which reads nothing unless ``settings``, those of Popen, say so.

    ``own_group``: Ctrl-C is for the process that waits for it, and what it has started itself can be ended with it.
    """
    return subprocess.Popen(  # noqa: S603 - our own words or the user's, and no shell
        words, start_new_session=own_group, **{"stdin": subprocess.DEVNULL, **settings}
    )


def end(process: Process, *, asks: bool = True, own_group: bool = False, patience_s: float = PATIENCE_S) -> None:
    """Ask a process to end, unless it knows already, and make it end if it takes its time."""
    if asks:
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    if own_group:
        # What it has started too, whether it still runs or not. Not on Windows, which has no groups of this kind.
        with suppress(OSError, AttributeError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


@contextmanager
def running(
    words: Sequence[str], *, own_group: bool = False, patience_s: float = PATIENCE_S, **settings: Any
) -> Iterator[Process]:
    """Start a process that has ended when the block is left, however it is left."""
    with start(words, own_group=own_group, **settings) as process:
        try:
            yield process
        finally:
            end(process, own_group=own_group, patience_s=patience_s)


def run(words: Sequence[str], *, limit_s: float | None = None, **settings: Any) -> Ended:
    """Run a process to its end, or to its limit, and return what it wrote; OSError where it cannot be started."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    with running(words, patience_s=0 if limit_s else PATIENCE_S, **pipes) as process:
        try:
            written = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return Ended(None)
        return Ended(process.returncode, *(os.fsdecode(text or b"") for text in written))
