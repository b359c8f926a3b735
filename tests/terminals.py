"""A program on a terminal of its own, as wide as is asked for, and without COLUMNS."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LATER = "import os, sys, time; time.sleep(0.2); os.execv(sys.argv[1], sys.argv[1:])"
"""The terminal gets its size once it is there."""


def on_terminal(words: Sequence[str], columns: int, **environment: str) -> tuple[int, list[str]]:
    """Run a Python program; return its exit status and the lines that it wrote."""
    process, terminal = pty.fork()
    if not process:
        os.environ.pop("COLUMNS", None)
        os.environ.update(environment)
        os.execv(sys.executable, [sys.executable, "-c", _LATER, sys.executable, *words])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written = b""
    with suppress(OSError):  # The terminal is gone with the process.
        while part := os.read(terminal, 4096):
            written += part
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return status, written.decode().split("\r\n")
