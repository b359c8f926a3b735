"""The work launched inside a user's ranges: by their own threads, and by autograd's for them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from pytest_torchprof.analysis.parts import ListedPart
from pytest_torchprof.reasons.errors import UnreadableRecording
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import RangesOverlap
from pytest_torchprof.trace import StepRange
from pytest_torchprof.trace.columns import ABSENT
from pytest_torchprof.trace.links import Intervals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.parts import Part
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
        self._anybody = frozenset(trace.annotations.thread) - {trace.captured.lane} if self._nodes else frozenset()
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
            linked = [trace.forward_of[outer] for outer in chain if outer in trace.forward_of]
            inside = any(trace.ops.name[outer] in self._nodes for outer in chain)
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
        """Return whether a call was made inside, or where the work was waited for inside."""
        calls, cover = self._trace.calls, self._own.cover
        start = calls.start[call]
        if cover(calls.thread[call], start):
            return True
        others = self._for_others.get(call)
        return others is not None and any(cover(thread, start) for thread in others)

    def _captured(self, gpu_op: int) -> bool:
        """Return whether the launch of a graph's kernel was captured inside."""
        captured = self._trace.captured
        at = captured.of.get(gpu_op)
        return at is not None and self._own.cover(captured.calls.thread[at], captured.calls.start[at])

    def part_of(self, part: Part, name: str) -> Part:
        """Return the work of a part that lies inside; a GPU operation without a recorded launch counts where it ran."""
        trace, call_of = self._trace, self._trace.links.call_of
        gpu_start, op_start, op_thread = trace.gpu.start, trace.ops.start, trace.ops.thread
        return ListedPart(
            name=part.name,
            ranges=tuple(
                StepRange(name, start, end, trace.threads[thread]) for thread, start, end in self._own.ranges()
            ),
            gpu_ops=[
                i
                for i in part.gpu_ops
                if (
                    (self.launched(call_of[i]) or self._captured(i))
                    if call_of[i] >= 0
                    else self._anywhere.cover(0, gpu_start[i])
                )
            ],
            calls=[i for i in part.calls if self.launched(i)],
            operators=[i for i in part.operators if self._own.cover(op_thread[i], op_start[i])],
        )


def stretches_of(trace: Trace, ranges: Iterable[Span]) -> list[Stretch]:
    """Return where ranges of a recording are, in their order."""
    thread_of = {label: index for index, label in enumerate(trace.threads)}
    return [(thread_of[span.tid], span.start_ns, span.end_ns) for span in ranges]


def parts_within(
    trace: Trace, parts: Iterable[Part], name: str, for_others: Mapping[int, frozenset[int]] | None = None
) -> list[Part]:
    """Return the work of each part that was launched inside its user annotations of this name.

    By the annotation's own thread, or by autograd's while that waited for it inside of one. A part without such an
    annotation is left out: it says nothing of it. Who asks for many names gives what `waiting_threads` returns for all
    calls of the parts.
    """
    stretches = stretches_of(trace, trace.ranges(name))
    starts = [start for _, start, _ in stretches]
    begun = [
        (part, [stretch for step in part.ranges for stretch in _starting_in(step, stretches, starts)]) for part in parts
    ]
    entered = [(part, inside) for part, inside in begun if inside]
    if for_others is None:
        for_others = waiting_threads(trace, calls_of(trace, [part for part, _ in entered]))
    return [Inside(trace, inside, for_others).part_of(part, name) for part, inside in entered]


def _starting_in(step: StepRange, stretches: Sequence[Stretch], starts: Sequence[int]) -> Sequence[Stretch]:
    return stretches[bisect_left(starts, step.start_ns) : bisect_left(starts, step.end_ns)]


def calls_of(trace: Trace, parts: Iterable[Part]) -> set[int]:
    """Return the calls that did the work of the parts or waited for it."""
    call_of = trace.links.call_of
    calls: set[int] = set()
    for part in parts:
        calls.update(part.calls, (call_of[i] for i in part.gpu_ops))
    return calls - {ABSENT}


class Within(Protocol):
    """Things that were done, looked up by the stretch that they are in."""

    def within(self, stretch: Stretch) -> Sequence[int]:
        """Return those that were done inside, in order."""


class Held(Protocol):
    """An object that knows the work of occurrences."""

    @property
    def calls(self) -> Within:
        """Launches and blocking calls."""

    @property
    def operators(self) -> Within:
        """The operators that count as kernels."""

    def gpu_ops(self, stretch: Stretch) -> Sequence[int]:
        """Return the GPU operations of a stretch, in start order."""


class Occurrence:
    """One outermost range of a name, and the work launched inside it, wherever a step ends meanwhile: a Part.

    What is inside is looked up whenever it is asked for: ranges of coroutines overlap, and if each kept its own, the
    memory would grow with the square of their number.
    """

    def __init__(self, held: Held, step: int, ranges: tuple[StepRange, ...], stretch: Stretch) -> None:
        """Take what knows the work, and the index of the step in which the occurrence begins."""
        self._held = held
        self.name = ranges[0].name
        self.ranges = ranges
        self.step = step
        self.stretch = stretch

    @property
    def gpu_ops(self) -> Sequence[int]:
        """The GPU operations, in the order in which they start."""
        return self._held.gpu_ops(self.stretch)

    @property
    def calls(self) -> Sequence[int]:
        """Launches and blocking calls."""
        return self._held.calls.within(self.stretch)

    @property
    def operators(self) -> Sequence[int]:
        """The operators that count as kernels, where no kernels are launched."""
        return self._held.operators.within(self.stretch)


