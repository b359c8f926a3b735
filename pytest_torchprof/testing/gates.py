"""Gates of profiles that do not tell all: where a test looks at a number that is not to be had, its rest is skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.profiles import READABLE_WITHOUT_GPU

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.measuring.explanation import Explanation
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.testing.test_run import TestRun


def guarded(run: TestRun, profile: Profile, explanation: Explanation, *, replay: bool) -> Profile:
    """Return the profile with the rules of other plugins, and a gate where numbers are not to be looked at."""
    gate, test = None, run.test
    if test.stands_in(profile):
        names = ", ".join(test.unanswerable(run.measurements.values())) or "GPU numbers"
        reason = f"body passed so far; not judged without a GPU: {names}{test.why_no_gpu()}"
        gate = gated(run, READABLE_WITHOUT_GPU, reason)
    elif replay:
        gate = gated(run, None, "a replay does not run the measured code, so there is no result")
    return profile.with_context(rules=test.state.rules, gate=gate).with_explainer(explanation)


def gated(run: TestRun, readable: frozenset[str] | None, reason: str) -> Callable[[str], None]:
    """Return a gate that skips the test at a look at anything but ``readable``; None: at ``result`` only."""

    def gate(name: str) -> None:
        if name == "result" if readable is None else name not in readable:
            why = f"{reason}, profile.{name}"
            run.end_early(why)
            pytest.skip(why)

    return gate
