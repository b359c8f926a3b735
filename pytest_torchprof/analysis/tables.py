"""A recording in rows: by kernel, family, operator, annotation and module."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.parts import forward_operator, waiting_threads
from pytest_torchprof.analysis.source_lines import MODULE
from pytest_torchprof.trace.columns import ABSENT, KERNEL, Calls, Ranges
from pytest_torchprof.trace.links import Nesting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.trace import Trace

_STEP, EACH_STEP = "ProfilerStep#", "ProfilerStep*"
"""The steps' own annotations are one row, called as in the profiler's table."""

WAYS: Final = ("kernel", "family", "op", "range", "module")
"""What a table may have rows of."""


class KernelRow(Struct, frozen=True, kw_only=True, eq=False):
    """All kernels of one name; ``op`` is the operator that launched most of them."""

    name: str
    decoded: KernelName
    op: str | None
    op_chain: tuple[str, ...]
    count: int
    time_us: float
    forward_op: str | None = None
    """Where most of them are of the backward pass: whose backward most of those are, as arrows tell."""


class FamilyRow(Struct, frozen=True, kw_only=True, eq=False):
    """All kernels of one family and library."""

    family: str
    library: str
    count: int
    time_us: float


class TimedRow(Struct, kw_only=True, eq=False):
    """All calls of one name; times in microseconds, on the GPU those of what was launched inside.

    What is its own is not in a range of the same kind inside it.
    """

    name: str
    calls: int = 0
    self_cpu_us: float = 0.0
    cpu_us: float = 0.0
    self_gpu_us: float = 0.0
    gpu_us: float = 0.0

    @property
    def sort_key(self) -> tuple[float, float, str]:
        """Where it stands among others: the longest time on the GPU first, then on the CPU."""
        return -self.gpu_us, -self.cpu_us, self.name


class RangeRow(TimedRow, kw_only=True, eq=False):
    """All ranges of one name."""

    kernels: int = 0


def rows_by(
    way: str, trace: Trace, launching: Launching, chosen: Sequence[Part], kernels: Sequence[KernelRow] | None = None
) -> Sequence[Any]:
    """Return the rows of one of the `WAYS`; ``kernels`` are those by kernel, where they are known already."""
    if way == "op":
        return by_op(trace, launching, chosen)
    if way == "range":
        return by_annotation(trace, chosen)
    if way == "module":
        return by_module(trace, chosen)
    kernels = by_kernel(trace, launching, chosen) if kernels is None else kernels
    return kernels if way == "kernel" else by_family(kernels)


def by_kernel(trace: Trace, launching: Launching, chosen: Sequence[Part]) -> list[KernelRow]:
    """Return the kernels of the parts by name, the longest time first."""
    if not trace.device_kind.has_launches:
        return _by_operator(launching, chosen)
    gpu, ops, op_of, kind = trace.gpu, trace.ops, launching.op_of, trace.gpu.kind
    kernels = [i for part in chosen for i in part.gpu_ops if kind[i] == KERNEL]
    # One variant is one name, launched by one operator with one set of operands.
    named, start, end, op_named, inputs = gpu.name, gpu.start, gpu.end, ops.name, ops.inputs
    variants = [
        (named[i], op_named[op_of[i]], inputs[op_of[i]]) if op_of[i] >= 0 else (named[i], ABSENT, ABSENT)
        for i in kernels
    ]
    example = dict(zip(reversed(variants), reversed(kernels), strict=True))
    spent: dict[int, int] = defaultdict(int)
    for i in kernels:
        spent[named[i]] += end[i] - start[i]
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (name, operator, operands), count in Counter(variants).items():
        found[name].append((count, operator, example[name, operator, operands]))
    rows = [_kernel_row(trace, launching, name, several, spent[name]) for name, several in found.items()]
    if trace.forward_of:
        forward = _forward(launching, kernels, named)
        rows = [replace(row, forward_op=forward[name]) for row, name in zip(rows, found, strict=True)]
    return sorted(rows, key=lambda row: (-row.time_us, row.name))


def _forward(launching: Launching, kernels: Iterable[int], named: Sequence[int]) -> dict[int, str | None]:
    """Return for each name whose backward most of its kernels are, None where most are of no backward."""
    found: dict[int, Counter[str | None]] = defaultdict(Counter)
    for i in kernels:
        found[named[i]][launching.forward_op(launching.op_of[i])] += 1
    return {
        name: max((one for one in count if one), key=lambda one: (count[one], one))
        if 2 * count[None] < count.total()
        else None
        for name, count in found.items()
    }


def _kernel_row(
    trace: Trace, launching: Launching, name: int, several: Sequence[tuple[int, int, int]], spent_ns: int
) -> KernelRow:
    """Return the row of a name; ``several`` are its variants as (count, operator's name, one of the kernels)."""
    operators: Counter[int] = Counter()
    for count, operator, _ in several:
        operators[operator] += count
    # Of equals their names decide, and not the order of the file.
    most = max(operators, key=lambda operator: (operators[operator], trace.names[operator] if operator >= 0 else ""))
    of_most = [(-count, launching.chain(launching.op_of[i]), i) for count, operator, i in several if operator == most]
    in_turn = [kernel for _, _, kernel in sorted(of_most)]
    op = launching.op_of[in_turn[0]]
    # Operands of size 1 say nothing about a layout: the next frequent ones may.
    told = [launching.decoded(kernel) for kernel in in_turn[:3]]
    return KernelRow(
        name=trace.names[name],
        decoded=max(told, key=lambda decoded: (decoded.layout is not None, decoded.dtype is not None)),
        op=launching.op_name(op),
        op_chain=launching.chain(op),
        count=operators.total(),
        time_us=spent_ns / 1000,
    )


def _by_operator(launching: Launching, chosen: Sequence[Part]) -> list[KernelRow]:
    """Return the operators that are kernels on the CPU, by name."""
    kernels = defaultdict(list)
    for part in chosen:
        for kernel in launching.kernels(part):
            kernels[kernel.name].append(kernel)
    rows = [
        KernelRow(
            name=name,
            decoded=members[0].decoded,
            op=members[0].op,
            op_chain=members[0].op_chain,
            forward_op=members[0].forward_op,
            count=len(members),
            time_us=sum(kernel.dur_ns for kernel in members) / 1000,
        )
        for name, members in kernels.items()
    ]
    return sorted(rows, key=lambda row: (-row.time_us, row.name))


def by_family(rows: Iterable[KernelRow]) -> list[FamilyRow]:
    """Return kernel rows summed by family and library, the longest time first."""
    found: dict[tuple[str, str], list[KernelRow]] = defaultdict(list)
    for row in rows:
        found[row.decoded.family, row.decoded.library].append(row)
    summed = [
        FamilyRow(
            family=family,
            library=library,
            count=sum(row.count for row in members),
            time_us=sum(row.time_us for row in members),
        )
        for (family, library), members in found.items()
    ]
    return sorted(summed, key=lambda row: (-row.time_us, row.family, row.library))


def by_annotation(trace: Trace, chosen: Sequence[Part]) -> list[RangeRow]:
    """Return the user annotations of the parts, the longest time on the GPU first, then on the CPU.

    What autograd's threads launched counts where their work was waited for.
    """
    calls = {trace.links.call_of[i] for part in chosen for i in part.gpu_ops} - {ABSENT}
    return _by_range(trace, trace.annotations, chosen, waiting_threads(trace, calls))


def by_module(trace: Trace, chosen: Sequence[Part]) -> list[RangeRow]:
    """Return the modules that ran in the parts, likewise; recorded only with Python stacks."""
    modules = Ranges()
    names = {i for i, name in enumerate(trace.names) if name.startswith(MODULE)}
    for i, name in enumerate(trace.frames.name):
        if name in names:
            for column in ("name", "start", "end", "thread"):
                getattr(modules, column).append(getattr(trace.frames, column)[i])
    return _by_range(trace, modules, chosen, {})


def _by_range(
    trace: Trace, ranges: Ranges, chosen: Sequence[Part], for_others: Mapping[int, frozenset[int]]
) -> list[RangeRow]:
    rows: dict[str, RangeRow] = {}
    within: dict[int, RangeRow] = {}
    nesting = Nesting(ranges)
    for i in members(trace, ranges, chosen):
        name = trace.names[ranges.name[i]]
        name = EACH_STEP if name.startswith(_STEP) else name
        row = within[i] = rows.get(name) or rows.setdefault(name, RangeRow(name=name))
        spent = (ranges.end[i] - ranges.start[i]) / 1000
        row.calls += 1
        row.cpu_us += spent
        row.self_cpu_us += spent
        parent = within.get(nesting.parent[i])
        if parent is not None:
            parent.self_cpu_us -= spent
    _add_gpu_time_of_ranges(trace, nesting, chosen, within, for_others)
    return sorted(rows.values(), key=attrgetter("sort_key"))


def _add_gpu_time_of_ranges(
    trace: Trace,
    nesting: Nesting,
    chosen: Sequence[Part],
    within: Mapping[int, RangeRow],
    for_others: Mapping[int, frozenset[int]],
) -> None:
    gpu, calls, ops, call_of = trace.gpu, trace.calls, trace.ops, trace.links.call_of

    def count(innermost: Iterable[int], spent: float, *, kernel: bool) -> None:
        seen: set[int] = set()
        for first in innermost:
            for holder in nesting.chain(first):
                row = within.get(holder)
                # A name inside itself has the time once.
                if row is not None and id(row) not in seen:
                    seen.add(id(row))
                    row.self_gpu_us += spent if holder == first else 0
                    row.gpu_us += spent
                    row.kernels += kernel

    for part in chosen:
        for i in part.operators:
            inside = nesting.around(ops.thread[i], ops.start[i], ops.end[i])
            count([inside], (ops.end[i] - ops.start[i]) / 1000, kernel=True)
        for i in part.gpu_ops:
            call = call_of[i]
            if call < 0:
                continue
            innermost = [nesting.around(calls.thread[call], calls.start[call], calls.end[call])]
            innermost += [nesting.around(one, calls.start[call], calls.start[call]) for one in for_others.get(call, ())]
            count(innermost, (gpu.end[i] - gpu.start[i]) / 1000, kernel=gpu.kind[i] == KERNEL)


_HOST = frozenset({0, 2, 5})
"""How c10 numbers the device types whose memory is the host's: CPU, MKLDNN, IDEEP."""
_UNSEEN = frozenset(
    {
        *("profiler::_record_function_enter", "profiler::_record_function_enter_new"),
        *("profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version"),
    }
)
"""Operators that the profiler leaves out of its tables."""


class OpRow(TimedRow, kw_only=True, eq=False):
    """All calls of one operator."""

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
    _add_gpu_time_of_operators(trace, launching, chosen, into, of_op)
    _add_memory(trace, nesting, into, of_op)
    return sorted(rows.values(), key=attrgetter("sort_key"))


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


def _add_gpu_time_of_operators(
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
        side = "cpu" if made.device_type[i] in _HOST else "gpu"
        for depth, holder in enumerate(_holders(nesting, innermost, into)):
            row = of_op.get(holder)
            if row is not None:
                for name in (f"{side}_memory_bytes", f"self_{side}_memory_bytes")[: 1 if depth else 2]:
                    setattr(row, name, getattr(row, name) + made.size[i])
