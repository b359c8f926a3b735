"""The views that findings look at: the recording's GPU work, grouped and put in order, each made once, on demand."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property
from operator import lt, sub
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis import gpu_time
from pytest_torchprof.analysis.cpu_blocks import CpuBlocks, cpu_blocks
from pytest_torchprof.analysis.gpu_time import Gaps, joined_gaps
from pytest_torchprof.analysis.kernel_work import KernelVariants
from pytest_torchprof.analysis.recaptures import GraphCaptures
from pytest_torchprof.analysis.set_up import SetUp
from pytest_torchprof.analysis.stretches import long_stretches
from pytest_torchprof.analysis.waits import outermost, waiting_copies
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.kernels.names.words import only_lasts
from pytest_torchprof.kernels.operand_work import FAMILIES, OperandWork
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import ABSENT, KERNEL, MEMCPY, picked, where
from pytest_torchprof.trace.intervals import Spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.analysis.gpu_time import Idle
    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.analysis.stretches import Stretch
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.trace import Trace

_OWN_BUFFERS = ("Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource", "Command Buffer Full")


class Group(Struct, frozen=True):
    """Kernels of one name that one operator launched with one set of operands, in the order of the file."""

    name: int
    op: int
    """The operator's name by its index in ``Trace.names``, ABSENT for none."""
    inputs: int
    members: list[int]
    time_ns: int


