"""The explanation of a missed limit: another call of the measured code finds the lines from which its work comes."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakSet

from pytest_torchprof import capture
from pytest_torchprof.analysis.analysis import Repeat
from pytest_torchprof.limits import HOLDS, NOT_MEASURED
from pytest_torchprof.profiles import load_file
from pytest_torchprof.reasons.composed import RepeatUnmeasured
from pytest_torchprof.reasons.errors import TorchprofError, describe
from pytest_torchprof.reasons.lines import BlockOver, LoopOver, RepeatFailed, RepeatRaised

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from pathlib import Path

    from pytest_torchprof.capture import Plan
    from pytest_torchprof.limits import Asked, Screen, Verdict
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.reason import Reason


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False)
class Explanation:
    """The known places from which a measurement's work comes, and the way to find them; see ``profiles.Explainer``."""

    screen: Screen
    judges: bool = True
    """Whether limits are judged; at a commit that is only compared with, they are not."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The settings that change how limits count, for limits that are given without them."""
    repeat: Repeat | None = None
    """The repeat, or the reason for which there is none; None until a repeat is asked for."""
    recording: Path | None = None
    """The recording of the repeat, beside the one that is judged."""
    again: Callable[[Explanation], None] | None = None
    """Calls the measured code once more, for this explanation; None if that cannot be done."""
    plan: Plan | None = None
    """How the measurement was made; None if its code was not run here and now."""
    asked: list[Asked] = field(default_factory=list)
    """The limits for which the test's body has asked."""
    unanswered: list[Verdict] = field(default_factory=list)
    """The verdicts on those of these limits that could not be judged, whether or not the test noticed."""
    refuses: bool = False
    """Whether a limit for which the test's body has asked does not hold."""
    in_threads: list[TorchprofError] = field(default_factory=list)
    """The errors that say so which were raised in a thread that the test has started: they may never reach the test."""
    misses: WeakSet[TorchprofError] = field(default_factory=WeakSet)
    """The errors that say so, wherever they were raised, as far as something still holds them."""
    running: bool = False
    """Whether the current call is the repeat."""
    raised: BaseException | None = None
    """The exception of the measured code in the repeat."""

    def made_by(self, plan: Plan) -> None:
        """Take the plan of the measurement."""
        self.plan = plan

    def call_by(self, again: Callable[[Explanation], None] | None) -> None:
        """Take the function that calls the measured code again; None if the code can no longer be called."""
        self.again = again

    def repeated(
        self, path: Callable[[], Path], *, now: bool, later: Callable[[Explanation], None] | None
    ) -> Generator[None, None, None]:
        """Yield for the one call of a repeat that is to be made ``now``; ``later`` makes one for further limits."""
        if now and self.plan is not None:
            yield from self.calls(self.plan, path())
        elif now and self.again is not None:
            self.again(self)
        if self.plan is not None and later is not None:
            self.again = later

    def expected(self, asked: Iterable[Asked]) -> None:
        """Note the limits for which the test's body asks."""
        self.asked += asked

    def refused(self, verdicts: Iterable[Verdict], problem: TorchprofError | None) -> None:
        """Note the limits of the test's body that were not measured, and whether any does not hold."""
        given = tuple(verdicts)
        self.unanswered += (verdict for verdict in given if verdict.status == NOT_MEASURED)
        self.refuses = self.refuses or any(verdict.status != HOLDS for verdict in given)
        if problem is not None:
            self.misses.add(problem)
        if problem is not None and threading.current_thread() is not threading.main_thread():
            self.in_threads.append(problem)

    def explained(self, profile: Profile) -> Profile:
        """Return the profile with the lines of the repeat; the first call makes the repeat, if it can be made."""
        if self.repeat is None and not profile.launching.origins.recorded:
            if self.again is not None:
                self.again(self)
            elif self.plan is not None:
                self.fail(BlockOver())
        return profile if self.repeat is None else profile.with_repeat(self.repeat)

    def calls(self, plan: Plan, path: Path) -> Generator[None, None, None]:
        """Yield for the single call of the repeat; any problem with it is a reason, not a failure."""
        self.running = True
        try:
            with closing(capture.once_more(plan, path)) as calls:
                for _ in calls:
                    yield
            self.read(path)
        except GeneratorExit:
            self.fail(LoopOver())
            raise
        except Exception as problem:  # noqa: BLE001 - the verdict stands, whatever happens here
            known = RepeatUnmeasured(problem.reason) if isinstance(problem, TorchprofError) else None
            self.fail(known or RepeatFailed(describe(problem)))
        finally:
            self.running = False

    def call_again(self, path: Path, function: Callable[[], object]) -> None:
        """Call the measured code, given as a function that never raises, as often as the repeat needs."""
        if self.plan is not None:
            with closing(self.calls(self.plan, path)) as calls:
                for _ in calls:
                    function()

    def read(self, path: Path) -> None:
        """Take the places from a recording with stacks, unless it is known already that there are none."""
        if self.repeat is not None:
            return
        try:
            profile = load_file(path)
        except TorchprofError as problem:
            self.fail(problem.reason)
            return
        self.recording = path
        if reason := profile.doubt or profile.kernels_unknown:
            self.fail(RepeatUnmeasured(reason))
        else:
            self.repeat = Repeat(profile)

    def call_raised(self, problem: BaseException) -> None:
        """Note that the measured code raised when it was called once more."""
        self.raised = problem
        self.fail(RepeatRaised(describe(problem)))

    def fail(self, reason: Reason) -> None:
        """Note why there are no places; the first reason counts."""
        if self.repeat is None:
            self.repeat = Repeat(None, reason)
