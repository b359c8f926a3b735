"""Findings: what a person reading the trace would point at, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.findings import bound, compiling, filling, frequent, fusible, missing, products, uneven, waiting
from pytest_torchprof.findings.finding import Finding, Rule, Threshold, ranked
from pytest_torchprof.findings.thresholds import with_thresholds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.analysis.analysis import Analysis

__all__ = ["RULES", "Finding", "Rule", "Threshold", "find", "ranked", "with_thresholds"]

RULES: tuple[Rule, ...] = (
    missing.NO_GPU_WORK,
    missing.LOST_KERNELS,
    missing.IN_FLIGHT_KERNELS,
    missing.PROFILER_GAP,
    bound.OVERHEAD_BOUND,
    bound.COMPUTE_BOUND,
    bound.LAUNCH_GAPS,
    bound.LAUNCH_DELAY,
    waiting.SYNC_OVER_LITTLE_WORK,
    waiting.IMPLICIT_SYNC,
    waiting.EXPOSED_COMMUNICATION,
    frequent.HOTSPOT,
    frequent.MANY_SMALL_CALLS,
    frequent.COSTLY_CHILDREN,
    uneven.COLD_START,
    uneven.KERNEL_TIME_VARIES,
    products.FP32_GEMM,
    products.TF32_GEMM,
    products.MISALIGNED_GEMM,
    products.HIDDEN_COPY,
    fusible.UNFUSED_POINTWISE,
    fusible.UNFUSED_ATTENTION,
    fusible.LAYOUT_CONVERSION,
    fusible.SINGLE_TENSOR_OPTIMIZER,
    filling.SMALL_GRID,
    filling.LOW_OCCUPANCY,
    compiling.GRAPH_BREAK,
    compiling.RECOMPILE,
    compiling.COMPILE_IN_WINDOW,
    compiling.NOT_COMPILED,
    compiling.CUDA_GRAPH_SKIPPED,
    compiling.BACKWARD_NOT_COMPILED,
    compiling.GRAPH_HASH_CHANGES,
    compiling.GUARD_OVERHEAD,
    compiling.CUDAGRAPH_INPUT_COPY,
    compiling.COMPILE_OVERHEAD,
)


def find(analysis: Analysis, rules: Iterable[Rule] = RULES) -> tuple[Finding, ...]:
    """Return what the rules find: about the recording first, then by the time that could be saved.

    Lines of the user's code that only a repeat with stacks knows are added. Nothing is found where kernels are hidden.
    """
    if analysis.kernels_unknown is not None:
        return ()
    rules = tuple(rules)
    found = ranked(finding for rule in rules for finding in rule.look(analysis))
    if analysis.repeat is None or analysis.repeat.analysis is None:
        return found
    sources = {one.code: one.evidence.get("source") for one in find(analysis.repeat.analysis, rules)}
    return tuple(_with_source(one, sources.get(one.code)) for one in found)


def _with_source(finding: Finding, source: object) -> Finding:
    if source is None or finding.evidence.get("source") is not None:
        return finding
    return replace(finding, evidence={**finding.evidence, "source": source})
