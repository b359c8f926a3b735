"""Which findings may explain why a limit was missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.findings import Finding

MOST = 3
"""Findings told of for one limit: several missed limits still fit on a screen."""

_NOT_FUSED: Final = ("not-compiled", "graph-break", "unfused-pointwise", "unfused-attention")
_EXTRA_KERNELS: Final = (*_NOT_FUSED, "many-small-calls", "single-tensor-optimizer", "hidden-copy", "layout-conversion")
_HOST: Final = (
    *("overhead-bound", "launch-gaps", "cold-start", "compile-in-window", "implicit-sync", "sync-over-little-work"),
    *("many-small-calls", "single-tensor-optimizer", "guard-overhead", "compile-overhead", "cuda-graph-skipped"),
)
_SLOW_KERNELS: Final = (
    *("fp32-gemm", "tf32-gemm", "misaligned-gemm", "unfused-attention", "unfused-pointwise", "layout-conversion"),
    *("hidden-copy", "small-grid", "low-occupancy", "exposed-communication", "kernel-time-varies", "hotspot"),
)
_OTHER_KERNELS: Final = (*_NOT_FUSED, "fp32-gemm", "tf32-gemm", "hidden-copy", "layout-conversion")
BEARING: Final = {
    "max_kernels": _EXTRA_KERNELS,
    "min_kernels": ("no-gpu-work",),
    "max_launches": (*_EXTRA_KERNELS, "cuda-graph-skipped", "cudagraph-input-copy"),
    "max_memcpys": ("hidden-copy", "implicit-sync", "cudagraph-input-copy"),
    "max_syncs": ("implicit-sync", "sync-over-little-work"),
    "max_cpu_gpu_ratio": _HOST,
    "min_gpu_utilization": (*_HOST, "profiler-gap", "no-gpu-work"),
    "min_sm_efficiency": ("small-grid", *_HOST, "profiler-gap", "no-gpu-work"),
    "min_mfu": (*_SLOW_KERNELS, *_HOST),
    "max_gpu_time": _SLOW_KERNELS,
    "max_peak_memory": ("unfused-attention", "unfused-pointwise"),
    "kernels": _OTHER_KERNELS,
    "only_kernels": _OTHER_KERNELS,
    "forbid_kernels": _OTHER_KERNELS,
    "ops": _NOT_FUSED,
    "forbid_ops": _NOT_FUSED,
    "fused": _NOT_FUSED,
    "cuda_graph": ("cuda-graph-skipped", "graph-break", "not-compiled", "cudagraph-input-copy"),
    "max_graph_breaks": ("not-compiled", "backward-not-compiled"),
    "max_recompiles": ("graph-hash-changes", "compile-in-window"),
    "max_compile_time": ("recompile", "graph-break"),
    "max_fallbacks": ("graph-break",),
}
"""For each limit the codes that bear on it; what the limit itself lists already is not among them."""


def bearing_on(limit: str, findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return a line for each finding that may explain the miss, in the order of the findings, three at most."""
    codes = BEARING.get(limit, ())
    return tuple(said(finding) for finding in findings if finding.code in codes)[:MOST]


def said(finding: Finding) -> str:
    """Return a finding in one line, with the line of the user's code where it is known."""
    source = finding.evidence.get("source")
    where = f" ({source})" if isinstance(source, str) and source not in finding.message else ""
    return f"{finding.code}: {finding.message}{where}"
