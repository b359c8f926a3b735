"""The events of a recording as columns: parallel arrays, because a recording may hold a million events."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

KERNEL, MEMCPY, MEMSET = 0, 1, 2
ABSENT = -1
"""Stands in a column of whole numbers for what the file does not say."""


def _small() -> array[int]:
    return array("i")


def _large() -> array[int]:
    return array("q")


def _real() -> array[float]:
    return array("d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Ranges on the CPU side: operators, user annotations or Python frames. Times in ns."""

    name: array[int] = field(default_factory=_small)
    start: array[int] = field(default_factory=_large)
    end: array[int] = field(default_factory=_large)
    thread: array[int] = field(default_factory=_small)
    external: array[int] = field(default_factory=_large)
    inputs: array[int] = field(default_factory=_small)
    """Index into ``Trace.inputs`` (dims, types, strides of the operands)."""

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Calls of the runtime or the driver. Times in ns."""

    name: array[int] = field(default_factory=_small)
    start: array[int] = field(default_factory=_large)
    end: array[int] = field(default_factory=_large)
    thread: array[int] = field(default_factory=_small)
    correlation: array[int] = field(default_factory=_large)
    external: array[int] = field(default_factory=_large)

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOps:
    """Kernels, copies and fills as the GPU ran them. Times in ns."""

    kind: array[int] = field(default_factory=lambda: array("b"))
    name: array[int] = field(default_factory=_small)
    start: array[int] = field(default_factory=_large)
    end: array[int] = field(default_factory=_large)
    process: array[int] = field(default_factory=_small)
    """Index into ``Trace.processes``; ``Trace.device_of`` makes the device's index of it."""
    stream: array[int] = field(default_factory=_small)
    """Index into ``Trace.streams``."""
    correlation: array[int] = field(default_factory=_large)
    external: array[int] = field(default_factory=_large)
    blocks_per_sm: array[float] = field(default_factory=_real)
    """Below zero where the file does not say, as on ROCm."""
    occupancy: array[float] = field(default_factory=_real)
    size: array[int] = field(default_factory=_large)

    def __len__(self) -> int:
        return len(self.start)
