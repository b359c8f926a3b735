"""User annotations and modules in rows, and what rows of operators have in common with them."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.annotated_ranges import without_annotation
from pytest_torchprof.analysis.call_times import times_by_key
from pytest_torchprof.analysis.ranges import waiting_threads
from pytest_torchprof.analysis.source_lines import MODULE
from pytest_torchprof.devices.range_names import EACH_STEP, STEP
from pytest_torchprof.trace.columns import ABSENT, KERNEL, Ranges
from pytest_torchprof.trace.graph_annotations import WITHOUT
from pytest_torchprof.trace.nesting import Nesting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.call_times import CallTimes
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.graph_annotations import Annotation


class TimedRow(Struct, frozen=True, kw_only=True, eq=False):
    """All calls of one name; times in microseconds, on the GPU those of the work launched inside.

    What is its own is not in a range of the same kind inside it.
    """

    name: str
    cpu: CallTimes
    gpu: CallTimes
    self_cpu_us: float
    self_gpu_us: float

    @property
    def calls(self) -> int:
        """How many calls they are."""
        return self.cpu.count

    @property
    def cpu_us(self) -> float:
        """How long they took on the CPU together."""
        return self.cpu.time_us

    @property
    def gpu_us(self) -> float:
        """How long the work that they launched took together."""
        return self.gpu.time_us

    @property
    def sort_key(self) -> tuple[float, float, str]:
        """Where it stands among others: the longest time on the GPU first, then on the CPU."""
        return -self.gpu_us, -self.cpu_us, self.name


class RangeRow(TimedRow, frozen=True, kw_only=True, eq=False):
    """All ranges of one name."""

    kernels: int


def by_annotation(trace: Trace, chosen: Sequence[Part]) -> list[RangeRow]:
    """Return the user annotations of the parts, the longest time on the GPU first, then on the CPU.

    What autograd's threads launched counts where their work was waited for.
    """
    calls = {trace.links.call_of[i] for part in chosen for i in part.gpu_ops} - {ABSENT}
    rows = _by_range(trace, trace.annotations, chosen, waiting_threads(trace, calls))
    return sorted([*rows, *_annotated(trace, chosen, _scope_row)], key=attrgetter("sort_key"))


def _scope_row(annotation: Annotation) -> list[tuple[str, bool]]:
    return [] if annotation.range is None else [(annotation.range, True)]


def _annotated(
    trace: Trace, chosen: Sequence[Part], named: Callable[[Annotation], Iterable[tuple[str, bool]]]
) -> Iterator[RangeRow]:
    """Yield a row for each annotation of CUDA graphs' nodes, and one for nodes without any; their CPU time is 0.

    ``named`` tells the names, and whether the time is a name's own. A replay is a call.
    """
    gpu, annotated = trace.gpu, trace.captured.annotated
    kernels, own_ns = Counter[str](), Counter[str]()
    of_steps: list[Counter[tuple[str, int]]] = []
    for part in chosen:
        took: Counter[tuple[str, int]] = Counter()
        rows = {i: named(annotated[i]) for i in part.gpu_ops if i in annotated}
        for i, names in (rows | dict.fromkeys(without_annotation(trace, part.gpu_ops), ((WITHOUT, True),))).items():
            for name, own in names:
                took[name, gpu.correlation[i]] += gpu.end[i] - gpu.start[i]
                own_ns[name] += own * (gpu.end[i] - gpu.start[i])
                kernels[name] += gpu.kind[i] == KERNEL
        of_steps.append(took)
    gpu_times = times_by_key([[(name, ns) for (name, _), ns in took.items()] for took in of_steps])
    cpu_times = times_by_key([[(name, 0) for name, _ in took] for took in of_steps])
    for name, times in gpu_times.items():
        yield RangeRow(
            name=name,
            cpu=cpu_times[name],
            gpu=times,
            self_cpu_us=0.0,
            self_gpu_us=own_ns[name] / 1000,
            kernels=kernels[name],
        )


def by_module(trace: Trace, chosen: Sequence[Part]) -> list[RangeRow]:
    """Return the modules that ran in the parts, in the order of the annotations.

    They are recorded with Python stacks only, or in annotations of graphs' nodes.
    """
    modules = Ranges()
    names = {i for i, name in enumerate(trace.names) if name.startswith(MODULE)}
    for i, name in enumerate(trace.frames.name):
        if name in names:
            for column in ("name", "start", "end", "thread"):
                getattr(modules, column).append(getattr(trace.frames, column)[i])
    rows = _by_range(trace, modules, chosen, {})
    if any(annotation.modules for annotation in set(trace.captured.annotated.values())):
        rows += _annotated(trace, chosen, _module_rows)
    return sorted(rows, key=attrgetter("sort_key"))


def _module_rows(annotation: Annotation) -> list[tuple[str, bool]]:
    return [(f"{MODULE}{name}", own) for name, own in annotation.module_rows]


def _by_range(
    trace: Trace, ranges: Ranges, chosen: Sequence[Part], for_others: Mapping[int, frozenset[int]]
) -> list[RangeRow]:
    name_of: dict[int, str] = {}
    of_steps: list[list[int]] = [[] for _ in chosen]
    own_cpu_ns: Counter[str] = Counter()
    nesting = Nesting(ranges)
    for step, i in members(trace, ranges, chosen):
        name = trace.names[ranges.name[i]]
        name_of[i] = EACH_STEP if name.startswith(STEP) else name
        of_steps[step].append(i)
        took = took_ns(trace, ranges, i)
        own_cpu_ns[name_of[i]] += took
        if (around := name_of.get(nesting.parent[i])) is not None:
            own_cpu_ns[around] -= took
    work = _WorkOfRanges(_Holding(ranges, nesting), name_of)
    work.add(trace, chosen, for_others)
    cpu = times_by_key([[(name_of[i], took_ns(trace, ranges, i)) for i in of_step] for of_step in of_steps])
    gpu = times_by_key([[(name_of[i], work.gpu_ns[i]) for i in of_step] for of_step in of_steps])
    rows = [
        RangeRow(
            name=name,
            cpu=times,
            gpu=gpu[name],
            self_cpu_us=own_cpu_ns[name] / 1000,
            self_gpu_us=work.own_gpu_ns[name] / 1000,
            kernels=work.kernels[name],
        )
        for name, times in cpu.items()
    ]
    return sorted(rows, key=attrgetter("sort_key"))


def took_ns(trace: Trace, ranges: Ranges, member: int) -> int:
    """Return how long a range took on the CPU: what a CUDA graph replays takes no time there."""
    return 0 if ranges.thread[member] == trace.captured.lane else ranges.end[member] - ranges.start[member]


class _Holding:
    """Tells which ranges hold an instant, the innermost of each name at least.

    Ranges of coroutines overlap without being inside one another: the one around the begin of another may have ended
    when that goes on, and there may be many such, which are stepped over.
    """

    def __init__(self, ranges: Ranges, nesting: Nesting) -> None:
        """Find for each range the next one around it that ends later, and the next one of another name."""
        self.around = nesting.around
        self._ends, parent = ranges.end, nesting.parent
        self._longer, self._other = [ABSENT] * len(parent), [ABSENT] * len(parent)
        for i in sorted(range(len(parent)), key=lambda i: (ranges.start[i], -ranges.end[i], i)):
            around = parent[i]
            self._other[i] = self._other[around] if around >= 0 and ranges.name[around] == ranges.name[i] else around
            while around >= 0 and self._ends[around] <= self._ends[i]:
                around = self._longer[around]
            self._longer[i] = around

    def chain(self, innermost: int, instant: int) -> Iterator[int]:
        """Yield the range and those around it, innermost first; of those in a row that have one name the first."""
        holder = innermost
        while holder >= 0:
            yield holder
            holder = self._other[holder]
            while holder >= 0 and self._ends[holder] < instant:
                holder = self._longer[holder]


class _WorkOfRanges:
    """The work launched inside of ranges: the time of each range, and of each name its own time and its kernels."""

    def __init__(self, holding: _Holding, name_of: Mapping[int, str]) -> None:
        """Take which range is in which, and the names of those that count."""
        self._holding = holding
        self._name_of = name_of
        self.gpu_ns: Counter[int] = Counter()
        self.own_gpu_ns: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()

    def add(self, trace: Trace, chosen: Sequence[Part], for_others: Mapping[int, frozenset[int]]) -> None:
        """Add the work of the parts; ``for_others`` are threads that waited for what another one launched."""
        gpu, calls, ops, around = trace.gpu, trace.calls, trace.ops, self._holding.around
        captured = trace.captured
        for part in chosen:
            for i in part.operators:
                innermost = [around(ops.thread[i], ops.start[i], ops.end[i])]
                self._count(innermost, ops.start[i], ops.end[i] - ops.start[i], kernel=True)
            for i in part.gpu_ops:
                call = trace.links.call_of[i]
                if call < 0:
                    continue
                began = calls.start[call]
                innermost = [around(calls.thread[call], began, calls.end[call])]
                innermost += [around(thread, began, began) for thread in for_others.get(call, ())]
                if (at := captured.of.get(i)) is not None:
                    launched = captured.calls.start[at]
                    innermost.append(around(captured.calls.thread[at], launched, launched))
                self._count(innermost, began, gpu.end[i] - gpu.start[i], kernel=gpu.kind[i] == KERNEL)

    def _count(self, innermost: Iterable[int], instant: int, took_ns: int, *, kernel: bool) -> None:
        seen: set[str] = set()
        for first in innermost:
            for holder in self._holding.chain(first, instant):
                name = self._name_of.get(holder)
                # A name inside itself has the time once.
                if name is not None and name not in seen:
                    seen.add(name)
                    self.gpu_ns[holder] += took_ns
                    self.own_gpu_ns[name] += took_ns if holder == first else 0
                    self.kernels[name] += kernel


def members(trace: Trace, ranges: Ranges, chosen: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """Yield (index of the part, range) for what started in the parts, a parent before what it holds."""
    order = sorted(range(len(ranges)), key=lambda i: (ranges.start[i], -ranges.end[i], i))
    if not trace.has_step_ranges:
        yield from ((0, i) for i in order)
        return
    parts = {step_range: number for number, part in enumerate(chosen) for step_range in part.ranges}
    for i in order:
        step = trace.step_at(ranges.start[i])
        if step >= 0 and (number := parts.get(trace.steps[step])) is not None:
            yield number, i
