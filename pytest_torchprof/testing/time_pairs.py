"""At the end of a run that is compared with another commit: the times of the tests that ask for it."""

from __future__ import annotations

import math
import random
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

import pytest
from _pytest.junitxml import xml_key
from msgspec import Struct

from pytest_torchprof.against.inside import KEEPER
from pytest_torchprof.against.pairs import TIMED, PairCosts, PairedTiming, TimedMeasurement, TimedSide, taker
from pytest_torchprof.against.side import base_side
from pytest_torchprof.against.start import read_starts
from pytest_torchprof.compare.pace import LEAST_PAIRS, MOST_PAIRS, TimedPairs
from pytest_torchprof.reasons.errors import TorchprofWarning
from pytest_torchprof.reasons.timing import NotTimedAtCommit
from pytest_torchprof.reasons.whole_runs import TimesNotCompared
from pytest_torchprof.report.ci import PREFIX, properties
from pytest_torchprof.report.outcome import BaselineState, Outcome
from pytest_torchprof.testing.pytest_report import BriefFailure, OneLine
from pytest_torchprof.testing.timed_results import with_times, without_times
from pytest_torchprof.testing.workers import COLUMNS
from pytest_torchprof.text import counted, first_line, printable_line
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.against.pairs import Key
    from pytest_torchprof.against.side import Side
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.session import RunState

_SAMPLES_S: Final = 0.7
"""How long the samples of a measurement take, with the calls before them."""
_LEAST_START_S: Final = 1.0
_COMPARED: Final = frozenset(
    {BaselineState.SAME, BaselineState.BETTER, BaselineState.CHANGED, BaselineState.AMBIGUOUS, BaselineState.WORSE}
)


def compare_times(state: RunState, config: pytest.Config) -> None:
    """Take and judge the times of measurements that both sides have, where they are asked for."""
    for result in tuple(state.results.values()):
        if result.time_share is not None and result.baseline_state is BaselineState.NEW:
            state.add(without_times(result, "new"))
    side, results = state.options.against, _on_both_sides(state)
    if side is not None and side.is_judged and results:
        _compare(state, config, side, results)


def miss_times(state: RunState) -> None:
    """Note that no times are compared, since the run ends early."""
    if results := _on_both_sides(state):
        state.note_problem(TimesNotCompared(tuple(result.name for result in results.values())))


def _on_both_sides(state: RunState) -> dict[Key, Result]:
    """Return the results of the measurements that both sides have and that are to be timed."""
    return {
        key: result
        for key, result in state.results.items()
        if result.time_share is not None
        and result.against_time is None
        and result.baseline_state in _COMPARED
        and result.outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.ERROR)
    }


def _compare(state: RunState, config: pytest.Config, side: Side, results: Mapping[Key, Result]) -> None:
    terminal = _Terminal(config)
    keeper: Any = config.pluginmanager.getplugin(KEEPER)
    timing = _new_timing(config, side, results)
    seed = random.SystemRandom().randrange(1 << 32)
    if (side.results / TIMED).is_file():
        starts = read_starts(side.results)
        sides = (TimedSide(base_side(side.results), starts[0]), TimedSide(side, starts[1]))
        take = taker(*sides, side.results, random.Random(seed))  # noqa: S311 - the order is to be had again
        terminal.write(_plan(timing, side, seed))
        while keys := timing.next_keys():
            keeper.end_with_starter()
            terminal.show(f"  [times: pair {timing.taken + 1}, of {counted(len(keys), 'measurement')}]")
            timing.take(take, keys)
        terminal.show("")
        terminal.write(f"torchprof: {counted(timing.taken, 'pair')} of processes in {timing.spent_s:.0f} s")
    else:
        timing.give_up(NotTimedAtCommit())
    for key, result in results.items():
        timed = with_times(result, timing.measurements[key], side, seed=seed, budget_s=timing.budget_s)
        state.add(timed)
        _report(config, result, timed)


