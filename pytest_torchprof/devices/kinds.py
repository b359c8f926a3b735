"""The kinds of devices as recordings show them: nothing here needs torch or a device."""

from __future__ import annotations

import re
from enum import Enum, IntEnum
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.reasons.recordings import NeedsGpu
from pytest_torchprof.text.reprs import bracketed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.text.expressions import Expression

# A recording that names no device is taken to be of the first kind. A measurement looks for them in this order.
_FILES = (
    "cuda",
    "cpu",
)
# The suffix marks the entry point of the same call for the per-thread default stream, or a version of it.
_TAIL = re.compile(r"(?:_ptsz|_ptds|_v\d+|_spt)+$")


class CallKind(IntEnum):
    """The kinds of runtime and driver calls, as far as numbers depend on them."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    BLOCKING = 3
    """It makes the CPU wait for the GPU."""
    BLOCKING_COPY = 4
    """It makes the CPU wait for a copy that it starts itself."""
    DEVICE_SYNC = 5
    """It makes the CPU wait for all work of the device; the profiler itself ends with it."""
    COPY = 6
    CAPTURE_BEGIN = 7
    CAPTURE_END = 8
    FREE = 9
    """It waits for the device before it returns memory."""
    QUERY = 10
    """It asks whether the GPU is done, and returns at once; a loop of such calls waits."""
    ERROR_TEXT = 11
    """It asks for the name or text of an error that another call returned."""
    FILL = 12


LAUNCHES = frozenset({CallKind.LAUNCH, CallKind.GRAPH_LAUNCH})
BLOCKING = frozenset({CallKind.BLOCKING, CallKind.DEVICE_SYNC, CallKind.BLOCKING_COPY})
WAITS = BLOCKING | {CallKind.FREE}
COUNTED = LAUNCHES | WAITS | {CallKind.QUERY}
COPIES = frozenset({CallKind.COPY, CallKind.BLOCKING_COPY})


class OperatorWork(Enum):
    """The work that an operator does by itself."""

    NOTHING = "nothing"
    """Views, metadata, allocation; autograd nodes, compiled regions and other ranges that only enclose operators."""
    MOVES = "moves"
    """It converts, copies or fills: a part of the computing operator around it, or a kernel if there is none."""
    COMPUTES = "computes"
    ALONE = "alone"
    """It computes with the help of small operators: one kernel, including everything inside."""
    FUSED = "fused"
    """A C++ kernel that Inductor wrote."""
    UNKNOWN = "unknown"


class DeviceKind(Struct, frozen=True, kw_only=True):
    """One kind of device, by torch's name for it; a new kind is a file like ``cuda.py``, and its name in ``_FILES``."""

    name: str
    """The beginning of a device's name: "cpu", "cuda"."""
    title: str | None = None
    """Its name in reports; None if its devices have names of their own."""
    operator_work: Callable[[str], OperatorWork] | None = None
    """Returns the work of an operator by name, if the operators themselves are the kernels; else None."""
    waiting_operators: frozenset[str] = frozenset()
    """If operators are the kernels, those that compute nothing and wait for a value: ``.item()``, ``bool(t)``."""
    lacks: frozenset[str] = frozenset()
    """The things that a number may need and this kind lacks."""
    calls: tuple[tuple[CallKind, Expression], ...] = ()
    """The kinds of calls of its runtime and driver, by an expression for their names; the first that matches counts."""
    environment: tuple[str, ...] = ()
    """The facts that decide about kernels and numbers, by their name in a recording's environment."""

    def __repr__(self) -> str:
        return bracketed(self, self.name)

    @property
    def has_launches(self) -> bool:
        """Whether work is launched and runs asynchronously; otherwise the CPU's operators are the work."""
        return self.operator_work is None

    def why_no(self, thing: str) -> Reason | None:
        """Return why a limit on something that only GPUs have cannot be judged; None if this kind has it."""
        if "gpu" not in self.lacks:
            return None
        return NeedsGpu(self.name, thing)


@cache
def device_kinds() -> tuple[DeviceKind, ...]:
    """Return the known kinds."""
    return tuple(import_module(f"{__package__}.{file}").KIND for file in _FILES)


@cache
def kind_of(device: str | None) -> DeviceKind:
    """Return the kind of a device by its name, such as "cuda:0"."""
    name, known = (device or "").partition(":")[0], device_kinds()
    return next((kind for kind in known if kind.name == name), known[0])


@lru_cache(maxsize=1024)
def call_kind(name: str) -> CallKind:
    """Return the kind of the call ``name``; unknown calls are OTHER."""
    bare = _TAIL.sub("", name)
    calls = (call for kind in device_kinds() for call in kind.calls)
    return next((call for call, expression in calls if expression.fullmatch(bare)), CallKind.OTHER)