class GpuWork:
    """The GPU work of the steps, seen from several sides."""

    def __init__(self, trace: Trace, launching: Launching) -> None:
        """Prepare to look; the work is done when asked."""
        self.trace = trace
        self.launching = launching

    @cached_property
    def window(self) -> tuple[int, int]:
        """From the first step's start to the later of the last step's and the last GPU operation's end, in ns."""
        return gpu_time.window(self.trace)

    @cached_property
    def whole(self) -> Spans:
        """The window as a range."""
        return intervals.span(*self.window)

    @property
    def window_us(self) -> float:
        """The window's length."""
        return (self.window[1] - self.window[0]) / 1000

    def share_of_window(self, us: float) -> float:
        """Return a time's share of the window."""
        return us / self.window_us if self.window_us > 0 else 0.0

    def share_of(self, gpu_ops: Iterable[int]) -> float:
        """Return the share of the window in which one of these ran, the mean over devices."""
        of_device = gpu_time.by_device(self.trace, gpu_ops)
        return self.share_of_window(sum(map(self.covered_us, of_device.values())) / max(len(self.by_device), 1))

    def share_during(self, spans: Spans) -> float:
        """Return the share of the window that these ranges cover."""
        return self.share_of_window(intervals.length_within(spans, self.whole) / 1000)

    def time_us(self, gpu_ops: Iterable[int]) -> float:
        """Return the sum of their durations."""
        start, end = self.trace.gpu.start, self.trace.gpu.end
        return sum([end[i] - start[i] for i in gpu_ops]) / 1000

    @cached_property
    def gpu_ops(self) -> list[int]:
        """GPU operations that belong to a step, step after step."""
        return [i for part in self.launching.parts for i in part.gpu_ops]

    @cached_property
    def kernels(self) -> list[int]:
        """The kernels among them."""
        kind = self.trace.gpu.kind
        return [i for i in self.gpu_ops if kind[i] == KERNEL]

    @cached_property
    def copies(self) -> list[int]:
        """The copies among them."""
        kind = self.trace.gpu.kind
        return [i for i in self.gpu_ops if kind[i] == MEMCPY]

    @cached_property
    def kernel_time_us(self) -> float:
        """The kernels' durations together."""
        return sum([group.time_ns for group in self.groups]) / 1000

    @cached_property
    def groups(self) -> list[Group]:
        """The kernels by name, launching operator and operands, the longest time first."""
        start, end = self.trace.gpu.start, self.trace.gpu.end
        groups = [
            Group(*variant, kernels, sum([end[i] - start[i] for i in kernels]))
            for variant, kernels in self.variants.kernels.items()
        ]
        return sorted(groups, key=lambda group: -group.time_ns)

    @cached_property
    def without_known_operator(self) -> frozenset[int]:
        """The GPU operations whose operator is not known: a graph launched them, or their launch is not in the file."""
        trace = self.trace
        call_of, named = trace.links.call_of, trace.calls.name
        graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
        if not len(trace.ops):
            return frozenset(self.gpu_ops)
        if not graphs and ABSENT not in call_of:
            return frozenset()
        return frozenset(i for i in self.gpu_ops if call_of[i] < 0 or named[call_of[i]] in graphs)

    def operator_known(self, group: Group) -> bool:
        """Return whether it is known which operator launched each of these kernels, or that no operator did."""
        unknown = self.without_known_operator
        return not unknown or unknown.isdisjoint(group.members)

    @cached_property
    def variants(self) -> KernelVariants:
        """The kernels by variant."""
        return KernelVariants(self.trace, self.launching, self.kernels)

    def variants_in(self, parts: Sequence[Part]) -> KernelVariants:
        """Return the kernels of parts of the recording by variant."""
        if [*parts] == [*self.launching.parts]:
            return self.variants
        kind = self.trace.gpu.kind
        kernels = [i for part in parts for i in part.gpu_ops if kind[i] == KERNEL]
        return KernelVariants(self.trace, self.launching, kernels)

    def operand_work(self, group: Group) -> OperandWork:
        """Return the FLOPs and bytes of one of these kernels, as far as its operands show them."""
        return self.variants.work_of((group.name, group.op, group.inputs)) or OperandWork()

    def may_be_measured(self, group: Group) -> bool:
        """Return whether a formula tells what these kernels have to do, or might if more of them were recorded."""
        if self.operator_known(group):
            return self.variants.work_of((group.name, group.op, group.inputs)) is not None
        decoded = self.decoded(group)
        return decoded.helper is None and decoded.is_of(*FAMILIES).may_be

    @cached_property
    def by_name(self) -> dict[int, list[Group]]:
        """The groups of each kernel name, the longest time first."""
        grouped: dict[int, list[Group]] = defaultdict(list)
        for group in self.groups:
            grouped[group.name].append(group)
        return dict(grouped)

    @cached_property
    def named(self) -> dict[int, KernelName]:
        """The facts that each kernel's name shows by itself, by its index in ``Trace.names``."""
        return {name: self.launching.named(name) for name in self.by_name}

    def of_family(self, *families: str) -> list[Group]:
        """Return the groups whose kernel's name is of one of the families, the longest time first."""
        names = {name for name, decoded in self.named.items() if decoded.family in families}
        return [group for group in self.groups if group.name in names]

    @cached_property
    def lasting(self) -> frozenset[int]:
        """The names of kernels that are made to take time and compute nothing, such as a test's ``spin_kernel``."""
        return frozenset(name for name in self.by_name if only_lasts(self.trace.names[name]))

    def decoded(self, group: Group) -> KernelName:
        """Return the facts that the name and the launch of these kernels show together."""
        return self.launching.decoded(group.members[0])

    def op_name(self, group: Group) -> str | None:
        """Return the launching operator's name."""
        return self.launching.op_name(self.launching.op_of[group.members[0]])

    def chain(self, group: Group) -> tuple[str, ...]:
        """Return the ranges around the launch of one of them, outermost first."""
        return self.launching.chain(self.launching.op_of[group.members[0]])

    def shapes(self, group: Group) -> tuple[Any, ...] | None:
        """Return the shapes of the launching operator's operands."""
        return self.launching.operands(group.inputs)[1] if group.inputs >= 0 else None

    @cached_property
    def by_device(self) -> dict[int, list[int]]:
        """All GPU operations by device, orphans too, in the order of their start."""
        return gpu_time.by_device(self.trace, self.trace.gpu_order)

    @cached_property
    def communication(self) -> frozenset[int]:
        """The kernels that carry out a collective."""
        kind, name = self.trace.gpu.kind, self.trace.gpu.name
        meant = {name_index for name_index in set(name) if self.launching.named(name_index).family == "communication"}
        if not meant:
            return frozenset()
        return frozenset(i for i, name_index in enumerate(name) if name_index in meant and kind[i] == KERNEL)

    def covered(self, gpu_ops: Iterable[int]) -> Spans:
        """Return when one of these ran, inside the window."""
        spans = intervals.of(self.trace.gpu, list(gpu_ops))
        # Nothing ends after the window; what began before it is an orphan.
        return spans if not spans or spans.starts[0] >= self.window[0] else intervals.within(spans, self.whole)

    @cached_property
    def busy(self) -> dict[int, Spans]:
        """When each device ran something, inside the window."""
        return {device: self.covered(ops) for device, ops in self.by_device.items()}

    @cached_property
    def busy_share(self) -> float:
        """The share of the window in which a device ran something, the mean over devices."""
        shares = [self.share_of_window(intervals.length(busy) / 1000) for busy in self.busy.values()]
        return sum(shares) / len(shares) if shares else 0.0

    @cached_property
    def idle(self) -> dict[int, Spans]:
        """When each device ran nothing, inside the window, without what the profiler took for its own buffers."""
        own = self.profilers_own
        idle = {device: intervals.without(self.whole, busy) for device, busy in self.busy.items()}
        return {device: intervals.without(spans, own) for device, spans in idle.items()} if own else idle

    @cached_property
    def idle_share(self) -> float:
        """The share of the window in which a device idled so, the mean over devices."""
        shares = [self.share_of_window(intervals.length(idle) / 1000) for idle in self.idle.values()]
        return sum(shares) / len(shares) if shares else 0.0

    def idle_during_us(self, spans: Spans) -> float:
        """Return for how long the devices idled so in these spans, the mean over devices."""
        together = sum(intervals.length_within(idle, spans) for idle in self.idle.values())
        return together / 1000 / max(len(self.idle), 1)

    def covered_us(self, gpu_ops: Iterable[int]) -> float:
        """Return how long at least one of these ran, inside the window."""
        start, end, begin = self.trace.gpu.start, self.trace.gpu.end, self.window[0]
        members = list(gpu_ops)
        starts, ends = sorted(picked(start, members)), sorted(picked(end, members))
        if starts and starts[0] < begin:
            # What began before the window is an orphan; nothing ends after it.
            starts, ends = [max(instant, begin) for instant in starts], [max(instant, begin) for instant in ends]
        return intervals.covered_length(starts, ends) / 1000

    @cached_property
    def outermost(self) -> list[int]:
        """The operators that no other one holds, without those that ran when a CUDA graph was captured."""
        trace = self.trace
        roots, lane = trace.nesting.outermost, trace.captured.lane
        return roots if lane == ABSENT else [i for i in roots if trace.ops.thread[i] != lane]

    @cached_property
    def cpu_blocks(self) -> CpuBlocks:
        """When an operator, range or call ran."""
        return cpu_blocks(self.trace, self.outermost)

    @cached_property
    def unrecorded(self) -> Spans:
        """When, inside the window, no operator, range, call or frame of Python ran, and no device did."""
        begin, until = self.window
        starts, ends = map(sorted, self._events())
        # Nothing runs before a start exactly when as many events have ended as have begun.
        before, behind = bisect_left(ends, begin), bisect_left(ends, until)
        quiet_from = [begin] * (before + 1) + ends[before:behind]
        quiet_to = [*starts[: bisect_left(starts, until)], until][: len(quiet_from)]
        return intervals.chosen(Spans(quiet_from, quiet_to), list(map(lt, quiet_from, quiet_to)))

    def _events(self) -> tuple[list[int], list[int]]:
        blocks, frames, gpu = self.cpu_blocks, self.trace.frames, self.trace.gpu
        return [*blocks.starts, *frames.start, *gpu.start], [*blocks.ends, *frames.end, *gpu.end]

    @cached_property
    def profilers_own_events(self) -> list[int]:
        """The indices of the overheads in which the profiler handled its own buffers."""
        return where(self.trace.overheads.name, {i for i, name in enumerate(self.trace.names) if name in _OWN_BUFFERS})

    @cached_property
    def profilers_own(self) -> Spans:
        """When the profiler was busy with its own buffers."""
        return intervals.of(self.trace.overheads, self.profilers_own_events)

    @cached_property
    def graph_captures(self) -> GraphCaptures:
        """The calls in which CUDA graphs were captured."""
        return GraphCaptures(trace=self.trace, outermost=self.outermost)

    @cached_property
    def set_up(self) -> SetUp:
        """The work inside the steps that is done only once."""
        return SetUp(
            trace=self.trace,
            launching=self.launching,
            window=self.whole,
            captures=self.graph_captures,
            stretches=self.stretches,
            profilers_own=self.profilers_own,
        )

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Where a thread stayed in one call or operator for a millisecond or more while the GPU hardly worked."""
        long = self.long_stretches
        worked_ns = self.worked_ns([stretch.start for stretch in long], [stretch.end for stretch in long])
        return [stretch for stretch, worked in zip(long, worked_ns, strict=True) if worked < stretch.ns / 10]

    @cached_property
    def long_stretches(self) -> list[Stretch]:
        """Where a thread stayed in one call or operator for a millisecond or more."""
        return long_stretches(self.trace)

    def worked_ns(self, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Return how long a device, the busiest one, ran something between each start and the end beside it."""
        worked = [list(map(sub, busy.ns_before(ends), busy.ns_before(starts))) for busy in self._coverage]
        if len(worked) == 1:
            return worked[0]
        return list(map(max, zip(*worked, strict=True))) if worked else [0] * len(starts)

    @cached_property
    def _coverage(self) -> list[intervals.Coverage]:
        return list(map(intervals.Coverage, self.busy.values()))

    @cached_property
    def gaps(self) -> Gaps:
        """When a device idled before an operation of a step, inside the window, without what the profiler took."""
        return self._without_profilers_own(
            joined_gaps(self._inside(gpu_time.idle_gaps(self.trace, ops)) for ops in self.by_device.values())
        )

    def _inside(self, gaps: Gaps) -> Gaps:
        """Return those before operations of a step, inside the window."""
        of_step, begin = self.trace.step_of_gpu_op, self.window[0]
        # They end in their order. Most often all are in the window, and all operations are of a step.
        if ABSENT in of_step or (len(gaps) and gaps.ends[0] <= begin):
            gaps = gaps.chosen([end > begin and of_step[i] >= 0 for end, i in zip(gaps.ends, gaps.before, strict=True)])
        # Each begins where the one before has ended.
        return replace(gaps, starts=[max(gaps.starts[0], begin), *gaps.starts[1:]]) if len(gaps) else gaps

    @cached_property
    def gaps_from_start(self) -> Gaps:
        """Those gaps, and from the window's start to each device's first operation, if that is of a step."""
        trace, begin = self.trace, self.window[0]
        call_of, launched = trace.links.call_of, trace.calls.start
        firsts = [
            first
            for first, *_ in self.by_device.values()
            if trace.step_of_gpu_op[first] >= 0 and trace.gpu.start[first] > begin
        ]
        from_start = Gaps(
            [begin] * len(firsts),
            [trace.gpu.start[first] for first in firsts],
            firsts,
            [call_of[first] >= 0 and launched[call_of[first]] > begin for first in firsts],
        )
        return joined_gaps([self._without_profilers_own(from_start), self.gaps])

    def _without_profilers_own(self, gaps: Gaps) -> Gaps:
        if not (own := self.profilers_own):
            return gaps
        parts = Gaps([], [], [], [])
        for start, end, before, late in zip(gaps.starts, gaps.ends, gaps.before, gaps.late, strict=True):
            left = intervals.without(intervals.span(start, end), own)
            parts.starts.extend(left.starts)
            parts.ends.extend(left.ends)
            parts.before.extend([before] * len(left))
            parts.late.extend([late] * len(left))
        return parts

    @cached_property
    def idle_by_cause(self) -> Idle:
        """The gaps' time by cause."""
        return gpu_time.idle_time(self.gaps)

    @cached_property
    def blocking(self) -> list[int]:
        """The blocking calls of the steps, the profiler's own and those within others aside."""
        trace = self.trace
        step_of, flush = trace.step_of_call, trace.flush
        return outermost(trace, [i for i in trace.blocking if i != flush and step_of[i] >= 0])

    @cached_property
    def waiting_copies(self) -> dict[int, int]:
        """The calls of copies from or to pageable memory that came back only when the copy was done, by operator.

        Those that block whatever the memory are among the blocking calls.
        """
        call_of, op_of, blocking = self.trace.links.call_of, self.launching.op_of, {*self.trace.blocking}
        copies = waiting_copies(self.trace, self.copies)
        return {call_of[i]: op_of[i] for i in copies if call_of[i] not in blocking}

    @cached_property
    def waits(self) -> Spans:
        """When the CPU waited in the steps: in these blocking calls and copies."""
        return intervals.of(self.trace.calls, [*self.blocking, *self.waiting_copies])

    @cached_property
    def waiting_copies_of(self) -> dict[int, list[int]]:
        """The calls of these copies of each operator; copies without an operator are left out."""
        copies: dict[int, list[int]] = defaultdict(list)
        for call, op in self.waiting_copies.items():
            if op >= 0:
                copies[op].append(call)
        return copies

    def source_of(self, gpu_op: int) -> str | None:
        """Return the user's line, or function, that launched a GPU operation; None without recorded stacks."""
        origin = self.launching.origins.of_call(self.trace.links.call_of[gpu_op], self.launching.op_of[gpu_op])
        return origin.source if origin else None

    @cached_property
    def launched_together(self) -> list[list[int]]:
        """Each step's GPU operations by the thread that launched them, in launch order; graphs left out."""
        trace = self.trace
        call_of, began, named, threads = trace.links.call_of, trace.calls.start, trace.calls.name, trace.calls.thread
        graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
        launched = picked([*began, 0], call_of)
        together: list[list[int]] = []
        for part in self.launching.parts:
            of_threads: dict[int, list[int]] = defaultdict(list)
            for i in part.gpu_ops:
                call = call_of[i]
                if call >= 0 and named[call] not in graphs:
                    of_threads[threads[call]].append(i)
            together += [sorted(ops, key=launched.__getitem__) for ops in of_threads.values()]
        return together

    @cached_property
    def kernels_together(self) -> list[list[int]]:
        """The kernels among these."""
        kind = self.trace.gpu.kind
        return [[i for i in ops if kind[i] == KERNEL] for ops in self.launched_together]
