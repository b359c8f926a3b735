"""The kinds of devices as recordings show them: nothing here needs torch, or a device."""

from __future__ import annotations

import re
from enum import Enum, IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.reasons.recordings import NeedsGpu

if TYPE_CHECKING:
    from collections.abc import Callable
    from re import Pattern

    from pytest_torchprof.reasons.reason import Reason

# A recording that names no device is taken for the first kind's. A measurement asks for them in this order.
_FILES = (
    "cuda",
    "cpu",
)
# The tail names the per-thread default stream's or a versioned entry point of the same call.
_TAIL = re.compile(r"(?:_ptsz|_ptds|_v\d+|_spt)+$")


class CallKind(IntEnum):
    """What a runtime or driver call does, as far as the numbers ask."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    BLOCKING = 3
    """Makes the CPU wait for the GPU."""
    BLOCKING_COPY = 4
    """Waits too, for a copy it starts itself."""
    DEVICE_SYNC = 5
    """Waits for all; what the profiler itself ends with."""
    COPY = 6
    CAPTURE_BEGIN = 7
    CAPTURE_END = 8
    FREE = 9
    """Waits for the device too, before it gives memory back to it."""
    QUERY = 10
    """Asks whether the GPU is done, and comes back at once; a loop of them waits."""
    ERROR_TEXT = 11
    """Asks for the name or the text of an error that another call returned."""
    FILL = 12


LAUNCHES = frozenset({CallKind.LAUNCH, CallKind.GRAPH_LAUNCH})
BLOCKING = frozenset({CallKind.BLOCKING, CallKind.DEVICE_SYNC, CallKind.BLOCKING_COPY})
WAITS = BLOCKING | {CallKind.FREE}
COUNTED = LAUNCHES | WAITS | {CallKind.QUERY}
COPIES = frozenset({CallKind.COPY, CallKind.BLOCKING_COPY})


class OperatorWork(Enum):
    """What an operator does by itself."""

    NOTHING = "nothing"
    """Views, metadata, allocation; autograd nodes, compiled regions and other ranges that only hold operators."""
    MOVES = "moves"
    """Converts, copies or fills: part of a computing operator around it, a kernel where there is none."""
    COMPUTES = "computes"
    ALONE = "alone"
    """Computes, and what it calls are small helpers: one kernel, with all that is inside."""
    FUSED = "fused"
    """A C++ kernel that Inductor wrote."""
    UNKNOWN = "unknown"


class DeviceKind(Struct, frozen=True, kw_only=True):
    """One kind of device, by torch's name for it; a new kind is a file like ``cuda.py``, and its name in ``_FILES``."""

    name: str
    """What a device's name begins with: "cpu", "cuda"."""
    title: str | None = None
    """What a report calls it; None: its devices have names of their own."""
    operator_work: Callable[[str], OperatorWork] | None = None
    """What an operator of this name does, where the operators themselves are the kernels; None: launches are recorded,
    and the kernels that they run."""
    waiting_operators: frozenset[str] = frozenset()
    """Where operators are the kernels, those that compute nothing and wait for a value: ``.item()``, ``bool(t)``."""
    lacks: frozenset[str] = frozenset()
    """What this kind lacks of the things that a number may need."""
    calls: tuple[tuple[CallKind, str], ...] = ()
    """What calls of its runtime and driver do, by a pattern for their names."""
    environment: tuple[str, ...] = ()
    """What decides about kernels and numbers, by its name in a recording's environment."""

    @property
    def has_launches(self) -> bool:
        """Whether work is launched, and runs beside the CPU; else the CPU's operators are the work."""
        return self.operator_work is None

    def why_no(self, thing: str) -> Reason | None:
        """Return why a limit on something that only GPUs have cannot be judged; None where this kind has it."""
        if "gpu" not in self.lacks:
            return None
        return NeedsGpu(self.name, thing)


@cache
def device_kinds() -> tuple[DeviceKind, ...]:
    """Return the kinds that are known."""
    return tuple(import_module(f"{__package__}.{file}").KIND for file in _FILES)


def kind_of(device: str | None) -> DeviceKind:
    """Return the kind of a device by its name, such as "cuda:0"."""
    name, known = (device or "").partition(":")[0], device_kinds()
    return next((kind for kind in known if kind.name == name), known[0])


@cache
def _call_patterns() -> tuple[list[CallKind], Pattern[str]]:
    """Return what calls do, and one pattern with a group for each."""
    calls = [call for kind in device_kinds() for call in kind.calls]
    whole = "|".join(f"(?P<_{i}>{pattern})" for i, (_, pattern) in enumerate(calls))
    return [call for call, _ in calls], re.compile(whole)


def call_kind(name: str) -> CallKind:
    """Return what the call ``name`` does; unknown calls are OTHER."""
    calls, pattern = _call_patterns()
    match = pattern.fullmatch(_TAIL.sub("", name))
    return calls[int(str(match.lastgroup)[1:])] if match else CallKind.OTHER
