"""The busy time of a measurement by family: kept among the numbers that vary, which older versions ignore."""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import FAMILIES, FAMILY_NOT_KNOWN
from pytest_torchprof.trace.columns import KERNEL, MEMCPY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile

MEMORY: Final = {True: "memcpy", False: "memset"}
"""The names of copies and fills, which are not kernels, in place of a family."""
KEYS: Final = {f"{family}_us": family for family in (*FAMILIES, *MEMORY.values())} | {"not_known_us": FAMILY_NOT_KNOWN}
"""The key of each family's time; in older entries kernels of unknown family count with ``other``."""


def spent_by_family(profile: Analysis) -> dict[str, float]:
    """Return the time of each family in the middle step, in microseconds, by its key: together the GPU time."""
    middle = middle_of(profile.steps)
    steps = [_spent_us(profile, step) for step in middle]
    means = {key: sum(step.get(family, 0.0) for step in steps) / len(steps) for key, family in KEYS.items()}
    return {key: mean for key, mean in means.items() if mean}


def middle_of(steps: Sequence[StepProfile]) -> Sequence[StepProfile]:
    """Return the step in the middle by its GPU time; for an even number of steps the two whose mean is the median."""
    ordered = sorted(steps, key=attrgetter("gpu_time_us"))
    return ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]


def copies_and_fills(profile: Analysis, step: StepProfile) -> Iterator[tuple[str, str, float]]:
    """Yield the name of each copy and fill of a step, its stand-in for a family, and its duration."""
    gpu, names = profile.trace.gpu, profile.trace.names
    for i in step.part.gpu_ops:
        if gpu.kind[i] != KERNEL:
            yield names[gpu.name[i]], MEMORY[gpu.kind[i] == MEMCPY], (gpu.end[i] - gpu.start[i]) / 1000


def times_by_family(varying: Mapping[str, float]) -> dict[str, float]:
    """Return the times that an entry keeps, by family; empty for an entry that was written without them."""
    return {family: varying[key] for key, family in KEYS.items() if key in varying}


def _spent_us(profile: Analysis, step: StepProfile) -> dict[str, float]:
    spent: defaultdict[str, float] = defaultdict(float)
    for kernel in step.kernels:
        spent[kernel.family or FAMILY_NOT_KNOWN] += kernel.duration_us
    for _, family, time_us in copies_and_fills(profile, step):
        spent[family] += time_us
    return spent
