"""How well the GPU was used: where the steps' time went, tensor cores, FLOP/s against the peak, copies.

Where the time went is told by the priority of kineto's TensorBoard plugin: kernels, copies, fills, communication, calls
of the runtime, loading of data, operators; each takes only what those before it left, and the rest is "other". A step
ends with the last GPU operation that it launched, and begins where the one before ended. Unlike the plugin, no step at
the end is left out.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import fields

from pytest_torchprof.analysis import peaks
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.trace import Trace

_LOADING = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
_COMMUNICATING = ("nccl:", "gloo:")
_STEP = "ProfilerStep#"

_Ranges = tuple[list[int], list[int]]
"""Starts and ends in ns, in any order."""


class StepTime(Struct, frozen=True, kw_only=True):
    """The mean over the steps, in microseconds."""

    kernel: float
    memcpy: float
    memset: float
    communication: float
    runtime: float
    data_loader: float
    cpu: float
    other: float

    @property
    def total(self) -> float:
        """The mean length of a step."""
        return float(sum(getattr(self, field.name) for field in fields(self)))


def step_time(work: GpuWork) -> StepTime:
    """Return the breakdown of the recording's steps."""
    ranges = [*_roles(work)]
    starts, ends = _outside(work, ranges)
    reached, spent = intervals.covered_length(starts, ends), []
    for role_starts, role_ends in ranges:
        before = reached
        if role_starts:
            # What a role takes is what it adds to those before it.
            starts, ends = sorted(starts + role_starts), sorted(ends + role_ends)
            reached = intervals.covered_length(starts, ends)
        spent.append(reached - before)
    spent.append(ends[-1] - starts[0] - reached)
    names = [field.name for field in fields(StepTime)]
    return StepTime(**{name: ns / 1000 / len(work.trace.steps) for name, ns in zip(names, spent, strict=True)})


def _outside(work: GpuWork, ranges: Iterable[_Ranges]) -> _Ranges:
    """Return what no step covers, from the first moment of the recording to the last."""
    steps = intervals.merged(_steps(work))
    earliest = min([steps[0][0], *(min(starts) for starts, _ in ranges if starts)])
    latest = max([steps[-1][1], *(max(ends) for _, ends in ranges if ends)])
    return [earliest, *(end for _, end in steps)], [*(start for start, _ in steps), latest]


def _steps(work: GpuWork) -> Iterator[tuple[int, int]]:
    """Yield the steps as the plugin sees them: one after the other, each up to its last GPU operation's end."""
    trace, parts = work.trace, work.launching.parts
    start, end = trace.gpu.start, trace.gpu.end
    reached = trace.steps[0].start_ns
    if parts[0].gpu_ops:
        first = start[parts[0].gpu_ops[0]]
        reached = max([reached, *(end[i] for i in trace.links.orphans if end[i] < first)])
    for step, part in zip(trace.steps, parts, strict=True):
        begin = max(reached, step.start_ns)
        reached = max([begin, step.end_ns, *map(end.__getitem__, part.gpu_ops)])
        yield begin, reached


def _roles(work: GpuWork) -> Iterator[_Ranges]:
    """Yield the ranges of each role, in the order of priority."""
    trace = work.trace
    gpu, kind = trace.gpu, trace.gpu.kind
    talking = work.communication

    def ran(members: list[int]) -> _Ranges:
        return [gpu.start[i] for i in members], [gpu.end[i] for i in members]

    kernels = where(kind, {KERNEL})
    yield ran([i for i in kernels if i not in talking] if talking else kernels)
    yield ran(where(kind, {MEMCPY}))
    yield ran(where(kind, {MEMSET}))
    yield _together(ran(sorted(talking)), *_named(trace, _COMMUNICATING))
    yield trace.calls.start, trace.calls.end
    yield _together(*_named(trace, _LOADING))
    ops, frames = trace.ops, trace.frames
    outermost = [ops.start[i] for i in work.outermost], [ops.end[i] for i in work.outermost]
    notes = [i for i, name in enumerate(trace.annotations.name) if not trace.names[name].startswith(_STEP)]
    noted = [trace.annotations.start[i] for i in notes], [trace.annotations.end[i] for i in notes]
    yield _together(outermost, noted, (frames.start, frames.end))


def _together(*ranges: _Ranges) -> _Ranges:
    return [*chain.from_iterable([starts for starts, _ in ranges])], [
        *chain.from_iterable([ends for _, ends in ranges])
    ]


def _named(trace: Trace, prefixes: tuple[str, ...]) -> Iterator[_Ranges]:
    names = {i for i, name in enumerate(trace.names) if name.startswith(prefixes)}
    for part in (trace.ops, trace.annotations) if names else ():
        members = where(part.name, names)
        yield [part.start[i] for i in members], [part.end[i] for i in members]


_PRODUCTS = ("gemm", "conv")
_COUNTED = ("gemm", "conv", "attention")
"""What FLOPs are counted of: torch.utils.flop_counter knows products, convolutions and attention."""


class Copies(Struct, frozen=True, kw_only=True):
    """The copies of one direction over all steps."""

    direction: str
    """``HtoD``, ``DtoH``, ``DtoD``, ``PtoP``."""
    count: int
    size: int
    """In bytes."""
    time_us: float
    gb_per_s: float | None
    """Bytes over the time they took, in 1e9 bytes per second; None where no time or no size is recorded."""


