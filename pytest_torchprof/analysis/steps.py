"""The steps of a recording: numbers, kernels, operators, and the lines of the user's code that they come from."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis import numbers
from pytest_torchprof.analysis.numbers import StepAttributes
from pytest_torchprof.analysis.places import Places, places_of
from pytest_torchprof.analysis.shared import HasViews, shared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.numbers import Numbers
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.kernels import Kernels
    from pytest_torchprof.trace import Trace


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
