"""pytest's report of a phase of a test: expected failures as they are meant, our errors without our frames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from pytest_torchprof.capture.observers import is_our_file
from pytest_torchprof.reasons.errors import TorchprofError, find_own_error, saying
from pytest_torchprof.testing.ending import error_line
from pytest_torchprof.testing.reported import agree_with_expected, agree_with_report, is_unexpected_pass
from pytest_torchprof.testing.workers import BRIEF, CODE, COLUMNS, ONE_LINE, WHOLE
from pytest_torchprof.text import first_line
from pytest_torchprof.text.of_pytest import as_skip, why_skipped
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from pytest_torchprof.testing.test_run import TestRun

_MACHINERY = frozenset({"pytest_torchprof", "_pytest", "pluggy", "unittest", "asyncio", "contextlib.py", "torch"})


def mend_report(report: pytest.TestReport, call: pytest.CallInfo[None], run: TestRun | None, item: pytest.Item) -> None:
    """Put into the report of a phase what the plugin knows of it: expected failures, our errors without our frames."""
    excinfo = call.excinfo
    _mend_expectation(report, excinfo.value if excinfo else None, run, item)
    if excinfo is not None and report.outcome == "failed" and (own := find_own_error(excinfo.value)) is not None:
        setattr(report, CODE, own.code and str(own.code))
    if excinfo is not None and report.outcome == "failed" and _is_ours_alone(excinfo):
        report.longrepr = excinfo.getrepr(style="value")
        _place_at_test(report, item)
    if report.outcome == "skipped":
        _place_skip(report, item)
    if excinfo is not None and report.outcome == "failed":
        _break_lines(report.longrepr, excinfo, item)
        _say_in_one_line(report, excinfo.value)
        _keep_whole(report, excinfo, item)
        if item.config.get_verbosity() < 0:
            keep_brief(report, excinfo, item)
    if run is None:
        return
    if report.when == "call" and report.skipped and hasattr(report, "wasxfail"):
        agree_with_expected(run, None if excinfo is None else excinfo.value)
    if report.failed:
        agree_with_report(run, report, None if excinfo is None else excinfo.value)
        run.test.state.drop_stale(run.test.nodeid)


def mend_unmeasured(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> None:
    """Show an error of ours in a test that is not measured, as by a recording that it loads, as in one that is."""
    verbosity, problem = item.config.get_verbosity(), excinfo.value
    if verbosity >= 2 and isinstance(problem, TorchprofError) and problem.in_columns is not None:
        # For a width it leaves out what a terminal has no room for.
        excinfo = _saying(excinfo, problem, problem.text)
    _break_lines(report.longrepr, excinfo, item)
    _say_in_one_line(report, problem)
    _keep_whole(report, excinfo, item)
    if verbosity < 0:
        keep_brief(report, excinfo, item)


def keep_brief(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> None:
    """Keep a failure's short form beside the whole one, which other reports of the run (JUnit) hold."""
    problem = excinfo.value
    if not isinstance(problem, TorchprofError) or problem.brief is None:
        return
    if _is_ours_alone(excinfo):
        setattr(report, BRIEF, [problem.brief, problem.brief])
        return
    in_brief = _saying(excinfo, problem, problem.brief)
    shown = item.repr_failure(in_brief)
    _break_lines(shown, in_brief, item)
    setattr(report, BRIEF, [str(shown), problem.brief])


