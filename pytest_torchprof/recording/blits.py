"""Fills and copies that ROCm's runtime runs as kernels of its own: they are told as what they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.trace.columns import GpuOps

# Behind hipMemsetAsync and hipMemcpyAsync, as rocprofiler-sdk records them; roctracer has fills and copies.
_BLIT = re.compile(r"__amd_rocclr_(fill|copy)\w*(?:\.kd)?")


def name_blits(names: Sequence[str], gpu: GpuOps) -> None:
    """Make fills and copies, in place, of the kernels of which they consist; where a copy goes is not known."""
    found = {i: match[1] for i, name in enumerate(names) if (match := _BLIT.fullmatch(name)) is not None}
    for i in where(gpu.name, set(found)) if found else ():
        if gpu.kind[i] == KERNEL:
            gpu.kind[i] = MEMSET if found[gpu.name[i]] == "fill" else MEMCPY