def occurrences(trace: Trace, steps: Sequence[Part], name: str) -> list[Occurrence]:
    """Return the outermost ranges of this name that begin in the steps, in start order.

    One that reaches beyond its step has all of its work that is in any step. UnreadableRecording where they overlap as
    no program's do.
    """
    stretches = stretches_of(trace, trace.outermost(name))
    if not stretches:
        return []
    held = _Held(trace, steps)
    starts = [start for _, start, _ in stretches]
    begun = []
    for index, step in enumerate(steps):
        for within in step.ranges:
            for i in range(bisect_left(starts, within.start_ns), bisect_left(starts, within.end_ns)):
                thread, start, end = stretches[i]
                ranges = (StepRange(name, start, end, trace.threads[thread]),)
                begun.append(Occurrence(held, index, ranges, stretches[i]))
    _refuse_too_many(trace, name, sum(held.count(occurrence.stretch) for occurrence in begun))
    return begun


_MOST_HELD = 10_000_000
"""As much work as a thousand coroutines do that enter the range ten thousand times together."""


def _refuse_too_many(trace: Trace, name: str, held: int) -> None:
    if held > _MOST_HELD:
        path = str(trace.path)
        raise UnreadableRecording.of(RangesOverlap(path, name, held, _MOST_HELD), path)


class HeldOperators:
    """Tells which of some operators an occurrence holds, those of autograd's threads that it waits for too."""

    def __init__(self, trace: Trace, ops: Iterable[int]) -> None:
        """Take the operators."""
        backward, self._held = Backward(trace), _ByThread()
        for op in ops:
            self._held.add(op, trace.ops.start[op], (trace.ops.thread[op], *backward.waiting_for(op)))
        self._held.sort()

    def within(self, occurrence: Occurrence) -> Sequence[int]:
        """Return those that began inside, in order."""
        return self._held.within(occurrence.stretch)


class _ByThread:
    """Things that were done at an instant, in order, for the thread that did them and those that waited for it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._of: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def add(self, member: int, instant: int, threads: Iterable[int]) -> None:
        """Add one of them; ``sort`` when all are there."""
        for thread in threads:
            self._of[thread].append((instant, member))

    def sort(self) -> None:
        """Make ready to be asked."""
        for done in self._of.values():
            done.sort()

    def _bounds(self, stretch: Stretch) -> tuple[list[tuple[int, int]], int, int]:
        thread, start, end = stretch
        done = self._of.get(thread, [])
        return done, bisect_left(done, (start,)), bisect_left(done, (end,))

    def count(self, stretch: Stretch) -> int:
        """Return how many were done inside."""
        _, first, last = self._bounds(stretch)
        return last - first

    def within(self, stretch: Stretch) -> Sequence[int]:
        """Return those that were done inside, in order."""
        done, first, last = self._bounds(stretch)
        return [member for _, member in done[first:last]]


class _Held:
    """The work of parts, looked up by the stretch that it is in; coroutines' may overlap, and then share their work."""

    def __init__(self, trace: Trace, parts: Iterable[Part]) -> None:
        """Order it by when and on which threads it was asked for."""
        self.calls, self.operators, self._launched, self._unlaunched = (_ByThread() for _ in range(4))
        self._gpu_start = trace.gpu.start
        parts, calls, ops, call_of = list(parts), trace.calls, trace.ops, trace.links.call_of
        for_others = waiting_threads(trace, calls_of(trace, parts))
        for part in parts:
            for op in part.gpu_ops:
                if (call := call_of[op]) >= 0:
                    self._launched.add(op, calls.start[call], (calls.thread[call], *for_others.get(call, ())))
                    if (at := trace.captured.of.get(op)) is not None:
                        launched = trace.captured.calls
                        self._launched.add(op, launched.start[at], (launched.thread[at],))
                else:
                    self._unlaunched.add(op, trace.gpu.start[op], (0,))
            for call in part.calls:
                self.calls.add(call, calls.start[call], (calls.thread[call], *for_others.get(call, ())))
            for op in part.operators:
                self.operators.add(op, ops.start[op], (ops.thread[op],))
        for done in (self.calls, self.operators, self._launched, self._unlaunched):
            done.sort()

    def gpu_ops(self, stretch: Stretch) -> Sequence[int]:
        """Return the GPU operations of the stretch, in start order; without a recorded launch those that ran in it."""
        _, start, end = stretch
        ops = [*self._launched.within(stretch), *self._unlaunched.within((0, start, end))]
        return sorted(ops, key=self._gpu_start.__getitem__)

    def count(self, stretch: Stretch) -> int:
        """Return how much there is in a stretch."""
        return sum(done.count(stretch) for done in (self.calls, self.operators, self._launched))
