"""Work on the CPU that leaves no event: computing of a thread inside an operator and outside of its kernels."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.analysis.parts import operator_kernels
from pytest_torchprof.devices.range_names import PLUGIN, STEP
from pytest_torchprof.reasons.lost_work import UnseenWork
from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace

LEAST_US = 2000.0
"""Five times the longest that Python was seen to take between two events inside of an operator: 0.4 ms, where a
checkpoint keeps the generators' states (torch 2.13, transformers eager, traced, compiled, and in training)."""
_STEPS = 2
"""In so many steps, or in the only one: what pauses a step once, such as Python's collector, is no work of its own."""
# Ranges that hold Python of torch's or of the user's: hooks, guards, an optimizer's loop, whatever somebody marked.
_OF_PYTHON = re.compile(
    r"autograd::engine::evaluate_function: .*|Optimizer\..*|TorchDynamo .*|Pregraph bytecode|AOTDispatcher .*"
    r"|FSDP::.*|RegisterPostBackwardFunctionBackward|.* \(dynamo_timed\)"
    rf"|PythonDispatchMode|PythonSubclass|{STEP}.*|{PLUGIN}.*",
    re.DOTALL,
)
_NODE = re.compile(r"\w+Backward\d*|torch::autograd::CppNode<.*", re.DOTALL)
"""Autograd's functions: the user's may compute without any operator."""
_OF_TORCH = re.compile(
    r"(aten|prim|c10d|autograd)::.*|\w+Backward\d+|torch::autograd::AccumulateGrad|CompiledFunction(Backward)?"
    r"|Torch-Compiled Region.*|## Call CompiledFxGraph .*",
    re.DOTALL,
)
"""Names of torch's own operators and of compiled code, which compute inside operators that are known as kernels."""


def work_without_events(trace: Trace) -> Reason | None:
    """Return the reason if operators worked, or may have worked, without leaving events; None if they did not.

    What surely went into long gaps is the thread's CPU time less all other time of the step: while the thread waits, or
    the system runs something else, it becomes less, never more. What may have gone into a gap of the user's operators
    is the CPU time less what torch's short operators took: a pause of the thread can hide nothing there. It counts
    where the gap is there in each of several steps, since the system that runs something else does not do that at one
    place; a collective does, so between several ranks only what surely computed counts.
    """
    metadata = trace.metadata
    if metadata is None:
        return None
    spent = metadata.step_cpu_times_us
    if spent is None or len(spent) != len(trace.steps) or trace.steps is not trace.profiler_steps or trace.compiling:
        return None
    enough = min(_STEPS, len(spent))
    if sum(us >= LEAST_US for us in spent) < enough or not (lasting := _long_operators(trace)):
        return None
    long = _long_gaps(trace, lasting)
    if not any(long[place] for place in range(len(spent))):
        return None
    unseen, surely = _surely_unseen(trace, spent, long), True
    alone = not trace.parameters and (metadata.world_size or 1) == 1
    if len(unseen) < enough and len(spent) >= _STEPS and alone:
        unseen, surely = _possibly_unseen(trace, spent, long), False
    if len(unseen) < enough:
        return None
    most_us, name = max(unseen)
    return UnseenWork(operator=name, most_us=most_us, surely=surely, seen=len(unseen), steps=len(spent))


def _long_operators(trace: Trace) -> set[int]:
    """Return the operators that are as long as the gaps inside of operators that are looked for."""
    return {i for i, ns in enumerate(map(sub, trace.ops.end, trace.ops.start)) if ns / 1000 >= LEAST_US}


def _surely_unseen(trace: Trace, spent: Sequence[float], long: Mapping[int, list[_Gap]]) -> list[tuple[float, str]]:
    unseen = []
    for index, (step, cpu_us) in enumerate(zip(trace.steps, spent, strict=True)):
        elsewhere_us = (step.end_ns - step.start_ns) / 1000 - sum(gap.us for gap in long[index])
        if (us := cpu_us - elsewhere_us) >= LEAST_US:
            unseen.append((us, max((gap.us, gap.name) for gap in long[index])[1]))
    return unseen


