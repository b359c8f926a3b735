"""Other programs: all are started, awaited and ended in one way, which leaves none behind."""

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
"""The seconds that a process may take to end after it was asked to."""


class Ended(NamedTuple):
    """A process that has ended, with its output."""

    status: int | None
    """The exit status; None if it did not end within its limit and was killed."""
    output: str = ""
    errors: str = ""


def start(command: Sequence[str], *, own_group: bool = False, **settings: Any) -> Process:
    """Start a process and return it; it reads no input unless ``settings``, which are those of Popen, give it some.

    With ``own_group`` Ctrl-C reaches only the process that waits for it, and the processes that it starts itself can be
    ended with it.
    """
    return subprocess.Popen(  # noqa: S603 - our own arguments or the user's, and no shell
        command, start_new_session=own_group, **{"stdin": subprocess.DEVNULL, **settings}
    )


def end(process: Process, *, asks: bool = True, own_group: bool = False, patience_s: float = PATIENCE_S) -> None:
    """Ask a process to end, unless it was asked already, and kill it if it takes too long."""
    if asks:
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    if own_group:
        # This ends the processes that it has started too, whether it still runs or not. Windows has no such groups.
        with suppress(OSError, AttributeError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def is_there(pid: int) -> bool:
    """Return whether there is such a process, which need not be of ours."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def running(
    command: Sequence[str], *, own_group: bool = False, patience_s: float = PATIENCE_S, **settings: Any
) -> Iterator[Process]:
    """Start a process and make sure that it has ended when the block is left, however it is left."""
    with start(command, own_group=own_group, **settings) as process:
        try:
            yield process
        finally:
            end(process, own_group=own_group, patience_s=patience_s)


def run(command: Sequence[str], *, limit_s: float | None = None, **settings: Any) -> Ended:
    """Run a process to its end, or to its limit, and return its output; OSError if it cannot be started."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    with running(command, patience_s=0 if limit_s else PATIENCE_S, **pipes) as process:
        try:
            written = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return Ended(None)
        return Ended(process.returncode, *(os.fsdecode(text or b"") for text in written))
