"""How a test ends on the ranks of a job: what each tells the others at its end, and the one report of them all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pytest_torchprof.capture.rank_messages import WORST_FIRST, PhaseEnd, expected_here
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError, describe
from pytest_torchprof.reasons.other_ranks import SubtestFailed, explained
from pytest_torchprof.report.account import EndedOnRank, WithoutMeasurement
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.testing import PASSED, RUN
from pytest_torchprof.testing.pytest_report import line_of
from pytest_torchprof.testing.workers import CODE, HAND_OVER, nodeid_of
from pytest_torchprof.text.of_pytest import as_skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from pytest_torchprof.capture.lockstep import OtherRanks
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.session import RunState

_RESULTS: Final = {"failed": Outcome.FAILED, "skipped": Outcome.SKIPPED, "xfailed": Outcome.XFAILED}


def end_on_all_ranks(state: RunState, report: pytest.TestReport, item: pytest.Item) -> None:
    """Tell the other ranks how a test has ended here; let the report be that of the rank where it ended worst."""
    run, others = item.stash.get(RUN, None), state.other_ranks
    # A subtest has a report of its own while the test is called.
    if others is None or (report.when == "setup" and report.passed) or (run is not None and run.in_call):
        return
    own = _own_end(report, item)
    try:
        ends = others.end_phase(nodeid_of(item), own, after_test=report.when == "teardown")
    except NotMeasured as problem:
        _become_failure(report, unmeasured_text(problem))
        state.overrule(nodeid_of(item), Outcome.NOT_MEASURED, WithoutMeasurement(why=portable(problem.reason)))
        return
    if HAND_OVER in item.config.stash:
        return  # The process that started these ranks makes one test of their reports.
    number = min(ends, key=lambda rank: WORST_FIRST.index(ends[rank].outcome), default=None)
    if number is not None and WORST_FIRST.index(ends[number].outcome) < WORST_FIRST.index(own.outcome):
        _take_over(state, report, number, ends[number], item)
    elif own.outcome == "xfailed":
        report.wasxfail = expected_here(explained(own.why), ends)


@contextmanager
def announcing_the_end(others: OtherRanks | None) -> Iterator[None]:
    """Around all tests of a run: tell the other ranks when it is over, and why, if not all tests have run."""
    why: Reason | str = ""
    try:
        yield
    except BaseException as problem:
        why = portable(problem.reason) if isinstance(problem, TorchprofError) else describe(problem)
        raise
    finally:
        if others is not None:
            others.leave(why)


def _own_end(report: pytest.TestReport, item: pytest.Item) -> PhaseEnd:
    if hasattr(report, "wasxfail") and report.skipped:
        return PhaseEnd("xfailed", report.wasxfail.removeprefix("reason: "))
    if report.passed and report.when == "call" and not hasattr(report, "wasxfail") and not item.stash[PASSED]:
        return PhaseEnd("failed", SubtestFailed())
    return PhaseEnd(report.outcome, line_of(report))


def _take_over(state: RunState, report: pytest.TestReport, number: int, end: PhaseEnd, item: pytest.Item) -> None:
    ended = EndedOnRank(outcome=end.outcome, rank=number, in_teardown=report.when != "call", explanation=end.why)
    message = ended.text
    if end.outcome == "failed":
        _become_failure(report, message)
    else:
        vars(report).pop("wasxfail", None)
        report.outcome = "skipped"
        report.longrepr = (str(item.path), (item.location[1] or 0) + 1, as_skip(message))
        if end.outcome == "xfailed":
            report.wasxfail = message
    state.overrule(nodeid_of(item), _RESULTS[end.outcome], ended)


def _become_failure(report: pytest.TestReport, message: str) -> None:
    vars(report).pop("wasxfail", None)
    report.outcome, report.longrepr = "failed", message
    setattr(report, CODE, str(Code.OTHER_RANK))
