"""Lines that pytest's short summary cuts for want of width, written whole below that summary."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_torchprof.testing.workers import ONE_LINE
from pytest_torchprof.text import and_more, broken, printable, width_of, with_middles_of_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

_STATUSES = {"failed": "f", "error": "E"}
"""By pytest's names of outcomes that have a line with a message, the letter of ``-r`` that asks for it."""
_WORDS = ("FAILED", "ERROR")
_MOST = 10
"""Beyond these they are counted: the summary above has them all, and ``-vv`` has them whole."""


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
        failure = with_middles_of_words(printable(line.failure), width - len("    "))
        reporter.write_line(broken(f"  {printable(name)}: {failure}", width))
    if len(cut_off) > _MOST:
        reporter.write_line(f" {and_more(len(cut_off) - _MOST, 'line')}: pytest -vv")


class _Line(NamedTuple):
    """A line of the short summary about a failure of ours."""

    node: str
    test: str
    """The node's name without its file."""
    failure: str
    columns: int
    """How many pytest takes it to have in the summary."""


def _lines(reporter: Any) -> Iterator[_Line]:
    in_colour = reporter.config.get_terminal_writer().hasmarkup
    for status, letter in _STATUSES.items():
        for report in reporter.stats.get(status, ()) if letter in reporter.reportchars else ():
            if message := getattr(report, ONE_LINE, None):
                node = _from_here(report.nodeid, reporter.config)
                word = _word(report, reporter.config)
                # The words of a subtest say which one it is.
                which = "" if word in _WORDS else f"{word} "
                test = node.partition("::")[2] or node
                columns = width_of(f"{word} {node} - {message}")
                if in_colour:
                    # pytest cannot tell the width of a name with marks of colour, takes it for -1, and cuts later.
                    columns = width_of(f" - {message}") - 1
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
