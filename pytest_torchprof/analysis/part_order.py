"""In which order a part's work was launched: its kernels, and what each thread did."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.waits import blocking_calls
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.trace import Trace


def kernels_in_order(trace: Trace, part: Part) -> list[int]:
    """Return the part's kernels in the order in which they were launched."""
    kind, start, call_of, launched = trace.gpu.kind, trace.gpu.start, trace.links.call_of, trace.calls.start
    kernels = [i for i in part.gpu_ops if kind[i] == KERNEL]
    moments = [(launched[call] if (call := call_of[i]) >= 0 else start[i], start[i], i) for i in kernels]
    return [i for _, _, i in sorted(moments)]


def order_of(trace: Trace, part: Part) -> Counter[tuple[tuple[str, ...], ...]]:
    """Return the launches and waits of each thread, in order, with the operators around each, and its ranges."""
    names, calls, annotations = trace.names, trace.calls, trace.annotations
    named, chain = trace.ops.name, trace.nesting.chain
    done = [(call, names[trace.gpu.name[i]]) for i in part.gpu_ops if (call := trace.links.call_of[i]) >= 0]
    done += [(call, names[calls.name[call]]) for call in blocking_calls(trace, part.calls)]
    around = trace.nesting.around_each(trace.calls, {call for call, _ in done})
    actions = [
        (calls.thread[call], calls.start[call], (name, *(names[named[op]] for op in chain(around[call]))))
        for call, name in done
    ]
    for i, start in enumerate(annotations.start):
        name = names[annotations.name[i]]
        if any(step.start_ns <= start < step.end_ns and name != step.name for step in part.ranges):
            actions.append((annotations.thread[i], start, (name,)))
    threads: dict[int, list[tuple[str, ...]]] = defaultdict(list)
    for thread, _, action in sorted(actions):
        threads[thread].append(action)
    return Counter(map(tuple, threads.values()))
