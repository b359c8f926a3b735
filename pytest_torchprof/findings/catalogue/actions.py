"""What to do about a finding, in a line: where the first clause of its remedy does not say it by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.text import first_clause, printable_line, width_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.findings.finding import Finding

ACTIONS: Final[Mapping[str, str]] = {
    "backward-not-compiled": "compile with a backend that has AOTAutograd (inductor)",
    "below-roofline": "make its operands contiguous, or let torch.compile fuse it",
    "compute-bound": "look at types and sizes of the longest kernels",
    "cuda-graph-skipped": "remove what kept torch from using a CUDA graph",
    "cudagraph-input-copy": "keep inputs at the same address (mark_static_address)",
    "graph-hash-changes": "keep sizes, types and Python values of inputs as they are",
    "hidden-copy": "use a bias of one dimension, which the product adds by itself",
    "kernel-time-varies": "lock the clocks, and compare medians",
    "launch-delay": "warm up longer if only the first kernel comes late",
    "many-small-calls": "batch the calls, or let torch.compile fuse them",
    "overhead-bound": "more work per launch: larger batches, fused code, CUDA graphs",
    "profiler-gap": "nothing, unless it comes back in each step",
    "rank-differs": "look for a branch on the rank, or a fallback on one device",
    "single-tensor-optimizer": "give the optimizer foreach=True or fused=True",
    "tf32-gemm": "use autocast, or a model in bf16",
}
"""By the finding's code."""


def action_of(finding: Finding, width: int) -> str:
    """Return what to do about a finding, in so many columns where its remedy has a clause that fits."""
    remedy = printable_line(finding.remedy)
    if width_of(remedy) <= width:
        return remedy
    # A remedy of its own for some facts is another one.
    is_usual = finding.code in ACTIONS and finding.remedy == finding.words(finding.REMEDY)
    return ACTIONS[finding.code] if is_usual else first_clause(remedy, width)
