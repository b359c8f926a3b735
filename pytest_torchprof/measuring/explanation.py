"""What explains a missed limit: the measured code, called once more, marks the lines that its work comes from."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_torchprof import capture
from pytest_torchprof.analysis.analysis import Repeat
from pytest_torchprof.limits import NOT_MEASURED
from pytest_torchprof.profiles import load_file
from pytest_torchprof.reasons.errors import TorchprofError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from pathlib import Path

    from pytest_torchprof.capture import Plan
    from pytest_torchprof.limits import Asked, Screen, Verdict
    from pytest_torchprof.profiles import Profile


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False)
class Explanation:
    """What is known of where a measurement's work comes from, and how to learn it; see ``profiles.Explainer``."""

    screen: Screen
    judges: bool = True
    """Whether limits are judged; at a commit that is only compared with, none is."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """What changes how limits count, where they are given without."""
    repeat: Repeat | None = None
    """The repeat, or why there is none; None before a repeat was asked for."""
    recording: Path | None = None
    """The repeat's, beside the one that is judged."""
    again: Callable[[Explanation], None] | None = None
    """Calls the measured code once more, for this explanation; None where that cannot be done."""
    plan: Plan | None = None
    """How the measurement was made; None if its code was not run here and now."""
    asked: list[Asked] = field(default_factory=list)
    """The limits that the test's body has asked for."""
    unanswered: list[Verdict] = field(default_factory=list)
    """The limits among these that could not be judged, whether or not the test noticed."""
    running: bool = False
    """Whether the call that is under way is the repeat's."""
    raised: BaseException | None = None
    """What the measured code raised in the repeat."""

    def made_by(self, plan: Plan) -> None:
        """Take how the measurement was made."""
        self.plan = plan

    def call_by(self, again: Callable[[Explanation], None] | None) -> None:
        """Take a function that calls the measured code once more; None where nothing can any more."""
        self.again = again

    def expected(self, asked: Iterable[Asked]) -> None:
        """Note the limits that the test's body asks for."""
        self.asked += asked

    def refused(self, verdicts: Iterable[Verdict]) -> None:
        """Note which limits of the test's body were not measured."""
        self.unanswered += (verdict for verdict in verdicts if verdict.status == NOT_MEASURED)

    def explained(self, profile: Profile) -> Profile:
        """Return the profile with the lines of the repeat; the first call makes the repeat, if it can be made."""
        if self.repeat is None and not profile.launching.origins.recorded:
            if self.again is not None:
                self.again(self)
            elif self.plan is not None:
                self.fail("the code cannot be called again, its block is over")
        return profile if self.repeat is None else profile.with_repeat(self.repeat)

    def calls(self, plan: Plan, path: Path) -> Generator[None, None, None]:
        """Yield for the one call of the repeat; whatever goes wrong with it is a reason, and no failure."""
        self.running = True
        try:
            with closing(capture.once_more(plan, path)) as calls:
                for _ in calls:
                    yield
            self.read(path)
        except GeneratorExit:
            self.fail("the code could not be called again, its loop was over")
            raise
        except Exception as problem:  # noqa: BLE001 - the verdict stands, whatever happens here
            self.fail(f"the repeat with stacks failed: {problem}")
        finally:
            self.running = False

    def call_again(self, path: Path, function: Callable[[], object]) -> None:
        """Call the measured code, a function that raises nothing, as often as the repeat takes."""
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
            self.fail(str(problem))
            return
        self.recording = path
        if reason := profile.doubt or profile.kernels_unknown:
            self.fail(f"the repeat with stacks was not measured: {reason}")
        else:
            self.repeat = Repeat(profile)

    def call_raised(self, problem: BaseException) -> None:
        """Keep that the measured code raised when it was called once more."""
        self.raised = problem
        self.fail(f"the repeat with stacks raised {describe(problem)}")

    def fail(self, reason: str) -> None:
        """Keep why there are no places; the first reason counts."""
        if self.repeat is None:
            self.repeat = Repeat(None, reason)
