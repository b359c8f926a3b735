"""Ctrl-C, which a terminal sends to a command and to all of its processes at once."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def ignore() -> None:
    """Let no interrupt end this process, not even where `kept_from_children` keeps none away, as on Windows."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Let no process that begins meanwhile ever get an interrupt; this one gets what came once that is over."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows has no masks.
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
