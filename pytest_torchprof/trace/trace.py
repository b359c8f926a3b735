"""The model of a recording: frozen columns, and the facts that follow directly from them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import Struct

from pytest_torchprof.devices.cuda import is_rocm
from pytest_torchprof.devices.kinds import BLOCKING, COPIES, COUNTED, LAUNCHES, CallKind, DeviceKind, call_kind, kind_of
from pytest_torchprof.devices.range_names import PLUGIN, STEP, is_step
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import bracketed, short_name
from pytest_torchprof.trace.captures import NOT_CAPTURED, Captured
from pytest_torchprof.trace.columns import (
    ABSENT,
    Allocations,
    Arrows,
    Calls,
    GpuOps,
    GpuRanges,
    Message,
    Ranges,
    picked,
    where,
)
from pytest_torchprof.trace.gpus import Device, named, ordinals
from pytest_torchprof.trace.links import Intervals, Links, link
from pytest_torchprof.trace.metadata import Adoption, Environment, Metadata
from pytest_torchprof.trace.nesting import Nesting, nest
from pytest_torchprof.trace.occupancy import occupancies

_COMPILING = " (dynamo_timed)"
_MOST_DIGITS = 6
"""No machine has a million devices; Python converts no number of thousands of digits."""
# CUDA graph trees time the recording of a graph, which is part of running the model, like a phase of compilation
# (torch/_inductor/cudagraph_trees.py, dynamo_timed_cudagraph).
_RECORDING_A_GRAPH = ("CUDAGraphNode.", "CUDAWarmupNode.", "cudagraphify.")
SENTINEL = f"{PLUGIN}sentinel"
UNNAMED_GPU = "unnamed GPU"
_HOUR_NS, _LATEST_NS = 3600 * 10**9, 2**62


class Span(NamedTuple):
    """A range on the CPU side, times in ns."""

    name: str
    start_ns: int
    end_ns: int
    tid: int | str
    category: Literal["cpu_op", "user_annotation"]


class StepRange(NamedTuple):
    """The CPU range of a step, half open, times in ns; ``name`` is None for the step that is the whole trace."""

    name: str | None
    start_ns: int
    end_ns: int
    tid: int | str | None


class Trace(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One recording, read; nothing in it changes. Times in ns; columns index ``names``, ``threads``, ``streams``."""

    path: str | None
    events: int
    header: Mapping[str, object]
    """The entries of the document beside the events, such as ``deviceProperties``."""
    metadata: Metadata | None
    """The facts that our own recordings keep beside the trace; None in other recordings."""
    names: Sequence[str]
    threads: Sequence[int | str]
    streams: Sequence[int | str]
    processes: Sequence[int | str]
    inputs: Sequence[bytes]
    """JSON lists of dims, types and strides of operands, and for some their settings; each distinct set once."""
    ops: Ranges
    annotations: Ranges
    frames: Ranges
    overheads: Ranges
    """Work of the profiler and the driver for themselves: buffers, flushes, loading of code."""
    calls: Calls
    gpu: GpuOps
    arrows: Arrows
    allocations: Allocations
    unended: int
    """The number of GPU operations without a possible duration; in ``gpu`` they end as they start."""
    unknown_work: Mapping[str, int]
    """By category the number of events of unknown categories that ran on a stream."""
    samples_hardware: bool
    """Whether the GPU's units were sampled too, for which the profiler locks its clocks."""
    collectives: Mapping[int, Message]
    """The backend's record of a collective, by index of the GPU operation."""
    parameters: Mapping[int, Message]
    """The backend's record of a collective, by index of the operator that carries it."""
    gpu_annotations: GpuRanges
    """Ranges of the CPU, recorded once more around their work on the GPU; numbers come from those of the CPU alone."""
    shapes: Sequence[bytes]
    """Grid, block, registers per thread and shared memory of kernels as JSON texts with a zero byte between."""
    captured: Captured = NOT_CAPTURED
    taken_for: str | None = None
    """The device that was measured according to the caller, if the recording does not say it itself."""
    adoption: Adoption | None = None
    """The test that has adopted the recording of another process; None for any other recording."""

    def __repr__(self) -> str:
        return bracketed(
            self, f"of {short_name(self.path) if self.path else 'no file'}: {counted(self.events, 'event')}"
        )

    @cached_property
    def device_kind(self) -> DeviceKind:
        """The kind of device that was measured; if the recording does not say, the one it is taken for, else a GPU."""
        return kind_of(self.recorded_device)

    @property
    def recorded_device(self) -> str | None:
        """The device that was measured, by the file or else by the caller; None if neither says."""
        return self.taken_for if self.metadata is None else self.metadata.device

    @property
    def of_test(self) -> tuple[str | None, str | None]:
        """The test id and label of the measurement that was recorded; None if not known."""
        whose = self.adoption or self.metadata
        return (None, None) if whose is None else (whose.nodeid, whose.label)

    @property
    def environment(self) -> Environment:
        """The environment that it was recorded in; if it does not say, only the GPU's name may be known."""
        recorded = None if self.metadata is None else self.metadata.environment
        if recorded is not None and recorded != Environment():
            return recorded
        unnamed = UNNAMED_GPU if self.devices else None
        return Environment(gpu=next((device.name for device in self.devices if device.name), unnamed))

    @cached_property
    def call_kinds(self) -> Sequence[CallKind]:
        """The kind of call of each name; OTHER for names that no call has."""
        kinds = [CallKind.OTHER] * len(self.names)
        for name in set(self.calls.name):
            kinds[name] = call_kind(self.names[name])
        return kinds

    def call_names(self, kinds: frozenset[CallKind]) -> frozenset[int]:
        """Return the names of the calls of these kinds."""
        return frozenset().union(*(self._names_by_kind.get(kind, ()) for kind in kinds))

    @cached_property
    def _names_by_kind(self) -> Mapping[CallKind, Sequence[int]]:
        names, kinds = set(self.calls.name), self.call_kinds
        return {kind: [name for name in names if kinds[name] is kind] for kind in CallKind}

    @cached_property
    def blocking(self) -> list[int]:
        """Calls that make the CPU wait for the GPU, in file order."""
        names = self.call_names(BLOCKING)
        return [i for i in self.counted_calls if self.calls.name[i] in names]

    @cached_property
    def waiting(self) -> Intervals:
        """The times at which each thread was inside a blocking call."""
        calls = self.calls
        return Intervals((calls.thread[i], calls.start[i], calls.end[i]) for i in self.blocking)

    @cached_property
    def links(self) -> Links:
        """The links between calls and the work that they launched."""
        return link(self.calls, self.gpu, self.call_kinds, self.names, own=self.metadata is not None)

    @property
    def attribution(self) -> Literal["launch", "time"]:
        """How GPU operations are assigned to steps: by their launch, or by their own start if there are no links."""
        return self.links.attribution

    @property
    def orphans(self) -> int:
        """The number of GPU operations that were queued before the window, or whose launch was lost."""
        return len(self.links.orphans)

    @property
    def lost_kernels(self) -> int:
        """The number of launches outside a capture that have no GPU operation."""
        return len(self.links.lost)

    @property
    def unrecorded_launches(self) -> int:
        """The number of the window's GPU operations queued by calls that no profiler records; own recordings only."""
        return len(self.links.unrecorded)

    @cached_property
    def untimed(self) -> int:
        """The number of GPU operations without a usable time: 0 or 0x8000... from CUPTI, or an end before the start."""
        starts = self.gpu.start
        earliest = min(self.calls.start, default=0) - _HOUR_NS
        if not starts or (min(starts) >= earliest and max(starts) < _LATEST_NS):
            return self.unended
        return max(self.unended, sum(not earliest <= start < _LATEST_NS for start in starts))

    @cached_property
    def rocm(self) -> bool:
        """Whether the recording was made with ROCm."""
        return is_rocm(self.names[name] for name in set(self.calls.name))

    @cached_property
    def device_of(self) -> Sequence[int]:
        """The device's index for each index into ``processes``: its ordinal, if the file says it."""
        return ordinals(self.processes, self.header, self._own_ordinals(len(self.processes)), rocm=self.rocm)

    @cached_property
    def occupancies(self) -> Sequence[float]:
        """The occupancy of all GPU operations in percent, below zero where it is not known."""
        return occupancies(self.gpu, self.shapes, self.processes, self.header)

    def _own_ordinals(self, count: int) -> Sequence[int]:
        """Return the ordinals of ``count`` devices: those that a recording of ours names, else 0, 1, 2 and so on."""
        if self.metadata is None:
            return range(count)
        measured = str(self.metadata.device).partition(":")[2]
        if count == 1 and self.device_kind.has_launches and measured.isdecimal() and len(measured) < _MOST_DIGITS:
            # The sentinel's kernels ran on the measured device, so it is this one.
            return [int(measured)]
        used = self.metadata.devices_used or ()
        return used if len(used) == count else range(count)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs that ran something, in order of their indices."""
        return tuple(named(self.device_of, self.processes, self.header, rocm=self.rocm))

    @cached_property
    def flush(self) -> int | None:
        """The call with which the profiler itself waits for the GPU before it stops; None if it is not there."""
        calls = self.calls
        candidates = where(calls.name, self.call_names(frozenset({CallKind.DEVICE_SYNC})))
        if not candidates:
            return None
        last = max(candidates, key=calls.start.__getitem__)
        moment = calls.start[last]
        if max(max(part.start, default=moment) for part in (self.ops, self.annotations)) > moment:
            return None
        if max(calls.start) <= moment:
            return last
        active = self.call_names(LAUNCHES | COPIES | {CallKind.FILL})
        launched = max([calls.start[i] for i in where(calls.name, active)], default=moment)
        return None if launched > moment else last

    @cached_property
    def has_step_ranges(self) -> bool:
        """Whether the steps are ranges of the recording, not the recording itself."""
        return self.steps[0].name is not None if self.steps else False

    @cached_property
    def steps(self) -> tuple[StepRange, ...]:
        """The occurrences of the range that was adopted as the step, else the profiler's steps."""
        name = None if self.adoption is None else self.adoption.step
        occurrences = () if name is None else enumerate(self.outermost(name))
        chosen = tuple(StepRange(f"{name}#{i}", span.start_ns, span.end_ns, span.tid) for i, span in occurrences)
        return chosen or self.profiler_steps

    @cached_property
    def profiler_steps(self) -> tuple[StepRange, ...]:
        """The ``ProfilerStep#N`` ranges in time order, else the whole trace as one step."""
        named = [span for span in self.spans(STEP) if is_step(span.name)]
        if self.metadata is not None:
            named = self._measured_calls(named)
        if named:
            return tuple(StepRange(span.name, span.start_ns, span.end_ns, span.tid) for span in named)
        return (self._whole(),)

    def _measured_calls(self, named: Iterable[Span]) -> list[Span]:
        """Return our own ranges: those of the measured code begin inside one of ours, or are on another thread."""
        sentinel = next(iter(self.spans(SENTINEL)), None)
        calls: list[Span] = []
        for span in named:
            if (sentinel is None or span.tid == sentinel.tid) and (not calls or span.start_ns >= calls[-1].end_ns):
                calls.append(span)
        return calls

    def _whole(self) -> StepRange:
        parts = [part for part in (self.ops, self.annotations, self.calls) if len(part)]
        if not parts:
            return StepRange(None, min(self.gpu.start, default=0), max(self.gpu.end, default=0), None)
        starts = [min(part.start) for part in parts]
        start, flush = min(starts), self.flush
        first = parts[starts.index(start)]
        if flush is None:
            # If several threads begin together, the choice does not depend on the order of the file.
            begun = {first.thread[i] for i in where(first.start, {start})}
            thread = min(begun, key=lambda index: str(self.threads[index]))
        else:
            thread = self.calls.thread[flush]
        ends = [max(part.end) for part in (self.ops, self.annotations) if len(part)]
        called = self.calls.end if flush is None else [*self.calls.end[:flush], *self.calls.end[flush + 1 :]]
        ends.append(max(called, default=start))
        return StepRange(None, start, max(ends), self.threads[thread])

    def step_at(self, instant: int) -> int:
        """Return the index of the step whose CPU range holds the instant; ABSENT if none does."""
        index = bisect_right(self._step_starts, instant) - 1
        return index if index >= 0 and instant < self.steps[index].end_ns else ABSENT

    @cached_property
    def _step_starts(self) -> list[int]:
        return [step.start_ns for step in self.steps]

    @cached_property
    def compiling(self) -> Intervals:
        """The times at which each thread was compiling; work that runs then is not counted."""
        names = {
            i
            for i, name in enumerate(self.names)
            if name.endswith(_COMPILING) and not name.startswith(_RECORDING_A_GRAPH)
        }
        ops = self.ops
        return Intervals((ops.thread[i], ops.start[i], ops.end[i]) for i in where(ops.name, names))

    @cached_property
    def counted_calls(self) -> list[int]:
        """Launches, blocking calls and queries of the GPU, in file order."""
        return where(self.calls.name, self.call_names(COUNTED))

    @cached_property
    def nesting(self) -> Nesting:
        """The tree of operators inside one another."""
        return nest(self.ops, self.calls, self.path)

    @property
    def around_calls(self) -> Sequence[int]:
        """For each call the innermost operator around it; ABSENT if there is none."""
        return self.nesting.around_calls

    @cached_property
    def forward_of(self) -> Mapping[int, int]:
        """For operators of a backward pass the operator whose backward they are, if an arrow links the two."""
        starts, finishes = self.arrows.starts, self.arrows.finishes
        ids = starts.keys() & finishes.keys()
        wanted = {ends[arrow] for arrow in ids for ends in (starts, finishes)}
        ops = self.ops
        # Of operators that begin together the outermost one, which ends last, is meant.
        at: dict[tuple[int, int], int] = {}
        if wanted:
            for i, begin in enumerate(zip(ops.thread, ops.start, strict=True)):
                if begin in wanted and (begin not in at or ops.end[i] > ops.end[at[begin]]):
                    at[begin] = i
        pairs = {arrow: (at.get(finishes[arrow]), at.get(starts[arrow])) for arrow in ids}
        return {
            backward: forward for backward, forward in pairs.values() if backward is not None and forward is not None
        }

    @cached_property
    def step_of_call(self) -> array[int]:
        """For each call the step in which it started; ABSENT outside of all steps and inside a compilation."""
        calls = self.calls
        step_of = array("i", map(self.step_at, calls.start)) if self.has_step_ranges else array("i", [0]) * len(calls)
        if self.compiling:
            for i, thread in enumerate(calls.thread):
                if self.compiling.cover(thread, calls.start[i]):
                    step_of[i] = ABSENT
        return step_of

    @cached_property
    def step_of_gpu_op(self) -> array[int]:
        """For each GPU operation the step to which it belongs; ABSENT for orphans and for the work of a compilation."""
        links, starts = self.links, self.gpu.start
        if links.attribution == "time":
            return array("i", [self.step_at(start) if self.has_step_ranges else 0 for start in starts])
        # What no call launched is of the step at ABSENT, which is none.
        of_call = [*self.step_of_call, ABSENT]
        step_of = array("i", picked(of_call, links.call_of))
        for i, steps in self.steps_of_unrecorded.items():
            step_of[i] = steps[0] if steps else ABSENT
        return step_of

    @cached_property
    def steps_of_unrecorded(self) -> Mapping[int, range]:
        """For each GPU operation of an unrecorded call the steps in which it may have been launched: none, one or more.

        CUPTI numbers all calls in their order, including those that it does not record. So the call began after the
        recorded one with the next lower number, and before the one with the next higher number and its own work.
        """
        calls, gpu = self.calls, self.gpu
        unrecorded = self.links.unrecorded
        began = sorted(zip(calls.correlation, calls.start, strict=True)) if unrecorded else []
        ends = [step.end_ns for step in self.steps]
        steps_of = {}
        for i in unrecorded:
            index = bisect_right(began, (gpu.correlation[i], _LATEST_NS))
            earliest = began[index - 1][1] if index else -_LATEST_NS
            latest = min(began[index][1] if index < len(began) else _LATEST_NS, gpu.start[i])
            steps_of[i] = range(bisect_right(ends, earliest), bisect_right(self._step_starts, latest))
        return steps_of

    @cached_property
    def gpu_order(self) -> Sequence[int]:
        """The GPU operations in start order."""
        return sorted(range(len(self.gpu)), key=self.gpu.start.__getitem__)

    def spans(self, prefix: str = "", suffix: str = "") -> list[Span]:
        """Return the operators and user annotations with this prefix and suffix of their name, in start order."""
        names = {i for i, name in self._names_of_ranges if name.startswith(prefix)}
        if suffix:
            names = {i for i in names if self.names[i].endswith(suffix)}
        return sorted(self._named(names), key=lambda span: (span.start_ns, -span.end_ns)) if names else []

    @cached_property
    def _names_of_ranges(self) -> list[tuple[int, str]]:
        """The names of operators and user annotations, which are a few of all."""
        return [(i, self.names[i]) for i in frozenset().union(*self._names_by_part)]

    @cached_property
    def _names_by_part(self) -> tuple[set[int], set[int]]:
        return {*self.ops.name}, {*self.annotations.name}

    def ranges(self, name: str) -> list[Span]:
        """Return the ranges of this name, in start order.

        If no user annotation has the name, operators with it count: light ranges are recorded as operators.
        """
        named = [span for span in self.spans(name) if span.name == name]
        return [span for span in named if span.category == "user_annotation"] or named

    def outermost(self, name: str) -> list[Span]:
        """Return the ranges of this name that are inside no other of them on their thread; coroutines' may overlap."""
        ends: dict[int | str, int] = {}
        spans = []
        for span in self.ranges(name):
            if span.end_ns > ends.get(span.tid, -1):
                spans.append(span)
                ends[span.tid] = span.end_ns
        return spans

    def spans_in_steps(self, prefix: str) -> list[Span]:
        """Return the spans whose name begins with the prefix and that start in a step."""
        return [span for span in self.spans(prefix) if self.step_at(span.start_ns) >= 0]

    def _named(self, names: set[int]) -> Iterator[Span]:
        category: Literal["cpu_op", "user_annotation"]
        for part, own_names in zip((self.ops, self.annotations), self._names_by_part, strict=True):
            category = "cpu_op" if part is self.ops else "user_annotation"
            # A step's names are no operator's, and a column without any of them is not gone through.
            for i in where(part.name, names & own_names):
                tid = self.threads[part.thread[i]]
                yield Span(self.names[part.name[i]], part.start[i], part.end[i], tid, category)
