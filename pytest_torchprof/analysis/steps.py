"""One step of a recording, as limits, findings and comparisons look at it; what views of the same work share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any, Generic, Self, TypeVar, overload

from pytest_torchprof.analysis import numbers
from pytest_torchprof.analysis.launch_places import places_of
from pytest_torchprof.analysis.launches import Launching
from pytest_torchprof.analysis.numbers import Numbers, StepAttributes
from pytest_torchprof.analysis.origin import Places
from pytest_torchprof.analysis.part_order import order_of
from pytest_torchprof.analysis.parts import Part
from pytest_torchprof.kernels.kernels import Kernels
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text import counted
from pytest_torchprof.trace import Trace

Value = TypeVar("Value")
View = TypeVar("View", bound="HasViews")


class HasViews:
    """Something whose views differ in little, and share what was worked out once."""

    def __init__(self, answers: dict[object, Any] | None = None) -> None:
        """Take the answers of another view, or begin without any."""
        self._answers: dict[object, Any] = {} if answers is None else answers

    def _answer(self, question: object, work_out: Callable[[Self], Value]) -> Value:
        if question not in self._answers:
            self._answers[question] = work_out(self)
        answer: Value = self._answers[question]
        return answer


class shared(Generic[Value]):  # noqa: N801 - it decorates as ``property`` does
    """A property that is worked out when it is first asked for, once for all views."""

    def __init__(self, work_out: Callable[[Any], Value]) -> None:
        """Take the function that works it out; it may depend on nothing in which views differ."""
        self._work_out = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, view: None, owner: type) -> Self: ...
    @overload
    def __get__(self, view: HasViews, owner: type) -> Value: ...
    def __get__(self, view: HasViews | None, owner: type) -> Self | Value:
        if view is None:
            return self
        answer: Value = view._answer(self._name, self._work_out)  # noqa: SLF001 - both are of this module
        # As ``cached_property`` does: the view does not ask here again.
        view.__dict__[self._name] = answer
        return answer


def once(look: Callable[[View], Value]) -> Callable[[View], Value]:
    """Let a function of a view be worked out once for all views, as `shared` does; nobody may change its result."""

    @wraps(look)
    def kept(view: View) -> Value:
        return view._answer(look, look)  # noqa: SLF001 - both are of this module

    return kept


class StepProfile(HasViews, StepAttributes):
    """One step: its name, its numbers, its kernels and operators."""

    def __init__(
        self,
        trace: Trace,
        launching: Launching,
        part: Part,
        *,
        places: Callable[[StepProfile], Places] | None = None,
        answers: dict[object, Any] | None = None,
    ) -> None:
        """Take the step; its numbers are computed when asked for. ``places`` gives lines that it has not itself."""
        super().__init__(answers)
        self.name = part.name
        """``ProfilerStep#N``, None for the step that is the whole trace."""
        self.part = part
        self._trace = trace
        self._launching = launching
        self._places = places

    def __repr__(self) -> str:
        kernels = self.numbers.kernels
        count = "kernels not measured" if kernels is None else counted(round(kernels), "kernel")
        return f"<StepProfile {self.name or 'whole trace'}: {count}>"

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
        return self._launching.operators.counts(self.part)

    @shared
    def ops_of_work(self) -> Mapping[str, int]:
        """The operators that launch a kernel, copy or fill of the step or enclose one that does, with counts."""
        self._launching.refuse_hidden()
        return self._launching.operators.counts(self.part, copies=True)

    @shared
    def ops_that_ran(self) -> Mapping[str, int]:
        """All operators that ran in the step, those too that launched nothing, with counts, in start order."""
        self._launching.refuse_hidden()
        return self._launching.operators.counts_that_ran(self.part)

    @cached_property
    def places(self) -> Places:
        """Where in the user's code the step's work comes from: from its own stacks, or those of a repeat."""
        if self._launching.origins.recorded or self._places is None:
            return places_of(self._trace, self._launching, self.part)
        places = self._places(self)
        return (
            places.with_code(places_of(self._trace, self._launching, self.part))
            if self._launching.generated
            else places
        )

    @shared
    def order(self) -> object:
        """The actions of the step's threads, each in order: equal if the path was the same, as far as recorded."""
        return order_of(self._trace, self.part)

    @cached_property
    def places_in_order(self) -> bool:
        """Whether the places are the step's own, or those of a repeat that did all in the same order."""
        return self.places.order is None or self.places.order() == self.order

    def with_places(self, places: Callable[[StepProfile], Places]) -> StepProfile:
        """Return this step with what gives its lines where its own recording has none."""
        return StepProfile(self._trace, self._launching, self.part, places=places, answers=self._answers)

    def _number(self, name: str) -> Any:
        return getattr(self.numbers, name)
