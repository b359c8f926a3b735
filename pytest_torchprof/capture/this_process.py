"""The observations of a process on its profiler sessions, and the one that holds a thread which it cannot leave."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pytest_torchprof.capture.profiler_lines import without_profiler_lines
from pytest_torchprof.capture.torch_profiler import abandon, running_profiler

if TYPE_CHECKING:
    from torch.profiler.profiler import _KinetoProfile

    from pytest_torchprof.reasons.reason import Reason

# A profiler session can lose kernels at its head, one more with each session of the process that followed some idle
# time (the GPU's time stamps are registered anew each time: pytorch#192021). The sentinel's kernels are there to be
# lost, and some more than the last one is known to have lost. Sessions that are not ours add to it too.
_SPARE_KERNELS = 8
_LOOK_EVERY = 16
"""After this many sessions the lost kernels are counted: reading each recording for that would take longer."""
_LONGER = 8
_MOST_BLINDLY = 4096
"""The longest sentinel: if all kernels were lost, the cause may be one that no sentinel mends."""


class Process(Struct):
    """The experience of this process's sessions, and the one session that holds a thread it cannot leave."""

    sentinel: int = _SPARE_KERNELS
    """How many kernels the last session's sentinel launched."""
    sessions: int = 0
    """How many sessions had a sentinel since its lost kernels were last counted."""
    unusable: Reason | None = None
    """Why this process cannot use its GPUs any more."""
    stuck: _KinetoProfile | None = None
    stuck_thread: int = 0
    ranges: list[object] = field(default_factory=list)
    """Ranges that can only be ended once the profiler that broke into them has stopped."""

    def next_sentinel(self) -> int:
        """Return how many kernels the sentinel of a new session launches: one more than that of the last."""
        self.sessions += 1
        self.sentinel += 1
        return self.sentinel

    @property
    def looks_for_losses(self) -> bool:
        """Whether it is time to count the kernels that the last session's sentinel has lost."""
        return self.sessions >= _LOOK_EVERY

    def sentinel_lost(self, kernels: int) -> None:
        """Take note of how many kernels the last session's sentinel lost: if all were lost, it was too short."""
        longer = max(self.sentinel, min(_LONGER * self.sentinel, _MOST_BLINDLY))
        self.sentinel = kernels + _SPARE_KERNELS if kernels < self.sentinel else longer
        self.sessions = 0

    def give_up(self, reason: Reason | None) -> None:
        """Keep the reason why this process can no longer use its GPUs; None if it can."""
        self.unusable = reason

    def leave_open(self, marked: object) -> None:
        """Keep a range until the profiler that broke into it has stopped."""
        self.ranges.append(marked)

    def hold(self, taken_over: _KinetoProfile) -> None:
        """Keep a session of this thread that a profiler on another thread has taken over."""
        self.stuck, self.stuck_thread = taken_over, threading.get_ident()

    def free_this_thread(self) -> None:
        """Make this thread fit for a new session again, unless the profiler that took its last one still runs."""
        if self.ranges and not running_profiler():
            self.ranges.clear()
        if self.stuck is None or self.stuck_thread != threading.get_ident():
            return
        with without_profiler_lines():
            freed = abandon(self.stuck)
        if freed:
            self.stuck = None


@cache
def this_process() -> Process:
    """Return the one Process of this interpreter."""
    return Process()
