"""What is true of the whole process: torch has one profiler, so its sessions are counted here and nowhere else."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from pytest_torchprof.capture import torch_private
from pytest_torchprof.capture.stderr import without_profiler_lines

if TYPE_CHECKING:
    from torch.profiler.profiler import _KinetoProfile

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
