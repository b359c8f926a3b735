"""Which operators captured CUDA graphs, and which of them captured one that was there already."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.links import captures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.intervals import Spans

_COLDER: Final = 1.5
"""How many times as long as later ones a first capture takes that compiles and loads code as well."""

Graph = tuple[tuple[int, float], ...]
"""The kernels of a graph by their name and the blocks per SM, which follow from the size of what they work on."""


class GraphCaptures(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The operators in which CUDA graphs were captured, by their index; each view is made when it is asked for."""

    trace: Trace
    outermost: Sequence[int]
    """The operators that no other one holds."""

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """From when to when each capture took."""
        return [(start, end) for _, start, end in captures(self.trace.calls, self.trace.call_kinds).ranges()]

    @cached_property
    def ops(self) -> list[int]:
        """All of them, in order."""
        ops = self.trace.ops
        if not self.ranges:
            return []
        holding = (
            i for i in self.outermost if any(ops.start[i] <= start and end <= ops.end[i] for start, end in self.ranges)
        )
        return sorted(holding, key=ops.start.__getitem__)

    @cached_property
    def calls(self) -> Spans:
        """When they ran: such a call warms up and compiles too."""
        return self._spans_of(self.ops)

    @cached_property
    def repeated_ops(self) -> list[int]:
        """The operators that captured, in a step, the work that others captured too: no cold start."""
        step_at, start = self.trace.step_at, self.trace.ops.start
        return [i for i in _recaptures(self.trace, self.ops) if step_at(start[i]) >= 0]

    @cached_property
    def repeated_calls(self) -> Spans:
        """When these ran."""
        return self._spans_of(self.repeated_ops)

    @cached_property
    def new_calls(self) -> Spans:
        """When those ran that captured something new."""
        again = set(self.repeated_ops)
        return self._spans_of(i for i in self.ops if i not in again)

    def _spans_of(self, operators: Iterable[int]) -> Spans:
        return intervals.of(self.trace.ops, list(operators))


def _recaptures(trace: Trace, capturing: Sequence[int]) -> list[int]:
    """Return those of the operators that captured a graph which captured the same one as another did, in their order.

    ``capturing``: operators that hold a capture, in the order of their start. The same are graphs of the same operators
    and kernels. In between some graph must have been launched by a call that captured nothing: equal layers of a model
    capture a graph each, one after the other. The first one is among them if it took hardly longer: it was no colder.
    Where the kernels of a graph are not recorded, nothing is said of it.
    """
    if len(capturing) < 2:
        return []
    ops, calls, kinds = trace.ops, trace.calls, trace.call_kinds
    launches = sorted(
        (i for i in range(len(calls)) if kinds[calls.name[i]] is CallKind.GRAPH_LAUNCH), key=calls.start.__getitem__
    )
    launched_at = [calls.start[i] for i in launches]
    begun, ended = [ops.start[op] for op in capturing], [ops.end[op] for op in capturing]
    replayed_at = [at for at in launched_at if not _is_inside(at, begun, ended)]
    ran: list[list[int]] = [[] for _ in capturing]
    for i in sorted(range(len(ops)), key=ops.start.__getitem__):
        at = bisect_right(begun, ops.start[i]) - 1
        if at >= 0 and ops.end[i] <= ops.end[capturing[at]]:
            ran[at].append(ops.name[i])
    kernels = _kernels_of(trace)
    captured: dict[tuple[tuple[int, ...], Graph], list[int]] = defaultdict(list)
    for op, names in zip(capturing, map(tuple, ran), strict=True):
        own = launches[bisect_left(launched_at, ops.start[op]) : bisect_right(launched_at, ops.end[op])]
        graph = tuple(kernel for call in own for kernel in kernels.get(call, ()))
        if not graph:
            continue
        same = captured[names, graph]
        if not same or bisect_left(replayed_at, ops.start[op]) > bisect_left(replayed_at, ops.start[same[0]]):
            same.append(op)
    again: list[int] = []
    for first, *others in captured.values():
        warm = others and _length(trace, first) <= _COLDER * min(_length(trace, op) for op in others)
        again += [first, *others] if warm else others
    return sorted(again, key=ops.start.__getitem__)


def _length(trace: Trace, op: int) -> int:
    return trace.ops.end[op] - trace.ops.start[op]


def _is_inside(at: int, begun: Sequence[int], ended: Sequence[int]) -> bool:
    index = bisect_right(begun, at) - 1
    return index >= 0 and at < ended[index]


def _kernels_of(trace: Trace) -> dict[int, list[tuple[int, float]]]:
    """Return by the call that launched it the work of a graph, in the order of the device."""
    gpu, call_of = trace.gpu, trace.links.call_of
    kernels: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for i in trace.gpu_order:
        if (call := call_of[i]) >= 0:
            kernels[call].append((gpu.name[i], gpu.blocks_per_sm[i]))
    return kernels
