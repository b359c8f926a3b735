"""A recording's kernels in rows: by name, and by family and library."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.call_times import CallTimes, times_by_key, times_together
from pytest_torchprof.kernels.kernel import launcher_text
from pytest_torchprof.kernels.operand_work import OperandWork, work_of, work_together
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.analysis.kernel_work import KernelVariants
    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.trace import Trace


class _Kernels(Struct, frozen=True, kw_only=True, eq=False):
    """The base of rows of kernels."""

    times: CallTimes

    @property
    def count(self) -> int:
        """How many kernels they are."""
        return self.times.count

    @property
    def time_us(self) -> float:
        """How long they took together."""
        return self.times.time_us


class KernelRow(_Kernels, frozen=True, kw_only=True, eq=False):
    """All kernels of one name; ``op`` is the operator that launched most of them."""

    name: str
    decoded: KernelName
    op: str | None
    op_chain: tuple[str, ...]
    forward_op: str | None = None
    """Where most of them are of the backward pass: whose backward most of those are, as arrows tell."""
    in_graph: bool = False
    """Whether the launch of a graph launched most of those that no operator did."""
    work: OperandWork = OperandWork()
    """The FLOPs and bytes of all these kernels; a figure is None unless it is known of each kernel."""

    @property
    def launcher(self) -> str | None:
        """Who launched most of them: the operator, or the replay of their graph; None where neither is known."""
        return launcher_text(self.op, in_graph=self.in_graph)

    @property
    def tflops(self) -> float | None:
        """FLOPs over the time they took, in 1e12 per second."""
        return None if self.work.flops is None or not self.time_us else self.work.flops / self.time_us / 1e6

    @property
    def gb_per_s(self) -> float | None:
        """Bytes that had to be moved over the time they took, in 1e9 per second."""
        return None if self.work.bytes is None or not self.time_us else self.work.bytes / self.time_us / 1e3


class FamilyRow(_Kernels, frozen=True, kw_only=True, eq=False):
    """All kernels of one family and library."""

    family: str | None
    """None: the kernels whose family is not known."""
    library: str


def by_kernel(gpu_work: GpuWork, chosen: Sequence[Part]) -> list[KernelRow]:
    """Return the kernels of the parts by name, the longest time first."""
    trace, launching = gpu_work.trace, gpu_work.launching
    if not trace.device_kind.has_launches:
        rows = _with_operators_work(trace, launching, chosen)
    else:
        variants = gpu_work.variants_in(chosen)
        works: dict[int, list[tuple[int, OperandWork]]] = defaultdict(list)
        for variant, kernels in variants.kernels.items():
            works[variant[0]].append((len(kernels), variants.work_of(variant) or OperandWork()))
        forward = _forward_operators(launching, variants) if trace.forward_of else {}
        rows = [
            replace(row, work=work_together(works[name]), forward_op=forward.get(name))
            for name, row in _rows_of_kernels(gpu_work, chosen).items()
        ]
    return sorted(rows, key=lambda row: (-row.time_us, row.name))


def families(gpu_work: GpuWork, chosen: Sequence[Part]) -> list[FamilyRow]:
    """Return the kernels of the parts by family and library, as ``by_family`` does from their rows."""
    trace = gpu_work.trace
    if trace.device_kind.has_launches:
        return by_family(_rows_of_kernels(gpu_work, chosen).values())
    return by_family(_rows_of_operators(trace, gpu_work.launching, chosen).values())


def _rows_of_kernels(gpu_work: GpuWork, chosen: Sequence[Part]) -> dict[int, KernelRow]:
    """Return the rows of kernels by their names, without their work and the operators of the forward pass."""
    trace, launching = gpu_work.trace, gpu_work.launching
    named, start, end, kind = trace.gpu.name, trace.gpu.start, trace.gpu.end, trace.gpu.kind
    times = times_by_key(
        [[(named[i], end[i] - start[i]) for i in part.gpu_ops if kind[i] == KERNEL] for part in chosen]
    )
    variants_of: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (name, operator, _), kernels in gpu_work.variants_in(chosen).kernels.items():
        variants_of[name].append((len(kernels), operator, kernels[0]))
    return {name: _kernel_row(trace, launching, name, several, times[name]) for name, several in variants_of.items()}


def _forward_operators(launching: Launching, variants: KernelVariants) -> dict[int, str | None]:
    """Return for each name whose backward most of its kernels are, None where most are of no backward."""
    counts: dict[int, Counter[str | None]] = defaultdict(Counter)
    for (name, _, _), kernels in variants.kernels.items():
        counts[name].update(map(launching.forward_op, map(launching.op_of.__getitem__, kernels)))
    return {
        name: max((operator for operator in count if operator), key=lambda operator: (count[operator], operator))
        if 2 * count[None] < count.total()
        else None
        for name, count in counts.items()
    }


def _kernel_row(
    trace: Trace, launching: Launching, name: int, several: Sequence[tuple[int, int, int]], times: CallTimes
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
    decodings = [launching.decoded(kernel) for kernel in in_turn[:3]]
    return KernelRow(
        name=trace.names[name],
        decoded=max(decodings, key=lambda decoded: (decoded.layout is not None, decoded.dtype is not None)),
        op=launching.op_name(op),
        op_chain=launching.chain(op),
        in_graph=launching.is_in_graph(in_turn[0]),
        times=times,
    )


def _rows_of_operators(trace: Trace, launching: Launching, chosen: Sequence[Part]) -> dict[int, KernelRow]:
    """Return the rows of operators that are kernels on the CPU by their names, without their work."""
    ops, named = trace.ops, trace.names
    of_steps = [part.operators for part in chosen]
    times = times_by_key([[(ops.name[op], ops.end[op] - ops.start[op]) for op in of_step] for of_step in of_steps])
    first = {ops.name[op]: op for of_step in reversed(of_steps) for op in reversed(of_step)}
    return {
        name: KernelRow(
            name=named[name],
            decoded=launching.decoded_operator(op),
            op=named[name],
            op_chain=launching.chain(op),
            forward_op=launching.forward_op(op),
            times=times[name],
        )
        for name, op in first.items()
    }


def _with_operators_work(trace: Trace, launching: Launching, chosen: Sequence[Part]) -> list[KernelRow]:
    ops, named = trace.ops, trace.names
    works: dict[int, list[tuple[int, OperandWork]]] = defaultdict(list)
    variants = Counter((ops.name[op], ops.inputs[op]) for part in chosen for op in part.operators)
    for (name, inputs), count in variants.items():
        # What the kernel was given is what the operator was, which it is; of settings only GPUs' operators need any.
        works[name].append((count, work_of(named[name], *launching.operands(inputs), None)))
    rows = _rows_of_operators(trace, launching, chosen)
    return [replace(row, work=work_together(works[name])) for name, row in rows.items()]


def by_family(rows: Iterable[KernelRow]) -> list[FamilyRow]:
    """Return kernel rows summed by family and library, the longest time first."""
    grouped: dict[tuple[str | None, str], list[KernelRow]] = defaultdict(list)
    for row in rows:
        grouped[row.decoded.family, row.decoded.library].append(row)
    summed = [
        FamilyRow(family=family, library=library, times=times_together([row.times for row in members]))
        for (family, library), members in grouped.items()
    ]
    return sorted(summed, key=lambda row: (-row.time_us, row.family or "", row.library))
