"""Keeps the profiler's own lines off the terminal and out of the test's captured output."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDERR = 2

# torch 2.13 writes these two lines per session straight to the file descriptor, whatever KINETO_LOG_LEVEL says.
# Its build for CUDA asks for GPUs where there is no driver too, and calls it an error that there are none.
_CHATTER = re.compile(
    rb"^(?:USDT:[^\n]*\bprofiler_(?:start|stop)|ERROR:[^\n]*\bgpuGetDeviceCount failed with code \d+)\n?", re.MULTILINE
)


@contextmanager
def without_profiler_lines() -> Iterator[None]:
    """Hold file descriptor 2 back for a moment, then pass on everything but the profiler's own lines.

    Meant for the few calls that start and stop the profiler: what other threads write meanwhile arrives late, not
    never. (A process that another thread spawns in these microseconds would keep the held file as its stderr.)
    """
    try:
        saved = os.dup(_STDERR)
    except OSError:  # no stderr at all: nothing to keep clean
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)
            _pass_on(held)


def _pass_on(held: IO[bytes]) -> None:
    held.seek(0)
    rest = _CHATTER.sub(b"", held.read())
    while rest:
        rest = rest[os.write(_STDERR, rest) :]
