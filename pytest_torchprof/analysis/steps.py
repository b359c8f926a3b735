"""The steps of a profile: numbers, kernels, operators, and the lines of the user's code that they come from."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis import numbers
from pytest_torchprof.analysis.numbers import StepAttributes
from pytest_torchprof.analysis.places import Places, places_of
from pytest_torchprof.text.escape import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.numbers import Numbers
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.findings import Rule
    from pytest_torchprof.kernels.kernel import Kernels
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.trace import Trace


class StepProfile(StepAttributes):
    """One step: its name, its numbers, its kernels and operators."""

    def __init__(self, trace: Trace, launching: Launching, part: Part, *, repeat: Repeat | None = None) -> None:
        """Take the step; its numbers are computed when asked for."""
        self.name = part.name
        """``ProfilerStep#N``, None for the step that is the whole trace."""
        self.part = part
        self._trace = trace
        self._launching = launching
        self._repeat = repeat

    def __repr__(self) -> str:
        return f"<StepProfile {self.name or 'whole trace'}: {self.numbers.kernels} kernels>"

    @cached_property
    def numbers(self) -> Numbers:
        """The step's numbers; those of the whole window are None."""
        return numbers.of_part(self._trace, self.part, hidden=self._launching.hidden is not None)

    @cached_property
    def kernels(self) -> Kernels:
        """The step's kernels in launch order; NotMeasured where some of them left no event."""
        self._launching.refuse_hidden()
        return self._launching.kernels(self.part)

    @cached_property
    def ops(self) -> Mapping[str, int]:
        """The operators that launch a kernel of the step or enclose one that does, with counts, in start order."""
        self._launching.refuse_hidden()
        return self._launching.ops(self.part)

    @cached_property
    def ops_of_work(self) -> Mapping[str, int]:
        """The operators that launch a kernel, a copy or a fill of the step or enclose one that does, likewise."""
        self._launching.refuse_hidden()
        return self._launching.ops(self.part, copies=True)

    @cached_property
    def places(self) -> Places:
        """Where in the user's code the step's work comes from: from its own stacks, or those of a repeat."""
        if self._launching.origins.recorded or self._repeat is None:
            return places_of(self._trace, self._launching, self.part)
        return self._repeat.places_of(self)

    def with_repeat(self, repeat: Repeat) -> StepProfile:
        """Return the same step with what a repeat with stacks tells of it."""
        other = StepProfile(self._trace, self._launching, self.part, repeat=repeat)
        for name in ("numbers", "kernels", "ops"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def _number(self, name: str) -> Any:
        return getattr(self.numbers, name)


class Repeat:
    """What was found out when a measurement was repeated once with stacks; it gives places, and no number."""

    def __init__(self, profile: Profile | None, why_not: str | None = None) -> None:
        """Take the profile of the repeat, or why there is none."""
        self._profile = profile
        self._why_not = why_not

    def places_of(self, step: StepProfile) -> Places:
        """Return where the step's work comes from, if the repeat did the same."""
        if self._profile is None:
            return Places(why_not=self._why_not)
        (again,) = self._profile.steps[:1]
        was, is_now = (Counter(kernel.name for kernel in one.kernels) for one in (step, again))
        if was != is_now:
            return Places(why_not=f"the repeat with stacks ran other kernels ({_difference(was, is_now)})")
        return again.places

    def sources(self, rules: Iterable[Rule]) -> dict[str, object]:
        """Return by a finding's code the line that the repeat found for it."""
        found = self._profile.with_context(rules=rules, gate=None).findings if self._profile is not None else ()
        return {finding.code: finding.evidence.get("source") for finding in found}


def _difference(was: Counter[str], is_now: Counter[str]) -> str:
    more, less = is_now - was, was - is_now
    name, word = next(iter(more or less)), "more" if more else "fewer"
    return f"{(more or less)[name]} {word} x {printable_line(name, 60)}"
