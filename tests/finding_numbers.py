"""What findings say of how many they are of, by their codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

OWN_NUMBER: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "implicit-sync": lambda facts: facts["syncs"],
    "sync-over-little-work": lambda facts: sum(facts["calls"].values()),
    "launch-gaps": lambda facts: facts["gaps"],
    "nothing-recorded": lambda facts: facts["gaps"],
    "overhead-bound": lambda facts: facts["gaps"],
    "queued-work-waits": lambda facts: facts["gaps"],
    "copies-take-long": lambda facts: facts["count"],
    "cpu-held-up": lambda facts: facts["count"],
    "copy-kernels": lambda facts: facts["count"],
    "fp32-gemm": lambda facts: facts["count"],
    "tf32-gemm": lambda facts: facts["count"],
    "unasked-fp64": lambda facts: facts["count"],
    "misaligned-gemm": lambda facts: facts["count"],
    "unfused-pointwise": lambda facts: facts["count"],
    "unfused-norm": lambda facts: facts["count"],
    "unfused-rotary": lambda facts: facts["count"],
    "layout-conversion": lambda facts: facts["count"],
    "single-tensor-optimizer": lambda facts: facts["count"],
    "small-grid": lambda facts: facts["count"],
    "graph-recaptured": lambda facts: facts["count"],
    "low-occupancy": lambda facts: facts["count"],
    "below-roofline": lambda facts: facts["count"],
    "cudagraph-input-copy": lambda facts: facts["count"],
    "hotspot": lambda facts: facts["count"],
    "kernel-time-varies": lambda facts: facts["count"],
    "hidden-copy": lambda facts: facts["copies"],
    "in-flight-kernels": lambda facts: facts["orphans"],
    "lost-kernels": lambda facts: facts["lost_kernels"],
    "repeated-constant": lambda facts: facts["count"],
    "compile-in-window": lambda facts: facts["count"],
    "backward-not-compiled": lambda facts: facts["count"],
    "no-gpu-work": lambda facts: len(facts["steps"]),
}
"""What a finding says of how many it is of."""
CHAINS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "unfused-pointwise": lambda facts: facts["chains"],
    "unfused-attention": lambda facts: facts["count"],
    "unfused-norm": lambda facts: facts["norms"],
    "unfused-rotary": lambda facts: facts["embeddings"],
}
WITHOUT_EVENTS: Mapping[str, str] = {
    "compute-bound": "is of all that the GPU ran",
    "graph-break": "is of what torch told while it compiled, of which a recording has no event",
    "recompile": "is of what torch told while it compiled, of which a recording has no event",
}
"""Findings that mark nothing in the timeline, and why."""
