"""The plan of one test: all that its measurements are taken and judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof import capture
from pytest_torchprof.against.imports import foreign_code, foreign_origin
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED
from pytest_torchprof.limits import GPU
from pytest_torchprof.limits.own_code import OWN
from pytest_torchprof.profiles import Profile
from pytest_torchprof.testing.compile_cache import doubt_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.limits import Screen
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.baseline_check import BaselineCheck
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.options import TestOptions
    from pytest_torchprof.testing.progress import ShowTestProgress
    from pytest_torchprof.testing.session import RunState
    from pytest_torchprof.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTest:
    """The plan of a test that measures: where it stands, what it asks for, and the run that it is a part of."""

    nodeid: str
    location: tuple[str, int]
    """The test's file, relative to the root directory, and line."""
    options: TestOptions
    state: RunState
    baseline: BaselineCheck
    screen: Screen
    """How much text a failure may have."""
    progress: ShowTestProgress
    """Shows on the terminal which measurement has made how many calls of how many."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What limits that the body asks a profile for are given too: whose code counts in this test, or run."""
        marker = self.options.marker or {}
        return {**self.state.options.settings, **{name: marker[name] for name in (OWN.name,) if name in marker}}

    @property
    def own_kernels(self) -> OwnKernels:
        """What is said of kernels that no table knows: by the marker, and after it by the ini file and plugins."""
        return (self.options.own_kernels or NOTHING_DECLARED).before(self.state.own_kernels)

    def stands_in(self, profile: Profile) -> bool:
        """Whether the CPU was measured only because there was no GPU."""
        if profile.trace.device_kind.has_launches or self.options.device != "auto":
            return False
        # A recording made for the cpu as device is judged so wherever it is replayed.
        whose = profile.trace.metadata or profile.trace.adoption
        return whose is None or whose.device_asked in (None, "auto")

    def why_no_gpu(self) -> str:
        """Return what to add where something is not judged without a GPU: why there is none, if that may surprise."""
        if self.state.options.replay is not None:
            return ""
        lack = capture.no_gpu()
        return f"; torch sees none: {lack.reason}" if lack.surprising else ""

    def unanswerable(self, measurements: Iterable[Measurement]) -> list[str]:
        """Return the limits on these measurements that the CPU cannot answer for a GPU."""
        limits = (asked.limit for measurement in measurements for asked in measurement.limits)
        names = (limit.name for limit in limits if limit.needs == GPU)
        return [*dict.fromkeys(names), *(["tolerance of time"] if self.baseline.of_times else [])]

    def profile_of(self, trace: Trace) -> Profile:
        """Return the profile of a recording, where kernels that no table knows are what the test says."""
        return Profile.from_trace(trace).with_own_kernels(self.own_kernels)

    def doubt_of_caches(self, profile: Profile) -> Reason | None:
        """Return why the compile caches were not as asked; how a CPU compiles that stands in for a GPU is no matter."""
        return None if self.stands_in(profile) else doubt_of(profile)

    def other_code(self, *, elsewhere: bool = False) -> Reason | None:
        """Return why what was measured is not the code of this side of a comparison with a commit; None where it is.

        ``elsewhere``: in another process, which finds its modules as this one would.
        """
        if (side := self.state.options.against) is None:
            return None
        return (foreign_origin(side) if elsewhere else None) or foreign_code(side)
