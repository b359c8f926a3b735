"""Where the busy time of a measurement is, by family: kept among the numbers that vary, which older versions ignore."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import FAMILIES
from pytest_torchprof.trace.columns import KERNEL, MEMCPY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile

MEMORY: Final = {True: "memcpy", False: "memset"}
"""What stands for a family where the GPU ran no kernel: copies and fills."""
KEYS: Final = {f"{family}_us": family for family in (*FAMILIES, *MEMORY.values())}
"""What the time of each family is called."""


def medians_by_family(profile: Analysis) -> dict[str, float]:
    """Return the median over the steps of the time of each family that has any, in microseconds, by its key."""
    steps = [_spent_us(profile, step) for step in profile.steps]
    medians = {key: statistics.median(step.get(family, 0.0) for step in steps) for key, family in KEYS.items()}
    return {key: median for key, median in medians.items() if median}


def moved_us(profile: Analysis, step: StepProfile) -> Iterator[tuple[str, str, float]]:
    """Yield the name of each copy and fill of a step, what stands for its family, and how long it took."""
    gpu, names = profile.trace.gpu, profile.trace.names
    for i in step.part.gpu_ops:
        if gpu.kind[i] != KERNEL:
            yield names[gpu.name[i]], MEMORY[gpu.kind[i] == MEMCPY], (gpu.end[i] - gpu.start[i]) / 1000


def times_by_family(varying: Mapping[str, float]) -> dict[str, float]:
    """Return the times that an entry keeps, by family; none of an entry that was written without them."""
    return {family: varying[key] for key, family in KEYS.items() if key in varying}


def _spent_us(profile: Analysis, step: StepProfile) -> dict[str, float]:
    spent: defaultdict[str, float] = defaultdict(float)
    for kernel in step.kernels:
        spent[kernel.family] += kernel.duration_us
    for _, family, time_us in moved_us(profile, step):
        spent[family] += time_us
    return spent
