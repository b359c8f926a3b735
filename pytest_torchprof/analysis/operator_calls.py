"""Which operators a recording holds: those that launched the kernels of a part, and all that ran in it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.ranges import HeldOperators, Occurrence
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.selectors import Operator
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace


class OperatorCalls:
    """The operators of a recording, by what they launched and by when they ran."""

    def __init__(self, trace: Trace, *op_of: Sequence[int]) -> None:
        """Take the trace, and of each GPU operation the innermost operators around its launch and in its graph."""
        self._trace = trace
        self._op_of = op_of
        self._absent: dict[Operator, Reason | None] = {}

    def counts(self, part: Part, *, copies: bool = False) -> dict[str, int]:
        """Return how often each operator launched a kernel of the part or enclosed one that did; or a copy or fill.

        One that calls itself again at once, as autocast makes operators do, is one call.
        """
        return self._by_name(self.holders(part, copies=copies))

    def counts_that_ran(self, part: Part) -> dict[str, int]:
        """Return how often each operator ran in the part, whether it launched anything or not."""
        return self._by_name(self.that_ran(part))

    def that_ran(self, part: Part) -> list[int]:
        """Return the operators that ran in the part or launched something of it, in start order."""
        return self._calls({*self._started(part), *self._around(part, copies=True)})

    def _by_name(self, ops: Iterable[int]) -> dict[str, int]:
        return dict(Counter(self._trace.names[self._trace.ops.name[op]] for op in ops))

    def no_such_operator(self, asked: Operator) -> Reason | None:
        """Return the reason if neither the recording nor torch has such an operator; else None."""
        # Whoever only reads a file needs none of it.
        from pytest_torchprof.kernels.operator_checks import unmatched_operator  # noqa: PLC0415

        if asked not in self._absent:
            self._absent[asked] = unmatched_operator(
                asked, {self._trace.names[name] for name in set(self._trace.ops.name)}
            )
        return self._absent[asked]

    @cached_property
    def _held_operators(self) -> HeldOperators:
        return HeldOperators(self._trace, range(len(self._trace.ops)))

    def _started(self, part: Part) -> list[int]:
        """Return the operators that began in the part; the operators of a compilation are left out."""
        trace = self._trace
        start, thread, compiling = trace.ops.start, trace.ops.thread, trace.compiling
        if isinstance(part, Occurrence):
            ops = list(self._held_operators.within(part))
        elif trace.has_step_ranges:
            spans = [(step_range.start_ns, step_range.end_ns) for step_range in part.ranges]
            ops = sorted({op for begin, end in spans for op, at in enumerate(start) if begin <= at < end})
        else:
            ops = list(range(len(trace.ops)))
        return [op for op in ops if not compiling.cover(thread[op], start[op])] if compiling else ops

    def holders(self, part: Part, *, copies: bool = False) -> list[int]:
        """Return the operators that launched a kernel of the part or enclose one that did, in start order.

        Where operators are the kernels, those too that only wait for a value.
        """
        return self._calls(self._around(part, copies=copies))

    def _calls(self, ops: Iterable[int]) -> list[int]:
        """Return operators in start order, without those that others of their name call at once."""
        named, parent, start = self._trace.ops.name, self._trace.nesting.parent, self._trace.ops.start
        calls = (op for op in ops if parent[op] < 0 or named[parent[op]] != named[op])
        return sorted(sorted(calls), key=start.__getitem__)

    def _around(self, part: Part, *, copies: bool) -> set[int]:
        trace = self._trace
        if trace.device_kind.has_launches:
            gpu_ops = [i for i in part.gpu_ops if copies or trace.gpu.kind[i] == KERNEL]
            members = {op_of[i] for op_of in self._op_of for i in gpu_ops}
        else:
            waits = {name for name in set(trace.ops.name) if trace.names[name] in trace.device_kind.waiting_operators}
            waiting = (op for op in self._started(part) if trace.ops.name[op] in waits) if waits else ()
            members = {*part.operators, *waiting}
        seen: set[int] = set()
        for member in members:
            for op in trace.nesting.chain(member):
                if op in seen:
                    break
                seen.add(op)
        return seen
