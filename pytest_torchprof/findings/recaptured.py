"""Findings about CUDA graphs that are captured again and again, which no warm-up ends."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_torchprof.findings.catalogue.graphs import GraphRecaptured
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import HOST_PACE, LAUNCHES, Finding, Rule, Threshold
from pytest_torchprof.findings.places import range_around
from pytest_torchprof.trace import intervals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.trace.intervals import Spans

SHARE = Threshold("share", 0.01, "a capture takes a hundred times as long as a replay: one in a hundred calls is seen")


def recaptures(analysis: Analysis) -> Spans:
    """Return when operators ran that captured what others captured too."""
    return analysis.gpu_work.graph_captures.repeated_calls


def recapturing(analysis: Analysis) -> tuple[str, ...]:
    """Return the names of these operators, those that took longest first."""
    ops, names, spent = analysis.trace.ops, analysis.trace.names, Counter[str]()
    for i in analysis.gpu_work.graph_captures.repeated_ops:
        spent[names[ops.name[i]]] += ops.end[i] - ops.start[i]
    return tuple(name for name, _ in spent.most_common())


def recaptured_from_us(analysis: Analysis) -> tuple[float, ...]:
    """Return when each of their calls began, from the first step's start on."""
    work, begun = analysis.gpu_work, analysis.trace.ops.start
    return tuple((begun[i] - work.window[0]) / 1000 for i in work.graph_captures.repeated_ops)


def _graph_recaptured(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find calls that capture the same CUDA graph again although it had been launched in between."""
    work = analysis.gpu_work
    trace, spans = analysis.trace, recaptures(analysis)
    again = intervals.within(spans, work.whole)
    spent_us = intervals.length(again) / 1000
    if not again or work.share_of_window(spent_us) < at[SHARE]:
        return
    idle_us = work.idle_during_us(spans)
    yield GraphRecaptured(
        time_us=spent_us,
        share=work.share_of_window(spent_us),
        count=len(work.graph_captures.repeated_ops),
        captures=len(work.graph_captures.ops),
        idle_us=idle_us,
        ops=recapturing(analysis),
        begun_us=recaptured_from_us(analysis),
        within=range_around(trace, spans),
        events=Events(ops=tuple(work.graph_captures.repeated_ops)),
        # What the GPU computes meanwhile remains to be computed.
        saves_us=idle_us,
    )


RULES = (
    Rule(
        code="graph-recaptured",
        find=_graph_recaptured,
        needs=(LAUNCHES,),
        thresholds=(SHARE,),
        explains=HOST_PACE,
    ),
)
