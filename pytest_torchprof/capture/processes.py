"""The other processes of this machine that measure on the same GPU: one at a time, except ranks of one job."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pytest_torchprof.capture.devices import live_device
from pytest_torchprof.capture.gpu_lock import holding
from pytest_torchprof.capture.rank import this_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WAITS = "waits "


def is_wait(words: str) -> bool:
    """Whether what comes next is a wait for somebody else, which may be long."""
    return words.startswith(_WAITS)


def tell_of_waits(words: str) -> None:
    """Say on stderr what is waited for, and nothing else."""
    if is_wait(words):
        sys.stderr.write(f"torchprof {words}\n")
        sys.stderr.flush()


@contextmanager
def only_measurement(
    device: str, tell: Callable[[str], None] = tell_of_waits, *, doing: str | None = None
) -> Iterator[None]:
    """Hold the lock of the GPU that `device` is, if it is one; NotMeasured where it cannot be had.

    ``tell`` hears of a wait, and whoever waits hears ``doing``. The operating system frees the lock when its holder
    ends, however that ends. Ranks of one job measure together, and wait for each other in what they measure: the first
    one holds the locks, those of all GPUs that it sees, for all of them. If each held its own, two jobs could wait for
    each other for ever.
    """
    rank = this_rank()
    names = live_device(device).lock_names(with_others=not rank.alone) if rank.writes else []
    with ExitStack() as locks:
        # In one order, so that no two processes wait for each other.
        for name in sorted(names):
            locks.enter_context(holding(name, tell, doing=doing or ""))
        yield
