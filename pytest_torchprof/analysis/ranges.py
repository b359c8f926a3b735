"""What was launched inside a user's ranges: by their own threads, and by autograd's for them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.analysis.parts import Part
from pytest_torchprof.trace import StepRange
from pytest_torchprof.trace.columns import ABSENT
from pytest_torchprof.trace.links import Intervals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.trace import Span, Trace

Stretch = tuple[int, int, int]
"""A thread, and from when to when in ns."""
_NODE = "autograd::engine::evaluate_function: "


class Backward:
    """Tells for which threads a backward pass works on threads of its own."""

    def __init__(self, trace: Trace) -> None:
        """Take the trace."""
        self._trace = trace
        self._nodes = {name for name, text in enumerate(trace.names) if text.startswith(_NODE)}
        self._anybody = frozenset(trace.annotations.thread) if self._nodes else frozenset()
        self._of_op: dict[int, frozenset[int]] = {}

    def __bool__(self) -> bool:
        """Return whether there is a backward pass in the recording."""
        return bool(self._nodes)

    def waiting_for(self, op: int) -> frozenset[int]:
        """Return the other threads that may wait for an operator inside a node of the backward pass.

        That is the forward operator's thread where an arrow tells which operator that was, else any thread with user
        annotations. Of nodes inside nodes, as checkpointing makes them, the outermost tells.
        """
        if op < 0 or not self._nodes:
            return frozenset()
        if op not in self._of_op:
            trace, chain = self._trace, list(self._trace.nesting.chain(op))
            linked = [trace.forward_of[one] for one in chain if one in trace.forward_of]
            inside = any(trace.ops.name[one] in self._nodes for one in chain)
            thread = trace.ops.thread
            others = (frozenset({thread[linked[-1]]}) if linked else self._anybody) - {thread[op]}
            self._of_op[op] = others if inside else frozenset()
        return self._of_op[op]


def waiting_threads(trace: Trace, calls: Iterable[int]) -> Mapping[int, frozenset[int]]:
    """Return for calls inside a node of the backward pass the other threads that may wait for it."""
    backward = Backward(trace)
    if not backward:
        return {}
    around = trace.nesting.around_each(trace.calls, calls)
    return {call: others for call, op in around.items() if (others := backward.waiting_for(op))}


class Inside:
    """Tells what was done inside stretches of threads; autograd's threads work for those that wait for them there."""

    def __init__(self, trace: Trace, stretches: Iterable[Stretch], for_others: Mapping[int, frozenset[int]]) -> None:
        """Take the stretches, and for calls of the backward pass the threads that may wait for them."""
        self._trace, self._for_others, taken = trace, for_others, list(stretches)
        self._own = Intervals(taken)
        self._anywhere = Intervals((0, start, end) for _, start, end in taken)

    def launched(self, call: int) -> bool:
        """Whether a call was made inside, or where the work was waited for inside."""
        calls = self._trace.calls
        threads = (calls.thread[call], *self._for_others.get(call, ()))
        return any(self._own.cover(thread, calls.start[call]) for thread in threads)

    def part_of(self, part: Part, name: str) -> Part:
        """Return what of a part is inside; a GPU operation without a recorded launch is where it ran itself."""
        trace, call_of = self._trace, self._trace.links.call_of
        gpu_start, op_start, op_thread = trace.gpu.start, trace.ops.start, trace.ops.thread
        return Part(
            name=part.name,
            ranges=tuple(
                StepRange(name, start, end, trace.threads[thread]) for thread, start, end in self._own.ranges()
            ),
            gpu_ops=[
                i
                for i in part.gpu_ops
                if (self.launched(call_of[i]) if call_of[i] >= 0 else self._anywhere.cover(0, gpu_start[i]))
            ],
            calls=[i for i in part.calls if self.launched(i)],
            operators=[i for i in part.operators if self._own.cover(op_thread[i], op_start[i])],
        )


def stretches_of(trace: Trace, ranges: Iterable[Span]) -> list[Stretch]:
    """Return where ranges of a recording are, in their order."""
    thread_of = {label: index for index, label in enumerate(trace.threads)}
    return [(thread_of[span.tid], span.start_ns, span.end_ns) for span in ranges]


def parts_within(trace: Trace, parts: Iterable[Part], name: str) -> list[Part]:
    """Return what of each part was launched inside its user annotations of this name.

    By the annotation's own thread, or by autograd's while that waited for it inside of one. A part without such an
    annotation is left out: it says nothing of it.
    """
    stretches = stretches_of(trace, trace.ranges(name))
    starts = [start for _, start, _ in stretches]
    begun = [(part, [one for step in part.ranges for one in _starting_in(step, stretches, starts)]) for part in parts]
    found = [(part, inside) for part, inside in begun if inside]
    for_others = waiting_threads(trace, calls_of(trace, [part for part, _ in found]))
    return [Inside(trace, inside, for_others).part_of(part, name) for part, inside in found]


