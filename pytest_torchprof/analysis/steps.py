"""The steps of a recording: numbers, kernels, operators, and the lines of the user's code that they come from."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pytest_torchprof.analysis import numbers
from pytest_torchprof.analysis.numbers import StepAttributes
from pytest_torchprof.analysis.shared import HasViews, shared
from pytest_torchprof.devices.base import BLOCKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.numbers import Numbers
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.analysis.source_lines import Origin
    from pytest_torchprof.kernels.kernels import Kernels
    from pytest_torchprof.trace import Trace

Work = tuple[str, str | None]
"""The name of a kernel, copy or blocking call, and the operator that made it."""


class Places(Struct, frozen=True, kw_only=True):
    """The origins of one step's work, and why there are none where they were looked for."""

    work: Mapping[Work, Counter[Origin]] = field(default_factory=dict)
    operators: Mapping[str, Counter[Origin]] = field(default_factory=dict)
    """Those of the operators that launched it or enclose one that did."""
    why_not: str | None = None

    def of(self, work: Iterable[Work]) -> list[tuple[int, Origin]]:
        """Return how often this work was done from where, the most frequent place first."""
        counted: Counter[Origin] = Counter()
        for one in work:
            counted.update(self.work.get(one, {}))
        return _listed(counted)

    def of_operator(self, name: str) -> list[tuple[int, Origin]]:
        """Return how often an operator of this name was called from where, likewise."""
        return _listed(self.operators.get(name, Counter()))


def _listed(counted: Counter[Origin]) -> list[tuple[int, Origin]]:
    return [(count, origin) for origin, count in counted.most_common()]


def places_of(trace: Trace, launching: Launching, part: Part) -> Places:
    """Return the origins of a part's work; nothing is found, and nothing computed, without recorded stacks."""
    if not launching.origins.recorded:
        return Places()
    work: dict[Work, Counter[Origin]] = defaultdict(Counter)
    for one, origin in _origins(trace, launching, part):
        if origin is not None:
            work[one][origin] += 1
    operators: dict[str, Counter[Origin]] = defaultdict(Counter)
    for op in launching.holders(part):
        if (origin := launching.origins.of_operator(op)) is not None:
            operators[trace.names[trace.ops.name[op]]][origin] += 1
    return Places(work=work, operators=operators)


def _origins(trace: Trace, launching: Launching, part: Part) -> Iterator[tuple[Work, Origin | None]]:
    origins, names = launching.origins, trace.names
    for op in part.operators:
        name = names[trace.ops.name[op]]
        yield (name, name), origins.of_operator(op)
    for i in part.gpu_ops:
        op = launching.op_of[i]
        yield (names[trace.gpu.name[i]], launching.op_name(op)), origins.of_call(trace.links.call_of[i], op)
    blocking = trace.call_names(BLOCKING)
    waits = [call for call in part.calls if trace.calls.name[call] in blocking]
    for call, op in trace.nesting.around_each(trace.calls, waits).items():
        yield (names[trace.calls.name[call]], launching.op_name(op)), origins.of_call(call, op)


class StepProfile(HasViews, StepAttributes):
    """One step: its name, its numbers, its kernels and operators."""

    def __init__(
        self,
        trace: Trace,
        launching: Launching,
        part: Part,
        *,
        places: Callable[[StepProfile], Places] | None = None,
        answers: dict[str, Any] | None = None,
    ) -> None:
        """Take the step; its numbers are computed when asked for. ``places`` finds lines that it has not itself."""
        super().__init__(answers)
        self.name = part.name
        """``ProfilerStep#N``, None for the step that is the whole trace."""
        self.part = part
        self._trace = trace
        self._launching = launching
        self._places = places

    def __repr__(self) -> str:
        return f"<StepProfile {self.name or 'whole trace'}: {self.numbers.kernels} kernels>"

    @shared
    def numbers(self) -> Numbers:
        """The step's numbers; those of the whole window are None."""
        return numbers.of_part(self._trace, self.part, hidden=self._launching.hidden is not None)

    @shared
    def kernels(self) -> Kernels:
        """The step's kernels in launch order; NotMeasured where some of them left no event."""
        self._launching.refuse_hidden()
        return self._launching.kernels(self.part)

    @shared
    def ops(self) -> Mapping[str, int]:
        """The operators that launch a kernel of the step or enclose one that does, with counts, in start order."""
        self._launching.refuse_hidden()
        return self._launching.ops(self.part)

    @shared
    def ops_of_work(self) -> Mapping[str, int]:
        """The operators that launch a kernel, a copy or a fill of the step or enclose one that does, likewise."""
        self._launching.refuse_hidden()
        return self._launching.ops(self.part, copies=True)

    @cached_property
    def places(self) -> Places:
        """Where in the user's code the step's work comes from: from its own stacks, or those of a repeat."""
        if self._launching.origins.recorded or self._places is None:
            return places_of(self._trace, self._launching, self.part)
        return self._places(self)

    def with_places(self, places: Callable[[StepProfile], Places]) -> StepProfile:
        """Return the same step with what finds its lines where its own recording has none."""
        return StepProfile(self._trace, self._launching, self.part, places=places, answers=self._answers)

    def _number(self, name: str) -> Any:
        return getattr(self.numbers, name)
