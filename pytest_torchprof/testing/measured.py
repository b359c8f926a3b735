"""What one measurement of a test left, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof.errors import not_measured

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.errors import NotMeasured
    from pytest_torchprof.limits import Asked
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.explaining import Explaining


@dataclass(slots=True, kw_only=True)
class Measured:
    """One measurement of a test, before it is judged."""

    label: str | None
    limits: tuple[Asked, ...]
    explaining: Explaining
    """Where its work comes from, if a limit is missed."""
    profile: Profile | None = None
    recording: Path | None = None
    why_not: str | None = None
    """Why there is no believable profile."""
    ask_the_doctor: bool = False
    """Whether the profiler or the device is the cause of that."""
    ended: str = ""
    """How the test itself ended before this was judged; empty if it did not."""
    skipped: bool = False
    """The test skipped itself."""
    unanswerable: tuple[str, ...] = ()
    """What cannot be judged because the CPU stood in for a missing GPU."""
    compared: tuple[Entry | None, Entry, Comparison] | None = None
    """The baseline's entry, what would be one now, and how they compare; None before anybody asked."""

    def fail(self, reason: str) -> None:
        """Keep why nothing was measured."""
        self.profile = None
        self.doubt(reason)

    @property
    def error(self) -> NotMeasured:
        """What says why there is no believable profile."""
        return not_measured(str(self.why_not), ask_the_doctor=self.ask_the_doctor)

    def doubt(self, reason: str) -> None:
        """Keep a reason of the profiler's or the device's not to believe the measurement.

        Where another profiler is in the way, it is the test that starts it: the reason says what to do.
        """
        self.why_not, self.ask_the_doctor = reason, not reason.startswith("another profiler")
