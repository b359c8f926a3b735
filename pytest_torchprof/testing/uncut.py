"""Lines of pytest's short summary that are longer than the terminal is wide: cut in it, and written whole below it."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_torchprof.testing.pytest_report import BriefFailure, OneLine
from pytest_torchprof.testing.workers import ONE_LINE
from pytest_torchprof.text import and_more, printable
from pytest_torchprof.text.cutting import cut, width_of
from pytest_torchprof.text.lines import in_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

_STATUSES = {"failed": "f", "error": "E"}
"""By pytest's names of outcomes that have a line with a message, the letter of ``-r`` that asks for it."""
_WORDS = ("FAILED", "ERROR")
_CUT = "..."
"""The end of what pytest cuts."""
_WHOLE = "torchprof_whole"
"""The attribute of a report that holds its failure while the summary is written."""
_MOST = 10
"""Beyond these they are counted: the summary above has them all, and ``-vv`` has them whole."""


def cut_in_colour(reporter: Any) -> None:
    """Cut the messages of our failures in the short summary that is to come, where the terminal ends.

    pytest cannot tell the width of a name with marks of colour, takes it for -1, and cuts too late.
    """
    config: pytest.Config = reporter.config
    writer = config.get_terminal_writer()
    if not _cuts(config) or not writer.hasmarkup:
        return
    for report in _ours(reporter):
        room = writer.fullwidth - width_of(f"{_word(report, config)} {_from_here(report.nodeid, config)} - ")
        message = getattr(report, ONE_LINE)
        if width_of(message) > room:
            setattr(report, _WHOLE, report.longrepr)
            crash = OneLine(cut(message, room)) if room >= len(_CUT) else None
            report.longrepr = BriefFailure(str(report.longrepr), crash)  # type: ignore[assignment]


def restore(reporter: Any) -> None:
    """Give the reports back what `cut_in_colour` has cut."""
    for report in _ours(reporter):
        if hasattr(report, _WHOLE):
            report.longrepr = getattr(report, _WHOLE)
            delattr(report, _WHOLE)


def write_uncut(reporter: Any) -> None:
    """Write whole lines for those of our failures that the short summary has cut, or has left without their message."""
    config: pytest.Config = reporter.config
    if not _cuts(config):
        return
    width = config.get_terminal_writer().fullwidth
    cut_off = [line for line in _lines(reporter) if line.columns > width]
    if not cut_off:
        return
    reporter.write_line("too long for a line above, in full:")
    tests = Counter(test for test, _ in {(line.test, line.node) for line in cut_off})
    for line in cut_off[:_MOST]:
        name = line.node if tests[line.test] > 1 else line.test
        reporter.write_line("\n".join(in_lines(f"{printable(name)}: {printable(line.failure)}", width, "  ", "    ")))
    if len(cut_off) > _MOST:
        reporter.write_line(f" {and_more(len(cut_off) - _MOST, 'line')}: pytest -vv")


class _Line(NamedTuple):
    """A line of the short summary about a failure of ours."""

    node: str
    test: str
    """The node's name without its file."""
    failure: str
    columns: int
    """How many it has in the summary."""


def _ours(reporter: Any) -> Iterator[pytest.TestReport]:
    """Yield the reports of our failures that have a line in the short summary."""
    for status, letter in _STATUSES.items():
        for report in reporter.stats.get(status, ()) if letter in reporter.reportchars else ():
            if getattr(report, ONE_LINE, None):
                yield report


def _lines(reporter: Any) -> Iterator[_Line]:
    for report in _ours(reporter):
        message = getattr(report, ONE_LINE)
        node = _from_here(report.nodeid, reporter.config)
        word = _word(report, reporter.config)
        # The words of a subtest say which one it is.
        which = "" if word in _WORDS else f"{word} "
        test = node.partition("::")[2] or node
        columns = width_of(f"{word} {node} - {message}")
        yield _Line(printable(f"{which}{node}"), printable(f"{which}{test}"), message, columns)


def _from_here(nodeid: str, config: pytest.Config) -> str:
    """Return the node id with its file as seen from where pytest was started, as the summary has it."""
    if config.invocation_params.dir == config.rootpath:
        return nodeid
    file, between, test = nodeid.partition("::")
    return f"{os.path.relpath(config.rootpath / file, config.invocation_params.dir)}{between}{test}"


def _word(report: pytest.TestReport, config: pytest.Config) -> str:
    """Return the word with which a report's line in the summary begins."""
    word = config.hook.pytest_report_teststatus(report=report, config=config)[2]
    return str(word[0] if isinstance(word, tuple) else word)


def _cuts(config: pytest.Config) -> bool:
    """Return whether pytest cuts the lines of its short summary: on a terminal, and not for the log of a CI service."""
    if getattr(config.option, "no_summary", False):
        return False
    whole = config.get_verbosity() >= 2 or any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
    return not whole or getattr(config.option, "force_short_summary", False)
