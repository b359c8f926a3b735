"""Whether given code objects run, entered through torch.compile but not compiled."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import torch_dynamo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, FrameType


class EagerCode:
    """Notes which of the code objects run; from Python 3.12 on for nothing, on 3.11 by a profile function.

    The profile function slows every call on its thread, so on 3.11 it is there between `begin` and `end` of one call
    only; one that is there already is called too, and put back. `blind` says why nothing could be noted.
    """

    def __init__(self, codes: Iterable[CodeType]) -> None:
        self._codes = list(codes)
        self._ids = {id(code) for code in self._codes}
        self._ran: set[int] = set()
        self._stop = self._nothing
        self.blind: str | None = "no call of the code was observed" if self._codes else None
        if self._codes and hasattr(sys, "monitoring"):
            self._monitor(sys.monitoring)

    def ran(self, code: CodeType) -> bool:
        """Whether the code object was seen running."""
        return id(code) in self._ran

    def begin(self) -> None:
        """Observe from here to `end`; does nothing where the code is observed all the time."""
        if not self._codes or hasattr(sys, "monitoring"):
            return
        before: Any = sys.getprofile()
        if before is not None and not callable(before):
            self.blind = "a profiler of Python code is running (cProfile, or torch's for stacks if there is no warm-up)"
            return
        note, seen = self._note, self._ids

        def profile(frame: FrameType, event: str, arg: object) -> None:
            if event == "call" and id(frame.f_code) in seen:
                note(frame.f_code, 0)
            if before is not None:
                before(frame, event, arg)

        torch_dynamo.keep_from_dynamo(profile.__code__)
        torch_dynamo.keep_from_dynamo(EagerCode._note.__code__)
        self.blind = None
        self._stop = lambda: sys.setprofile(before)
        sys.setprofile(profile)

    def end(self) -> None:
        """Put the profile function back that was there before `begin`."""
        if not hasattr(sys, "monitoring"):
            self._stop()
            self._stop = self._nothing

    def close(self) -> None:
        """Stop observing."""
        self._stop()
        self._stop = self._nothing

    def _note(self, code: CodeType, _offset: int) -> None:
        if torch_dynamo.runs_under_dynamo():
            self._ran.add(id(code))

    def _nothing(self) -> None:
        pass

    def _monitor(self, monitoring: Any) -> None:
        free = next((tool for tool in (4, 3, 5, 2, 1) if monitoring.get_tool(tool) is None), None)
        if free is None:
            self.blind = "all of Python's monitoring tools are taken"
            return
        monitoring.use_tool_id(free, "pytest-torchprof")
        torch_dynamo.keep_from_dynamo(EagerCode._note.__code__)
        monitoring.register_callback(free, monitoring.events.PY_START, self._note)
        for code in self._codes:
            monitoring.set_local_events(free, code, monitoring.events.PY_START)
        self.blind = None

        def stop() -> None:
            for code in self._codes:
                monitoring.set_local_events(free, code, 0)
            monitoring.register_callback(free, monitoring.events.PY_START, None)
            monitoring.free_tool_id(free)

        self._stop = stop
