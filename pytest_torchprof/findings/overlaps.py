"""Findings that overlap: of those about the same time, the one that names the cause best stands out.

Each of them can be forbidden, whether it stands out or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.findings.catalogue.costs import CopyKernels, CostlyChildren, Hotspot, ManySmallCalls
from pytest_torchprof.findings.catalogue.fusible import LayoutConversion
from pytest_torchprof.findings.catalogue.waiting import LaunchGaps
from pytest_torchprof.findings.finding import WORTH_TELLING, OfKernels
from pytest_torchprof.findings.fusible import chains_to_fuse, launched_by_optimizer, outside_optimizer, saved_us
from pytest_torchprof.findings.recaptured import recaptures
from pytest_torchprof.findings.silence import held_up, silent_times
from pytest_torchprof.findings.syncs import held_on_gpu, waits_for_little, waits_in_operators
from pytest_torchprof.findings.waiting import late_before_us, late_gaps
from pytest_torchprof.findings.written_out import rms_norms, rotary_embeddings
from pytest_torchprof.trace import intervals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings.finding import Finding
    from pytest_torchprof.trace.intervals import Spans

MOSTLY: Final = 0.9
"""The share of a finding's time from which on another one that has it too tells all of it."""
_HALF: Final = 0.5
_WRITTEN_OUT: Final = {"unfused-norm": rms_norms, "unfused-rotary": rotary_embeddings}
"""The kernels of what is written as single operators, each of which has to be launched, by the finding's code."""


