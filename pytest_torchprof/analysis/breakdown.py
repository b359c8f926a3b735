"""Where the time of a recording went: rows by kernel, family, user range or module."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.backward import waiting
from pytest_torchprof.analysis.operator_table import members
from pytest_torchprof.analysis.source_lines import MODULE
from pytest_torchprof.trace.columns import ABSENT, KERNEL, Ranges
from pytest_torchprof.trace.nesting import Nesting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.trace import Trace


_STEP, EACH_STEP = "ProfilerStep#", "ProfilerStep*"
"""The steps' own annotations are one row, called as in the profiler's table."""


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


class RangeRow(Struct, kw_only=True, eq=False):
    """All ranges of one name; times in microseconds, on the GPU those of what was launched inside.

    What is its own is not in a range of the same kind inside it.
    """

    name: str
    calls: int = 0
    self_cpu_us: float = 0.0
    cpu_us: float = 0.0
    self_gpu_us: float = 0.0
    gpu_us: float = 0.0
    kernels: int = 0


def by_kernel(trace: Trace, launching: Launching, chosen: Sequence[Part]) -> list[KernelRow]:
    """Return the kernels of the parts by name, the longest time first."""
    if not trace.device_kind.has_launches:
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
        name: max((one for one in count if one), key=lambda one: count[one])
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
    return _by_range(trace, trace.annotations, chosen, waiting(trace, calls))


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
    _add_gpu_time(trace, nesting, chosen, within, for_others)
    return sorted(rows.values(), key=lambda row: (-row.gpu_us, -row.cpu_us, row.name))


def _add_gpu_time(
    trace: Trace,
    nesting: Nesting,
    chosen: Sequence[Part],
    within: Mapping[int, RangeRow],
    for_others: Mapping[int, frozenset[int]],
) -> None:
    gpu, calls, call_of = trace.gpu, trace.calls, trace.links.call_of
    for part in chosen:
        for i in part.gpu_ops:
            call = call_of[i]
            if call < 0:
                continue
            spent = (gpu.end[i] - gpu.start[i]) / 1000
            innermost = [nesting.around(calls.thread[call], calls.start[call], calls.end[call])]
            innermost += [nesting.around(one, calls.start[call], calls.start[call]) for one in for_others.get(call, ())]
            seen: set[int] = set()
            for first in innermost:
                for holder in nesting.chain(first):
                    row = within.get(holder)
                    # A name inside itself has the time once.
                    if row is not None and id(row) not in seen:
                        seen.add(id(row))
                        row.self_gpu_us += spent if holder == first else 0
                        row.gpu_us += spent
                        row.kernels += gpu.kind[i] == KERNEL
