"""A recording as its ranges of one name show it: each occurrence of the range is what a step is elsewhere."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.analysis.analysis import Analysis
from pytest_torchprof.analysis.annotated_ranges import replays_annotated
from pytest_torchprof.analysis.origin import Origin, Places
from pytest_torchprof.analysis.ranges import Occurrence, occurrences
from pytest_torchprof.analysis.steps import StepProfile
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from pytest_torchprof.analysis.collectives import StepCommunication
    from pytest_torchprof.kernels.kernels import Kernels
    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.reasons.step_title import StepTitle


class OccurrenceProfile(StepProfile):
    """One occurrence of a user's range: its numbers, its kernels and operators, as those of a step."""

    def __init__(self, view: RangeView, occurrence: Occurrence, *, number: int, count: int) -> None:
        """Take the occurrence, and which it is of how many in its step."""
        places = None if view.repeat is None else view.places_of
        super().__init__(view.trace, view.launching, occurrence, places=places)
        self.number = number
        """Its number among those of its step, from 1."""
        self.count = count
        """How many its step has."""
        self._stretch = occurrence.stretch
        self._view = view
        self._step_index = occurrence.step

    def __repr__(self) -> str:
        return f"<{self.name}, {self._view.title_of(self)}: {counted(round(self.numbers.kernels or 0), 'kernel')}>"

    # Ranges of coroutines overlap, and if each kept its kernels, the memory would grow with the square of their number.
    @property
    def kernels(self) -> Kernels:
        """The kernels inside, in launch order; NotMeasured where some of them left no event."""
        self._launching.refuse_hidden()
        return self._launching.kernels(self.part)

    @property
    def step(self) -> StepProfile:
        """The step in which it begins."""
        return self._view.whole.steps[self._step_index]

    @property
    def place(self) -> str | None:
        """Where it was entered, "model.py:212"; None where the recording, or its repeat, has no lines."""
        origin = self.entered
        if origin is None and (again := self._view.repeated(self)) is not None:
            origin = again.entered
        if origin is None:
            return None
        return origin.file_line if origin.exact else str(replace(origin, module=None))

    @property
    def entered(self) -> Origin | None:
        """Where it was entered, as far as its own recording tells."""
        return self._launching.origins.at(*self._stretch)


class RangeView(Analysis):
    """A recording whose steps are the outermost ranges of one name that begin in its steps."""

    def __init__(self, whole: Analysis, name: str) -> None:
        """Take the whole recording, and the name of the ranges."""
        # What was worked out for the recording holds here too: only the steps are others.
        super().__init__(whole.trace, beside=whole.beside, repeat=whole.repeat, answers=whole._answers)  # noqa: SLF001
        self.own_kernels = whole.own_kernels
        self.whole = whole
        self.name = name

    def as_if(self, own_kernels: OwnKernels) -> RangeView:
        """Return these ranges of the recording with another declaration of the user's own kernels."""
        return RangeView(self.whole.as_if(own_kernels), self.name)

    @cached_property
    def _in_steps(self) -> list[Occurrence]:
        parts = [step.part for step in self.whole.steps]
        return occurrences(self.trace, parts, self.name) or replays_annotated(self.trace, parts, self.name)

    @cached_property
    def communication_of_steps(self) -> tuple[StepCommunication, ...]:
        """The collectives that were asked for inside each range together."""
        return self.communication.within(self._in_steps)

    @cached_property
    def _steps(self) -> tuple[OccurrenceProfile, ...]:
        occurrences = self._in_steps
        counts, begun = Counter(occurrence.step for occurrence in occurrences), Counter[int]()
        profiles = []
        for occurrence in occurrences:
            begun[occurrence.step] += 1
            profiles.append(
                OccurrenceProfile(self, occurrence, number=begun[occurrence.step], count=counts[occurrence.step])
            )
        return tuple(profiles)

    @property
    def occurrences(self) -> tuple[OccurrenceProfile, ...]:
        """The ranges, in the order in which they begin."""
        return self._steps

    @property
    def without(self) -> tuple[StepProfile, ...]:
        """The steps in which no such range begins."""
        begun = {id(occurrence.step) for occurrence in self._steps}
        return tuple(step for step in self.whole.steps if id(step) not in begun)

    def title_of(self, step: StepProfile) -> StepTitle:
        """Return the title of an occurrence."""
        occurrence = next(other for other in self._steps if other is step)
        return replace(
            self.whole.title_of(occurrence.step),
            occurrence=occurrence.number,
            occurrences=occurrence.count,
            place=occurrence.place,
        )

    @cached_property
    def _repeated(self) -> tuple[OccurrenceProfile, ...]:
        if self.repeat is None or self.repeat.analysis is None:
            return ()
        again = RangeView(self.repeat.analysis, self.name).occurrences
        return tuple(occurrence for occurrence in again if occurrence.step is self.repeat.analysis.steps[0])

    def repeated(self, occurrence: OccurrenceProfile) -> OccurrenceProfile | None:
        """Return this occurrence in the repeat with stacks, if that had as many."""
        return self._repeated[occurrence.number - 1] if len(self._repeated) == occurrence.count else None

    def places_of(self, step: StepProfile) -> Places:
        """Return where an occurrence's work comes from, if the repeat did the same there."""
        if self.repeat is None or not isinstance(step, OccurrenceProfile):
            return Places()
        again = self.repeated(step)
        if again is None and self._repeated:
            from pytest_torchprof.reasons.lines import RepeatEnteredOtherwise  # noqa: PLC0415 - few repeats differ

            return Places(why_not=RepeatEnteredOtherwise(self.name, len(self._repeated), step.count))
        return self.repeat.places_of(step, again)
