"""From judgements to results: how each measurement came out, what is kept of it, and what reports say."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof import baseline
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.kernels.kernels import by_name
from pytest_torchprof.limits import MISSED
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofWarning
from pytest_torchprof.reasons.timing import StandInTimed
from pytest_torchprof.recording.files import stacks_name
from pytest_torchprof.report.ci import properties
from pytest_torchprof.report.result import BaselineState, KernelCalls, Outcome, Result, with_numbers
from pytest_torchprof.testing.judgement import JudgedAlone, judge_measurement
from pytest_torchprof.testing.other_ranks import entries_of_others, with_other_ranks
from pytest_torchprof.testing.renames import NewTest
from pytest_torchprof.testing.run_baselines import BaselineNote
from pytest_torchprof.testing.timed_results import without_times
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.limits import Screen, Verdict
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.errors import LimitsMissed
    from pytest_torchprof.testing.judgement import Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.test_run import TestRun
    from pytest_torchprof.trace.caches import CompileCaches


@dataclass(frozen=True, slots=True)
class Ending:
    """How a test ended by itself, before its measurements were judged."""

    reason: str
    skipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """One measurement, judged and reported."""

    judgement: Judgement
    result: Result
    problem: LimitsMissed | NotMeasured | None
    """What does not hold."""
    unanswerable: tuple[str, ...]
    """What was not judged because the CPU stood in for a missing GPU."""
    brief: str
    """What does not hold, in a line."""
    recording: str
    """Lines that name what was kept; empty without it."""
    note: BaselineNote | None
    """What the run keeps in mind of its baseline; None where it is not compared."""

    @property
    def judged(self) -> bool:
        """Whether its recording was judged: a test that skipped itself judges none."""
        return self.judgement.profile is not None and self.result.outcome is not Outcome.SKIPPED

    def text(self, screen: Screen) -> str:
        """Return what does not hold, as long as the screen allows."""
        return _labelled(self.judgement, f"{self.judgement.error(screen)}{self.recording}")


def conclude(run: TestRun, ending: Ending | None = None) -> list[Conclusion]:
    """Judge the measurements of a test with one another, and record and return what came of each."""
    measurements = tuple(run.measurements.values())
    # What ended the test by itself may be the very error that says what is not measured.
    caught = [measurement.caught if ending is None else () for measurement in measurements]
    judgements = [
        _complete_judgement(run, measurement, measurements, verdicts)
        for measurement, verdicts in zip(measurements, caught, strict=True)
    ]
    conclusions = [_conclude_one(run, judgement, ending) for judgement in judgements]
    # The profiles may hold what the measured code returned: the test keeps nothing on the GPU after judging.
    for measurement in measurements:
        measurement.explanation.call_by(None)
    run.conclude(entry for conclusion in conclusions for entry in properties(conclusion.result) if this_rank().writes)
    for conclusion in conclusions:
        _record(run.test, conclusion)
    return conclusions


def _record(test: MeasuredTest, conclusion: Conclusion) -> None:
    """Give the run what it keeps of a measurement."""
    test.state.add(conclusion.result)
    if conclusion.note is not None:
        test.state.note_baseline(test.nodeid, conclusion.note)
    recording = conclusion.judgement.measurement.recording
    if conclusion.judged and recording is not None:
        test.state.note_judged(recording)


def _complete_judgement(
    run: TestRun, measurement: Measurement, measurements: tuple[Measurement, ...], caught: tuple[Verdict, ...]
) -> Judgement:
    """Return what a measurement comes to, judged again where siblings, lines or the test add to what it was alone."""
    alone = run.judged_alone.get(measurement.label, JudgedAlone())
    former = alone.judgement
    siblings = tuple(other.profile for other in measurements if other.profile is not None and other is not measurement)
    explanation = measurement.explanation
    judgement = former
    if judgement is None or siblings or explanation.repeat is not None or explanation.asked or caught:
        judgement = judge_measurement(run.test, measurement, siblings=siblings, former=former, caught=caught)
    return with_other_ranks(judgement, alone.of_ranks, this_rank().number)


def _conclude_one(run: TestRun, judgement: Judgement, ending: Ending | None) -> Conclusion:
    test, measurement, profile = run.test, judgement.measurement, judgement.profile
    problem = judgement.error(changed(test.screen, everything=False))
    unanswerable = _unanswerable(run, judgement)
    outcome = _outcome(run, judgement, problem, ending, unanswerable=bool(unanswerable))
    kept = _keep(run, measurement, failed=outcome.is_failure)
    recording = _recording_lines(run, kept)
    if problem is not None:
        message = _labelled(judgement, f"{problem}{recording}")
    elif unanswerable:
        message = f"not judged without a GPU: {', '.join(unanswerable)}"
    else:
        message = ending.reason if ending is not None else ""
    seen = profile or measurement.profile
    result = Result(
        nodeid=test.nodeid,
        label=measurement.label,
        outcome=outcome,
        message=message,
        reason=problem.reason if isinstance(problem, NotMeasured) else None,
        environment=seen.trace.environment if seen is not None else None,
        compile_caches=_caches(seen) if seen is not None else None,
        recording=test.state.options.shown(kept) if kept else None,
        location=test.location,
        time_share=test.baseline.time_share if test.state.options.against is not None else None,
        culprit=_culprit(run, judgement) if outcome.is_failure else None,
    )
    note = None
    if profile is not None:
        result = replace(with_numbers(result, profile), limits=judgement.verdicts)
        if problem is not None or test.state.options.reports:
            result = replace(result, kernels=_kernel_rows(profile) if profile.kernels_unknown is None else ())
        if test.state.options.reports:
            result = _with_reported(result, profile)
        writable = judgement.holds and not unanswerable
        note = _note_of(run, judgement, writable=writable)
        result = _with_baseline(run, result, judgement, writable=writable)
    if judgement.stands_in and result.time_share is not None:
        result = without_times(result, "not judged", StandInTimed())
    return Conclusion(
        judgement=judgement,
        result=result,
        problem=problem,
        unanswerable=unanswerable,
        brief=_labelled(judgement, (problem and problem.brief) or ""),
        recording=recording,
        note=note,
    )


def _culprit(run: TestRun, judgement: Judgement) -> tuple[str, int] | None:
    """Return the file below the root directory, and the line, by which the first limit with one was missed.

    Without one, the line by which it is worse than its baseline.
    """
    root = run.test.state.options.rootdir
    folders = (root, (root / run.test.location[0]).parent)
    rows = [(verdict.culprit, verdict.line) for verdict in judgement.verdicts if verdict.status == MISSED]
    for place in (*((row and row.line) or line for row, line in rows), judgement.blamed):
        file, line = place or ("", 0)
        # A profiler names files from where they were imported.
        culprit = next((path for folder in folders if file and (path := folder / file).is_file()), None)
        if culprit is not None and culprit.is_relative_to(root):
            return culprit.relative_to(root).as_posix(), line
    return None


def _unanswerable(run: TestRun, judgement: Judgement) -> tuple[str, ...]:
    if not judgement.stands_in:
        return ()
    names = run.test.unanswerable(run.measurements.values())
    nothing = ["whether anything runs"] if judgement.shows_nothing and not names else []
    return (*names, *(["baseline"] if judgement.only_elsewhere else []), *nothing)


def _outcome(
    run: TestRun, judgement: Judgement, problem: Exception | None, ending: Ending | None, *, unanswerable: bool
) -> Outcome:
    skipped = ending is not None and ending.skipped
    if judgement.profile is None:
        return Outcome.NOT_MEASURED
    if problem is not None and not skipped:
        return Outcome.NOT_MEASURED if isinstance(problem, NotMeasured) else Outcome.FAILED
    if unanswerable or skipped or run.gated:
        return Outcome.SKIPPED
    return Outcome.FAILED if ending is not None else Outcome.PASSED


def _keep(run: TestRun, measurement: Measurement, *, failed: bool) -> Path | None:
    recording, state = measurement.recording, run.test.state
    if recording is None or not recording.is_file():
        return None
    if state.options.replay is not None:
        return recording
    stacks = measurement.explanation.recording
    return state.keep(recording, run.test.nodeid, measurement.label, failed=failed, stacks=stacks)


def _recording_lines(run: TestRun, kept: Path | None) -> str:
    if kept is None:
        return ""
    shown = run.test.state.options.shown
    beside = kept.with_name(stacks_name(kept.name))
    return f"\n  recording: {shown(kept)}" + (f"\n  with lines: {shown(beside)}" if beside.is_file() else "")


def _labelled(judgement: Judgement, text: str) -> str:
    label = judgement.measurement.label
    return f"{printable_line(label)}: {text}" if label else text


def _note_of(run: TestRun, judgement: Judgement, *, writable: bool) -> BaselineNote | None:
    """Return what the run keeps in mind of a baseline; ``writable``: all that was asked holds, so it may be written."""
    compared, check = judgement.baseline, run.test.baseline
    if compared is None:
        return None
    label, entry = judgement.measurement.label, None
    if writable and not _unknown_there(judgement) and check.writes(compared.old, compared.formers):
        others = entries_of_others(run.judged_alone.get(label, JudgedAlone()).of_ranks)
        entry = check.entry_to_write(compared, others) if this_rank().writes else None
    is_new = compared.comparison.verdict == "new"
    return BaselineNote(
        file=compared.file,
        key=compared.key,
        says_less=check.says_less(compared),
        test=NewTest(str(check.path), baseline.split_key(compared.key)[0]) if is_new else None,
        label=label,
        formers=compared.formers,
        entry=entry,
        # What the rest of the test comes to at a commit that is only compared with is no matter of what was measured.
        at_once=not check.judges_limits,
    )


def _unknown_there(judgement: Judgement) -> bool:
    """Whether the commit has the test, and did not measure it."""
    return any(verdict.limit == "against" for verdict in judgement.verdicts)


def _with_baseline(run: TestRun, result: Result, judgement: Judgement, *, writable: bool) -> Result:
    """Return the result with what becomes of the baseline."""
    compared, check = judgement.baseline, run.test.baseline
    if compared is None:
        return result
    if _unknown_there(judgement):
        return replace(result, baseline_state=BaselineState.UNKNOWN)
    comparison = compared.comparison
    if compared.old is not None:
        result = replace(result, comparison=comparison)
    if writable and check.writes(compared.old, compared.formers):
        state = BaselineState.WRITTEN if this_rank().writes else BaselineState.LEFT_TO_RANK_0
        return replace(result, baseline_state=state)
    state = BaselineState(comparison.verdict)
    if state is BaselineState.AMBIGUOUS and not judgement.baseline_failure:
        # Where warnings are errors this one is none: only strict fails what the samples do not tell.
        with suppress(TorchprofWarning):
            warnings.warn(f"{result.nodeid}: {comparison.summary} against the baseline", TorchprofWarning, stacklevel=2)
    return replace(result, baseline_state=state, baseline_fails=bool(judgement.baseline_failure))


def _with_reported(result: Result, profile: Profile) -> Result:
    """Return the result with what reports alone show, and what takes longer than to judge."""
    known = profile.kernels_unknown is None
    structure = baseline.structure_hash(profile) if known else None
    for reason in profile.failed_rules.values():
        # Where warnings are errors this one is none: no limit hangs on it, and `forbid` has said so itself.
        with suppress(TorchprofWarning):
            warnings.warn(f"{result.nodeid}: {reason}", TorchprofWarning, stacklevel=2)
    return replace(result, findings=profile.known_findings, structure=structure)


def _caches(profile: Profile) -> CompileCaches | None:
    own = profile.trace.metadata
    return None if own is None or own.compile is None else own.compile.caches


def _kernel_rows(profile: Profile) -> tuple[KernelCalls, ...]:
    rows = [
        KernelCalls(
            name=members[0].short or name,
            count=len(members),
            time_us=sum(kernel.duration_us for kernel in members),
            min_us=min(kernel.duration_us for kernel in members),
            max_us=max(kernel.duration_us for kernel in members),
            ops=tuple(dict.fromkeys(kernel.op for kernel in members if kernel.op)),
        )
        for name, members in by_name(profile.kernels).items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.time_us))
