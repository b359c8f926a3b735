"""How one measurement is to be made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to record, how often to call the measured code, and on which device."""

    device: str
    """As `pick_device` returns it: "cpu" or "cuda:0"."""
    asked: str = "auto"
    """As it was asked for: a CPU that was asked for is judged as the device, one that stands in for a GPU is not."""
    warmup: int
    """Calls before the profiler starts; may be 0."""
    steps: int
    """Calls under the profiler; at least 1."""
    record: frozenset[str]
    """Any of "stacks", "modules", "memory"; shapes and dtypes are always recorded."""
    nodeid: str
    label: str | None
    count_flops: bool = False
    """Whether the first warm-up call, of two at least, is made uncompiled and its floating-point operations counted."""
    times: Literal["hot", "cold"] | None = None
    """Whether untraced times are sampled after the steps, and with what in the caches."""