def _possibly_unseen(trace: Trace, spent: Sequence[float], long: Mapping[int, list[_Gap]]) -> list[tuple[float, str]]:
    places = [{(gap.name, gap.number) for gap in long[step] if gap.is_users} for step in range(len(spent))]
    if not (always := places[0].intersection(*places)):
        return []
    computed_us, unseen = _short_operators_us(trace), []
    for step, cpu_us in enumerate(spent):
        gap_us, name = max((gap.us, gap.name) for gap in long[step] if (gap.name, gap.number) in always)
        if (us := min(gap_us, cpu_us - computed_us[step])) >= LEAST_US:
            unseen.append((us, name))
    return unseen


def _short_operators_us(trace: Trace) -> dict[int, float]:
    """Return by step how long its thread was in operators that hold no others, and are too short to have waited."""
    ops, spent = trace.ops, defaultdict[int, float](float)
    holders, threads = set(trace.nesting.parent), _threads_of_steps(trace)
    for i, (start, end) in enumerate(zip(ops.start, ops.end, strict=True)):
        if (us := (end - start) / 1000) < LEAST_US and i not in holders and ops.thread[i] in threads:
            spent[trace.step_at(start)] += us
    return spent


def _threads_of_steps(trace: Trace) -> set[int]:
    of_steps = {step.tid for step in trace.steps}
    return {thread for thread, tid in enumerate(trace.threads) if tid in of_steps}


class _Gap(NamedTuple):
    """When nothing was recorded inside of an operator; the number tells it from others of its name in the step."""

    step: int
    name: str
    number: int
    us: float
    is_users: bool


def _long_gaps(trace: Trace, lasting: set[int]) -> dict[int, list[_Gap]]:
    """Return the long gaps inside of operators that only hold others, by step; ``lasting`` are the long operators."""
    work, ops, gaps = trace.device_kind.operator_work, trace.ops, defaultdict[int, list[_Gap]](list)
    if work is None:
        return gaps
    kernels = set(operator_kernels(trace, work))
    long = {name for start, end, name in _unrecorded(trace, kernels, lasting) if (end - start) / 1000 >= LEAST_US}
    seen: Counter[tuple[int, str]] = Counter()
    # The number of a gap counts those of short operators too.
    alike = where(ops.name, {name for name in set(ops.name) if trace.names[name] in long}) if long else ()
    for start, end, name in _unrecorded(trace, kernels, dict.fromkeys(alike)):
        step, us = trace.step_at(start), (end - start) / 1000
        seen[step, name] += 1
        if us >= LEAST_US:
            gaps[step].append(_Gap(step, name, seen[step, name], us, _OF_TORCH.fullmatch(name) is None))
    return gaps


def _unrecorded(trace: Trace, kernels: AbstractSet[int], holders: Collection[int]) -> Iterator[tuple[int, int, str]]:
    """Yield when nothing was recorded inside of one of these operators if it only holds others, with its name."""
    ops, parent = trace.ops, trace.nesting.parent
    named = {name: trace.names[name] for name in {ops.name[i] for i in holders}}
    left_out = {name for name, text in named.items() if _OF_PYTHON.fullmatch(text)}
    nodes = {name for name, text in named.items() if _NODE.fullmatch(text)}
    # A kernel, and what is inside of one, is measured.
    known = {i for i in holders if ops.name[i] in left_out or not kernels.isdisjoint(trace.nesting.chain(i))}
    threads = _threads_of_steps(trace)
    until = {i: ops.start[i] for i in holders if ops.name[i] in nodes and ops.thread[i] in threads}
    inner = [i for i, holder in enumerate(parent) if holder in holders]
    for i in sorted(inner, key=ops.start.__getitem__):
        holder = parent[i]
        if ops.thread[i] in threads:
            began = until.get(holder, ops.start[holder])
            if holder not in known:
                yield began, ops.start[i], named[ops.name[holder]]
            until[holder] = max(began, ops.end[i])
    for holder, end in until.items():
        if holder not in known:
            yield end, ops.end[holder], named[ops.name[holder]]
