"""What a run tells: progress and a section on the terminal, then files; a worker hands its results over instead."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof import baseline
from pytest_torchprof.capture.processes import this_rank
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.limits import Screen
from pytest_torchprof.report import Disuse, UnusedEntries, ci, terminal
from pytest_torchprof.testing.options import BaselineMode
from pytest_torchprof.testing.recordings import SUFFIX, stacks_name
from pytest_torchprof.testing.stash_keys import WORKER_KEY, is_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.testing.run_state import RunState


NARROWEST, WIDEST = 60, 100
PATIENCE_S = 1.0
"""A measurement shorter than this says nothing; a longer one is heard of at most this often."""


def screen_of(config: pytest.Config) -> Screen:
    """Return how much a failure may say: as wide as the terminal is, and as much as ``-q`` and ``-vv`` ask for."""
    columns = shutil.get_terminal_size(fallback=(80, 24)).columns
    return Screen(width=min(max(columns, NARROWEST), WIDEST), verbosity=config.get_verbosity())


def progress_of(config: pytest.Config) -> Callable[[str, int, int], None]:
    """Return a function (test, calls done, calls in all) that shows where a measurement is, on a terminal only.

    With all calls done it takes the line away again.
    """
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if reporter is None or capture is None or not reporter.isatty or config.get_verbosity() < 0:
        return lambda _name, _done, _total: None
    last = time.monotonic()
    shown = False

    def show(name: str, done: int, total: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if not (shown if done == total else now - last >= PATIENCE_S):
            return
        last, shown = now, done < total
        text = f"  [{name}: call {done + 1} of {total}]" if shown else ""
        with capture.global_and_fixture_disabled():
            # Behind the cursor, clipped at the edge, and the cursor goes back: pytest's own line goes on undisturbed.
            sys.stdout.write(f"\0337\033[?7l{text}\033[K\033[?7h\0338")
            sys.stdout.flush()

    return show


def write_section(state: RunState, terminalreporter: Any) -> None:
    """Write the section at the end of the run, in the reporter's own style."""
    run, options = state.run_results, state.options
    verbosity = terminalreporter.config.get_verbosity()
    if verbosity < 0 and not options.enabled:
        # Without the header nothing else would say so.
        terminalreporter.write_line("torchprof: off: nothing was measured, no limit was judged")
    unjudged = state.recordings.unjudged(state.replayed)
    if not (run.results or state.problems or unjudged):
        return
    rank = this_rank()
    who = "" if rank.alone else f"{rank}: "
    if not rank.writes and (options.reports or options.baseline.writes):
        terminalreporter.write_line(f"torchprof: {who}rank 0 writes the baselines and reports")
    if verbosity < 0 and not state.problems:
        terminalreporter.write_line(f"torchprof: {who}{terminal.closing(run)}")
        return
    terminalreporter.write_sep("-", terminal.title(run) + ("" if rank.alone else f", {rank}"))
    if run.results:
        width = terminalreporter.config.get_terminal_writer().fullwidth
        terminalreporter.write_line(terminal.render(run, width=width, verbosity=verbosity))
    if unjudged:
        terminalreporter.write_line(f"recordings that no test judged: {', '.join(unjudged)}")
    for problem in state.problems:
        terminalreporter.write_line(f"torchprof: {problem}", red=True)
    if rank.writes and os.environ.get("GITHUB_ACTIONS") == "true":
        for command in ci.commands(run, options.rootdir, os.environ.get("GITHUB_WORKSPACE")):
            terminalreporter.write_line(command)


RECORDINGS = "torchprof-recordings"
"""The folder next to a report; not hidden, since uploads of artifacts leave hidden ones out."""


def finish(state: RunState, session: pytest.Session) -> None:
    """Write what the run leaves behind; on a worker, hand it to the controller, which alone writes."""
    try:
        if is_worker(session.config):
            session.config.workeroutput[WORKER_KEY] = state.to_plain()  # type: ignore[attr-defined]
            return
        if this_rank().writes:
            state.unused.extend(_unused_entries(state))
            state.problems += [*state.write_baselines(), *_write_reports(state), *_write_step_summary(state)]
        if state.options.replay is not None and not state.replayed:
            state.problems.append(f"--torchprof-replay={state.options.replay}: no test judged a recording")
        if state.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if state.lacks_gpu:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
    finally:
        state.recordings.close()


