"""Where time and memory went by operator: the table of ``key_averages()``, made from the file.

An operator's total is its length, its own part what no operator, annotation or call of the runtime inside it took; one
that does nothing but call its like (``aten::to`` in ``aten::to``) is one call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.analysis.backward import forward_operator
from pytest_torchprof.trace.columns import ABSENT, Calls, Ranges
from pytest_torchprof.trace.nesting import Nesting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


class OpRow(Struct, kw_only=True, eq=False):
    """All calls of one operator. Times in microseconds, on the GPU those of what was launched inside."""

    name: str
    calls: int = 0
    self_cpu_us: float = 0.0
    cpu_us: float = 0.0
    self_gpu_us: float = 0.0
    gpu_us: float = 0.0
    shapes: tuple[Any, ...] | None = None
    """The operands' shapes of most of the calls."""
    self_cpu_memory_bytes: int | None = None
    """What was allocated minus what was freed; None where allocations are not recorded."""
    cpu_memory_bytes: int | None = None
    self_gpu_memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    forward_op: str | None = None
    """Where most of the calls are of the backward pass: whose backward most of them are, as arrows tell."""


def by_op(trace: Trace, launching: Launching, chosen: Sequence[Part]) -> list[OpRow]:
    """Return the operators that started in the parts, the longest time on the GPU first, then on the CPU."""
    nesting, into, own_ns = _merged(trace)
    ops, rows, of_op = trace.ops, dict[int, OpRow](), dict[int, OpRow]()
    inputs: dict[int, Counter[int]] = defaultdict(Counter)
    forward: dict[int, Counter[int]] = defaultdict(Counter)
    for i in members(trace, ops, chosen):
        name = ops.name[i]
        if trace.names[name] in _UNSEEN:
            continue
        row = of_op[i] = rows.get(name) or rows.setdefault(name, OpRow(name=trace.names[name]))
        if into[i] != i:
            continue
        row.calls += 1
        row.cpu_us += (ops.end[i] - ops.start[i]) / 1000
        row.self_cpu_us += own_ns[i] / 1000
        inputs[name][ops.inputs[i]] += 1
        if (of := forward_operator(trace, i)) >= 0:
            forward[name][ops.name[of]] += 1
    for name, row in rows.items():
        row.shapes = launching.operands(inputs[name].most_common(1)[0][0])[1] if inputs[name] else None
        if 2 * forward[name].total() > row.calls:
            row.forward_op = trace.names[forward[name].most_common(1)[0][0]]
    _add_gpu_time(trace, launching, chosen, into, of_op)
    _add_memory(trace, nesting, into, of_op)
    return sorted(rows.values(), key=lambda row: (-row.gpu_us, -row.cpu_us, row.name))


def members(trace: Trace, ranges: Ranges, chosen: Sequence[Part]) -> Iterator[int]:
    """Yield the ranges that started in the parts, a parent before what it holds."""
    order = sorted(range(len(ranges)), key=lambda i: (ranges.start[i], -ranges.end[i], i))
    if not trace.has_step_ranges:
        yield from order
        return
    wanted = {place for part in chosen for place in part.ranges}
    for i in order:
        step = trace.step_at(ranges.start[i])
        if step >= 0 and trace.steps[step] in wanted:
            yield i


def _merged(trace: Trace) -> tuple[Nesting, list[int], list[int]]:
    """Return which operator, annotation or call is in which, what each is one call with, and its own time in ns.

    One call with itself, as a rule. Operators come first, so that their places are those in the trace.
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
    own = [end - start for start, end in zip(every.start, every.end, strict=True)]
    for i in sorted(into, key=lambda i: (every.start[i], -every.end[i], i)):
        holder = parent[i]
        if holder < 0 or every.name[i] in unseen:
            continue
        if every.name[i] == every.name[holder] and children[holder] == 1:
            into[i] = into[holder]
        else:
            own[into[holder]] -= every.end[i] - every.start[i]
    return nesting, into, own


def _holders(nesting: Nesting, member: int, into: Sequence[int]) -> Iterator[int]:
    """Yield what is around the member, and it itself first; what is one call once."""
    last = ABSENT
    for one in nesting.chain(member):
        if into[one] != last:
            last = into[one]
            yield last


def _add_gpu_time(
    trace: Trace, launching: Launching, chosen: Sequence[Part], into: Sequence[int], of_op: dict[int, OpRow]
) -> None:
    start, end, op_of = trace.gpu.start, trace.gpu.end, launching.op_of
    for part in chosen:
        for i in part.gpu_ops:
            spent = (end[i] - start[i]) / 1000
            for depth, holder in enumerate(_holders(trace.nesting, op_of[i], into)):
                row = of_op.get(holder)
                if row is not None:
                    row.gpu_us += spent
                    row.self_gpu_us += 0 if depth else spent


def _add_memory(trace: Trace, nesting: Nesting, into: Sequence[int], of_op: dict[int, OpRow]) -> None:
    made = trace.allocations
    if not len(made):
        return
    for known in of_op.values():
        known.self_cpu_memory_bytes = known.cpu_memory_bytes = 0
        known.self_gpu_memory_bytes = known.gpu_memory_bytes = 0
    moments = Calls(start=made.moment, end=made.moment, thread=made.thread)
    for i, innermost in nesting.around_each(moments, range(len(made))).items():
        where = "cpu" if made.device_type[i] in _HOST else "gpu"
        for depth, holder in enumerate(_holders(nesting, innermost, into)):
            row = of_op.get(holder)
            if row is not None:
                for name in (f"{where}_memory_bytes", f"self_{where}_memory_bytes")[: 1 if depth else 2]:
                    setattr(row, name, getattr(row, name) + made.size[i])
