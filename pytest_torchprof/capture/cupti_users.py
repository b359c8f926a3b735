"""The users of CUPTI in this process besides torch.profiler: it serves one profiler at a time."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.composed import CuptiUser, WithOthersInCupti
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.reasons.reason import Reason

# By a module that is loaded once the user may have begun; importing torch loads none of them.
_USERS = {
    "triton.profiler": CuptiUser.PROTON,
    "jaxlib": CuptiUser.JAX,
    "tensorflow": CuptiUser.TENSORFLOW,
    "torch.profiler._cuspy.core": CuptiUser.CUSPY,
    "torch.profiler._cupti_monitor": CuptiUser.CUPTI_MONITOR,
    "cupti": CuptiUser.CUPTI_PYTHON,
}
_DAEMON = "KINETO_USE_DAEMON"
_WITHOUT_THE_GPU = frozenset(
    {Code.NO_KERNELS_RECORDED, Code.NO_GPU_SIDE, Code.LOST_SENTINEL, Code.LOST_KERNELS, Code.LOST_LAUNCHES}
)


def loaded() -> list[CuptiUser]:
    """Return the users of CUPTI that this process has imported."""
    return [user for module, user in _USERS.items() if module in sys.modules]


def in_this_process() -> list[CuptiUser]:
    """Return the users of CUPTI in this process, with those that may come from outside."""
    users = loaded()
    if os.environ.get(_DAEMON, "0") not in ("", "0"):
        users.append(CuptiUser.DAEMON)
    return users


def with_others_in_cupti(reason: Reason) -> Reason:
    """Return the reason why nothing was measured, with the users of CUPTI that may be its cause."""
    users = in_this_process()
    return WithOthersInCupti(reason, tuple(users)) if reason.code in _WITHOUT_THE_GPU and users else reason


# torch 2.15 logs this each time; it warns only once in a process that the export is skipped.
_MONITORS_LOG = "torch.profiler._cuspy.observers.base"
_UNAVAILABLE = "Cuspy observer unavailable: "
_LONGEST = 160


class _NotesFailures(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(_UNAVAILABLE):
            self.failures.append(printable_line(text.removeprefix(_UNAVAILABLE), _LONGEST))


@contextmanager
def monitor_failures() -> Iterator[list[str]]:
    """Note why torch's own monitor of CUPTI could not register: a profiler that asks for it then skips its export."""
    log, handler = logging.getLogger(_MONITORS_LOG), _NotesFailures()
    log.addHandler(handler)
    try:
        yield handler.failures
    finally:
        log.removeHandler(handler)
