"""Where the CPU waits for the GPU: calls that block, copies whose calls return when they are done, polling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.devices.kinds import WAITS, CallKind
from pytest_torchprof.trace.columns import MEMCPY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.trace import Trace


def blocking_calls(trace: Trace, calls: Iterable[int]) -> list[int]:
    """Return the calls that block, including frees of memory, but not the profiler's own flush."""
    names, blocking = trace.calls.name, trace.call_names(WAITS)
    return [i for i in calls if names[i] in blocking and i != trace.flush]


def outermost(trace: Trace, calls: Iterable[int]) -> list[int]:
    """Return the calls without those that were made within another of them: the CPU waits there once."""
    threads, starts, ends = trace.calls.thread, trace.calls.start, trace.calls.end
    kept: list[int] = []
    by_start = sorted(sorted(calls, key=ends.__getitem__, reverse=True), key=starts.__getitem__)
    for i in sorted(by_start, key=threads.__getitem__):
        if not kept or threads[i] != threads[kept[-1]] or ends[i] > ends[kept[-1]]:
            kept.append(i)
    return sorted(kept)


def longest_poll(trace: Trace, calls: Iterable[int]) -> int:
    """Return how often in a row the steps' own thread asked whether the GPU is done, and made no other call.

    What asks inside an operator is torch's allocator, which looks through what it may use again and waits for nothing.
    """
    names, queries = trace.calls.name, trace.call_names(frozenset({CallKind.QUERY}))
    if not queries:
        return 0
    own = {trace.threads.index(step.tid) for step in trace.steps if step.tid in trace.threads}
    made = sorted((i for i in calls if trace.calls.thread[i] in own), key=trace.calls.start.__getitem__)
    around = trace.nesting.around_each(trace.calls, [i for i in made if names[i] in queries])
    longest = now = 0
    for i in made:
        now = now + 1 if around.get(i, 0) < 0 else 0
        longest = max(longest, now)
    return longest


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
