"""Parts of a recording with numbers of their own, steps and users' ranges: the events in them, and their work."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from functools import cached_property
from operator import sub
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from pytest_torchprof.analysis import gpu_time
from pytest_torchprof.devices.cpu import FORKED
from pytest_torchprof.devices.kinds import BLOCKING, LAUNCHES, OperatorWork
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import bracketed, short_name
from pytest_torchprof.trace import StepRange, intervals
from pytest_torchprof.trace.captures import LANE
from pytest_torchprof.trace.columns import ABSENT, KERNEL, MEMCPY, picked, where

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from pytest_torchprof.analysis.compilation import Compile
    from pytest_torchprof.devices.kinds import CallKind
    from pytest_torchprof.trace import Trace

_DIRECTION = re.compile("(?:Memcpy )?([A-Z])to([A-Z])(?![A-Za-z])")
_ROCM_DIRECTION = "Copy([HD])(?:ost|evice)To([HD])(?:ost|evice)(?![A-Za-z])"


def copy_direction(name: str) -> str | None:
    """Return ``"HtoD"`` of a copy called "Memcpy HtoD (Pageable -> Device)" or, by ROCm's tracer, "CopyHostToDevice".

    None for an unknown direction.
    """
    match = _DIRECTION.match(name) or re.match(_ROCM_DIRECTION, name)
    return f"{match[1]}to{match[2]}" if match else None


def forward_operator(trace: Trace, op: int) -> int:
    """Return the operator whose backward holds this one, ABSENT where no arrow tells."""
    forward_of = trace.forward_of
    return (
        next((forward_of[around] for around in trace.nesting.chain(op) if around in forward_of), ABSENT)
        if forward_of
        else ABSENT
    )


def operator_kernels(trace: Trace, work: Callable[[str], OperatorWork]) -> list[int]:
    """Return the operators that count as kernels where they do ``work``, in start order.

    One that computes alone, with all that is inside; another that computes and holds none that computes; one that moves
    data, with no computing one around it and none that moves data inside; a C++ kernel of Inductor's; a range
    nobody knows that holds nothing, and has forked nothing meanwhile. What a compilation ran is left out.
    """
    ops, parent = trace.ops, trace.nesting.parent
    does = {name: work(trace.names[name]) for name in set(ops.name)}
    unknown = {name for name, kind in does.items() if kind is OperatorWork.UNKNOWN}
    computing = {
        name for name, kind in does.items() if kind in (OperatorWork.COMPUTES, OperatorWork.ALONE, OperatorWork.FUSED)
    }
    alone = {name for name, kind in does.items() if kind is OperatorWork.ALONE}
    moving = {name for name, kind in does.items() if kind is OperatorWork.MOVES}
    # What computes counts outside of what computes alone, what moves data outside of all that computes.
    apart = {**dict.fromkeys(computing | unknown, alone), **dict.fromkeys(moving, computing)}
    holding = set(parent) if unknown else set()
    forks = _forks_of(trace) if unknown else []
    kernels = [
        i
        for i, name in enumerate(ops.name)
        if name in apart
        and not (name in unknown and (i in holding or _forks(trace, forks, i)))
        and not (apart[name] and _is_inside(apart[name], ops.name, parent, i))
    ]
    holders: set[int] = set()
    for i in kernels:
        around = parent[i]
        while around >= 0 and around not in holders:
            holders.add(around)
            around = parent[around]
    compiling = trace.compiling
    counted = [i for i in kernels if i not in holders]
    if compiling:
        counted = [i for i in counted if not compiling.cover(ops.thread[i], ops.start[i])]
    return sorted(counted, key=ops.start.__getitem__)


def _is_inside(barred: Container[int], names: Sequence[int], parent: Sequence[int], member: int) -> bool:
    around = parent[member]
    while around >= 0:
        if names[around] in barred:
            return True
        around = parent[around]
    return False


def _forks_of(trace: Trace) -> list[int]:
    """Return when functions began that ``torch.jit.fork`` had handed to another thread, in order."""
    forked = {i for i, name in enumerate(trace.names) if name == FORKED}
    return sorted(trace.ops.start[i] for i in where(trace.ops.name, forked)) if forked else []


def _forks(trace: Trace, forks: Sequence[int], op: int) -> bool:
    """Whether one of these began during a range: a frame of TorchScript's, whose work ran where it was forked to."""
    return bisect_left(forks, trace.ops.start[op]) < bisect_left(forks, trace.ops.end[op])


