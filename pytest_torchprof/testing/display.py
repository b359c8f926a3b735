"""What the terminal shows of a run: how much fits, how far a measurement is, and the section at the end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture.processes import this_rank
from pytest_torchprof.limits import Screen
from pytest_torchprof.report import github, terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

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
        return _silent
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


def _silent(_name: str, _done: int, _total: int) -> None:
    pass


def write_section(state: RunState, terminalreporter: Any) -> None:
    """Write the section at the end of the run, in the reporter's own style."""
    run, options = state.run_results, state.options
    verbosity = terminalreporter.config.get_verbosity()
    if verbosity < 0 and not options.enabled:
        # Without the header nothing else would say so.
        terminalreporter.write_line("torchprof: off: nothing was measured, no limit was judged")
    unjudged = state.unjudged_recordings()
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
        for command in github.commands(run, options.rootdir, os.environ.get("GITHUB_WORKSPACE")):
            terminalreporter.write_line(command)
