"""The work done once, in the first steps: code is loaded, memory allocated, CUDA graphs are recorded."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.stretches import launched_soon
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.text.expressions import Expression
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.recaptures import GraphCaptures
    from pytest_torchprof.analysis.stretches import Stretch
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.columns import Calls, Ranges, Timed
    from pytest_torchprof.trace.intervals import Spans

FIRST_CALL = "first "
"""What the name of a first call begins with in `SetUp.by_name`."""
_LOADING_CODE = ("Lazy Function Loading", "Runtime Triggered Module Loading", "Driver Compiler")
_SETUP = Expression(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|FreeHost|HostFree|GraphInstantiate|LibraryLoad)|(?:cu|hip)ModuleLoad",
    words="Malloc Free HostAlloc GraphInstantiate LibraryLoad ModuleLoad",
)
_OF_DRIVER = ("cu", "hip", *_LOADING_CODE)
"""The beginnings of all of these, which few names have."""
_CAPTURE = "graph capture"
_CAPTURING = "call that captures a graph"
_LOADS = " that loads code"
_ALLOCATING = frozenset({"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::empty_permuted"})
_KINDS_OF_FIRST_CALLS = frozenset({CallKind.OTHER, CallKind.QUERY, CallKind.FILL})
"""What neither launches nor waits nor copies: where such a call takes long, it is the driver that does something."""


class SetUp(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The work done once inside the steps; each view is made when it is asked for."""

    trace: Trace
    launching: Launching
    window: Spans
    captures: GraphCaptures
    stretches: Sequence[Stretch]
    """Where a thread stayed in one call or operator while the GPU hardly worked."""
    profilers_own: Spans
    """When the profiler was busy with its own buffers."""

    @cached_property
    def by_name(self) -> dict[str, Spans]:
        """When it was done, by its name."""
        trace, calls, own = self.trace, self.trace.calls, self.trace.overheads
        of_driver = [(i, name) for i, name in enumerate(trace.names) if name.startswith(_OF_DRIVER)]
        names = {i for i, name in of_driver if name in _LOADING_CODE or _SETUP.match(name)}
        ranges_of: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for part in (own, calls):
            for i in where(part.name, names):
                ranges_of[trace.names[part.name[i]]].append((part.start[i], part.end[i]))
        for stretch in self._loading_launches():
            ranges_of[f"{trace.names[stretch.name]}{_LOADS}"].append((stretch.start, stretch.end))
        for stretch in self.first_calls:
            ranges_of[f"{FIRST_CALL}{trace.names[stretch.name]}"].append((stretch.start, stretch.end))
        ranges_of[_CAPTURING] += self.captures.new_calls
        ranges_of[_CAPTURE] += self.captures.ranges
        once = intervals.without(self.window, self.captures.repeated_calls)
        inside = {name: intervals.within(intervals.merged(ranges), once) for name, ranges in ranges_of.items()}
        kept = {
            name: intervals.chosen(ranges, [trace.step_at(start) >= 0 for start in ranges.starts])
            for name, ranges in inside.items()
        }
        return {name: ranges for name, ranges in kept.items() if ranges}

    @cached_property
    def spans(self) -> Spans:
        """When something of it was done."""
        return intervals.union_of(self.by_name.values())

    @cached_property
    def time_us(self) -> float:
        """How long that took."""
        return intervals.length(self.spans) / 1000

    @cached_property
    def calls(self) -> list[int]:
        """The calls of it; of a graph's capture the one that begins it."""
        return self._of(self.trace.calls)

    @cached_property
    def ops(self) -> list[int]:
        """The operators of it: first ones that took long, and those that captured a graph."""
        ops, again = self.trace.ops, set(self.captures.repeated_ops)
        step_at = self.trace.step_at
        first = {stretch.member for stretch in self.first_calls if not stretch.is_call and step_at(stretch.start) >= 0}
        captured = (i for i in self.captures.ops if i not in again and step_at(ops.start[i]) >= 0)
        return sorted(first.union(captured))

    @cached_property
    def overheads(self) -> list[int]:
        """The driver's own part of it, as indices of overheads."""
        return self._of(self.trace.overheads)

    def _of(self, part: Calls | Ranges) -> list[int]:
        names = self.trace.names
        captured = {start for start, _ in self.by_name.get(_CAPTURE, ())}
        several: dict[str, list[Spans]] = defaultdict(list)
        for name, ranges in self.by_name.items():
            several[name.removesuffix(_LOADS).removeprefix(FIRST_CALL)].append(ranges)
        of_name = {name: intervals.union_of(each) for name, each in several.items()}
        indices = {i for i, name in enumerate(names) if name in of_name}
        named = (i for i in where(part.name, indices) if _covers(of_name[names[part.name[i]]], part.start[i]))
        return sorted({*named, *(i for i, start in enumerate(part.start) if start in captured)})

    def _loading_launches(self) -> Iterator[Stretch]:
        """Yield the launches that take long and are the first of their kernel: they load its code."""
        launches = set(self.trace.links.launches)
        long = [stretch for stretch in self.stretches if stretch.is_call and stretch.member in launches]
        for stretch, kernel in launched_soon(self.trace, long):
            if self._is_first_of_its_name(kernel):
                yield stretch

    def _is_first_of_its_name(self, kernel: int) -> bool:
        """Return whether no kernel of that name ran before in the recording."""
        return _is_first(self.trace.gpu, kernel)

    @cached_property
    def first_calls(self) -> list[Stretch]:
        """Calls that take long the first time: of the driver, of an allocation, of an operator that launches.

        Memory is mapped then, handles of libraries are made, code is loaded. For each kernel that an operator is the
        first to launch, it is called for the first time.
        """
        return list(self._first_calls())

    def _first_calls(self) -> Iterator[Stretch]:
        trace, kinds = self.trace, self.trace.call_kinds
        launching = self._kernels_of({stretch.member for stretch in self.stretches if not stretch.is_call})
        explained = intervals.union_of([self.profilers_own, self.captures.calls])
        for stretch in self.stretches:
            columns = trace.calls if stretch.is_call else trace.ops
            if stretch.is_call:
                is_meant = kinds[stretch.name] in _KINDS_OF_FIRST_CALLS and not _SETUP.match(trace.names[stretch.name])
            else:
                is_meant = trace.names[stretch.name] in _ALLOCATING or stretch.member in launching
            if not is_meant or intervals.within(intervals.span(stretch.start, stretch.end), explained):
                continue
            kernels = () if stretch.is_call else launching.get(stretch.member, ())
            if _is_first(columns, stretch.member) or any(map(self._is_first_of_its_name, kernels)):
                yield stretch

    def _kernels_of(self, ops: set[int]) -> dict[int, list[int]]:
        """Return by operator, of these, the kernels, copies and fills that it launched itself."""
        launched: dict[int, list[int]] = defaultdict(list)
        op_of = self.launching.op_of
        for i in where(op_of, ops):
            launched[op_of[i]].append(i)
        return launched


def _is_first(columns: Timed, member: int) -> bool:
    """Return whether no other event of that name began before."""
    name, start = columns.name[member], columns.start[member]
    # Most files are in order, where the first of the name tells.
    if columns.start[columns.name.index(name)] < start:
        return False
    return start == min(map(columns.start.__getitem__, where(columns.name, {name})))


def _covers(spans: Spans, instant: int) -> bool:
    index = bisect_right(spans.starts, instant) - 1
    return index >= 0 and instant <= spans.ends[index]
