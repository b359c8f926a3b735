"""Where the time of a recording went: rows by kernel, family, operator, user range or module."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_torchprof.origins import MODULE
from pytest_torchprof.trace.columns import ABSENT, KERNEL, Ranges
from pytest_torchprof.trace.nesting import Nesting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.launching import Launching
    from pytest_torchprof.names import KernelName
    from pytest_torchprof.numbers.parts import Part
    from pytest_torchprof.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class KernelRow:
    """All kernels of one name; ``op`` is the operator that launched most of them."""

    name: str
    decoded: KernelName
    op: str | None
    op_chain: tuple[str, ...]
    count: int
    time_us: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FamilyRow:
    """All kernels of one family and library."""

    family: str
    library: str
    count: int
    time_us: float


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RangeRow:
    """All ranges of one name; times in microseconds, on the GPU those of what was launched inside."""

    name: str
    calls: int = 0
    self_cpu_us: float = 0.0
    cpu_us: float = 0.0
    self_gpu_us: float = 0.0
    gpu_us: float = 0.0
    kernels: int = 0
    shapes: Any = None
    inputs: Counter[int] = field(default_factory=Counter)


def by_kernel(trace: Trace, launching: Launching, chosen: Sequence[Part]) -> list[KernelRow]:
    """Return the kernels of the parts by name, the longest time first."""
    if trace.on_cpu:
        return _by_operator(launching, chosen)
    gpu, ops, op_of, kind = trace.gpu, trace.ops, launching.op_of, trace.gpu.kind
    kernels = [i for part in chosen for i in part.gpu_ops if kind[i] == KERNEL]
    # One variant is one name, launched by one operator with one set of operands.
    named, op_named, inputs = gpu.name, ops.name, ops.inputs
    variants = [
        (named[i], op_named[op_of[i]], inputs[op_of[i]]) if op_of[i] >= 0 else (named[i], ABSENT, ABSENT)
        for i in kernels
    ]
    example = dict(zip(reversed(variants), reversed(kernels), strict=True))
    spent: dict[int, int] = defaultdict(int)
    start, end = gpu.start, gpu.end
    for i in kernels:
        spent[named[i]] += end[i] - start[i]
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (name, operator, operands), count in Counter(variants).items():
        found[name].append((count, operator, example[name, operator, operands]))
    rows = [_kernel_row(trace, launching, name, several, spent[name]) for name, several in found.items()]
    return sorted(rows, key=lambda row: (-row.time_us, row.name))


def _kernel_row(
    trace: Trace, launching: Launching, name: int, several: Sequence[tuple[int, int, int]], spent_ns: int
) -> KernelRow:
    """Return the row of a name; ``several`` are its variants as (count, operator's name, one of the kernels)."""
    operators: Counter[int] = Counter()
    for count, operator, _ in several:
        operators[operator] += count
    most = max(operators, key=lambda operator: (operators[operator], operator))
    in_turn = sorted((variant for variant in several if variant[1] == most), key=lambda variant: -variant[0])
    op = launching.op_of[in_turn[0][2]]
    # Operands of size 1 say nothing about a layout: the next frequent ones may.
    told = [launching.decoded(kernel) for _, _, kernel in in_turn[:3]]
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


def by_op(trace: Trace, launching: Launching, chosen: Sequence[Part]) -> list[RangeRow]:
    """Return the operators that started in the parts, the longest time on the GPU first, then on the CPU."""
    rows = _by_range(trace, trace.ops, trace.nesting, chosen)
    for row in rows:
        if row.inputs:
            row.shapes = launching.operands(row.inputs.most_common(1)[0][0])[1]
    return rows


def by_annotation(trace: Trace, chosen: Sequence[Part]) -> list[RangeRow]:
    """Return the user annotations of the parts, likewise."""
    return _by_range(trace, trace.annotations, Nesting(trace.annotations), chosen)


def by_module(trace: Trace, chosen: Sequence[Part]) -> list[RangeRow]:
    """Return the modules that ran in the parts, likewise; recorded only with Python stacks."""
    modules = Ranges()
    names = {i for i, name in enumerate(trace.names) if name.startswith(MODULE)}
    for i, name in enumerate(trace.frames.name):
        if name in names:
            for column in ("name", "start", "end", "thread"):
                getattr(modules, column).append(getattr(trace.frames, column)[i])
    return _by_range(trace, modules, Nesting(modules), chosen)


def _by_range(trace: Trace, ranges: Ranges, nesting: Nesting, chosen: Sequence[Part]) -> list[RangeRow]:
    rows: dict[int, RangeRow] = {}
    within: dict[int, RangeRow] = {}
    for i in _members(trace, ranges, chosen):
        name = ranges.name[i]
        row = rows.get(name) or rows.setdefault(name, RangeRow(name=trace.names[name]))
        within[i] = row
        spent = (ranges.end[i] - ranges.start[i]) / 1000
        row.calls += 1
        row.cpu_us += spent
        row.self_cpu_us += spent
        parent = within.get(nesting.parent[i])
        if parent is not None:
            parent.self_cpu_us -= spent
        if ranges.inputs:
            row.inputs[ranges.inputs[i]] += 1
    _add_gpu_time(trace, nesting, chosen, within)
    return sorted(rows.values(), key=lambda row: (-row.gpu_us, -row.cpu_us, row.name))


def _members(trace: Trace, ranges: Ranges, chosen: Sequence[Part]) -> Iterator[int]:
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


def _add_gpu_time(trace: Trace, nesting: Nesting, chosen: Sequence[Part], within: dict[int, RangeRow]) -> None:
    gpu, calls, call_of = trace.gpu, trace.calls, trace.links.call_of
    for part in chosen:
        for i in part.gpu_ops:
            call = call_of[i]
            if call < 0:
                continue
            spent = (gpu.end[i] - gpu.start[i]) / 1000
            holders = nesting.chain(nesting.around(calls.thread[call], calls.start[call], calls.end[call]))
            seen: set[int] = set()
            for depth, holder in enumerate(holders):
                row = within.get(holder)
                if row is None:
                    continue
                if depth == 0:
                    row.self_gpu_us += spent
                # A name inside itself (aten::linear in aten::linear) has the time once.
                if id(row) not in seen:
                    seen.add(id(row))
                    row.gpu_us += spent
                    row.kernels += gpu.kind[i] == KERNEL
