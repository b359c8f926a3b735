"""Findings about the host: where it waits for the GPU, and where the GPU waits for it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from pytest_torchprof import units
from pytest_torchprof.findings.finding import Finding, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.profile import Profile

SYNCING_OPS = frozenset(
    {
        "aten::item",
        "aten::_local_scalar_dense",
        "aten::nonzero",
        "aten::masked_select",
        "aten::is_nonzero",
        "aten::equal",
        "aten::_unique2",
        "aten::unique_dim",
        "aten::unique_consecutive",
    }
)
"""Operators whose result or result size the host must know before it can go on."""

OVERHEAD_BUSY_SHARE = 0.5
"""Below half of its span busy, the GPU waits more than it works."""


def _implicit_sync(profile: Profile) -> Iterator[Finding]:
    """Find a syncing operator that launched GPU work in a step that blocked: it made the host wait."""
    for step in profile.steps:
        calls = {op: count for op, count in step.ops.items() if op in SYNCING_OPS}
        if step.syncs and calls:
            ops = ", ".join(f"{op} x{count}" for op, count in calls.items())
            yield Finding(
                code="implicit-sync",
                title="Hidden synchronization",
                message=f"{ops} make the CPU wait for the GPU ({step.syncs} blocking calls in a step)",
                evidence={"ops": calls, "syncs": step.syncs, "step": step.name},
                remedy="keep the value on the GPU, or read it once after the loop",
            )
            return


def _overhead_bound(profile: Profile) -> Iterator[Finding]:
    """Find that the CPU needs longer to dispatch than the GPU to compute, and the GPU idles in between."""
    busy = [
        (step.cpu_gpu_ratio, step.gpu_busy_us / step.gpu_span_us)
        for step in profile.steps
        if step.cpu_gpu_ratio is not None and step.gpu_busy_us and step.gpu_span_us
    ]
    if not busy:
        return
    ratio, share = median(ratio for ratio, _ in busy), median(share for _, share in busy)
    if ratio > 1 and share < OVERHEAD_BUSY_SHARE:
        yield Finding(
            code="overhead-bound",
            title="Bound by overhead",
            message=f"the CPU takes {units.show_ratio(ratio)} times as long as the GPU, "
            f"which is busy {share:.0%} of its span",
            evidence={"cpu_gpu_ratio": ratio, "busy_share": share},
            remedy="larger batches, torch.compile, or a CUDA graph",
        )


IMPLICIT_SYNC = Rule(code="implicit-sync", find=_implicit_sync)
OVERHEAD_BOUND = Rule(code="overhead-bound", find=_overhead_bound)
