"""Judges a test's measurements all together: limits, then the baseline; records results; raises at the end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import pytest

from pytest_torchprof.capture.ranks import this_rank
from pytest_torchprof.errors import ASK_THE_DOCTOR, LimitsMissed, NotMeasured, of_ours_in
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.limits.failure import LONGEST_REASON
from pytest_torchprof.report.junit import properties
from pytest_torchprof.report.results import FAILED, NOT_MEASURED, PASSED, SKIPPED, Result
from pytest_torchprof.testing.against import against_baseline
from pytest_torchprof.testing.comparing import compared, environment_of
from pytest_torchprof.testing.session import stacks_name
from pytest_torchprof.text.escape import printable_line

LEAST_LINES = 12
"""For each failure of a test that has several: together they may then be longer than a screen."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from msgspec import Struct

    from pytest_torchprof.limits import Screen, Verdict
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.against import Against
    from pytest_torchprof.testing.measure import TestRun
    from pytest_torchprof.testing.measured import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """What came out for one measurement."""

    result: Result
    failure: type[LimitsMissed | NotMeasured] | None = None
    tell: Callable[[Screen], str] = str
    """Says the failure."""
    unanswerable: tuple[str, ...] = ()


def judge(run: TestRun) -> None:
    """Judge every measurement of a test; raise LimitsMissed, NotMeasured, or skip where there was no GPU to ask."""
    if not run.state.settings.enabled:
        return
    for label in run.announced:
        run.note(label, why_not=f"torchprof.measure({label!r}) was never entered: use it in a with statement")
    run.announced.clear()
    if not run.measured and run.options.marked:
        reason = "the test is marked torchprof and requests the fixture, but measured nothing"
        run.note(None, why_not=f"{reason}; call torchprof(...) in it")
    judgements = _judged(run)
    failures = [judgement for judgement in judgements if judgement.failure is not None]
    if failures:
        # An expected failure hides what was missed, never what was not measured.
        kind = NotMeasured if any(one.failure is NotMeasured for one in failures) else LimitsMissed
        screen = replace(run.screen, lines=max(run.screen.lines // len(failures), LEAST_LINES))
        run.failure = kind(("\n" if screen.one_line else "\n\n").join(one.tell(screen) for one in failures))
        raise run.failure from None
    unanswerable = dict.fromkeys(name for judgement in judgements for name in judgement.unanswerable)
    if unanswerable:
        pytest.skip(f"body passed; not judged without a GPU: {', '.join(unanswerable)}{run.why_no_gpu()}")
    if run.gated:
        # The skip at that look may have been caught by the test.
        pytest.skip(run.gated)


@contextmanager
def judged_late(run: TestRun) -> Iterator[None]:
    """Around the teardown of a test: judge what fixtures measured there."""
    # The setup's, where it failed or skipped: a test that did not run is not judged.
    run.measured.clear()
    run.announced.clear()
    yield
    if run.measured or run.announced:
        judge(run)


@contextmanager
def judged(run: TestRun) -> Iterator[None]:
    """Around the body of a test: judge what it measured when it has passed, else record how it ended."""
    again: BaseException | None = None
    try:
        yield
    except (Exception, pytest.skip.Exception) as problem:
        if problem is run.raised_again:
            # The measurement stood when it was repeated for an explanation: what counts is the limit it missed.
            again = problem
        elif not isinstance(problem, pytest.skip.Exception | SkipTest):
            run.failure = of_ours_in(problem)
            note(run, f"the test itself failed: {type(problem).__name__}", skipped=False)
            raise
        elif run.gated:
            # The test looked at what is not to be had here; what the CPU can answer may still fail it.
            judge(run)
            raise
        else:
            note(run, f"the test skipped itself: {problem}", skipped=True)
            raise
    judge(run)
    if again is not None:
        raise again


def note(run: TestRun, ended: str, *, skipped: bool) -> None:
    """Record the measurements of a test that failed or skipped itself before they were to be judged."""
    if not run.state.settings.enabled:
        return
    for measured in run.measured:
        measured.ended, measured.skipped = ended, skipped
    _judged(run)


def _judged(run: TestRun) -> list[_Judgement]:
    profiles = [measured.profile for measured in run.measured if measured.profile is not None]
    judgements = [_judge_one(run, measured, profiles) for measured in run.measured]
    # The profiles may hold what the measured code returned: the test keeps nothing on the GPU after judging.
    for measured in run.measured:
        measured.explaining.again = None
    run.measured.clear()
    for judgement in judgements:
        run.state.add(judgement.result)
        if this_rank().writes:
            run.properties.extend(properties(judgement.result))
    return judgements


def _judge_one(run: TestRun, measured: Measured, profiles: Sequence[Profile]) -> _Judgement:
    """Judge one measurement; ``profiles`` are those of all measurements of the test."""
    profile = measured.profile
    if profile is None or measured.why_not is not None:
        return _not_measured(run, measured, measured.why_not or "the measured code was not run to its end")
    from pytest_torchprof.limits import HOLDS  # noqa: PLC0415  (only runs with a torchprof test pay for it)
    from pytest_torchprof.limits import judge as judge_limits  # noqa: PLC0415

    stands_in = run.stands_in(profile)
    beside = tuple(other for other in profiles if other is not profile)
    open_profile = profile.with_context(rules=run.state.rules, gate=None).with_others(beside)
    if measured.explaining.repeat is not None:
        open_profile = open_profile.with_repeat(measured.explaining.repeat)
    if stands_in:
        elsewhere = run.comparing.only_elsewhere(measured.label, profile)
        measured.unanswerable = (*run.unanswerable(), *(["baseline"] if elsewhere else []))
    nothing_to_compare = tuple(_of_nothing_to_compare(run, measured, open_profile))
    verdicts = (
        *judge_limits(open_profile, run.asked(measured, profile)),
        *(() if stands_in else _of_times(run, open_profile)),
        *nothing_to_compare,
        *(() if stands_in or nothing_to_compare else _of_lost_numbers(run, measured, open_profile)),
    )
    comparison = None
    if not nothing_to_compare:
        kept = all(verdict.status == HOLDS for verdict in verdicts) and not measured.unanswerable
        comparison = against_baseline(run, measured, open_profile, kept=kept)
    return _concluded(run, measured, open_profile, verdicts, comparison)


def _of_times(run: TestRun, profile: Profile) -> Iterator[Verdict]:
    """Say where times were to be compared and cannot be; how they compare is the baseline's to say."""
    from pytest_torchprof.limits import NOT_MEASURED, Verdict  # noqa: PLC0415

    if run.comparing.of_times and (reason := run.comparing.why_no_times(profile)):
        share = run.options.tolerance.allowed["time"]
        yield Verdict(limit="tolerance", expected=f'{{"time": {share}}}', measured=reason, status=NOT_MEASURED)


def _of_nothing_to_compare(run: TestRun, measured: Measured, profile: Profile) -> Iterator[Verdict]:
    """Say where a baseline is all that is asked for, to be compared with or written, and no kernel ran or is seen."""
    from pytest_torchprof import baseline  # noqa: PLC0415
    from pytest_torchprof.limits import NOT_MEASURED, Verdict, idle_step, nothing_ran  # noqa: PLC0415

    if not run.comparing.wanted or profile.why_not is not None:
        return
    mode, hidden = run.state.settings.baseline, profile.kernels_unknown
    idle = None if hidden is not None else idle_step(profile, measured.limits)
    reason = hidden if idle is None else nothing_ran(profile, idle)
    if reason is None:
        return
    file, key = run.comparing.place(measured.label, profile)
    asked = mode in ("update", "add") or (run.body_is_step and not measured.limits)
    if (asked and hidden is None and not run.stands_in(profile)) or key in baseline.read_or_empty(file).entries:
        yield Verdict(limit="baseline", expected=mode, measured=reason, status=NOT_MEASURED)


def _of_lost_numbers(run: TestRun, measured: Measured, profile: Profile) -> Iterator[Verdict]:
    """Say which number the baseline gates, or the test asks to compare, and this measurement does not have."""
    from pytest_torchprof.compare import GATED  # noqa: PLC0415
    from pytest_torchprof.limits import NOT_MEASURED, Verdict  # noqa: PLC0415

    found = compared(run, measured, profile)
    if found is None:
        return
    old, new, _ = found
    held = old.numbers if old and run.state.settings.baseline != "update" else {}
    lost = [name for name in sorted(GATED) if name in held and name not in new.numbers]
    asked = (run.options.marker or {}).get("tolerance")
    if isinstance(asked, Mapping) and "memory" in asked and "peak_memory_bytes" not in new.varying:
        lost.append("peak memory")
    if lost:
        reason = f"{', '.join(lost)}: compared with the baseline, and this measurement does not have it"
        yield Verdict(limit="baseline", expected=run.state.settings.baseline, measured=reason, status=NOT_MEASURED)


def _concluded(
    run: TestRun,
    measured: Measured,
    profile: Profile,
    verdicts: tuple[Verdict, ...],
    comparison: Against | None,
) -> _Judgement:
    from pytest_torchprof.limits import failure  # noqa: PLC0415

    regressed = comparison.failure if comparison else ()
    problem = failure(verdicts, profile, profile.why_missed, also=regressed)
    outcome = (
        SKIPPED if measured.unanswerable or measured.skipped or run.gated else FAILED if measured.ended else PASSED
    )
    if problem is not None and not measured.skipped:
        outcome = NOT_MEASURED if isinstance(problem, NotMeasured) else FAILED
    recording = _keep(run, measured, failed=outcome in (FAILED, NOT_MEASURED))

    def tell(screen: Screen) -> str:
        return _with_context(
            str(failure(verdicts, profile, profile.why_missed, also=regressed, screen=screen)),
            run,
            measured,
            recording,
            screen,
        )

    result = Result(
        nodeid=run.nodeid,
        label=measured.label,
        outcome=outcome,
        message=tell(replace(run.screen, verbosity=0)) if problem else _message(measured),
        baseline=comparison.words if comparison else None,
        changes=comparison.changes if comparison else (),
        limits=tuple(_plain_verdict(verdict) for verdict in verdicts),
        summary={**_plain(profile.median), "worst": _plain(profile.worst)},
        environment=dict(environment_of(profile)),
        findings=tuple(_plain_finding(finding) for finding in profile.findings),
        kernels=_kernel_rows(profile) if problem and profile.kernels_unknown is None else (),
        recording=run.state.shown(recording) if recording else None,
        time=_plain_time(profile),
        location=run.location,
    )
    if measured.recording is not None and outcome != SKIPPED:
        run.state.replayed.add(measured.recording.name)
    kind = None if problem is None else type(problem)
    return _Judgement(result=result, failure=kind, tell=tell, unanswerable=measured.unanswerable)


def _message(measured: Measured) -> str:
    if measured.unanswerable:
        return f"not judged without a GPU: {', '.join(measured.unanswerable)}"
    return measured.ended


def _not_measured(run: TestRun, measured: Measured, reason: str) -> _Judgement:
    recording = _keep(run, measured, failed=True)
    reason = printable_line(reason.removeprefix("not measured: "), LONGEST_REASON)

    def tell(screen: Screen) -> str:
        lines = [f"not measured: {reason}", *([f"  do: {ASK_THE_DOCTOR}"] if measured.ask_the_doctor else [])]
        return _with_context(lines[0] if screen.one_line else "\n".join(lines), run, measured, recording, screen)

    result = Result(
        nodeid=run.nodeid,
        label=measured.label,
        outcome=NOT_MEASURED,
        message=tell(replace(run.screen, verbosity=0)),
        environment=dict(environment_of(profile)) if (profile := measured.profile) is not None else {},
        recording=run.state.shown(recording) if recording else None,
        location=run.location,
    )
    return _Judgement(result=result, failure=NotMeasured, tell=tell)


def _with_context(text: str, run: TestRun, measured: Measured, recording: Path | None, screen: Screen) -> str:
    head = f"{printable_line(measured.label)}: " if measured.label else ""
    if recording is None or screen.one_line:
        return f"{head}{text}"
    lines = [f"  recording: {run.state.shown(recording)}"]
    beside = recording.with_name(stacks_name(recording.name))
    if beside.is_file():
        lines.append(f"  with stacks: {run.state.shown(beside)}")
    return "\n".join([f"{head}{text}", *lines])


def _keep(run: TestRun, measured: Measured, *, failed: bool) -> Path | None:
    recording = measured.recording
    if recording is None or not recording.is_file():
        return None
    if run.state.settings.replay is not None:
        return recording
    stacks = measured.explaining.recording
    return run.state.keep(recording, run.nodeid, measured.label, failed=failed, stacks=stacks)


def _plain_time(profile: Profile) -> dict[str, Any]:
    from msgspec.structs import asdict  # noqa: PLC0415

    from pytest_torchprof.baseline import times_of  # noqa: PLC0415

    times = times_of(profile)
    return asdict(times) if times else {}


def _plain_verdict(verdict: Verdict) -> dict[str, Any]:
    measured: object = verdict.number if verdict.number is not None else verdict.measured
    return {
        "name": verdict.limit,
        "expected": verdict.expected,
        "measured": None if verdict.status == "not measured" else measured,
        "status": verdict.status,
        "message": verdict.measured,
        "details": [str(one).strip() for one in verdict.details],
    }


def _plain_finding(finding: Any) -> dict[str, Any]:
    return {**_plain(finding), "evidence": dict(finding.evidence)}


def _plain(found: Struct) -> dict[str, Any]:
    from msgspec.structs import asdict  # noqa: PLC0415 - a run without a measurement does without

    return asdict(found)


def _kernel_rows(profile: Profile) -> tuple[dict[str, Any], ...]:
    rows: dict[str, dict[str, Any]] = {}
    for kernel in profile.kernels:
        row = rows.setdefault(kernel.name, {"name": kernel.short or kernel.name, "count": 0, "time_us": 0.0, "ops": []})
        row["count"] += 1
        row["time_us"] += kernel.duration_us
        if kernel.op and kernel.op not in row["ops"]:
            row["ops"].append(kernel.op)
    return tuple(sorted(rows.values(), key=lambda row: -row["time_us"]))
