"""A recording's operators in rows, as ``key_averages()`` has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis.call_times import times_by_key
from pytest_torchprof.analysis.parts import forward_operator
from pytest_torchprof.analysis.range_rows import TimedRow, members, took_ns
from pytest_torchprof.trace.columns import ABSENT, Calls, Ranges
from pytest_torchprof.trace.nesting import Nesting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.trace import Trace

_HOST = frozenset({0, 2, 5})
"""How c10 numbers the device types whose memory is the host's: CPU, MKLDNN, IDEEP."""
_UNSEEN = frozenset(
    {
        *("profiler::_record_function_enter", "profiler::_record_function_enter_new"),
        *("profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version"),
    }
)
"""Operators that the profiler leaves out of its tables."""


class OpRow(TimedRow, frozen=True, kw_only=True, eq=False):
    """All calls of one operator; the memory is None where allocations are not recorded."""

    shapes: tuple[Any, ...] | None = None
    """The operands' shapes of most of the calls."""
    self_cpu_memory_bytes: int | None = None
    cpu_memory_bytes: int | None = None
    self_gpu_memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    forward_op: str | None = None
    """Where most of the calls are of the backward pass: whose backward most of them are, as arrows tell."""


def by_op(trace: Trace, launching: Launching, chosen: Sequence[Part]) -> list[OpRow]:
    """Return the operators that started in the parts, the longest time on the GPU first, then on the CPU."""
    nesting, into, own_ns = _merged(trace)
    ops = trace.ops
    unseen = {name for name, text in enumerate(trace.names) if text in _UNSEEN}
    of_steps: list[list[int]] = [[] for _ in chosen]
    inputs: dict[int, Counter[int]] = defaultdict(Counter)
    forward: dict[int, Counter[int]] = defaultdict(Counter)
    own_cpu_ns: Counter[int] = Counter()
    for step, i in members(trace, ops, chosen):
        name = ops.name[i]
        if into[i] != i or name in unseen:
            continue
        of_steps[step].append(i)
        own_cpu_ns[name] += own_ns[i]
        inputs[name][ops.inputs[i]] += 1
        if (of := forward_operator(trace, i)) >= 0:
            forward[name][ops.name[of]] += 1
    calls = {i: ops.name[i] for of_step in of_steps for i in of_step}
    gpu_ns, own_gpu_ns = _gpu_time(trace, launching, chosen, into, calls)
    memory = _memory(trace, nesting, into, calls)
    cpu = times_by_key([[(calls[i], took_ns(trace, ops, i)) for i in of_step] for of_step in of_steps])
    gpu = times_by_key([[(calls[i], gpu_ns[i]) for i in of_step] for of_step in of_steps])
    rows = [
        OpRow(
            name=trace.names[name],
            cpu=times,
            gpu=gpu[name],
            self_cpu_us=own_cpu_ns[name] / 1000,
            self_gpu_us=own_gpu_ns[name] / 1000,
            shapes=launching.operands(inputs[name].most_common(1)[0][0])[1],
            forward_op=trace.names[forward[name].most_common(1)[0][0]]
            if 2 * forward[name].total() > times.count
            else None,
            **({} if memory is None else {column: memory[column][name] for column in _MEMORY}),
        )
        for name, times in cpu.items()
    ]
    return sorted(rows, key=attrgetter("sort_key"))


def _merged(trace: Trace) -> tuple[Nesting, list[int], list[int]]:
    """Return which operator, annotation or call is in which, what each is one call with, and its own time in ns.

    One call with itself, as a rule. Operators come first, so that their indices are those in the trace.
    """
    every = Ranges()
    for part in (trace.ops, trace.annotations, trace.calls):
        every.name.extend(part.name)
        every.start.extend(part.start)
        every.end.extend(part.end)
        every.thread.extend(part.thread)
    nesting = Nesting(every)
    parent = nesting.parent
    unseen = {name for name, text in enumerate(trace.names) if text in _UNSEEN}
    children = Counter(holder for i, holder in enumerate(parent) if every.name[i] not in unseen)
    into = list(range(len(every)))
    own = [took_ns(trace, every, i) for i in into]
    for i in sorted(into, key=lambda i: (every.start[i], -every.end[i], i)):
        holder = parent[i]
        if holder < 0 or every.name[i] in unseen:
            continue
        if every.name[i] == every.name[holder] and children[holder] == 1:
            into[i] = into[holder]
        else:
            own[into[holder]] -= took_ns(trace, every, i)
    return nesting, into, own


def _holders(nesting: Nesting, member: int, into: Sequence[int]) -> Iterator[int]:
    """Yield the member and then what is around it; what is one call only once."""
    last = ABSENT
    for index in nesting.chain(member):
        if into[index] != last:
            last = into[index]
            yield last


def _gpu_time(
    trace: Trace, launching: Launching, chosen: Sequence[Part], into: Sequence[int], calls: Mapping[int, int]
) -> tuple[Counter[int], Counter[int]]:
    """Return how long what each call launched took, in ns, and by name what no operator inside launched."""
    start, end, op_of = trace.gpu.start, trace.gpu.end, launching.op_of
    of_call: Counter[int] = Counter()
    own: Counter[int] = Counter()
    for part in chosen:
        for i in part.gpu_ops:
            took = end[i] - start[i]
            for depth, holder in enumerate(_holders(trace.nesting, op_of[i], into)):
                if holder in calls:
                    of_call[holder] += took
                    own[calls[holder]] += 0 if depth else took
    return of_call, own


_MEMORY = ("self_cpu_memory_bytes", "cpu_memory_bytes", "self_gpu_memory_bytes", "gpu_memory_bytes")


def _memory(
    trace: Trace, nesting: Nesting, into: Sequence[int], calls: Mapping[int, int]
) -> dict[str, Counter[int]] | None:
    """Return by column what each name allocated minus what it freed, None where allocations are not recorded."""
    made = trace.allocations
    if not len(made):
        return None
    by_column: dict[str, Counter[int]] = {column: Counter() for column in _MEMORY}
    moments = Calls(start=made.moment, end=made.moment, thread=made.thread)
    for i, innermost in nesting.around_each(moments, range(len(made))).items():
        side = "cpu" if made.device_type[i] in _HOST else "gpu"
        for depth, holder in enumerate(_holders(nesting, innermost, into)):
            if holder in calls:
                for column in (f"{side}_memory_bytes", f"self_{side}_memory_bytes")[: 1 if depth else 2]:
                    by_column[column][calls[holder]] += made.size[i]
    return by_column
