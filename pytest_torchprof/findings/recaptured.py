"""Findings about CUDA graphs that are captured again and again, which no warm-up ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings.catalogue.waiting import GraphRecaptured
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import HOST_PACE, LAUNCHES, Finding, Rule, Threshold
from pytest_torchprof.trace import intervals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.trace.intervals import Spans

SHARE = Threshold("share", 0.01, "a capture takes a hundred times as long as a replay: one in a hundred calls is seen")


def recaptures(analysis: Analysis) -> Spans:
    """Return when operators ran that captured what others captured too."""
    return analysis.gpu_work.recapturing_calls


def _graph_recaptured(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find calls that capture the same CUDA graph, although it was launched between them."""
    work = analysis.gpu_work
    again = intervals.within(recaptures(analysis), work.whole)
    spent_us = intervals.length(again) / 1000
    if not again or work.share_of_window(spent_us) < at[SHARE]:
        return
    yield GraphRecaptured(
        time_us=spent_us,
        share=work.share_of_window(spent_us),
        count=len(work.recapturing_ops),
        captures=len(work.capturing_ops),
        events=Events(ops=tuple(work.recapturing_ops)),
        saves_us=spent_us,
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
