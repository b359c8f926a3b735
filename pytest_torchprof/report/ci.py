"""The parts of a run that CI shows: GitHub's annotations and step summary, and properties in JUnit XML."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.limits import Screen
from pytest_torchprof.report.account import LimitsNotHeld
from pytest_torchprof.report.json_report import reported_value
from pytest_torchprof.report.markdown import escaped, fenced, unused_entries
from pytest_torchprof.report.outcome import BaselineState
from pytest_torchprof.report.terminal import closing, describe_environment
from pytest_torchprof.text import and_more, more_text, printable
from pytest_torchprof.text.wrapping import WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result


# An annotation shows this much before it is folded, and a summary is meant to be read: the report has the rest.
_LONGEST_MESSAGE = 4000
_MOST_FAILURES = 20
_MOST_LINES = 60
# A block of a summary scrolls sideways, where what to do would stand beyond its edge.
_IN_A_SUMMARY = Screen(columns=WIDTH, scrolls=True)
PREFIX = "torchprof"
"""The beginning of the names of a test's properties."""


def commands(run: RunResults, rootdir: Path, workspace: str | None) -> Iterator[str]:
    """Yield one workflow command per failed, unmeasured or doubtful measurement, and per file with entries gone.

    ``workspace`` is the checkout's folder, to which GitHub takes paths as relative; unknown: the root directory is it.
    """
    for result in run.results:
        if result.outcome.is_failure:
            message = "\n\n".join(filter(None, [_in_one_line(result), result.message]))
            yield _result_command("error", result, message, rootdir, workspace)
        elif result.baseline_state is BaselineState.AMBIGUOUS or (
            result.against_time is not None and result.against_time.verdict == "ambiguous"
        ):
            message = "\n".join([f"{result.baseline} against {run.compared_with}", *result.change_lines])
            yield _result_command("warning", result, message, rootdir, workspace)
    for unused in run.unused:
        message = unused.words + (f"; do: {unused.remedy}" if unused.remedy else "")
        properties = {
            "file": _in_checkout(rootdir / unused.file, workspace, rootdir),
            "title": f"torchprof: {unused.why}",
        }
        yield _format_command("warning" if unused.remedy else "notice", properties, message)
    if run.gone_words:
        yield _format_command("notice", {"title": "torchprof"}, run.gone_words)


def _in_one_line(result: Result) -> str:
    """Return the failure in a line, with which an annotation begins; empty where its text says that first."""
    first = next(iter(result.account), None)
    return first.in_one_line(result.limits) if isinstance(first, LimitsNotHeld) else ""


def step_summary(run: RunResults) -> str:
    """Return Markdown: one line, and below it each failure with the kernels that differ and how to accept them."""
    failed = [result for result in run.results if result.outcome.is_failure]
    where = f" on {escaped(describe_environment(run.environment))}" if run.environment else ""
    where += f", against {escaped(run.against.shown)}" if run.against is not None else ""
    lines = [f"**torchprof**: {escaped(closing(run))}{where}", ""]
    for result in failed[:_MOST_FAILURES]:
        text = _cut_lines(result.message_on(_IN_A_SUMMARY))
        lines += [f"#### {escaped(result.name)}: {result.outcome}", "", fenced(text), ""]
    if len(failed) > _MOST_FAILURES:
        lines += [f"{more_text(len(failed) - _MOST_FAILURES)}: see the report", ""]
    return "\n".join([*lines, *unused_entries(run)])


def _cut_lines(message: str) -> str:
    lines = message.splitlines()
    left_out = and_more(len(lines) - _MOST_LINES, "line")
    return "\n".join([*lines[:_MOST_LINES], f"...{left_out}" if left_out else ""]).rstrip()


def _result_command(kind: str, result: Result, message: str, rootdir: Path, workspace: str | None) -> str:
    properties: dict[str, object] = {"title": f"torchprof: {result.name}"}
    if at := result.culprit or result.location:
        file, line = at
        properties = {"file": _in_checkout(rootdir / file, workspace, rootdir), "line": line, **properties}
    return _format_command(kind, properties, message)


def _in_checkout(path: Path, workspace: str | None, rootdir: Path) -> str:
    """Return a path as GitHub names files: from the checkout's folder, with slashes."""
    return os.path.relpath(path, workspace or rootdir).replace(os.sep, "/")


def _format_command(kind: str, properties: Mapping[str, object], message: str) -> str:
    written = ",".join(f"{name}={_escape_property(printable(str(value)))}" for name, value in properties.items())
    text = "\n".join(printable(line) for line in message[:_LONGEST_MESSAGE].splitlines())
    return f"::{kind} {written}::{_escape_data(text)}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def properties(result: Result) -> list[tuple[str, str]]:
    """Return names and values: ``torchprof.kernels``, or ``torchprof[label].kernels`` if there is a label."""
    prefix = f"{PREFIX}[{printable(result.label)}]" if result.label else PREFIX
    values = {
        "outcome": result.outcome,
        "baseline": result.baseline,
        **{number.name: reported_value(result, number) for number in TABLE if number.headline},
        "time_us": result.time and result.time.median_us,
        "against_time": result.against_time and result.against_time.words,
        "recording": result.recording,
    }
    return [
        (f"{prefix}.{name}", f"{value:g}" if isinstance(value, float) else str(value))
        for name, value in values.items()
        if value is not None
    ]
