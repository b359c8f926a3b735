"""After the tests ran: writes baselines and reports, hands a worker's results over, shows the table."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.capture.ranks import this_rank
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.report import FAILED, NOT_MEASURED, github, terminal
from pytest_torchprof.testing.leftovers import leftovers
from pytest_torchprof.testing.session import SUFFIX, stacks_name
from pytest_torchprof.testing.stash import WORKER_KEY, is_worker

if TYPE_CHECKING:
    from pytest_torchprof.testing.session import RunState

RECORDINGS = "torchprof-recordings"
"""The folder next to a report; not hidden, since uploads of artifacts leave hidden ones out."""


def finish(state: RunState, session: pytest.Session) -> None:
    """Write what the run leaves behind; on a worker, hand it to the controller, which alone writes."""
    try:
        if is_worker(session.config):
            session.config.workeroutput[WORKER_KEY] = state.to_plain()  # type: ignore[attr-defined]
            return
        problems = []
        if this_rank().writes:
            state.leftovers.extend(leftovers(state))
            problems += [*_write_baselines(state), *_write_reports(state), *_write_step_summary(state)]
        if state.settings.replay is not None and not state.replayed:
            problems.append(f"--torchprof-replay={state.settings.replay}: no test judged a recording")
        state.problems.extend(problems)
        if state.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if state.lacks_gpu:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
    finally:
        state.close()


def summary(state: RunState, terminalreporter: Any) -> None:
    """Draw the section at the end of the run, in the reporter's own style."""
    run = state.run_results
    quiet = terminalreporter.config.get_verbosity() < 0
    if quiet and not state.settings.enabled:
        # Without the header nothing else would say so.
        terminalreporter.write_line("torchprof: off: nothing was measured, no limit was judged")
    left = state.unjudged_recordings()
    if not (run.results or state.problems or left):
        return
    rank = this_rank()
    who = "" if rank.alone else f"{rank}: "
    if not rank.writes and (state.settings.reports or state.settings.baseline in ("update", "add")):
        terminalreporter.write_line(f"torchprof: {who}rank 0 writes the baselines and reports")
    if quiet and not state.problems:
        terminalreporter.write_line(f"torchprof: {who}{terminal.closing(run)}")
        return
    terminalreporter.write_sep("-", terminal.title(run) + ("" if rank.alone else f", {rank}"))
    if run.results:
        width = terminalreporter.config.get_terminal_writer().fullwidth
        verbosity = terminalreporter.config.get_verbosity()
        terminalreporter.write_line(terminal.render(run, width=width, verbosity=verbosity))
    if left:
        terminalreporter.write_line(f"recordings that no test judged: {', '.join(left)}")
    for problem in state.problems:
        terminalreporter.write_line(f"torchprof: {problem}", red=True)
    if rank.writes and os.environ.get("GITHUB_ACTIONS") == "true":
        for command in github.commands(run, state.settings.rootdir, os.environ.get("GITHUB_WORKSPACE")):
            terminalreporter.write_line(command)


def _write_baselines(state: RunState) -> list[str]:
    if not state.baseline_updates:
        return []
    from pytest_torchprof import baseline  # noqa: PLC0415  (only a run that writes baselines pays for it)

    problems = []
    for path, entries in sorted(state.baseline_updates.items()):
        try:
            baseline.update(Path(path), {key: entry and baseline.from_plain(entry) for key, entry in entries.items()})
        except TorchprofError as problem:
            problems.append(str(problem))
            state.not_written()
            state.leftovers.clear()
    return problems


def _write_reports(state: RunState) -> list[str]:
    problems = []
    run = state.run_results
    for path in state.settings.reports:
        reporter = state.reporter_of(path)
        part = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if reporter is not None:
                part.write_text(reporter(run), encoding="utf-8", errors="backslashreplace")
                part.replace(path)
            _keep_beside(state, path.parent / RECORDINGS)
        except OSError as error:
            problems.append(f"--torchprof-report={path}: cannot be written: {error.strerror or error}")
    return problems


def _keep_beside(state: RunState, folder: Path) -> None:
    """Put the recordings of what failed next to a report, where CI picks both up; those of the last run go."""
    for old in folder.glob(f"*{SUFFIX}"):
        old.unlink()
    failed = [result for result in state.results.values() if result.outcome in (FAILED, NOT_MEASURED)]
    recordings = [state.settings.rootdir / result.recording for result in failed if result.recording]
    if recordings:
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    for recording in recordings:
        for one in (recording, recording.with_name(stacks_name(recording.name))):
            if one.is_file():
                shutil.copyfile(one, folder / one.name)


def _write_step_summary(state: RunState) -> list[str]:
    """Add to the page that GitHub Actions shows of the job; other tools of the job write to it too."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path or not state.results:
        return []
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(github.step_summary(state.run_results) + "\n")
    except OSError as error:
        return [f"the step summary {path} cannot be written: {error.strerror or error}"]
    return []
