"""What is true of the whole process: torch has one profiler, so its sessions are counted here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

# A profiler session can lose kernels at its head, one more with each session of the process that followed some idle
# time (the GPU's time stamps are registered anew each time). The sentinel's kernels are there to be lost.
_SENTINEL_KERNELS = 8
_MOST_SENTINEL_KERNELS = 512


@dataclass(slots=True)
class Process:
    """The profiler sessions that this process has had from us."""

    sessions: int = 0

    def next_sentinel(self) -> int:
        """Count a session and return how many kernels its sentinel launches."""
        self.sessions += 1
        return min(_SENTINEL_KERNELS + self.sessions, _MOST_SENTINEL_KERNELS)


@cache
def this_process() -> Process:
    """Return the one Process of this interpreter."""
    return Process()
