"""The other processes of this machine that measure on the same GPU: one at a time, except ranks of one job."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from pytest_torchprof.capture.devices import live_device
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Long enough for many workers' turns, each with its compilation.
_WAIT_S = 3600.0


def tell_nobody(words: str) -> None:
    """Say what comes next to nobody."""


@contextmanager
def only_measurement(device: str, tell: Callable[[str], None] = tell_nobody) -> Iterator[None]:
    """Hold the lock of the GPU that `device` is, if it is one; NotMeasured where it cannot be had.

    ``tell`` hears of a wait. The operating system frees the lock when its holder ends, however that ends. Ranks of one
    job measure together, and wait for each other in what they measure: the first one holds the locks, those of all GPUs
    that it sees, for all of them. If each held its own, two jobs could wait for each other for ever.
    """
    rank = this_rank()
    names = live_device(device).lock_names(with_others=not rank.alone) if rank.writes else []
    with ExitStack() as locks:
        # In one order, so that no two processes wait for each other.
        for name in sorted(names):
            locks.enter_context(holding(name, tell=tell))
        yield


@contextmanager
def holding(uuid: str, *, wait_s: float = _WAIT_S, tell: Callable[[str], None] = tell_nobody) -> Iterator[None]:
    """Hold the lock of the GPU with this UUID; a second time in the same thread at once."""
    lock = _lock(lock_file(uuid))
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            tell("waits for the GPU, on which another process measures")
            lock.acquire(timeout=wait_s)
    except filelock.Timeout:
        raise NotMeasured(
            coded(
                f"another process has measured on this GPU for {wait_s:.0f} s and holds {lock.lock_file}: "
                "end it, then try again",
                Code.GPU_IN_USE,
            )
        ) from None
    except OSError as error:
        said = f"the lock of this GPU, {lock.lock_file}, cannot be opened: {error.strerror or error}"
        raise NotMeasured(coded(said, Code.GPU_IN_USE)) from None
    try:
        yield
    finally:
        lock.release()


def lock_file(uuid: str) -> Path:
    """Return the file at which all processes that measure on the GPU with this UUID meet."""
    return Path(tempfile.gettempdir(), f"torchprof-{uuid}.lock")


@cache
def _lock(path: Path) -> filelock.FileLock:
    # Every user of the machine meets at it, so every user must be able to open it.
    return filelock.FileLock(path, mode=0o666)