def standing_out(analysis: Analysis, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that are worth a reader's time, each cause once.

    Findings about less than a hundredth of the window are left out, and so are those whose cause another one names. To
    a norm or an embedding that runs as several kernels belongs the time in which the GPU waited for these.
    """
    worth = tuple(finding for finding in findings if _is_worth_it(analysis, finding))
    by_code = {finding.code: finding for finding in worth}
    return tuple(
        finding
        for finding in worth
        if not any(
            other in by_code and says_it(analysis, finding, by_code[other])
            for other, says_it in _EXPLAINED_BY.get(finding.code, {}).items()
        )
    )


def _is_worth_it(analysis: Analysis, finding: Finding) -> bool:
    if finding.severity == "recording":
        return True
    work = analysis.gpu_work
    if max(getattr(finding, "share", 1.0), work.share_of_window(finding.saves_us)) >= WORTH_TELLING:
        return True
    # On a GPU that waits for launches these cost little time of kernels, and much of the CPU's.
    parts = _WRITTEN_OUT[finding.code](analysis) if finding.code in _WRITTEN_OUT else ()
    waited_us = late_before_us(analysis, (i for part in parts for i in part))
    return work.share_of_window(waited_us) >= WORTH_TELLING


def _of_spans(
    these: Callable[[Analysis], Spans], those: Callable[[Analysis], Spans], least: float = MOSTLY
) -> Callable[[Analysis, Finding, Finding], bool]:
    def says_it(analysis: Analysis, *_: Finding) -> bool:
        spans = these(analysis)
        both = intervals.length_within(spans, those(analysis)) if spans else 0
        return both >= least * intervals.length(spans)

    return says_it


def _set_up(analysis: Analysis) -> Spans:
    return analysis.gpu_work.set_up.spans


def _first_delay(analysis: Analysis) -> Spans:
    """Return the time between the first launch and its kernel."""
    trace = analysis.trace
    first = min(
        (i for i in analysis.gpu_work.kernels if trace.links.call_of[i] >= 0),
        key=lambda i: trace.calls.start[trace.links.call_of[i]],
    )
    return intervals.span(trace.calls.start[trace.links.call_of[first]], trace.gpu.start[first])


def _calls_of(analysis: Analysis, parent: str) -> Spans:
    ops, names = analysis.trace.ops, analysis.trace.names
    named = {i for i, name in enumerate(names) if name == parent}
    return intervals.of(ops, [i for i in analysis.gpu_work.outermost if ops.name[i] in named])


def _of_children(those: Callable[[Analysis], Spans]) -> Callable[[Analysis, Finding, Finding], bool]:
    """Return a test whether half of a costly operator's time is what the other finding is about."""

    def says_it(analysis: Analysis, finding: Finding, _: Finding) -> bool:
        if not isinstance(finding, CostlyChildren):
            return False
        spans = _calls_of(analysis, finding.parent)
        return intervals.length_within(spans, those(analysis)) >= _HALF * intervals.length(spans)

    return says_it


def _communicates(analysis: Analysis, finding: Finding, _: Finding) -> bool:
    work, names = analysis.gpu_work, analysis.trace.names
    talking = {names[analysis.trace.gpu.name[i]] for i in work.communication}
    return isinstance(finding, Hotspot) and not talking.isdisjoint(finding.kernels)


def _are_products(_: Analysis, finding: Finding, products: Finding) -> bool:
    """Whether the kernel that takes the time is one of the products that the other finding says how to make faster."""
    if not isinstance(finding, Hotspot) or not isinstance(products, OfKernels):
        return False
    return finding.subject in (*products.kernels, *products.ops) and finding.time_us <= products.time_us


def _are_the_optimizers(analysis: Analysis, finding: Finding, _: Finding) -> bool:
    """Whether most of the small kernels are an optimizer's, about which another finding has better advice."""
    if not isinstance(finding, ManySmallCalls):
        return False
    work, launching = analysis.gpu_work, analysis.launching
    small = [i for i in work.kernels if launching.op_name(launching.op_of[i]) in finding.ops]
    return len(launched_by_optimizer(analysis, small)) >= _HALF * len(small)


def _are_layouts(_: Analysis, finding: Finding, layouts: Finding) -> bool:
    """Whether at least half of the copying kernels change layouts."""
    if not isinstance(finding, CopyKernels) or not isinstance(layouts, LayoutConversion):
        return False
    return layouts.time_us >= _HALF * finding.time_us


def _has_own_cause(finding: Finding) -> bool:
    """Whether late launches have a cause other than launching itself, which only this finding names."""
    return isinstance(finding, LaunchGaps) and (
        finding.loads_long or finding.waits_long or finding.capturing_us >= _HALF * finding.time_us
    )


_OF_LATE_GAPS: Final = {
    "cold-start": _of_spans(late_gaps, _set_up),
    "cpu-held-up": _of_spans(late_gaps, held_up, _HALF),
    "graph-recaptured": _of_spans(late_gaps, recaptures, _HALF),
}


def _is_optimizer(analysis: Analysis, *_: Finding) -> bool:
    """Whether fusing would save most in the optimizer, about which another finding has better advice."""
    chains = chains_to_fuse(analysis)
    others = outside_optimizer(analysis, chains)
    return saved_us(analysis, others) < _HALF * saved_us(analysis, chains)


def _is_rotary(analysis: Analysis, *_: Finding) -> bool:
    """Whether fusing would save most in rotary embeddings."""
    turning = {i for embedding in rotary_embeddings(analysis) for i in embedding}
    chains = chains_to_fuse(analysis)
    others = [chain for chain in chains if 2 * len(turning.intersection(chain)) < len(chain)]
    return saved_us(analysis, others) < _HALF * saved_us(analysis, chains)


_EXPLAINED_BY: Final[Mapping[str, Mapping[str, Callable[[Analysis, Finding, Finding], bool]]]] = {
    "sync-over-little-work": {
        "queued-work-waits": _of_spans(waits_for_little, held_on_gpu),
        "implicit-sync": _of_spans(waits_for_little, waits_in_operators),
    },
    "implicit-sync": {"queued-work-waits": _of_spans(waits_in_operators, held_on_gpu)},
    "nothing-recorded": {"queued-work-waits": _of_spans(silent_times, held_on_gpu)},
    "launch-gaps": {**_OF_LATE_GAPS, "overhead-bound": lambda _, gaps, __: not _has_own_cause(gaps)},
    "overhead-bound": {**_OF_LATE_GAPS, "launch-gaps": lambda _, __, gaps: _has_own_cause(gaps)},
    "launch-delay": {"cold-start": _of_spans(_first_delay, _set_up)},
    "costly-children": {
        "cold-start": _of_children(_set_up),
        "implicit-sync": _of_children(waits_in_operators),
        "compute-bound": lambda *_: True,
    },
    "hotspot": {"exposed-communication": _communicates, "fp32-gemm": _are_products, "tf32-gemm": _are_products},
    "many-small-calls": {"single-tensor-optimizer": _are_the_optimizers},
    "unfused-pointwise": {"single-tensor-optimizer": _is_optimizer, "unfused-rotary": _is_rotary},
    "copy-kernels": {"layout-conversion": _are_layouts},
}
"""The findings that may name a finding's cause, each with the test of whether it does, by that finding's code."""
