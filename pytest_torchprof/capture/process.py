"""What is true of the whole process: torch has one profiler, so its sessions are counted here and nowhere else."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from pytest_torchprof import torch_private
from pytest_torchprof.capture.stderr import without_profiler_lines

if TYPE_CHECKING:
    from torch.profiler.profiler import _KinetoProfile

# A profiler session can lose kernels at its head, one more with each session of the process that followed some idle
# time (the GPU's time stamps are registered anew each time). The sentinel's kernels are there to be lost.
_SENTINEL_KERNELS = 8
_MOST_SENTINEL_KERNELS = 512


@dataclass(slots=True)
class Process:
    """The profiler sessions that this process has had from us, and the one that holds a thread it cannot leave."""

    sessions: int = 0
    stuck: _KinetoProfile | None = None
    stuck_thread: int = 0
    ranges: list[object] = field(default_factory=list)
    """Ranges that can only be ended once the profiler that broke into them has stopped."""

    def next_sentinel(self) -> int:
        """Count a session and return how many kernels its sentinel launches."""
        self.sessions += 1
        return min(_SENTINEL_KERNELS + self.sessions, _MOST_SENTINEL_KERNELS)

    def hold(self, taken_over: _KinetoProfile) -> None:
        """Remember a session of this thread that a profiler on another thread has taken over."""
        self.stuck, self.stuck_thread = taken_over, threading.get_ident()

    def free_this_thread(self) -> None:
        """Make this thread fit for a new session again, unless the profiler that took its last one still runs."""
        if self.ranges and not torch_private.running_profiler():
            self.ranges.clear()
        if self.stuck is None or self.stuck_thread != threading.get_ident():
            return
        with without_profiler_lines():
            freed = torch_private.abandon(self.stuck)
        if freed:
            self.stuck = None


@cache
def this_process() -> Process:
    """Return the one Process of this interpreter."""
    return Process()
