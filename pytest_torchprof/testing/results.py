"""The result of a measurement, for reports and for other processes."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof import baseline
from pytest_torchprof.limits import MISSED
from pytest_torchprof.limits.remedies import telling_of
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofWarning
from pytest_torchprof.reasons.timing import StandInTimed
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.result import Result, calls_of, with_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.testing.baseline_outcome import BaselineOutcome
    from pytest_torchprof.testing.ending import Ending
    from pytest_torchprof.testing.judgement import Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.outcome import CameOut
    from pytest_torchprof.trace.caches import CompileCaches


def result_of(
    test: MeasuredTest, judgement: Judgement, came: CameOut, compared: BaselineOutcome, ending: Ending
) -> Result:
    """Return the result of a measurement, without its message, its recording and the rank that made it."""
    state, measurement, profile = test.state, judgement.measurement, judgement.profile
    seen = profile or measurement.profile
    problem = came.problem or (came.warning if came.outcome is Outcome.WARNED else None)
    result = Result(
        nodeid=test.nodeid,
        label=measurement.label,
        device=test.options.device,
        outcome=came.outcome,
        reason=ending.reason or (problem.reason if isinstance(problem, NotMeasured) else None),
        environment=seen.trace.environment if seen is not None else None,
        compile_caches=_caches(seen) if seen is not None else None,
        compile_us=_compile_us(seen) if seen is not None else {},
        location=test.location,
        of_rule=test.options.of_rule_alone,
        time_share=test.baseline.time_share if state.options.against is not None else None,
        culprit=_culprit(test, judgement, ending) if came.outcome.is_failure else None,
        baseline_state=compared.state,
        comparison=compared.comparison,
        baseline_fails=compared.fails,
    )
    if profile is not None:
        result = replace(with_numbers(result, profile), limits=(*judgement.verdicts, *judgement.warnings))
        # Of the hundreds of tests that a rule alone measures nobody reads more than the verdicts, unless one fails.
        failed = came.problem is not None
        reported = state.options.keeps_results and (failed or not test.asks_events_alone)
        if failed or reported:
            result = replace(result, kernels=calls_of(profile.kernels) if profile.kernels_unknown is None else ())
        if reported:
            result = _with_reported(result, profile)
        if state.options.history is not None and profile.kernels_unknown is None:
            result = replace(result, entry=_entry_fields(test, judgement, profile))
    if state.options.keeps_results:
        result = replace(result, source=baseline.source_hash(test.baseline.source))
    if judgement.stands_in and result.time_share is not None:
        from pytest_torchprof.testing.timed_results import without_times  # noqa: PLC0415 - for these runs alone

        result = without_times(result, "not judged", StandInTimed())
    return result


def _culprit(test: MeasuredTest, judgement: Judgement, ending: Ending) -> tuple[str, int] | None:
    """Return the file below the root directory, and the line, by which a measurement fails.

    It is that of the ``expect()`` that ended the test, else that by which the first limit that has one was missed, else
    that by which it is worse than its baseline.
    """
    missed = [verdict for verdict in judgement.verdicts if verdict.status == MISSED]
    lines = [verdict.missed_at for verdict in missed]
    return below_root(test, (ending.raised_at, *lines, judgement.blamed))


def below_root(test: MeasuredTest, places: Iterable[tuple[str, int] | None]) -> tuple[str, int] | None:
    """Return the first of the files with their lines that is there, if it lies below the root directory."""
    root = test.state.options.rootdir
    folders = (root, (root / test.location[0]).parent)
    for place in places:
        file, line = place or ("", 0)
        # A profiler names files from where they were imported.
        culprit = next((path for folder in folders if file and (path := folder / file).is_file()), None)
        if culprit is not None and culprit.is_relative_to(root):
            return culprit.relative_to(root).as_posix(), line
    return None


def _with_reported(result: Result, profile: Profile) -> Result:
    """Return the result with the parts that only reports show, which take longer than judging."""
    known = profile.kernels_unknown is None
    structure = baseline.structure_hash(profile) if known else None
    for reason in profile.failed_rules.values():
        # This warning is never made an error: no limit depends on it, and `forbid` has its own verdict.
        with suppress(TorchprofWarning):
            warnings.warn(f"{result.nodeid}: {reason}", TorchprofWarning, stacklevel=2)
    telling = {verdict.limit: telling_of(verdict, profile.why_missed) for verdict in result.limits}
    known_telling = {limit: finding for limit, finding in telling.items() if finding is not None}
    return replace(result, findings=profile.known_findings, telling=known_telling, structure=structure)


def _entry_fields(test: MeasuredTest, judgement: Judgement, profile: Profile) -> baseline.EntryFields:
    compared = judgement.baseline
    hashed = baseline.source_hash(test.baseline.source)
    entry = baseline.entry_of(profile, source_hash=hashed) if compared is None else compared.new()
    return baseline.fields_of(entry)


def _caches(profile: Profile) -> CompileCaches | None:
    own = profile.trace.metadata
    return None if own is None or own.compile is None else own.compile.caches


def _compile_us(profile: Profile) -> dict[str, int]:
    own = profile.trace.metadata
    times_us = None if own is None or own.compile is None else own.compile.time_us
    # A phase that this torch does not time, or that did not take place, is 0 there; the total is their sum.
    return {phase: us for phase, us in (times_us or {}).items() if us and phase != "total"}
