"""The lines that torch's profiler writes to stderr, which are kept out of what a user sees."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDERR = 2

# torch 2.13 writes these two lines per session straight to the file descriptor, whatever KINETO_LOG_LEVEL says.
# Its build for CUDA asks for GPUs even without a driver, and calls it an error that there are none.
_CHATTER = re.compile(
    rb"^(?:USDT:[^\n]*\bprofiler_(?:start|stop)|ERROR:[^\n]*\bgpuGetDeviceCount failed with code \d+"
    rb"|\[W[^\n]* execution_trace_observer\.cpp:[^\n]*)\n?",
    re.MULTILINE,
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
    held = _held_file()
    try:
        os.dup2(held, _STDERR)
        try:
            yield
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)
            _pass_on(held)
    finally:
        os.close(held)


def _held_file() -> int:
    """Return the descriptor of a new file: in memory where the system has such files, every test needs two of them."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _pass_on(held: int) -> None:
    length = os.lseek(held, 0, os.SEEK_END)
    rest = _CHATTER.sub(b"", os.pread(held, length, 0)) if length else b""
    while rest:
        rest = rest[os.write(_STDERR, rest) :]
