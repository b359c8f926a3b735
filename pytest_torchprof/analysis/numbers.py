"""The numbers of a recording: counts per step, times in microseconds, shares of the whole window."""

from __future__ import annotations

from collections import Counter
from operator import sub
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import fields, replace

from pytest_torchprof.analysis import gpu_time
from pytest_torchprof.trace.calls import BLOCKING, LAUNCHES, CallKind
from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.trace import StepRange, Trace


class Numbers(Struct, frozen=True, kw_only=True):
    """What is measured, of a step or over the steps; times in microseconds, None for what is not recorded."""

    kernels: float | None = None
    launches: float | None = None
    graph_launches: float | None = None
    memcpys: float | None = None
    memsets: float | None = None
    memcpys_h2d: float | None = None
    memcpys_d2h: float | None = None
    memcpys_d2d: float | None = None
    memcpy_bytes: float | None = None
    syncs: float | None = None
    kernel_time_us: float | None = None
    gpu_time_us: float | None = None
    gpu_busy_us: float | None = None
    gpu_span_us: float | None = None
    cpu_time_us: float | None = None
    cpu_gpu_ratio: float | None = None
    gpu_utilization: float | None = None
    sm_efficiency: float | None = None
    achieved_occupancy: float | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    peak_memory_bytes: int | None = None


OF_WINDOW = (
    "gpu_utilization",
    "sm_efficiency",
    "achieved_occupancy",
    "graph_breaks",
    "recompiles",
    "peak_memory_bytes",
)
"""Numbers that the whole window has, not a step."""
NAMES = tuple(field.name for field in fields(Numbers))
OF_STEP = tuple(field.name for field in fields(Numbers) if field.name not in OF_WINDOW)
"""Numbers that each step has."""


def of_part(trace: Trace, part: Part) -> Numbers:
    """Return the numbers of a step or range; on the CPU as device those of its computing operators."""
    cpu_ns = sum(_cpu_time_ns(trace, place) for place in part.ranges)
    if trace.on_cpu:
        return _of_operators(trace, part.operators, cpu_ns / 1000)
    gpu = _of_gpu_ops(trace, part.gpu_ops)
    calls = _of_calls(trace, part.calls)
    return Numbers(**gpu, **calls, cpu_time_us=cpu_ns / 1000, cpu_gpu_ratio=_ratio(cpu_ns / 1000, gpu["gpu_busy_us"]))


def median(steps: Sequence[Numbers], whole: Numbers) -> Numbers:
    """Return the median over steps of the numbers that steps have, and the window's own."""
    return _over(steps, whole, _middle)


def _middle(values: list[Any]) -> Any:
    # statistics.median, whose module costs more to import than a small recording to read.
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def worst(steps: Sequence[Numbers], whole: Numbers) -> Numbers:
    """Return the largest over steps of the numbers that steps have, and the window's own."""
    return _over(steps, whole, max)


def _over(steps: Sequence[Numbers], whole: Numbers, choose: Callable[[list[Any]], Any]) -> Numbers:
    found = {}
    for name in OF_STEP:
        # A step without GPU operations has no ratio; the others' still says something.
        values = [value for step in steps if (value := getattr(step, name)) is not None]
        found[name] = choose(values) if values else None
    return replace(whole, **found)


def of_window(trace: Trace) -> Numbers:
    """Return the numbers that only the whole window has; compile evidence is not the trace's to give."""
    if trace.on_cpu:
        return Numbers()
    filled = gpu_time.Occupation(trace)
    return Numbers(
        gpu_utilization=filled.utilization,
        sm_efficiency=filled.sm_efficiency,
        achieved_occupancy=filled.achieved_occupancy,
        peak_memory_bytes=None if trace.metadata is None else trace.metadata.peak_memory_bytes,
    )


def _of_gpu_ops(trace: Trace, gpu_ops: Sequence[int]) -> dict[str, Any]:
    gpu = trace.gpu
    kinds = [gpu.kind[i] for i in gpu_ops]
    start, end = [gpu.start[i] for i in gpu_ops], [gpu.end[i] for i in gpu_ops]
    spent = list(map(sub, end, start))
    copies = [i for i, kind in zip(gpu_ops, kinds, strict=True) if kind == MEMCPY]
    directions: Counter[str] = Counter()
    for name, count in Counter([gpu.name[i] for i in copies]).items():
        # A copy is called "Memcpy HtoD (Pageable -> Device)".
        directions[trace.names[name].removeprefix("Memcpy ")[:4]] += count
    return {
        "kernels": kinds.count(KERNEL),
        "memcpys": kinds.count(MEMCPY),
        "memsets": kinds.count(MEMSET),
        "memcpys_h2d": directions["HtoD"],
        "memcpys_d2h": directions["DtoH"],
        "memcpys_d2d": directions["DtoD"],
        "memcpy_bytes": sum([max(gpu.size[i], 0) for i in copies]),
        "kernel_time_us": sum([took for took, kind in zip(spent, kinds, strict=True) if kind == KERNEL]) / 1000,
        "gpu_time_us": sum(spent) / 1000,
        "gpu_busy_us": gpu_time.busy_ns(trace, gpu_ops) / 1000,
        "gpu_span_us": (max(end) - min(start)) / 1000 if gpu_ops else 0.0,
    }


def _of_calls(trace: Trace, calls: Iterable[int]) -> dict[str, Any]:
    flush = trace.flush
    found = Counter(trace.calls.name[i] for i in calls if i != flush)
    graphs = sum(found[name] for name in trace.call_names(frozenset({CallKind.GRAPH_LAUNCH})))
    return {
        "launches": sum(found[name] for name in trace.call_names(LAUNCHES)),
        "graph_launches": graphs,
        "syncs": sum(found[name] for name in trace.call_names(BLOCKING)),
    }


def _of_operators(trace: Trace, operators: Sequence[int], cpu_us: float) -> Numbers:
    start, end = [trace.ops.start[i] for i in operators], [trace.ops.end[i] for i in operators]
    spent = sum(map(sub, end, start)) / 1000
    return Numbers(
        kernels=len(operators),
        kernel_time_us=spent,
        gpu_time_us=spent,
        gpu_busy_us=gpu_time.union_ns(zip(start, end, strict=True)) / 1000,
        gpu_span_us=(max(end) - min(start)) / 1000 if operators else 0.0,
        cpu_time_us=cpu_us,
    )


def _cpu_time_ns(trace: Trace, place: StepRange) -> int:
    """Return the range's length without what its own thread spent inside blocking calls and the flush."""
    threads = [i for i, label in enumerate(trace.threads) if label == place.tid]
    waited = sum(trace.waiting.overlap(thread, place.start_ns, place.end_ns) for thread in threads)
    return place.end_ns - place.start_ns - waited


def _ratio(cpu_us: float, busy_us: float) -> float | None:
    return cpu_us / busy_us if busy_us else None
