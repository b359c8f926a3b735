"""What the calls of the CUDA and HIP runtimes mean, by name."""

from __future__ import annotations

import re
from enum import IntEnum


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

_KERNEL_LAUNCH = (
    r"cuda(?:LaunchKernel(?:ExC)?|LaunchCooperativeKernel\w*)|cuLaunch(?:Kernel(?:Ex)?|CooperativeKernel)"
    r"|hip(?:Ext|Hcc)?(?:Module)?Launch(?:Cooperative)?Kernel(?:ExC|MultiDevice)?"
    r"|hipExtLaunchMultiKernelMultiDevice|hipLaunchByPtr"
)
# cuGraphLaunch and cuLaunchCooperativeKernel are not kept by kineto today; they stand here for the day they are.
_PATTERNS = (
    (CallKind.GRAPH_LAUNCH, r"(?:cuda|cu|hip)GraphLaunch"),
    (CallKind.LAUNCH, _KERNEL_LAUNCH),
    (CallKind.DEVICE_SYNC, r"(?:cuda|hip)DeviceSynchronize"),
    (CallKind.BLOCKING, r"(?:cuda|hip)(?:Stream|Event)Synchronize"),
    # hipMemcpyWithStream is what .item() is on ROCm.
    (CallKind.BLOCKING_COPY, r"(?:cuda|hip)Memcpy|hipMemcpyWithStream"),
    (CallKind.COPY_OR_FILL, r"(?:cuda|cu|hip)Mem(?:cpy|set)\w*"),
    (CallKind.CAPTURE_BEGIN, r"(?:cuda|cu|hip)StreamBeginCapture\w*"),
    (CallKind.CAPTURE_END, r"(?:cuda|cu|hip)StreamEndCapture\w*"),
)
_KINDS = re.compile("|".join(f"(?P<_{kind.value}>{pattern})" for kind, pattern in _PATTERNS))
# The tail names the per-thread default stream's or a versioned entry point of the same call.
_TAIL = re.compile(r"(?:_ptsz|_ptds|_v\d+|_spt)+$")


def call_kind(name: str) -> CallKind:
    """Return what the call ``name`` means; unknown calls are OTHER."""
    match = _KINDS.fullmatch(_TAIL.sub("", name))
    return CallKind(int(str(match.lastgroup)[1:])) if match else CallKind.OTHER
