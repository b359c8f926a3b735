"""What findings look at: the recording's GPU work grouped and put in order, each view made once, when asked for."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_torchprof.analysis import gpu_time
from pytest_torchprof.analysis.kernel_work import KernelVariants
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.kernels.operand_work import FAMILIES, OperandWork
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import ABSENT, KERNEL, MEMCPY, where
from pytest_torchprof.trace.links import captures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.gpu_time import Gap, Idle
    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.intervals import Spans

_OWN_BUFFERS = ("Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource", "Command Buffer Full")
_LOADING_CODE = ("Lazy Function Loading", "Runtime Triggered Module Loading", "Driver Compiler")
_SETUP = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|FreeHost|HostFree|GraphInstantiate|LibraryLoad)|(?:cu|hip)ModuleLoad"
)
_LOADING_LAUNCH_NS = 1_000_000
"""A launch takes some 5 us; one that takes a millisecond while the GPU idles loads the kernel's code first."""


class Group(NamedTuple):
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

    def share_during(self, ranges: Iterable[tuple[int, int]]) -> float:
        """Return the share of the window that ranges cover together, whichever their threads."""
        return self.share_of_window(intervals.length(intervals.within(intervals.merged(ranges), [self.window])) / 1000)

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
        """The GPU operations whose operator nothing tells: a graph launched them, or no launch in the file."""
        trace = self.trace
        call_of, named = trace.links.call_of, trace.calls.name
        graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
        if not len(trace.ops):
            return frozenset(self.gpu_ops)
        return frozenset(i for i in self.gpu_ops if call_of[i] < 0 or named[call_of[i]] in graphs)

    def operator_known(self, group: Group) -> bool:
        """Return whether it is known which operator launched each of these kernels, or that no operator did."""
        return self.without_known_operator.isdisjoint(group.members)

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
        """Return what one of these kernels has to compute and to move, as far as its operands tell."""
        return self.variants.work.get((group.name, group.op, group.inputs), OperandWork())

    def may_be_measured(self, group: Group) -> bool:
        """Return whether a formula tells what these kernels have to do, or might if more of them were recorded."""
        if self.operator_known(group):
            return (group.name, group.op, group.inputs) in self.variants.work
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
        """What each kernel name says by itself."""
        return {name: self.launching.named(name) for name in self.by_name}

    def of_family(self, *families: str) -> list[Group]:
        """Return the groups whose kernel's name is of one of the families, the longest time first."""
        names = {name for name, decoded in self.named.items() if decoded.family in families}
        return [group for group in self.groups if group.name in names]

    def decoded(self, group: Group) -> KernelName:
        """Return what name and launch say together."""
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
        start, end = self.trace.gpu.start, self.trace.gpu.end
        begin, until = self.window
        spans = intervals.merged([(start[i], end[i]) for i in gpu_ops])
        # Nothing ends after the window; what began before it is an orphan.
        return spans if not spans or spans[0][0] >= begin else intervals.within(spans, [(begin, until)])

    @cached_property
    def busy(self) -> dict[int, Spans]:
        """When each device ran something, inside the window."""
        return {device: self.covered(ops) for device, ops in self.by_device.items()}

    @cached_property
    def busy_share(self) -> float:
        """The share of the window in which a device ran something, the mean over devices."""
        shares = [self.share_of_window(intervals.length(busy) / 1000) for busy in self.busy.values()]
        return sum(shares) / len(shares) if shares else 0.0

    def covered_us(self, gpu_ops: Iterable[int]) -> float:
        """Return how long at least one of these ran, inside the window."""
        start, end, begin = self.trace.gpu.start, self.trace.gpu.end, self.window[0]
        members = list(gpu_ops)
        starts, ends = sorted([start[i] for i in members]), sorted([end[i] for i in members])
        if starts and starts[0] < begin:
            # What began before the window is an orphan; nothing ends after it.
            starts, ends = [max(instant, begin) for instant in starts], [max(instant, begin) for instant in ends]
        return intervals.covered_length(starts, ends) / 1000

    @cached_property
    def outermost(self) -> list[int]:
        """The operators that no other one holds, without those that ran when a CUDA graph was captured."""
        trace = self.trace
        return [i for i in where(trace.nesting.parent, {ABSENT}) if trace.ops.thread[i] != trace.captured.lane]

    @cached_property
    def profilers_own(self) -> Spans:
        """When the profiler was busy with its own buffers."""
        own = self.trace.overheads
        named = {i for i, name in enumerate(self.trace.names) if name in _OWN_BUFFERS}
        return intervals.merged((own.start[i], own.end[i]) for i, name in enumerate(own.name) if name in named)

    @cached_property
    def setup(self) -> dict[str, Spans]:
        """Inside the steps, what is done once: by its name, when. Code is loaded, memory allocated, graphs recorded."""
        trace, calls, own = self.trace, self.trace.calls, self.trace.overheads
        names = {i for i, name in enumerate(trace.names) if name in _LOADING_CODE or _SETUP.match(name)}
        ranges_of: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for part in (own, calls):
            for i in where(part.name, names):
                ranges_of[trace.names[part.name[i]]].append((part.start[i], part.end[i]))
        for i in self._loading_launches():
            ranges_of[f"{trace.names[calls.name[i]]} that loads code"].append((calls.start[i], calls.end[i]))
        ranges_of["graph capture"] += [(start, end) for _, start, end in captures(calls, trace.call_kinds).ranges()]
        inside = {name: intervals.within(intervals.merged(ranges), [self.window]) for name, ranges in ranges_of.items()}
        kept = {name: [span for span in ranges if trace.step_at(span[0]) >= 0] for name, ranges in inside.items()}
        return {name: ranges for name, ranges in kept.items() if ranges}

    def _loading_launches(self) -> Iterator[int]:
        calls = self.trace.calls
        long = [i for i in self.trace.links.launches if calls.end[i] - calls.start[i] >= _LOADING_LAUNCH_NS]
        if not long:
            return
        call_of = self.trace.links.call_of
        launched = {call_of[i]: self.trace.gpu.start[i] for i in where(call_of, set(long))}
        for i in long:
            # Behind a full queue a launch takes long too; there its kernel has to wait.
            soon = i in launched and launched[i] - calls.end[i] < _LOADING_LAUNCH_NS
            if soon and self.worked_ns(calls.start[i], calls.end[i]) < (calls.end[i] - calls.start[i]) / 10:
                yield i

    @cached_property
    def setup_us(self) -> float:
        """How long that took."""
        return intervals.length(intervals.merged(span for ranges in self.setup.values() for span in ranges)) / 1000

    def worked_ns(self, start: int, end: int) -> int:
        """Return how long a device, the busiest one, ran something between two instants."""
        return max((_covered_ns(busy, start, end) for busy in self.busy.values()), default=0)

    @cached_property
    def gaps(self) -> list[Gap]:
        """When a device idled before an operation of a step, inside the window, without what the profiler took."""
        of_step, begin = self.trace.step_of_gpu_op, self.window[0]
        every = (gap for ops in self.by_device.values() for gap in gpu_time.idle_gaps(self.trace, ops))
        gaps = [
            (max(start, begin), end, cause, before)
            for start, end, cause, before in every
            if end > begin and of_step[before] >= 0
        ]
        own = self.profilers_own
        if not own:
            return gaps
        return [
            (start, end, cause, before)
            for begin, until, cause, before in gaps
            for start, end in intervals.without([(begin, until)], own)
        ]

    @cached_property
    def idle(self) -> Idle:
        """The gaps' time by cause."""
        return gpu_time.idle_time(self.gaps)

    def source_of(self, gpu_op: int) -> str | None:
        """Return ``file.py:12``, the user's line that launched a GPU operation; None without recorded stacks."""
        origin = self.launching.origins.of_call(self.trace.links.call_of[gpu_op], self.launching.op_of[gpu_op])
        return origin.file_line if origin else None

    def source_of_call(self, call: int) -> str | None:
        """Return the user's line that made a call; None without recorded stacks."""
        origin = self.launching.origins.of_call(call, ABSENT)
        return origin.file_line if origin else None

    @cached_property
    def launched_together(self) -> list[list[int]]:
        """Each step's GPU operations by the thread that launched them, in launch order; graphs left out."""
        trace = self.trace
        call_of, calls = trace.links.call_of, trace.calls
        graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
        launched = [calls.start[call] if call >= 0 else 0 for call in call_of]
        together: dict[tuple[int, int], list[int]] = defaultdict(list)
        for step, part in enumerate(self.launching.parts):
            for i in part.gpu_ops:
                call = call_of[i]
                if call >= 0 and calls.name[call] not in graphs:
                    together[step, calls.thread[call]].append(i)
        return [sorted(ops, key=launched.__getitem__) for ops in together.values()]


def _covered_ns(busy: Spans, start: int, end: int) -> int:
    index, covered = max(bisect_right(busy, (start, 0)) - 1, 0), 0
    while index < len(busy) and busy[index][0] < end:
        covered += max(0, min(end, busy[index][1]) - max(start, busy[index][0]))
        index += 1
    return covered