class Part(Protocol):
    """The events of a step, or of a range in one."""

    @property
    def name(self) -> str | None:
        """Its name; None for the whole trace."""

    @property
    def ranges(self) -> tuple[StepRange, ...]:
        """The part on the CPU's side, disjoint per thread."""

    @property
    def gpu_ops(self) -> Sequence[int]:
        """The GPU operations, in the order in which they start."""

    @property
    def calls(self) -> Sequence[int]:
        """Launches, blocking calls and queries of the GPU."""

    @property
    def operators(self) -> Sequence[int]:
        """The operators that count as kernels, where no kernels are launched."""


class ListedPart(Struct, frozen=True, kw_only=True, eq=False):
    """A part that holds its events in lists."""

    name: str | None
    ranges: tuple[StepRange, ...]
    gpu_ops: Sequence[int]
    calls: Sequence[int]
    operators: Sequence[int]

    def __repr__(self) -> str:
        held = counted(len(self.gpu_ops), "GPU operation"), counted(len(self.operators), "operator")
        return bracketed(self, short_name(self.name or "whole trace"), *held)


def step_parts(trace: Trace) -> tuple[Part, ...]:
    """Return the recording's steps as parts."""
    count = len(trace.steps)
    gpu_ops: list[list[int]] = [[] for _ in range(count)]
    calls: list[list[int]] = [[] for _ in range(count)]
    operators: list[list[int]] = [[] for _ in range(count)]
    if (work := trace.device_kind.operator_work) is not None:
        for i in operator_kernels(trace, work):
            step = trace.step_at(trace.ops.start[i]) if trace.has_step_ranges else 0
            if step >= 0:
                operators[step].append(i)
    else:
        _share_out(trace.gpu_order, trace.step_of_gpu_op, gpu_ops)
        _share_out(trace.counted_calls, trace.step_of_call, calls)
    return tuple(
        ListedPart(name=step.name, ranges=(step,), gpu_ops=gpu_ops[i], calls=calls[i], operators=operators[i])
        for i, step in enumerate(trace.steps)
    )


def _share_out(members: Sequence[int], step_of: Sequence[int], of_steps: Sequence[list[int]]) -> None:
    """Add each member to those of its step, if it is of one."""
    if len(of_steps) == 1 and ABSENT not in step_of:
        # In many recordings all is one step.
        of_steps[0].extend(members)
        return
    for i in members:
        if step_of[i] >= 0:
            of_steps[step_of[i]].append(i)


def lost_copies(trace: Trace) -> list[str]:
    """Return the names of the steps' calls that copy and whose copies are not in the recording."""
    return [trace.names[trace.calls.name[i]] for i in trace.links.lost_copies if trace.step_of_call[i] != ABSENT]


def copied_bytes(trace: Trace, copies: Sequence[int]) -> int | None:
    """Return how many bytes the copies moved; None where one of them does not tell."""
    sizes = [trace.gpu.size[i] for i in copies]
    return sum(sizes) if min(sizes, default=0) >= 0 else None


