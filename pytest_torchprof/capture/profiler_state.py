"""torch has one profiler in a process: what its sessions have shown, and its lines, which nobody is to see."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import IO, TYPE_CHECKING

from pytest_torchprof.capture import torch_profiler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.profiler.profiler import _KinetoProfile

_STDERR = 2

# torch 2.13 writes these two lines per session straight to the file descriptor, whatever KINETO_LOG_LEVEL says.
# Its build for CUDA asks for GPUs where there is no driver too, and calls it an error that there are none.
_CHATTER = re.compile(
    rb"^(?:USDT:[^\n]*\bprofiler_(?:start|stop)|ERROR:[^\n]*\bgpuGetDeviceCount failed with code \d+)\n?", re.MULTILINE
)
# A profiler session can lose kernels at its head, one more with each session of the process that followed some idle
# time (the GPU's time stamps are registered anew each time). The sentinel's kernels are there to be lost. Sessions that
# are not ours add to it too: where a session lost some, the next one has twice as many.
_SENTINEL_KERNELS = 8
_MOST_SENTINEL_KERNELS = 512


@dataclass(slots=True)
class Process:
    """What this process's sessions have shown, and the one session that holds a thread it cannot leave."""

    sentinel: int = _SENTINEL_KERNELS
    """How many kernels the last session's sentinel launched."""
    unusable: str | None = None
    """Why this process cannot use its GPUs any more."""
    stuck: _KinetoProfile | None = None
    stuck_thread: int = 0
    ranges: list[object] = field(default_factory=list)
    """Ranges that can only be ended once the profiler that broke into them has stopped."""

    def next_sentinel(self) -> int:
        """Return how many kernels the sentinel of a new session launches: one more than that of the last."""
        self.sentinel = min(self.sentinel + 1, _MOST_SENTINEL_KERNELS)
        return self.sentinel

    def lost_kernels(self) -> None:
        """Take note that the last session lost kernels: its sentinel was too short."""
        self.sentinel = min(2 * self.sentinel, _MOST_SENTINEL_KERNELS)

    def hold(self, taken_over: _KinetoProfile) -> None:
        """Remember a session of this thread that a profiler on another thread has taken over."""
        self.stuck, self.stuck_thread = taken_over, threading.get_ident()

    def free_this_thread(self) -> None:
        """Make this thread fit for a new session again, unless the profiler that took its last one still runs."""
        if self.ranges and not torch_profiler.running_profiler():
            self.ranges.clear()
        if self.stuck is None or self.stuck_thread != threading.get_ident():
            return
        with without_profiler_lines():
            freed = torch_profiler.abandon(self.stuck)
        if freed:
            self.stuck = None


@cache
def this_process() -> Process:
    """Return the one Process of this interpreter."""
    return Process()


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
