"""One measurement of a test: its profile and its recording, or why there is none that can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.limits.evidence import CaughtByTest
from pytest_torchprof.limits.limit import unmeasured
from pytest_torchprof.reasons.errors import NotMeasured, describe, not_measured
from pytest_torchprof.reasons.measuring import NothingMeasured
from pytest_torchprof.reasons.skips import LookedAtNumber
from pytest_torchprof.reasons.testing import EndedByError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from pytest_torchprof.limits import Asked, Verdict
    from pytest_torchprof.measuring.explanation import Explanation
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.skips import Skip


class Gate(Struct, eq=False):
    """Skips the test when it looks at a number that this run does not have."""

    why: Skip
    readable: frozenset[str] | None
    """The names that may be looked at; None: all but the result of the measured code."""
    reached: Skip | None = None
    """Why the rest of the test was skipped; None if it has not looked. The test may have caught the skip."""

    def __call__(self, name: str) -> None:
        """Skip the test unless the name may be looked at."""
        if name == "result" if self.readable is None else name not in self.readable:
            self.reached = LookedAtNumber(self.why, name)
            pytest.skip(str(self.reached))


class Measurement(Struct, frozen=True, kw_only=True):
    """One measurement of a test; without a profile or with a reason it is not measured."""

    label: str | None
    limits: tuple[Asked, ...]
    explanation: Explanation
    """Where its work comes from, if a limit is missed."""
    of_body: bool = False
    """Whether the whole body of the test is the measured step."""
    profile: Profile | None = None
    """The profile as the test may see it."""
    gate: Gate | None = None
    """Skips the rest of a test that looks at a number which this run lacks; None where it has all."""
    recording: Path | None = None
    why_not: Reason | None = None
    """Why there is no believable profile."""
    code_raised: bool = False
    """Whether the reason is an error that the measured code itself raised."""
    ask_the_doctor: bool = False
    """Whether the cause of the reason is the profiler or the device."""
    stands_in: bool = False
    """Whether the CPU was measured only because there was no GPU."""
    unanswerable: tuple[str, ...] = ()
    """The limits that the CPU cannot answer in place of a GPU."""

    def refused(self, reason: Reason) -> Self:
        """Return a copy that is not measured for this reason."""
        return replace(self, why_not=reason)

    def doubted(self, reason: Reason) -> Self:
        """Return a copy that cannot be believed, for a reason that lies in the profiler or the device."""
        return replace(self, why_not=reason, ask_the_doctor=reason.for_the_doctor)

    def ended_by(self, problem: Exception) -> Self:
        """Return a copy that was ended by an error of the measured code."""
        return replace(self, why_not=EndedByError(describe(problem)), code_raised=True)

    @property
    def is_open(self) -> bool:
        """Whether it has begun, and has not come to an end."""
        return self.profile is None and self.why_not is None

    @property
    def is_missing(self) -> bool:
        """Whether there is no profile, and it is known why."""
        return self.profile is None and self.why_not is not None

    @property
    def caught(self) -> tuple[Verdict, ...]:
        """Verdicts of *not measured* that the test's body got as errors; if it goes on, it has kept them to itself."""
        if self.profile is None:
            return ()
        read = (unmeasured(reason).on("profile", "measured") for reason in self.profile.launching.refused)
        refused = dict.fromkeys((*self.explanation.unanswered, *read))
        return tuple(replace(verdict, evidence=(*verdict.evidence, CaughtByTest())) for verdict in refused)

    @property
    def was_refused(self) -> bool:
        """Whether the test's body received an error that this, or what it asked of it, is not measured.

        An error of the measured code is none of ours: a test may well skip itself then.
        """
        return bool(self.caught) or (self.is_missing and not self.code_raised)

    @property
    def error(self) -> NotMeasured:
        """The error that says why there is no believable profile."""
        return not_measured(self.why_not or NothingMeasured(), ask_the_doctor=self.ask_the_doctor)