class StepWork:
    """The work of a step or range as the numbers take it; on the CPU as device it is the computing operators."""

    def __init__(self, trace: Trace, part: Part) -> None:
        """Take the part's intervals."""
        self._trace, self._part = trace, part
        launched = trace.device_kind.has_launches
        columns, self._members = (trace.gpu, part.gpu_ops) if launched else (trace.ops, part.operators)
        self._start = picked(columns.start, self._members)
        self._end = picked(columns.end, self._members)
        self._kinds = picked(trace.gpu.kind, self._members) if launched else [KERNEL] * len(self._members)

    @cached_property
    def _durations_ns(self) -> list[int]:
        return list(map(sub, self._end, self._start))

    def count(self, kind: int) -> int:
        """Return how many operations are of this kind."""
        return self._kinds.count(kind)

    @cached_property
    def _copies(self) -> list[int]:
        return [i for i, kind in zip(self._members, self._kinds, strict=True) if kind == MEMCPY]

    @cached_property
    def _directions(self) -> Counter[str | None]:
        directions: Counter[str | None] = Counter()
        for name, count in Counter([self._trace.gpu.name[i] for i in self._copies]).items():
            directions[copy_direction(self._trace.names[name])] += count
        return directions

    @property
    def memcpys(self) -> int | None:
        """How many copies ran; None with calls of the steps that copy and left no copy."""
        return None if lost_copies(self._trace) else len(self._copies)

    def copies(self, direction: str) -> int | None:
        """Return how many copies go this way, ``"HtoD"``; None where a copy does not tell."""
        return self._directions[direction] if self._copies_tell else None

    @property
    def bytes_copied(self) -> int | None:
        """The size of all copies; None where one is a kernel, which does not tell, or does not tell its own."""
        return copied_bytes(self._trace, self._copies) if self._copies_tell else None

    @property
    def _copies_tell(self) -> bool:
        return not lost_copies(self._trace) and None not in self._directions

    @cached_property
    def _calls(self) -> Counter[int]:
        named, flush = self._trace.calls.name, self._trace.flush
        calls = Counter(picked(named, self._part.calls))
        if flush is not None and flush in self._part.calls:
            calls[named[flush]] -= 1
        return calls

    def calls(self, kinds: frozenset[CallKind]) -> int:
        """Return how many calls of the runtime are of these kinds, the profiler's own flush aside."""
        return sum(self._calls[name] for name in self._trace.call_names(kinds))

    @cached_property
    def _is_in_graph(self) -> bool:
        """Whether it is a range in a CUDA graph, through which the CPU does not go when that is replayed."""
        return any(step_range.tid == LANE for step_range in self._part.ranges)

    @property
    def launches(self) -> int | None:
        """How many calls launched work, those too that are known by their work alone.

        None with calls that nobody knows, with kernels in a recording without launches, and inside of a graph.
        """
        if self._is_in_graph:
            return None
        links = self._trace.links
        unrecorded = links.unrecorded
        kernels = (i for i, kind in zip(self._members, self._kinds, strict=True) if kind == KERNEL)
        if links.unknown or (not links.launches and any(i not in unrecorded for i in kernels)):
            return None
        ids = {self._trace.gpu.correlation[i] for i in self._part.gpu_ops if i in unrecorded} if unrecorded else ()
        return self.calls(LAUNCHES) + len(ids)

    @property
    def syncs(self) -> int | None:
        """How many calls made the CPU wait; None where only the GPU's side was recorded."""
        only_gpu = len(self._trace.gpu) and not len(self._trace.calls)
        return None if only_gpu or self._is_in_graph else self.calls(BLOCKING)

    @property
    def kernel_us(self) -> float:
        """The sum of the kernels' durations."""
        return sum([took for took, kind in zip(self._durations_ns, self._kinds, strict=True) if kind == KERNEL]) / 1000

    @property
    def gpu_us(self) -> float:
        """The sum of all durations."""
        return sum(self._durations_ns) / 1000

    @cached_property
    def busy_us(self) -> float:
        """The length of the union of all intervals, per device, summed over devices."""
        if not self._trace.device_kind.has_launches:
            return intervals.covered_length(self._start, sorted(self._end)) / 1000
        return gpu_time.busy_ns(self._trace, self._members) / 1000

    @property
    def span_us(self) -> float:
        """From the first start to the last end."""
        return (max(self._end) - min(self._start)) / 1000 if self._members else 0.0

    @cached_property
    def cpu_us(self) -> float | None:
        """The part's length on the CPU without what its own threads spent inside blocking calls and the flush.

        None where no operator, call or range of the CPU says when it began and ended.
        """
        if self._is_in_graph or any(step_range.tid is None for step_range in self._part.ranges):
            return None
        return sum(_cpu_time_ns(self._trace, step_range) for step_range in self._part.ranges) / 1000

    @property
    def cpu_gpu_ratio(self) -> float | None:
        """CPU time by GPU busy time; None without GPU operations."""
        return self.cpu_us / self.busy_us if self.cpu_us is not None and self.busy_us else None


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


def _cpu_time_ns(trace: Trace, step_range: StepRange) -> int:
    """Return the range's length without what its own thread spent inside blocking calls and the flush."""
    threads = [i for i, label in enumerate(trace.threads) if label == step_range.tid]
    waited = sum(trace.waiting.overlap(thread, step_range.start_ns, step_range.end_ns) for thread in threads)
    return step_range.end_ns - step_range.start_ns - waited
