"""Work on the CPU that leaves no event: what a thread computed inside of an operator and outside of its kernels."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.parts import inside, operator_kernels
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.text import counted, printable_line, show_us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.trace import Trace

LEAST_US = 2000.0
"""Five times the longest that Python was seen to take between two events inside of an operator: 0.4 ms, where a
checkpoint keeps the generators' states (torch 2.13, transformers eager, traced, compiled, and in training)."""
_STEPS = 2
"""In so many steps, or in the only one: what pauses a step once, such as Python's collector, is no work of its own."""
# Ranges that hold Python of torch's or of the user's: hooks, guards, an optimizer's loop, whatever somebody marked.
_OF_PYTHON = re.compile(
    r"autograd::engine::evaluate_function: .*|Optimizer\..*|TorchDynamo .*|Pregraph bytecode|AOTDispatcher .*"
    r"|ProfilerStep#.*|.* \(dynamo_timed\)|torchprof::.*|PythonDispatchMode|PythonSubclass",
    re.DOTALL,
)
_NODE = re.compile(r"\w+Backward\d*|torch::autograd::CppNode<.*", re.DOTALL)
"""Autograd's functions: the user's may compute without any operator."""


def work_without_events(trace: Trace) -> str | None:
    """Return that operators worked without leaving events, and where; None if they did not, or if nobody can tell.

    What surely went into long gaps is the thread's CPU time less all other time of the step: while the thread waits, or
    the system runs something else, it becomes less, never more.
    """
    metadata = trace.metadata
    spent = None if metadata is None else metadata.step_cpu_times_us
    if spent is None or len(spent) != len(trace.steps) or trace.steps is not trace.profiler_steps or trace.compiling:
        return None
    enough = min(_STEPS, len(spent))
    if sum(us >= LEAST_US for us in spent) < enough:
        return None
    gaps: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for start, end, name in _gaps(trace):
        if end - start >= LEAST_US * 1000:
            gaps[trace.step_at(start)].append(((end - start) / 1000, name))
    found = []
    for place, (step, cpu_us) in enumerate(zip(trace.steps, spent, strict=True)):
        elsewhere_us = (step.end_ns - step.start_ns) / 1000 - sum(us for us, _ in gaps[place])
        if cpu_us - elsewhere_us >= LEAST_US:
            found.append((cpu_us - elsewhere_us, max(gaps[place])[1]))
    if len(found) < enough:
        return None
    most_us, name = max(found)
    return coded(
        f"{printable_line(name, 80)!r} computed for {show_us(most_us)} in a step without leaving events, in "
        f"{len(found)} of {counted(len(spent), 'step')}, so not all of its kernels are known: fused "
        "code of TorchScript, or an operator of Python, NumPy or C++ that calls torch's operators too",
        Code.UNSEEN_WORK,
    )


def _gaps(trace: Trace) -> Iterator[tuple[int, int, str]]:
    """Yield when nothing was recorded inside of an operator that only holds others, with its name."""
    work, ops, parent = trace.device_kind.operator_work, trace.ops, trace.nesting.parent
    if work is None:
        return
    kernels = set(operator_kernels(trace, work))
    known = kernels | inside(kernels, parent)
    named = {name: trace.names[name] for name in set(ops.name)}
    left_out = {name for name, text in named.items() if _OF_PYTHON.fullmatch(text)}
    nodes = {name for name, text in named.items() if _NODE.fullmatch(text)}
    of_steps = {step.tid for step in trace.steps}
    threads = {thread for thread, tid in enumerate(trace.threads) if tid in of_steps}
    until = {i: ops.start[i] for i, name in enumerate(ops.name) if name in nodes and ops.thread[i] in threads}
    for i in sorted(range(len(parent)), key=ops.start.__getitem__):
        if (holder := parent[i]) >= 0 and ops.thread[i] in threads:
            began = until.get(holder, ops.start[holder])
            if holder not in known and ops.name[holder] not in left_out:
                yield began, ops.start[i], named[ops.name[holder]]
            until[holder] = max(began, ops.end[i])
    for holder, end in until.items():
        if holder not in known and ops.name[holder] not in left_out:
            yield end, ops.end[holder], named[ops.name[holder]]
