"""The run's text on the terminal: how wide a failure may be, and the section at the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.limits import Screen
from pytest_torchprof.reasons.capturing import SLOW_EXPORT
from pytest_torchprof.report import ci, terminal
from pytest_torchprof.testing.workers import COLUMNS
from pytest_torchprof.text import and_more, printable
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from pytest_torchprof.testing.session import RunState

_MOST_REFUSED = 5


def screen_of(config: pytest.Config) -> Screen:
    """Return the room for a failure: as wide as the terminal is, and unlimited where ``-vv`` asks for it."""
    columns = config.stash.get(COLUMNS, None)
    everything = config.get_verbosity() >= 2
    return Screen.of_columns(columns, everything=everything)


def write_section(state: RunState, terminalreporter: Any) -> None:
    """Write the section at the end of the run, in the reporter's own style."""
    run, options = state.run_results, state.options
    verbosity = terminalreporter.config.get_verbosity()
    if verbosity < 0 and not options.enabled:
        # With -q there is no header that would say so.
        _write(terminalreporter, "torchprof: off: nothing was measured, no limit was judged")
    unjudged = state.recordings.unjudged(state.replayed)
    _write_refused(state, terminalreporter)
    if state.left_behind:
        _write(terminalreporter, f"torchprof: {state.left_behind}", yellow=True)
    _write_unmeasurable(state, terminalreporter)
    _write_unreached(state, terminalreporter)
    if not (run.results or state.problems or unjudged):
        return
    rank = this_rank()
    who = "" if rank.alone else f"{rank}: "
    if not rank.writes and (options.reports or options.baseline.writes):
        _write(terminalreporter, f"torchprof: {who}rank 0 writes the baselines and reports")
    if verbosity < 0 and not state.problems:
        _write(terminalreporter, "\n".join(f"torchprof: {who}{line}" for line in terminal.render_briefly(run)))
    else:
        _write_results(state, terminalreporter, unjudged)
    if state.slow_export:
        _write(terminalreporter, f"torchprof: {SLOW_EXPORT}")
    if state.baselines.has_first and not _is_required(terminalreporter.config):
        _write(terminalreporter, terminal.REQUIRE_PLUGIN)
    if rank.writes and os.environ.get("GITHUB_ACTIONS") == "true":
        for command in ci.commands(run, options.rootdir, os.environ.get("GITHUB_WORKSPACE")):
            terminalreporter.write_line(command)


def _write_refused(state: RunState, terminalreporter: Any) -> None:
    """Name the records of a history that the tests were not compared with, as they cannot be believed."""
    history = state.options.history_baseline
    refused = () if history is None else history.refused
    for problem in refused[:_MOST_REFUSED]:
        _write(terminalreporter, f"torchprof: left out of the baseline: {printable(str(problem))}", yellow=True)
    if more := and_more(len(refused) - _MOST_REFUSED):
        _write(terminalreporter, f"torchprof: left out of the baseline:{more}", yellow=True)


def _write_unreached(state: RunState, terminalreporter: Any) -> None:
    """Say that a run under rules measured nothing by them: a part of the tests, or a share that has none of them."""
    if state.suite_seen is not None and not state.suite_seen.reached and not state.suite_seen.idle:
        _write(terminalreporter, "torchprof: no test of this run is one that a rule of the suite measures", yellow=True)


def _write_unmeasurable(state: RunState, terminalreporter: Any) -> None:
    """Say which tests a rule that warns could not reach; of one that fails the run's problems tell."""
    if state.suite_seen is not None and state.suite_seen.unmeasurable and not state.suite_seen.fails:
        from pytest_torchprof.reasons.whole_runs import RuleOfNoFunction  # noqa: PLC0415 - for these runs alone

        _write(terminalreporter, f"torchprof: {RuleOfNoFunction(state.suite_seen.unmeasurable).text}", yellow=True)


def _write_results(state: RunState, terminalreporter: Any, unjudged: Iterable[str]) -> None:
    run, rank, verbosity = state.run_results, this_rank(), terminalreporter.config.get_verbosity()
    width = terminalreporter.config.get_terminal_writer().fullwidth
    heading, *below = terminal.heading_lines(run, width=width, who="" if rank.alone else f", {rank}")
    terminalreporter.write_sep("-", heading)
    for line in below:
        terminalreporter.write_line(line)
    if run.results:
        terminalreporter.write_line(terminal.render(run, width=width, verbosity=verbosity))
    if unjudged:
        _write(terminalreporter, f"recordings that no test judged: {', '.join(unjudged)}")
    for problem in state.problems:
        _write(terminalreporter, f"torchprof: {problem}", red=True)


def _write(terminalreporter: Any, text: str, **markup: bool) -> None:
    """Write lines, wrapped to the width of a terminal; in a log they stay whole, whatever COLUMNS says."""
    columns = terminalreporter.config.stash.get(COLUMNS, None) if terminalreporter.isatty else None
    terminalreporter.write_line(broken(text, columns), **markup)


def _is_required(config: pytest.Config) -> bool:
    """Return whether a run without the plugin would end at once."""
    return any(name.startswith("pytest-torchprof") for name in config.getini("required_plugins"))
