"""Parts of a recording that numbers are asked for: a step, a user's range; which events belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.backward import waiting
from pytest_torchprof.analysis.operator_kernels import operator_kernels
from pytest_torchprof.trace import StepRange
from pytest_torchprof.trace.columns import ABSENT
from pytest_torchprof.trace.links import Intervals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.trace import Trace


class Part(Struct, frozen=True, kw_only=True, eq=False):
    """What belongs to a step or to a range of one."""

    __repr__ = object.__repr__

    name: str | None
    ranges: tuple[StepRange, ...]
    """The part on the CPU's side, disjoint per thread."""
    gpu_ops: Sequence[int]
    """In start order."""
    calls: Sequence[int]
    """Launches and blocking calls."""
    operators: Sequence[int]
    """Those that count as kernels, where no kernels are launched."""


def steps(trace: Trace) -> tuple[Part, ...]:
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
        step_of = trace.step_of_gpu_op
        for i in trace.gpu_order:
            if step_of[i] >= 0:
                gpu_ops[step_of[i]].append(i)
        of_call = trace.step_of_call
        for i in trace.counted_calls:
            if of_call[i] >= 0:
                calls[of_call[i]].append(i)
    return tuple(
        Part(name=step.name, ranges=(step,), gpu_ops=gpu_ops[i], calls=calls[i], operators=operators[i])
        for i, step in enumerate(trace.steps)
    )


def within(trace: Trace, part: Part, name: str) -> Part:
    """Return what of the part was launched inside its user annotations of this name.

    By the annotation's own thread, or by autograd's while that waited for it inside of one. A GPU operation without a
    recorded launch counts where it ran itself.
    """
    spans = [span for span in trace.spans(name) if span.name == name and span.category == "user_annotation"]
    thread_of = {label: index for index, label in enumerate(trace.threads)}
    inside = [span for span in spans if any(step.start_ns <= span.start_ns < step.end_ns for step in part.ranges)]
    own = Intervals((thread_of[span.tid], span.start_ns, span.end_ns) for span in inside)
    calls, ops, gpu, call_of = trace.calls, trace.ops, trace.gpu, trace.links.call_of
    for_others = waiting(trace, {*part.calls, *(call_of[i] for i in part.gpu_ops)} - {ABSENT})

    def launched(call: int) -> bool:
        threads = (calls.thread[call], *for_others.get(call, ()))
        return any(own.cover(thread, calls.start[call]) for thread in threads)

    anywhere = Intervals((0, span.start_ns, span.end_ns) for span in inside)
    return Part(
        name=part.name,
        ranges=tuple(StepRange(name, start, end, trace.threads[thread]) for thread, start, end in own.ranges()),
        gpu_ops=[
            i for i in part.gpu_ops if (launched(call_of[i]) if call_of[i] >= 0 else anywhere.cover(0, gpu.start[i]))
        ],
        calls=[i for i in part.calls if launched(i)],
        operators=[i for i in part.operators if own.cover(ops.thread[i], ops.start[i])],
    )
