"""Kernels of collectives that have no correlation id: they belong to launches in the order in which they ran."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import KERNEL, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.trace.columns import Calls, GpuOps

# As the tracer of ROCm 6.1 records them (ROCm/roctracer#100): the launch has an id, and its kernel 0.
_COLLECTIVE = re.compile(r"(?:void )?(?:nccl|rccl)")


def uncorrelated_collectives(gpu: GpuOps, names: Sequence[str]) -> list[int]:
    """Return the kernels of collectives that have no correlation id, in file order."""
    if not gpu.correlation or min(gpu.correlation) > 0:
        return []
    named = {i for i, name in enumerate(names) if _COLLECTIVE.match(name)}
    alone = where(gpu.name, named) if named else []
    return [i for i in alone if gpu.correlation[i] <= 0 and gpu.kind[i] == KERNEL]


def launched_in_turn(
    calls: Calls, gpu: GpuOps, kernels: Sequence[int], launches: Sequence[int]
) -> list[tuple[int, int]]:
    """Return each kernel with its launch, nothing where that cannot be told.

    A stream runs what it is given in that order. So where one stream ran as many kernels as there are launches whose
    kernel is missing, and none began before its launch, each belongs to the one in the same place.
    """
    if len(kernels) != len(launches) or len({(gpu.process[i], gpu.stream[i]) for i in kernels}) != 1:
        return []
    ran = sorted((gpu.start[i], i) for i in kernels)
    launched = sorted((calls.start[i], i) for i in launches)
    if any(ran_at < launched_at for (ran_at, _), (launched_at, _) in zip(ran, launched, strict=True)):
        return []
    return list(zip(map(itemgetter(1), ran), map(itemgetter(1), launched), strict=True))
