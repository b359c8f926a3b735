"""One test that measures, and what one measurement of it leaves: a recording with its profile, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_torchprof import capture
from pytest_torchprof.errors import not_measured
from pytest_torchprof.limits import GPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import Self

    from pytest_torchprof.errors import NotMeasured
    from pytest_torchprof.limits import Asked, Screen
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.baseline_check import BaselineCheck
    from pytest_torchprof.testing.explanation import Explanation
    from pytest_torchprof.testing.options import TestOptions
    from pytest_torchprof.testing.run_state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTest:
    """A test that measures: where it stands, what it asks for, and the run that it is a part of."""

    nodeid: str
    location: tuple[str, int]
    """The test's file, relative to the root directory, and line."""
    options: TestOptions
    state: RunState
    baseline: BaselineCheck
    screen: Screen
    """How much a failure may say."""
    progress: Callable[[str, int, int], None]
    """Shows on the terminal which measurement has made how many calls of how many."""

    def stands_in(self, profile: Profile) -> bool:
        """Whether the CPU was measured only because there was no GPU."""
        if profile.trace.device_kind.has_launches or self.options.device != "auto":
            return False
        # A recording made for the cpu as device is judged so wherever it is replayed.
        metadata = profile.trace.metadata
        return metadata is None or metadata.device_asked in (None, "auto")

    def why_no_gpu(self) -> str:
        """Return what to add where something is not judged without a GPU: why there is none, if that may surprise."""
        if self.state.options.replay is not None:
            return ""
        lack = capture.no_gpu()
        return f"; torch sees none: {lack.reason}" if lack.surprising else ""

    def unanswerable(self, measurements: Iterable[Measurement]) -> list[str]:
        """Return the limits on these measurements that the CPU cannot answer for a GPU."""
        names = (one.limit.name for measurement in measurements for one in measurement.limits if one.limit.needs == GPU)
        return [*dict.fromkeys(names), *(["tolerance of time"] if self.baseline.of_times else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measurement of a test; without a profile or with a reason it is not measured."""

    label: str | None
    limits: tuple[Asked, ...]
    explanation: Explanation
    """Where its work comes from, if a limit is missed."""
    of_body: bool = False
    """Whether the whole body of the test is the measured step."""
    profile: Profile | None = None
    """As the test may look at it."""
    recording: Path | None = None
    why_not: str | None = None
    """Why there is no believable profile."""
    ask_the_doctor: bool = False
    """Whether the profiler or the device is the cause of that."""

    def doubted(self, reason: str) -> Self:
        """Return it with a reason of the profiler's or the device's not to believe it.

        Where another profiler is in the way, it is the test that starts it: the reason says what to do.
        """
        return replace(self, why_not=reason, ask_the_doctor=not reason.startswith("another profiler"))

    @property
    def error(self) -> NotMeasured:
        """What says why there is no believable profile."""
        return not_measured(str(self.why_not), ask_the_doctor=self.ask_the_doctor)
