"""Fusions that were lost: operators that one kernel carried, and several carry now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.fields import bare
from pytest_torchprof.kernels.names import decode

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_torchprof.baseline.entry import KernelRecord

_RUN_AS: Final = {"clamp_min": "relu"}
"""What ATen runs on the CPU for an operator that Inductor calls by its own name."""


def lost_fusion(was: KernelRecord, came: Collection[KernelRecord]) -> str | None:
    """Return "fusion lost: add and mul ran in this kernel, and now in 2" of one that went; None where nothing was lost.

    ``came`` are the kernels that the new step has and the old one had not.
    """
    fused = tuple(map(bare, decode(was.name).triton_ops))
    carried = [(kernel, {*_operators(kernel)} & {*fused}) for kernel in came]
    parts = [(kernel, ops) for kernel, ops in carried if ops]
    if len(fused) < 2 or len(parts) < 2 or any(ops == {*fused} for _, ops in parts):
        return None
    found = [op for op in dict.fromkeys(fused) if any(op in ops for _, ops in parts)]
    if len(found) < 2:
        return None
    return f"fusion lost: {', '.join(found[:-1])} and {found[-1]} ran in this kernel, and now in {len(parts)}"


def _operators(kernel: KernelRecord) -> tuple[str, ...]:
    """Return the operators that a kernel carries: those in its name, or the one that launched it."""
    carried = decode(kernel.name).triton_ops or (() if kernel.op is None else (kernel.op,))
    return tuple(_RUN_AS.get(op, op) for op in map(bare, carried))
