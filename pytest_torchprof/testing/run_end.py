"""The end of a run: baselines, reports with recordings beside them, and its exit status."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.files import hide, stacks_name
from pytest_torchprof.report import ci
from pytest_torchprof.report.result import NOTHING_COMPARED
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.testing.handed_over import ProcessResults
from pytest_torchprof.testing.recordings import SUFFIX
from pytest_torchprof.testing.suite import suite_problems, unneeded
from pytest_torchprof.testing.unused import unused_entries
from pytest_torchprof.testing.workers import hand_over, is_worker

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_torchprof.against.side import Side
    from pytest_torchprof.history.record import RunRecord
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.baseline_files import BaselineFiles
    from pytest_torchprof.testing.session import RunState

RECORDINGS = "torchprof-recordings"
"""The folder next to a report; not hidden, since uploads of artifacts leave hidden ones out."""


def finish(state: RunState, session: pytest.Session) -> None:
    """Write what the run leaves behind; on a worker, hand it to the controller, which alone writes."""
    try:
        if is_worker(session.config):
            hand_over(session.config, state.handed_over())
            return
        if state.options.history is not None and state.other_ranks is not None:
            for text in state.other_ranks.hand_in(state.handed_over().to_json()).values():
                state.merge_rank(ProcessResults.from_json(text))
        if this_rank().writes:
            _end_comparison(state, session)
            _end_suite(state, session)
            state.note_problem(*state.write_baselines(), *_write_step_summary(state))
            if state.options.keeps_results:
                from pytest_torchprof.testing.history import leave_record, run_record  # noqa: PLC0415 - for these runs alone

                record = run_record(state, session)
                state.note_problem(*_write_reports(state, record))
                leave_record(state, record)
        if state.options.replay is not None and not state.replayed:
            from pytest_torchprof.reasons.whole_runs import NoRecordingJudged  # noqa: PLC0415 - for these runs alone

            state.note_problem(NoRecordingJudged(str(state.options.replay)))
        if state.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if state.problems and state.options.against is not None and not state.options.against.is_judged:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR  # Results may be missing.
        if state.lacks_gpu:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
    finally:
        state.at_end.close()
        state.recordings.close()


def _end_comparison(state: RunState, session: pytest.Session) -> None:
    """Say what could not be compared, and which entries of baselines nothing measures any more."""
    side = state.options.against
    if side is None:
        # A branch has tests that this run has not collected.
        if state.options.history_branch is None:
            state.note_unused(unused_entries(state.baselines, session.config.invocation_params.dir))
    elif not side.is_judged:
        _leave_times(side, state.run_results)
    else:
        if not (session.shouldfail or session.shouldstop):  # All tests have run.
            baselines = state.baselines
            state.note_gone(_only_at_base(side, baselines.files, baselines.compared_keys))
        state.note_problem(*_nothing_compared(side, state.results.values()))


def _end_suite(state: RunState, session: pytest.Session) -> None:
    """Say what is left of the suite's rules and exceptions."""
    suite, seen = state.options.suite, state.suite_seen
    if suite is None or seen is None or not state.options.enabled:
        return
    state.note_problem(*suite_problems(seen))
    if not (session.shouldfail or session.shouldstop):
        state.note_unused(unneeded(suite, seen, state.results.values()))


def _write_reports(state: RunState, record: RunRecord) -> list[Reason]:
    """Write the reports of a run, which tell what its record holds, and return the problems."""
    problems: list[Reason] = []
    if not state.options.reports:
        return problems
    from pytest_torchprof.history.results import results_in  # noqa: PLC0415 - for these runs alone

    run = replace(results_in(record), rootdir=str(state.options.rootdir))
    for path in state.options.reports:
        reporter = state.reporter_of(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if reporter is not None:
                with replacing(path) as unfinished:
                    unfinished.write_text(reporter(run), encoding="utf-8", errors="backslashreplace")
        except TorchprofError as problem:
            from pytest_torchprof.reasons.whole_runs import ReportNotMade, reason_of  # noqa: PLC0415 - for what fails alone

            problems.append(ReportNotMade(str(path), reason_of(problem)))
        except OSError as error:
            problems.append(_not_written(path, error))
        folder = path.parent / RECORDINGS
        if folder.is_symlink():
            from pytest_torchprof.reasons.whole_runs import RecordingsBehindLink  # noqa: PLC0415 - for what fails alone

            problems.append(RecordingsBehindLink(str(path), str(folder)))
            continue
        try:
            _keep_beside(state, folder)
        except OSError as error:
            problems.append(_not_written(path, error))
    return list(dict.fromkeys(problems))


def _not_written(path: Path, error: OSError) -> Reason:
    from pytest_torchprof.reasons.whole_runs import ReportNotWritten  # noqa: PLC0415 - for what fails alone

    return ReportNotWritten(str(path), str(error.strerror or error))


def _keep_beside(state: RunState, folder: Path) -> None:
    """Put the recordings of failed tests next to a report, where CI picks both up; remove those of the last run."""
    for old in folder.glob(f"*{SUFFIX}"):
        old.unlink()
    failed = [result for result in state.results.values() if result.outcome.is_failure]
    recordings = [state.options.rootdir / result.recording for result in failed if result.recording]
    if recordings:
        folder.mkdir(exist_ok=True)
        hide(folder)
    for recording in recordings:
        for file in (recording, recording.with_name(stacks_name(recording.name))):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)


def _write_step_summary(state: RunState) -> list[Reason]:
    """Add to the page that GitHub Actions shows for the job; other tools in the job write to it too."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path or not state.results:
        return []
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(ci.step_summary(state.run_results) + "\n")
    except OSError as error:
        from pytest_torchprof.reasons.whole_runs import StepSummaryNotWritten  # noqa: PLC0415 - for what fails alone

        return [StepSummaryNotWritten(path, str(error.strerror or error))]
    return []


def _only_at_base(side: Side, baselines: BaselineFiles, compared: Mapping[Path, set[str]]) -> tuple[str, ...]:
    """Return the names of the measurements that only the other commit has, by test and label.

    ``compared`` has the keys of the entries that were compared here, by baseline file.
    """
    from pytest_torchprof.against.measured import entry_files  # noqa: PLC0415 - for these runs alone

    only_there: list[str] = []
    for file, test_file in entry_files(side.entries):
        with suppress(TorchprofError):  # Its tests have reported it.
            keys = baselines.entries(file).keys() - compared.get(file, set())
            only_there += [f"{test_file}::{key}" for key in sorted(keys)]
    return tuple(only_there)


def _leave_times(side: Side, run: RunResults) -> None:
    """Write down the times that this process took; at the base, also whether any are to be taken."""
    from pytest_torchprof.against.pairs import TIMED, write_results  # noqa: PLC0415 - for these runs alone

    if side.timed is not None:
        write_results(side.results, run)
    elif any(result.time_share is not None for result in run.results):
        (side.results / TIMED).touch()


def _nothing_compared(side: Side, results: Collection[Result]) -> list[Reason]:
    """Return the problem of a run that has compared nothing; empty where it has compared something."""
    if any(result.baseline_state not in NOTHING_COMPARED for result in results):
        return []
    from pytest_torchprof.reasons.whole_runs import NothingCompared  # noqa: PLC0415 - for what fails alone

    return [NothingCompared(side.reference.shown, any(side.entries.rglob("*.json")), bool(results))]
