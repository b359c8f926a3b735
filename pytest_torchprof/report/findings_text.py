"""The findings in a recording, and what to do about them, as text."""

from __future__ import annotations

import shlex
from itertools import chain
from typing import TYPE_CHECKING, Final

from pytest_torchprof.findings.finding import ACTION_WIDTH
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.text import more_text, path_from_here, printable, printable_line
from pytest_torchprof.text.cutting import width_of
from pytest_torchprof.text.units import show_us
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings import Finding


FIRST_FINDINGS = 3
_LONGEST = 80
"""Columns of what is to be taken in at a glance, however wide the screen is."""
_TO_DO: Final = {False: "What to do: ", True: "What to do first: "}
"""By whether there is more than one finding."""


def first_findings(findings: Sequence[Finding], count: int, width: int) -> list[str]:
    """Return the first of so many findings below a headline, and what to do about the very first; no line for none."""
    first = findings[:FIRST_FINDINGS]
    if not first:
        return []
    listed = [*map(in_the_list, first), _and_below(count - len(first))]
    entries = (wrapped(printable(entry), "    ", first="  ", width=width) for entry in listed if entry)
    return ["What stands out:", *chain.from_iterable(entries), *_first_remedy(first, width)]


def in_the_list(finding: Finding) -> str:
    """Return a finding's title, what it may cost, and where it is; the whole finding follows the tables."""
    costs = f", up to {show_us(finding.saves_us)}" if finding.severity == "warning" and finding.saves_us > 0 else ""
    return f"{finding.title}{costs}{finding.at}"


def where_lines_come_from(analysis: Analysis, first: Sequence[Finding], width: int) -> list[str]:
    """Return how to get the lines of the user's code, where the recording has none and none of these asks for them."""
    if len(analysis.trace.frames) or any(finding.source or finding.asks_for_stacks for finding in first):
        return []
    if analysis.trace.metadata is not None:
        way = 'record=["stacks"]'
    elif len(analysis.trace.ops):
        way = "profile(with_stack=True)"
    else:
        # Without the CPU's activities torch takes no stacks.
        way = "profile(with_stack=True) with ProfilerActivity.CPU among its activities"
    return wrapped(f"Lines of your code are not recorded: {way} records them.", "", width=width)


def _and_below(count: int) -> str:
    return f"{more_text(count, 'finding')} below" if count else ""


def _first_remedy(findings: Sequence[Finding], width: int) -> list[str]:
    """Return the remedy for the first finding, in one line; the end of the text has the rest."""
    first, to_do = findings[0], _TO_DO[len(findings) > 1]
    if not first.remedy:
        return []
    room = min(width, _LONGEST) - len(to_do)
    remedy = printable_line(first.remedy)
    # A plugin's remedy has no other words for a line.
    action = remedy if width_of(remedy) <= room else printable_line(first.action, ACTION_WIDTH)
    return wrapped(printable(f"{to_do}{action}"), "", width=width)


NEW_RECORDING = "NEW.json.gz"
"""What stands for the next recording in a command: the one at hand has what it is to be kept from."""


def next_actions(analysis: Analysis, findings: Sequence[Finding], width: int) -> str:
    """Return the next actions: about the first finding, to see it, and to keep it from coming back.

    Of a recording that is not measured: about that. What is for information alone is first where nothing else is found.
    """
    if not analysis.trace.path:
        return ""
    path = printable(shlex.quote(path_from_here(analysis.trace.path)))
    matters = [finding for finding in findings if finding.severity != "information"]
    first = next(iter(matters or [finding for finding in findings if finding.remedy]), None)
    costly = first if matters else None
    lines = [] if first is None else [f"{first.title}: {first.remedy}" if first.remedy else first.title]
    if (reason := analysis.doubt or analysis.kernels_unknown) is not None:
        lines = [reason.action] if reason.action else lines
        lines.append(f"torchprof explain {reason.code or Code.NOT_MEASURED} says more")
        costly = None
    lines.append(f"see it: torchprof report {path} -o page.html")
    if costly is not None:
        lines.append(f"keep it from coming back: torchprof check {NEW_RECORDING} --limit forbid={costly.code}")
    return next_text(lines, width)


def next_text(lines: Sequence[str], width: int) -> str:
    """Return the next actions, one a line, as the last lines of a text."""
    parts = [part for line in lines for part in wrapped(printable(line), "    ", first="  ", width=width)]
    return "\n".join(["next", *parts])


def describe_window(analysis: Analysis) -> str:
    """Return which time a finding's share is a share of."""
    begin = "the first step's start" if analysis.trace.has_step_ranges else "the start of the recording"
    return f"{show_us(analysis.gpu_work.window_us)} from {begin} until CPU and GPU are done"


def list_findings(analysis: Analysis, findings: Iterable[Finding], width: int) -> str:
    """Return the findings with what to do about each, or why they are not known; a text without any too."""
    lines = []
    for finding in findings:
        place = "" if finding.source is None else f"; see {printable(finding.source)}"
        lines += wrapped(f"{finding.title}: {printable(finding.message)}{place}", "  ", first="- ", width=width)
        if finding.remedy:
            lines += wrapped(printable(finding.remedy), "    ", first="  -> ", width=width)
    if analysis.kernels_unknown is not None:
        return "\n".join(
            wrapped(f"what stands out is not known: {printable(str(analysis.kernels_unknown))}", "  ", width=width)
        )
    if not lines:
        return "nothing stands out"
    has_gpu_work = analysis.trace.device_kind.has_launches and len(analysis.trace.gpu)
    window = f' ("of the time": of {describe_window(analysis)})' if has_gpu_work else ""
    return "\n".join([*wrapped(f"what stands out{window}", "  ", width=width), *lines])
