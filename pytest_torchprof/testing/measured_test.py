"""The plan of one test: everything by which its measurements are taken and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof import capture
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED
from pytest_torchprof.limits import of_events_alone
from pytest_torchprof.limits.own_code import OWN
from pytest_torchprof.profiles import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.limits import Screen
    from pytest_torchprof.reasons.no_gpu import WhyNoGpu
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.baseline_check import BaselineCheck
    from pytest_torchprof.testing.marker_options import TestOptions
    from pytest_torchprof.testing.progress import ShowTestProgress
    from pytest_torchprof.testing.session import RunState
    from pytest_torchprof.trace import Trace


class MeasuredTest(Struct, frozen=True, kw_only=True):
    """The plan of a test that measures: where it is, what it asks for, and the run that it is a part of."""

    nodeid: str
    location: tuple[str, int]
    """The test's file, relative to the root directory, and line."""
    options: TestOptions
    state: RunState
    baseline: BaselineCheck
    why_no_phase: Reason | None
    """Why the compile caches cannot be as the test asks for; None where they can, or where it has not asked."""
    screen: Screen
    """How much text a failure may have."""
    properties: list[tuple[str, Any]]
    """The properties of the test in JUnit's report."""
    progress: ShowTestProgress
    """Shows on the terminal how many of its calls a measurement has made."""

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings for limits that the body asks of a profile: whose code counts in this test, or run."""
        marker = self.options.marker or {}
        return {**self.state.options.settings, **{name: marker[name] for name in (OWN.name,) if name in marker}}

    @property
    def asks_events_alone(self) -> bool:
        """Whether its recording is for limits alone that names, numbers and times of events decide, and not kept."""
        options, run = self.options, self.state.options
        kept = run.save is not None or run.history is not None
        return options.of_rule_alone and not kept and not options.record and of_events_alone(options.limits)

    @property
    def own_kernels(self) -> OwnKernels:
        """The kernels that no table knows: first as the marker declares them, then as the ini file and plugins do."""
        return (self.options.own_kernels or NOTHING_DECLARED).before(self.state.own_kernels)

    def why_no_gpu(self) -> WhyNoGpu | None:
        """Return why there is no GPU, if that may surprise where something is not judged for lack of a GPU."""
        if self.state.options.replay is not None:
            return None
        lack = capture.no_gpu()
        return lack if lack.surprising else None

    def profile_of(self, trace: Trace) -> Profile:
        """Return the profile of a recording, in which kernels that no table knows are what the test says."""
        return Profile.from_trace(trace).with_own_kernels(self.own_kernels)
