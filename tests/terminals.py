"""A program on a terminal of its own, as wide as is asked for, and without COLUMNS."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def on_terminal(
    words: Sequence[str], columns: int, by: Callable[..., None] = fresh.as_python, **environment: str
) -> tuple[int, list[str]]:
    """Run what Python does with these words, by a function; return its exit status and the lines that it wrote."""
    terminal, its_end = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment
    outputs = [Path(os.ttyname(its_end))] * 2
    process = fresh.Fresh(by, sys.executable, *words, environment=variables, outputs=outputs).process
    written = b""
    # What nobody reads would keep it waiting.
    while terminal in wait([terminal, process.sentinel]):
        written += os.read(terminal, 4096)
    os.close(its_end)
    with suppress(OSError):  # The terminal is gone with all that wrote there.
        while part := os.read(terminal, 4096):
            written += part
    os.close(terminal)
    process.join()
    status = process.exitcode
    process.close()
    return status, written.decode().split("\r\n")
