"""The result of a recording by itself, of which nothing was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings import RULES, find, standing_out
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.report.account import Doubted
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.result import Result, summary_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings import Rule


def recorded_result(analysis: Analysis, name: str, rules: Iterable[Rule] = RULES) -> Result:
    """Return the figures and findings of a recording; ``name`` is its name if no test made it."""
    nodeid, label = analysis.trace.of_test
    return Result(
        nodeid=nodeid or name,
        label=label,
        outcome=Outcome.NOT_MEASURED if analysis.why_not else Outcome.RECORDED,
        account=() if analysis.doubt is None else (Doubted(portable(analysis.doubt)),),
        reason=None if analysis.doubt is None else portable(analysis.doubt),
        summary=summary_of(analysis.median, analysis.worst),
        findings=standing_out(analysis, find(analysis, rules)),
        environment=analysis.trace.environment,
        recording=name,
    )