def _keep_whole(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> None:
    """Keep a failure as it is on the widest terminal beside the one that is shown, where JUnit's file is to hold it."""
    problem = excinfo.value
    is_narrow = item.config.stash.get(COLUMNS, None) is not None
    if not item.config.getoption("xmlpath", None) or not is_narrow or not isinstance(problem, TorchprofError):
        return
    if problem.in_columns is None:
        return
    text = problem.in_columns(_WIDEST)
    if not _is_ours_alone(excinfo):
        text = str(item.repr_failure(_saying(excinfo, problem, text)))
    setattr(report, WHOLE, text)


def _saying(
    excinfo: pytest.ExceptionInfo[BaseException], problem: TorchprofError, text: str
) -> pytest.ExceptionInfo[BaseException]:
    """Return a failure with an error that says another text, at any width."""
    other = saying(problem, text)
    failure = pytest.ExceptionInfo.from_exc_info((type(other), other, excinfo.tb))
    failure.traceback = excinfo.traceback  # Another plugin may have left out frames of its own.
    return failure


_WIDEST = 1000
"""The columns that no line of a failure takes, save for those of a long explanation."""
_ERROR = "E"
"""The mark with which pytest begins the lines of an error below the line that raised it."""


def _break_lines(shown: Any, excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> None:
    """Break the lines of our error, below the line of the user's that raised it, where the terminal ends."""
    columns = item.config.stash.get(COLUMNS, None)
    entries = getattr(getattr(shown, "reprtraceback", None), "reprentries", ())
    if columns is None or not entries or not isinstance(excinfo.value, TorchprofError):
        return
    lines: list[str] = entries[-1].lines
    begin = next((at for at, line in enumerate(lines) if line.startswith(f"{_ERROR} ")), len(lines))
    ours = lines[begin:]
    # With --tb=line only the first line has pytest's mark.
    mark = " " if item.config.getoption("tbstyle", "") == "line" and len(ours) > 1 else _ERROR
    if ours and all(line.startswith(mark) for line in ours[1:]):
        indent = len(ours[0]) - len(ours[0].removeprefix(_ERROR).lstrip())
        text = "\n".join(line[indent:] for line in ours)
        first, *others = _fitting(excinfo.value, text, columns - indent)
        margins = " " * (indent - len(_ERROR))
        lines[begin:] = [f"{_ERROR}{margins}{first}", *(f"{mark}{margins}{line}" for line in others)]
    elif not ours and lines[-1].startswith(_name_of(excinfo.value)):
        # Python's own traceback, as --tb=native shows it, ends in the whole text.
        lines[-1] = "\n".join([*_fitting(excinfo.value, lines[-1].rstrip("\n"), columns), ""])


def _name_of(problem: BaseException) -> str:
    """Return the words with which the text of an exception begins."""
    return f"{type(problem).__module__}.{type(problem).__qualname__}:"


def _fitting(problem: TorchprofError, text: str, room: int) -> list[str]:
    """Return the text of our error, which begins with its name, in lines of so many columns."""
    name = _name_of(problem)
    if problem.in_columns is not None and text.startswith(name):
        # Lines that were broken for another room would be broken twice.
        text = f"{name} {problem.in_columns(room)}"
    if len(name) > room:
        text = text.replace(name, f"{type(problem).__qualname__}:", 1)
    return broken(text, room).split("\n")


def _place_at_test(report: pytest.TestReport, item: pytest.Item) -> None:
    """Let a failure that was raised behind the test's last line be one at the test, for ``--tb=line`` and others."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        file, line, _ = item.reportinfo()
        crash.path, crash.lineno = str(file), (line or 0) + 1


def _place_skip(report: pytest.TestReport, item: pytest.Item) -> None:
    """Let a skip that we have raised be one at the test, as that of a marker is."""
    if isinstance(report.longrepr, tuple) and is_our_file(report.longrepr[0]):
        file, line, _ = item.reportinfo()
        report.longrepr = (str(file), (line or 0) + 1, report.longrepr[2])


def _say_in_one_line(report: pytest.TestReport, problem: BaseException) -> None:
    """Let the short summary, and JUnit's message, say what fails, without the name of a class in front of it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and isinstance(problem, TorchprofError):
        crash.message = error_line(problem)
        setattr(report, ONE_LINE, crash.message)


class OneLine(Struct, frozen=True):
    """The part of pytest's description of a crash that the short summary takes."""

    message: str

    def __str__(self) -> str:
        """Return the message, as ``--tb=line`` prints it."""
        return self.message


class BriefFailure(Struct, frozen=True):
    """A failure in its short form, in place of what pytest makes of an exception."""

    text: str
    reprcrash: Any
    """Where it was raised, and what the last lines of the run say about it."""

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def toterminal(self, tw: Any) -> None:
        """Write the text, as pytest asks its own failures to do."""
        tw.line(self.text)


def give_one_line(report: pytest.TestReport) -> None:
    """Let a failure that is a plain text have a line of its own, which pytest would take from the text's beginning."""
    if isinstance(report.longrepr, str):
        report.longrepr = BriefFailure(report.longrepr, OneLine(getattr(report, ONE_LINE)))  # type: ignore[assignment]


def shorten(report: pytest.TestReport) -> None:
    """Put the short form of a failure into a report for the terminal, once all other reports have the whole one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text, brief = getattr(report, BRIEF)
    report.longrepr = BriefFailure(text, crash or OneLine(first_line(brief)))  # type: ignore[assignment]


def _mend_expectation(
    report: pytest.TestReport, raised: BaseException | None, run: TestRun | None, item: pytest.Item
) -> None:
    """Undo what an expected failure does to a report where nothing was measured, or nothing was judged."""
    expected = hasattr(report, "wasxfail")
    hidden = find_own_error(raised) or find_own_error(run.error if run is not None and report.when == "call" else None)
    if hidden is not None and report.outcome == "skipped" and expected:
        # That nothing was measured, or that the impossible was asked for, is not the failure that was expected.
        report.outcome = "failed"
        report.longrepr = str(hidden)
        setattr(report, ONE_LINE, error_line(hidden))
        del report.wasxfail
        expected = False
    passed = report.outcome == "passed" or (report.outcome == "failed" and isinstance(report.longrepr, str))
    is_unexpected = expected or is_unexpected_pass(report)
    if report.when == "call" and passed and is_unexpected and run is not None and (reason := run.why_unjudged):
        # It may well fail only by its limits: that it has passed without them says nothing.
        report.outcome = "skipped"
        report.longrepr = (str(item.path), (item.location[1] or 0) + 1, as_skip(reason))
        if expected:
            del report.wasxfail


def _is_ours_alone(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return whether an error is ours and its traceback has no line of the user's, as for a limit judged afterwards."""
    is_machinery = (bool(_MACHINERY.intersection(Path(entry.path).parts)) for entry in excinfo.traceback)
    return isinstance(excinfo.value, TorchprofError) and all(is_machinery)


def line_of(report: pytest.TestReport) -> str:
    """Return why a phase failed or was skipped, in a line."""
    longrepr: Any = report.longrepr
    if isinstance(longrepr, tuple):
        return first_line(why_skipped(longrepr[2]))
    crash = getattr(longrepr, "reprcrash", None)
    return first_line(str(getattr(crash, "message", None) or longrepr or ""))