def _write_reports(state: RunState) -> list[str]:
    problems = []
    run = state.run_results
    for path in state.options.reports:
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
    failed = [result for result in state.results.values() if result.outcome.is_failure]
    recordings = [state.options.rootdir / result.recording for result in failed if result.recording]
    if recordings:
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    for recording in recordings:
        for file in (recording, recording.with_name(stacks_name(recording.name))):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)


def _write_step_summary(state: RunState) -> list[str]:
    """Add to the page that GitHub Actions shows of the job; other tools of the job write to it too."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path or not state.results:
        return []
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(ci.step_summary(state.run_results) + "\n")
    except OSError as error:
        return [f"the step summary {path} cannot be written: {error.strerror or error}"]
    return []


def _unused_entries(state: RunState) -> list[UnusedEntries]:
    """Return what nothing measures any more in the baselines of the devices that this run measured on.

    An entry whose test, or whose test file, is no more; and one that its test, which ran and passed, measured no more.
    With ``--torchprof-baseline=update`` the latter is noted to be removed: what a test that passed measures is kept.
    """
    unused = list(_of_no_test_file(state))
    update = state.options.baseline is BaselineMode.UPDATE
    passed: defaultdict[Path, set[str]] = defaultdict(set)
    for nodeid, test_file in state.passed.items():
        passed[test_file].add(_test_key(nodeid))
    for file, test_file in sorted(_baseline_files(state)):
        collected = state.collected.get(test_file)
        known = None if collected is None else {_test_key(nodeid) for nodeid in collected}
        try:
            keys = sorted(state.baselines.entries(file).keys() - state.compared_keys.get(file, set()))
        except TorchprofError:  # its tests have said so
            continue
        tests = {key: baseline.split_key(key)[0] for key in keys}
        gone = [key for key in keys if known is not None and tests[key] not in known]
        unmeasured = [key for key in keys if tests[key] in passed[test_file] and key not in gone]
        if unmeasured and update:
            state.baseline_updates.setdefault(file, {}).update(dict.fromkeys(unmeasured))
        for why, left in ((Disuse.GONE, gone), (Disuse.REMOVED if update else Disuse.UNMEASURED, unmeasured)):
            if left:
                unused.append(UnusedEntries(file=state.options.shown(file), why=why, keys=tuple(left)))
    return unused


def _of_no_test_file(state: RunState) -> Iterator[UnusedEntries]:
    """Yield the baseline files beside those of this run whose test file was removed or has another name now."""
    options, slugs = state.options, _devices(state)
    for folder in sorted({file.parent for file in state.compared_keys}):
        for file in sorted(folder.glob("*.json")):
            name = baseline.split_name(file)
            if name is None or name[1] not in slugs:
                continue
            if baseline.test_file_of(file, options.baseline_dir or folder, options.rootdir) is None:
                with suppress(TorchprofError):  # Whatever it is, no test is compared with it.
                    keys = tuple(sorted(state.baselines.entries(file)))
                    yield UnusedEntries(file=options.shown(file), why=Disuse.GONE, keys=keys)


def _baseline_files(state: RunState) -> Iterator[tuple[Path, Path]]:
    """Yield (baseline file, test file) of all that this run knows about, on devices that it measured on."""
    slugs = _devices(state)
    for test_file in {*state.collected, *state.passed.values()} if slugs else ():
        for slug, file in baseline.files_of(test_file, state.options.rootdir, state.options.baseline_dir).items():
            if slug in slugs:
                yield file, test_file


def _devices(state: RunState) -> set[str]:
    """Return the devices that this run measured on, as baseline files name them."""
    return {name[1] for file in state.compared_keys if (name := baseline.split_name(file))}


def _test_key(nodeid: str) -> str:
    return baseline.split_key(baseline.key_of(nodeid, None))[0]
