"""The plan of each test: made when the test is set up, settled afterwards, refused if it cannot be carried out."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError, not_measured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.testing import BodyUnrepeatable, MarkedTooLate, RanksMarkedTooLate, Trait
from pytest_torchprof.report.account import WithoutMeasurement
from pytest_torchprof.report.ci import PREFIX
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.testing import REFUSAL, RUN, STATE
from pytest_torchprof.testing.baseline_check import BaselineCheck
from pytest_torchprof.testing.collection import OPTIONS, REFUSED, require_gpu, state_of
from pytest_torchprof.testing.compile_cache import why_no_phase
from pytest_torchprof.testing.fixture_users import asks_for_fixture
from pytest_torchprof.testing.marker_options import read_test_options
from pytest_torchprof.testing.markers import marked_since
from pytest_torchprof.testing.measured_test import MeasuredTest
from pytest_torchprof.testing.progress import progress_of
from pytest_torchprof.testing.section import screen_of
from pytest_torchprof.testing.test_run import TestRun
from pytest_torchprof.testing.workers import HAND_OVER, nodeid_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pytest_torchprof.testing.session import RunState


def start_run(state: RunState, item: pytest.Item) -> TestRun:
    """Return a fresh run of a test; what an earlier run of it left is dropped."""
    if OPTIONS in item.stash:
        # A GPU that was seen at collection may not be usable: nobody had asked CUDA itself.
        require_gpu(item, state)
    if REFUSED in item.stash:
        pytest.fail(str(item.stash[REFUSED]), pytrace=False)
    if OPTIONS not in item.stash:
        # The marker came after collection.
        item.stash[OPTIONS] = read_test_options(item, state.options, state.limits)
    state.begin_test(nodeid_of(item))
    item.user_properties[:] = [entry for entry in item.user_properties if not entry[0].startswith(PREFIX)]
    return TestRun(
        test=_plan(state, item),
        uses_fixture=asks_for_fixture(item),
    )


def settle(item: pytest.Item) -> None:
    """Settle the plan of a test that is set up; if it cannot be carried out, keep the error for its call to raise."""
    item.stash[REFUSAL] = None
    try:
        run = _settled(item)
    except (TorchprofError, pytest.fail.Exception) as problem:
        item.stash[REFUSAL] = problem
        return
    item.stash[RUN] = run
    if (too_late := _ranks_too_late(item, run)) is not None:
        item.stash[REFUSAL] = not_measured(too_late)
        return
    # Every item that a marker measures has a function.
    if run.body_is_step and (trait := _why_no_step(item.obj)):  # type: ignore[attr-defined]
        reason = BodyUnrepeatable(run.test.nodeid, trait)
        run.leave_body(reason)
        if not run.test.options.warns_of(""):
            item.stash[REFUSAL] = not_measured(reason)


def _settled(item: pytest.Item) -> TestRun:
    """Return the run of a test, planned anew where it has got another marker while it was set up."""
    run = item.stash.get(RUN, None)
    if run is not None and not marked_since(item, run.test.options.marker):
        return run
    if run is not None and run.measurements:
        raise late_marker(item, fixture_measured=True)
    state = state_of(item.config)
    item.stash[OPTIONS] = read_test_options(item, state.options, state.limits)
    if run is None:
        return start_run(state, item)
    run.ask_as(_plan(state, item))
    return run


def _ranks_too_late(item: pytest.Item, run: TestRun) -> RanksMarkedTooLate | None:
    """Return the reason if a test runs in another number of processes than it has asked for since it was collected."""
    options = run.test.options
    if options.ranks is None or not run.test.state.options.enabled:
        return None
    here = this_rank()
    in_its_job = here.world == options.ranks and (not here.alone or HAND_OVER in item.config.stash)
    return None if in_its_job else RanksMarkedTooLate(run.test.nodeid, options.ranks)


def late_marker(item: pytest.Item, *, fixture_measured: bool = False) -> NotMeasured:
    """Return, and note in the run, why a test that got a marker after it was set up is not measured."""
    reason = MarkedTooLate(item.nodeid, fixture_measured)
    if (state := item.config.stash.get(STATE, None)) is not None:
        state.overrule(nodeid_of(item), Outcome.NOT_MEASURED, WithoutMeasurement(why=reason))
    return not_measured(reason)


def _why_no_step(test: Callable[..., Any]) -> Trait | None:
    """Return why the body of a test cannot be a step; None where it can."""
    if inspect.iscoroutinefunction(test):
        return Trait.ASYNC
    if getattr(test, "is_hypothesis_test", False):
        return Trait.HYPOTHESIS
    return None


def _plan(state: RunState, item: pytest.Item) -> MeasuredTest:
    options, nodeid = item.stash[OPTIONS], nodeid_of(item)
    return MeasuredTest(
        nodeid=nodeid,
        location=(item.location[0], (item.location[1] or 0) + 1),
        options=options,
        state=state,
        baseline=BaselineCheck(
            run=state.options,
            options=options,
            nodeid=nodeid,
            path=item.path,
            source=_source(item) if options.uses_baseline or state.options.keeps_results else "",
            files=state.baselines.files,
            gone=state.baselines.gone,
        ),
        why_no_phase=why_no_phase(options.compile_cache, state.caches),
        screen=screen_of(item.config),
        properties=item.user_properties,
        progress=progress_of(item.config),
    )


def _source(item: pytest.Item) -> str:
    """Return the text of the test function; by its hash it is seen whether a baseline's test was edited since."""
    try:
        return inspect.getsource(getattr(item, "function", None) or item.obj)  # type: ignore[attr-defined]
    except (OSError, TypeError, AttributeError):
        return ""
