"""What a kind of device is to those who read a recording of it: nothing here needs torch, or a device."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable


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
    COPY_OR_FILL = 6
    CAPTURE_BEGIN = 7
    CAPTURE_END = 8


LAUNCHES = frozenset({CallKind.LAUNCH, CallKind.GRAPH_LAUNCH})
BLOCKING = frozenset({CallKind.BLOCKING, CallKind.DEVICE_SYNC, CallKind.BLOCKING_COPY})
COPIES = frozenset({CallKind.COPY_OR_FILL, CallKind.BLOCKING_COPY})


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


class DeviceKind(Struct, frozen=True, kw_only=True):
    """One kind of device, by torch's name for it; a new kind is a file like ``cuda.py`` and its place in ``KINDS``."""

    name: str
    """What a device's name begins with: "cpu", "cuda"."""
    title: str | None = None
    """What a report calls it; None: its devices have names of their own."""
    operator_work: Callable[[str], OperatorWork] | None = None
    """What an operator of this name does, where the operators themselves are the kernels; None: launches are recorded,
    and the kernels that they run."""
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

    def why_no(self, thing: str) -> str | None:
        """Return why a limit on something that only GPUs have cannot be judged; None where this kind has it."""
        return f"the {self.name} as device has no {thing}: this limit needs a GPU" if "gpu" in self.lacks else None