class Throughput(Struct, frozen=True, kw_only=True):
    """FLOP/s of the slowest step; where something is not known, the reason stands instead."""

    flops_per_step: int | None
    """As torch.utils.flop_counter counts a warm-up call: products, convolutions and attention, backward included."""
    tflops: float | None = None
    """1e12 operations per second, over the longer of the step's range on the CPU and its span on the GPU."""
    dtype: str | None = None
    """The fastest type that the kernels computed in, whose peak is taken: a share of it is never too large."""
    peak_tflops: float | None = None
    source: str | None = None
    """Where the peak is published."""
    mfu: float | None = None
    """Share of the peak of all devices that ran kernels, 0..1."""
    why_not: str | None = None
    """Why there is no share."""


class Efficiency(Struct, frozen=True, kw_only=True):
    """How well the GPU was used in the steps of a recording."""

    step_time: StepTime
    tensor_core_share: float | None
    """Share of the time of products and convolutions that ran on tensor cores, where the kernels' names say so."""
    throughput: Throughput
    copies: tuple[Copies, ...]


def read(work: GpuWork) -> Efficiency:
    """Return the efficiency of a recording's steps."""
    return Efficiency(
        step_time=step_time(work),
        tensor_core_share=_tensor_core_share(work),
        throughput=throughput(work),
        copies=_copies(work),
    )


def throughput(work: GpuWork) -> Throughput:
    """Return FLOP/s and the share of the peak of the slowest step."""
    flops = work.trace.metadata.flops_per_step if work.trace.metadata is not None else None
    if flops is None:
        return Throughput(
            flops_per_step=None, why_not="the recording does not hold the floating-point operations of a step"
        )
    if not flops:
        return Throughput(
            flops_per_step=0, why_not="the step has no FLOPs that are counted: no product, convolution or attention"
        )
    longest = max(_length_ns(work, step) for step in range(len(work.trace.steps)))
    if not work.trace.device_kind.has_launches or not work.kernels or not longest:
        return Throughput(flops_per_step=flops, why_not="nothing ran on a GPU")
    tflops = flops / longest / 1000
    peak, dtypes = peaks.of_trace(work.trace), _dtypes(work)
    if peak is None:
        names = ", ".join(str(device.name) for device in work.trace.devices)
        return Throughput(flops_per_step=flops, tflops=tflops, why_not=f"the peak of {names} is not known")
    known = {dtype: peak.tflops[dtype] for dtype in dtypes if dtype in peak.tflops}
    unknown = [dtype for dtype in dtypes if dtype not in known]
    if unknown or not known:
        which = ", ".join(unknown) or "no product, convolution or attention"
        return Throughput(
            flops_per_step=flops, tflops=tflops, why_not=f"the kernels compute in {which}, whose peak is not known"
        )
    most, fastest = max((tops, dtype) for dtype, tops in known.items())
    return Throughput(
        flops_per_step=flops,
        tflops=tflops,
        dtype=fastest,
        peak_tflops=most,
        source=peak.source,
        mfu=tflops / most / len({work.trace.gpu.process[i] for i in work.kernels}),
    )


def _length_ns(work: GpuWork, step: int) -> int:
    """Return how long a step took: a GPU that runs behind takes longer than the range on the CPU."""
    place, part = work.trace.steps[step], work.launching.parts[step]
    start, end = work.trace.gpu.start, work.trace.gpu.end
    span = max(end[i] for i in part.gpu_ops) - min(start[i] for i in part.gpu_ops) if part.gpu_ops else 0
    return max(place.end_ns - place.start_ns, span)


def _dtypes(work: GpuWork) -> list[str]:
    groups = [group for group in work.of_family(*_COUNTED) if not work.named[group.name].helper]
    return sorted({work.decoded(group).dtype or "a type that no name tells" for group in groups})


def _tensor_core_share(work: GpuWork) -> float | None:
    spent = {True: 0, False: 0}
    for group in work.of_family(*_PRODUCTS):
        on_tensor_cores = work.decoded(group).tensor_core
        if on_tensor_cores is not None:
            spent[on_tensor_cores] += group.time_ns
    whole = sum(spent.values())
    return spent[True] / whole if whole else None


def _copies(work: GpuWork) -> tuple[Copies, ...]:
    gpu, names = work.trace.gpu, work.trace.names
    # A copy is called "Memcpy HtoD (Pageable -> Device)".
    called = {
        name: names[name].removeprefix("Memcpy ").partition(" ")[0] for name in {gpu.name[i] for i in work.copies}
    }
    found: dict[str, list[int]] = defaultdict(list)
    for i in work.copies:
        found[called[gpu.name[i]]].append(i)
    rows = []
    for direction, members in found.items():
        size, spent = sum([max(gpu.size[i], 0) for i in members]), sum([gpu.end[i] - gpu.start[i] for i in members])
        rows.append(
            Copies(
                direction=direction,
                count=len(members),
                size=size,
                time_us=spent / 1000,
                gb_per_s=size / spent if size and spent else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.time_us))
