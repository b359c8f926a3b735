"""Where the CPU waits for the GPU: calls that block it, and copies whose calls come back when the copy is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.devices.kinds import BLOCKING
from pytest_torchprof.trace.columns import MEMCPY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.trace import Trace


def blocking_calls(trace: Trace, calls: Iterable[int]) -> list[int]:
    """Return those of the calls that block, the profiler's own flush aside."""
    names, blocking = trace.calls.name, trace.call_names(BLOCKING)
    return [i for i in calls if names[i] in blocking and i != trace.flush]


def waiting_copies(trace: Trace, gpu_ops: Iterable[int], *, memories: Sequence[str] = ("Pageable",)) -> list[int]:
    """Return the copies from or to these memories whose calls came back only when the copy was done."""
    gpu, called, call_of = trace.gpu, trace.calls.end, trace.links.call_of
    theirs = {
        name
        for name, text in enumerate(trace.names)
        if text.startswith("Memcpy") and any(memory in text for memory in memories)
    }
    return [
        i
        for i in gpu_ops
        if gpu.name[i] in theirs and gpu.kind[i] == MEMCPY and call_of[i] >= 0 and called[call_of[i]] >= gpu.end[i]
    ]
