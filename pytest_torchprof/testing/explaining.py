"""A missed limit explains itself: the measurement is repeated once with stacks, which gives places and no number."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.analysis import Repeat
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.limits.failure import Screen
from pytest_torchprof.testing.comparing import compared

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    import pytest

    from pytest_torchprof.capture import Plan
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.measure import TestRun
    from pytest_torchprof.testing.measured import Measured

NARROWEST, WIDEST = 60, 100


def screen_of(config: pytest.Config) -> Screen:
    """Return how much a failure may say: as wide as the terminal is, and as much as ``-q`` and ``-vv`` ask for."""
    columns = shutil.get_terminal_size(fallback=(80, 24)).columns
    return Screen(width=min(max(columns, NARROWEST), WIDEST), verbosity=config.get_verbosity())


@dataclass(slots=True, kw_only=True, eq=False)
class Explaining:
    """What is known of where one measurement's work comes from, and how to find it out; see ``profile.Explainer``."""

    screen: Screen
    repeat: Repeat | None = None
    """What the repeat found, or why there is none; None before one was asked for."""
    recording: Path | None = None
    """The repeat's, beside the one that is judged."""
    again: Callable[[], None] | None = None
    """Calls the measured code once more; None where that cannot be done."""
    plan: Plan | None = None
    """How the measurement was made; None if its code was not run here and now."""
    running: bool = False
    """Whether the call that is under way is the repeat's."""

    def explained(self, profile: Profile) -> Profile:
        """Return the profile with what the repeat found; the first call makes it, if it can be made."""
        if self.repeat is None and not profile.launching.origins.recorded:
            if self.again is not None:
                self.again()
            elif self.plan is not None:
                self.fail("the code cannot be called again, its block is over")
        return profile if self.repeat is None else profile.with_repeat(self.repeat)

    def calls(self, plan: Plan, path: Path) -> Generator[None, None, None]:
        """Yield for the one call of the repeat; whatever goes wrong with it is a reason, and no failure."""
        from pytest_torchprof import capture  # noqa: PLC0415  (imports torch)

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

    def read(self, path: Path) -> None:
        """Take the places from a recording with stacks, unless it is known already that there are none."""
        from pytest_torchprof.profile import load_file  # noqa: PLC0415

        if self.repeat is not None:
            return
        try:
            profile = load_file(path)
        except TorchprofError as problem:
            self.fail(str(problem))
            return
        self.recording = path
        if reason := profile.why_not or profile.kernels_unknown:
            self.fail(f"the repeat with stacks was not measured: {reason}")
        else:
            self.repeat = Repeat(profile)

    def raised(self, problem: BaseException) -> None:
        """Take note that the measured code raised when it was called once more."""
        said = str(problem).partition("\n")[0]
        self.fail(f"the repeat with stacks raised {type(problem).__name__}{f': {said}' if said else ''}")

    def fail(self, reason: str) -> None:
        """Take note why there are no places; the first reason counts."""
        if self.repeat is None:
            self.repeat = Repeat(None, reason)


def misses(run: TestRun, measured: Measured, profile: Profile) -> bool:
    """Whether a measurement fails by work whose lines are not known yet; it is judged at the end, with all others."""
    from pytest_torchprof.limits import judge, missed_somewhere  # noqa: PLC0415

    if measured.why_not is not None or profile.launching.origins.recorded:
        return False
    with suppress(TorchprofError):  # A baseline that cannot be read is said when the test is judged.
        if not run.stands_in(profile) and _has_other_kernels(run, measured, profile):
            return True
    asked = [one for one in run.asked(measured, profile) if one.limit.located]
    open_profile = profile.with_context(rules=run.state.rules, gate=None)
    with suppress(Exception):  # What a check of another plugin raises is said when the test is judged.
        return missed_somewhere(judge(open_profile, asked), asked)
    return False


def _has_other_kernels(run: TestRun, measured: Measured, profile: Profile) -> bool:
    found = compared(run, measured, profile) if run.state.settings.baseline != "update" else None
    return found is not None and any(change.fails and change.kind != "number" for change in found[2].changes)
