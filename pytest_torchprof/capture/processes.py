"""The other processes of this machine that measure on the same GPU: one at a time, except ranks of one job."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, Protocol

from pytest_torchprof.capture import torch_profiler
from pytest_torchprof.capture.devices import live_device
from pytest_torchprof.capture.gpu_lock import holding
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.reasons.capturing import SLOW_EXPORT

if TYPE_CHECKING:
    from collections.abc import Iterator


Phase = Literal["wait", "warm-up", "steps", "samples"]
"""The phases of a measurement: it waits for another process, possibly for long; it calls; it takes untraced times."""


class ShowProgress(Protocol):
    """Shows how far a measurement has come."""

    def __call__(self, text: str, phase: Phase | None = None) -> None:
        """Show what comes next, in which phase; None: in none of them."""


def show_waits(text: str, phase: Phase | None = None) -> None:
    """Write waits to stderr, and nothing else."""
    if phase == "wait":
        sys.stderr.write(f"torchprof {text}\n")
        sys.stderr.flush()


@cache
def tell_slow_export(device: str) -> None:
    """Write to stderr, once in a process, that torch cannot be asked for the file alone, if a GPU is measured."""
    if kind_of(device).has_launches and torch_profiler.lacks_file_only():
        sys.stderr.write(f"torchprof: {SLOW_EXPORT}\n")


@contextmanager
def only_measurement(device: str, show: ShowProgress = show_waits, *, doing: str | None = None) -> Iterator[None]:
    """Hold the lock of `device`, if it is a GPU; NotMeasured if it cannot be acquired.

    ``show`` shows a wait, and those who wait see ``doing``. The operating system frees the lock when its holder ends
    in any way. Ranks of one job measure together, and wait for each other in the measured code: the first one holds
    the locks of all GPUs that it sees, for all of them. If each held its own, two jobs could wait for each other for
    ever.
    """
    if not kind_of(device).has_launches:
        yield
        return
    rank = this_rank()
    names = live_device(device).lock_names(with_others=not rank.alone) if rank.writes else []
    with ExitStack() as locks:
        # In one order, so that no two processes wait for each other.
        for name in sorted(names):
            locks.enter_context(holding(name, partial(show, phase="wait"), doing=doing or ""))
        yield
