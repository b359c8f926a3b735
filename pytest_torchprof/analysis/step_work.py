"""The work of a step, and of the whole window, as the numbers take it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from operator import sub
from typing import TYPE_CHECKING

from pytest_torchprof.analysis import gpu_time
from pytest_torchprof.devices.base import LAUNCHES
from pytest_torchprof.trace.columns import KERNEL, MEMCPY

if TYPE_CHECKING:
    from pytest_torchprof.analysis.compilation import Compile
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.devices.base import CallKind
    from pytest_torchprof.trace import StepRange, Trace


class StepWork:
    """The work of a step or range as the numbers take it; on the CPU as device it is the computing operators."""

    def __init__(self, trace: Trace, part: Part) -> None:
        """Take the part's intervals."""
        self._trace, self._part = trace, part
        launched = trace.device_kind.has_launches
        columns, self._members = (trace.gpu, part.gpu_ops) if launched else (trace.ops, part.operators)
        self._start = [columns.start[i] for i in self._members]
        self._end = [columns.end[i] for i in self._members]
        kind = trace.gpu.kind
        self._kinds = [kind[i] for i in self._members] if launched else [KERNEL] * len(self._members)

    @cached_property
    def _lasted(self) -> list[int]:
        return list(map(sub, self._end, self._start))

    def count(self, kind: int) -> int:
        """Return how many operations are of this kind."""
        return self._kinds.count(kind)

    @cached_property
    def _copies(self) -> list[int]:
        return [i for i, kind in zip(self._members, self._kinds, strict=True) if kind == MEMCPY]

    @cached_property
    def _directions(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for name, count in Counter([self._trace.gpu.name[i] for i in self._copies]).items():
            # A copy is called "Memcpy HtoD (Pageable -> Device)".
            found[self._trace.names[name].removeprefix("Memcpy ")[:4]] += count
        return found

    def copies(self, direction: str) -> int:
        """Return how many copies go this way, ``"HtoD"``."""
        return self._directions[direction]

    @property
    def bytes_copied(self) -> int:
        """The size of all copies."""
        return sum([max(self._trace.gpu.size[i], 0) for i in self._copies])

    @cached_property
    def _calls(self) -> Counter[int]:
        flush = self._trace.flush
        return Counter(self._trace.calls.name[i] for i in self._part.calls if i != flush)

    def calls(self, kinds: frozenset[CallKind]) -> int:
        """Return how many calls of the runtime are of these kinds, the profiler's own flush aside."""
        return sum(self._calls[name] for name in self._trace.call_names(kinds))

    @property
    def launches(self) -> int:
        """How many calls launched work, those too that are known by their work alone."""
        unrecorded = self._trace.links.unrecorded
        ids = {self._trace.gpu.correlation[i] for i in self._part.gpu_ops if i in unrecorded}
        return self.calls(LAUNCHES) + len(ids)

    @property
    def kernel_us(self) -> float:
        """The sum of the kernels' durations."""
        return sum([took for took, kind in zip(self._lasted, self._kinds, strict=True) if kind == KERNEL]) / 1000

    @property
    def gpu_us(self) -> float:
        """The sum of all durations."""
        return sum(self._lasted) / 1000

    @cached_property
    def busy_us(self) -> float:
        """The length of the union of all intervals, per device, summed over devices."""
        if not self._trace.device_kind.has_launches:
            return gpu_time.union_ns(zip(self._start, self._end, strict=True)) / 1000
        return gpu_time.busy_ns(self._trace, self._members) / 1000

    @property
    def span_us(self) -> float:
        """From the first start to the last end."""
        return (max(self._end) - min(self._start)) / 1000 if self._members else 0.0

    @cached_property
    def cpu_us(self) -> float:
        """The part's length on the CPU without what its own threads spent inside blocking calls and the flush."""
        return sum(_cpu_time_ns(self._trace, place) for place in self._part.ranges) / 1000

    @property
    def cpu_gpu_ratio(self) -> float | None:
        """CPU time by GPU busy time; None without GPU operations."""
        return self.cpu_us / self.busy_us if self.busy_us else None


class Window:
    """The whole window as its numbers take it."""

    def __init__(self, trace: Trace, compiled: Compile) -> None:
        """Take the trace and what the compiler did."""
        self.trace = trace
        self.compile = compiled

    @cached_property
    def occupation(self) -> gpu_time.Occupation:
        """How the kernels filled the GPUs."""
        return gpu_time.Occupation(self.trace)

    @property
    def peak_memory(self) -> int | None:
        """The allocator's peak during the steps."""
        return None if self.trace.metadata is None else self.trace.metadata.peak_memory_bytes


def _cpu_time_ns(trace: Trace, place: StepRange) -> int:
    """Return the range's length without what its own thread spent inside blocking calls and the flush."""
    threads = [i for i, label in enumerate(trace.threads) if label == place.tid]
    waited = sum(trace.waiting.overlap(thread, place.start_ns, place.end_ns) for thread in threads)
    return place.end_ns - place.start_ns - waited