def _new_timing(config: pytest.Config, side: Side, results: Mapping[Key, Result]) -> PairedTiming:
    keeper: Any = config.pluginmanager.getplugin(KEEPER)
    tests_s = {nodeid: keeper.durations_s[nodeid] for nodeid, _ in results}
    for nodeid, _ in results:
        tests_s[nodeid] += _SAMPLES_S
    shares = {key: result.time_share for key, result in results.items()}
    return PairedTiming(
        measurements={
            key: TimedMeasurement(pace=TimedPairs(allowed=share)) for key, share in shares.items() if share is not None
        },
        costs=PairCosts(start_s=max(keeper.start_s, _LEAST_START_S), test_s=tests_s),
        budget_s=math.inf if side.budget_s is None else side.budget_s,
        clock=time.monotonic,
    )


def _plan(timing: PairedTiming, side: Side, seed: int) -> str:
    """Return a text with what will be done, and how long that may take."""
    fitting, everything = timing.next_keys(), timing.measurements
    least_s = timing.costs.total_s(dict.fromkeys(everything, LEAST_PAIRS))
    most_s = min(timing.budget_s, timing.costs.total_s(dict.fromkeys(everything, 2 * MOST_PAIRS)))
    what = counted(len(everything), "measurement")
    text = (
        f"torchprof: times of {what} against {side.reference.shown}: {LEAST_PAIRS} to {MOST_PAIRS} pairs of processes "
        f"in random order (seed {seed}), as many again to confirm what is slower; about {least_s:.0f} s"
        + (f" to {most_s:.0f} s" if most_s > least_s else "")
    )
    if len(fitting) < len(everything):
        text += f"; the budget of {timing.budget_s:g} s is enough for {len(fitting)} of them"
    return text


class _Terminal(Struct, frozen=True):
    """The lines that the user sees meanwhile; with ``-q`` none."""

    config: pytest.Config

    @property
    def reporter(self) -> Any:
        quiet = self.config.get_verbosity() < 0
        return None if quiet else self.config.pluginmanager.getplugin("terminalreporter")

    def write(self, line: str) -> None:
        if self.reporter is not None:
            self._end_line()
            columns = self.config.stash.get(COLUMNS, None) if self.reporter.isatty else None
            self.reporter.write_line(broken(line, columns))
            self.reporter.flush()  # A log of CI shows it before the minutes that it speaks of.

    def show(self, line: str) -> None:
        """Show a line until the next one is shown, on a terminal only."""
        if self.reporter is not None and self.reporter.isatty:
            self.reporter.rewrite(line, erase=True)

    def _end_line(self) -> None:
        self.reporter.ensure_newline()
        # The progress of pytest-xdist's workers is not known by file.
        if (writer := self.config.get_terminal_writer()).width_of_current_line:
            writer.line()


def _report(config: pytest.Config, before: Result, after: Result) -> None:
    """Give pytest the outcome of the times: a failure, a warning, a property of the suite."""
    if (compared := after.against_time) is None:
        return
    if (xml := config.stash.get(xml_key, None)) is not None:
        xml.add_global_property(f"{PREFIX}.time[{printable_line(after.name)}]", compared.words)
    file, line = after.location or ("", 1)
    if after.outcome.is_failure and not before.outcome.is_failure:
        text = broken(after.message, config.stash.get(COLUMNS, None))
        report = pytest.TestReport(
            nodeid=after.nodeid,
            location=(file, line - 1, after.nodeid.partition("::")[2]),
            keywords={},
            outcome="failed",
            longrepr=BriefFailure(text, OneLine(first_line(after.message))),  # type: ignore[arg-type]
            when="call",
            user_properties=properties(after),
        )
        _forget_pass(config, after.nodeid)
        config.hook.pytest_runtest_logreport(report=report)
    elif compared.verdict == "ambiguous":
        text = f"{after.name}: time ambiguous: {compared.words}"
        warning = warnings.WarningMessage(TorchprofWarning(text), TorchprofWarning, str(config.rootpath / file), line)
        config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": warning, "nodeid": after.nodeid, "when": "runtest", "location": None}
        )


def _forget_pass(config: pytest.Config, nodeid: str) -> None:
    """Take a test out of those that the terminal counts as passed."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    passed = [] if reporter is None else reporter.stats.get("passed", [])
    passed[:] = [report for report in passed if report.nodeid != nodeid]