def _starting_in(step: StepRange, stretches: Sequence[Stretch], starts: Sequence[int]) -> Sequence[Stretch]:
    return stretches[bisect_left(starts, step.start_ns) : bisect_left(starts, step.end_ns)]


def calls_of(trace: Trace, parts: Iterable[Part]) -> set[int]:
    """Return the calls that did the work of the parts, or that it is to wait for it."""
    call_of = trace.links.call_of
    found: set[int] = set()
    for part in parts:
        found.update(part.calls, (call_of[i] for i in part.gpu_ops))
    return found - {ABSENT}


class Occurrence(Part, frozen=True, kw_only=True, eq=False):
    """One outermost range of a name, and what was launched inside it, wherever a step ends meanwhile."""

    step: int
    """The place of the step in which it begins."""
    stretch: Stretch


def occurrences(trace: Trace, steps: Sequence[Part], name: str) -> list[Occurrence]:
    """Return the outermost ranges of this name that begin in the steps, in start order.

    One that reaches beyond its step has all of its work that is in any step.
    """
    stretches = stretches_of(trace, trace.outermost(name))
    held = _held_by(trace, steps, stretches)
    starts = [start for _, start, _ in stretches]
    found = []
    for place, step in enumerate(steps):
        for within in step.ranges:
            for i in range(bisect_left(starts, within.start_ns), bisect_left(starts, within.end_ns)):
                thread, start, end = stretches[i]
                found.append(
                    Occurrence(
                        name=name,
                        ranges=(StepRange(name, start, end, trace.threads[thread]),),
                        gpu_ops=sorted(held[i].gpu_ops, key=trace.gpu.start.__getitem__),
                        calls=held[i].calls,
                        operators=held[i].operators,
                        step=place,
                        stretch=stretches[i],
                    )
                )
    return found


def operators_within(trace: Trace, found: Sequence[Occurrence], ops: Iterable[int]) -> list[list[int]]:
    """Return for each occurrence which of the operators it holds, those of autograd's threads that it waits for too."""
    held: list[list[int]] = [[] for _ in found]
    by_thread, backward = _Holders([one.stretch for one in found]), Backward(trace)
    for op in ops:
        threads = (trace.ops.thread[op], *backward.waiting_for(op))
        for i in {i for thread in threads for i in by_thread.around(thread, trace.ops.start[op])}:
            held[i].append(op)
    return held


class _Held(NamedTuple):
    """What is inside one stretch."""

    gpu_ops: list[int]
    calls: list[int]
    operators: list[int]


def _held_by(trace: Trace, parts: Iterable[Part], stretches: Sequence[Stretch]) -> list[_Held]:
    """Return for each stretch what of all parts is inside it; coroutines' may overlap, and then share their work."""
    found = [_Held([], [], []) for _ in stretches]
    if not found:
        return found
    parts, calls, call_of = list(parts), trace.calls, trace.links.call_of
    by_thread, anywhere = _Holders(stretches), _Holders([(0, start, end) for _, start, end in stretches])
    for_others = waiting_threads(trace, calls_of(trace, parts))

    def around(call: int) -> set[int]:
        threads = (calls.thread[call], *for_others.get(call, ()))
        return {i for thread in threads for i in by_thread.around(thread, calls.start[call])}

    for part in parts:
        for op in part.gpu_ops:
            call = call_of[op]
            for i in around(call) if call >= 0 else anywhere.around(0, trace.gpu.start[op]):
                found[i].gpu_ops.append(op)
        for call in part.calls:
            for i in around(call):
                found[i].calls.append(call)
        for op in part.operators:
            for i in by_thread.around(trace.ops.thread[op], trace.ops.start[op]):
                found[i].operators.append(op)
    return found


class _Holders:
    """Tells which stretches of a thread hold an instant."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        """Take them in start order."""
        self._of: dict[int, tuple[list[int], list[int], list[int]]] = defaultdict(lambda: ([], [], []))
        for i, (thread, start, end) in enumerate(stretches):
            starts, members, latest = self._of[thread]
            starts.append(start)
            members.append(i)
            latest.append(max(end, latest[-1] if latest else end))
        self._stretches = stretches

    def around(self, thread: int, instant: int) -> Iterator[int]:
        """Yield the stretches of the thread that hold the instant."""
        if thread not in self._of:
            return
        starts, members, latest = self._of[thread]
        place = bisect_right(starts, instant) - 1
        while place >= 0 and latest[place] > instant:
            if self._stretches[members[place]][2] > instant:
                yield members[place]
            place -= 1
