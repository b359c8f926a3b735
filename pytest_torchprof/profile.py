"""What a test looks at: the numbers, kernels and operators of a recording."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

from msgspec.structs import replace

from pytest_torchprof.analysis import numbers, parts, validity
from pytest_torchprof.analysis.facts import Facts
from pytest_torchprof.analysis.numbers import AllAttributes, Numbers
from pytest_torchprof.analysis.steps import Repeat, StepProfile
from pytest_torchprof.errors import NotMeasured, UnreadableRecording
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.recording.reader import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.compilation import Compile
    from pytest_torchprof.analysis.efficiency import Efficiency
    from pytest_torchprof.analysis.gpu_work import Scene
    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.findings import Finding, Rule
    from pytest_torchprof.kernels.kernel import Kernels
    from pytest_torchprof.limits import Screen
    from pytest_torchprof.trace import Trace

__all__ = ["Explainer", "Profile", "StepProfile", "load", "load_file"]

_ABSENT: Any = object()


class Explainer(Protocol):
    """Finds out where the work of a measurement comes from, by repeating it; the plugin has one for each."""

    screen: Screen
    """How much its failures may say."""

    def explained(self, profile: Profile) -> Profile:
        """Return the profile with what a repeat tells of it; the first call repeats the measurement if it can be."""


class Profile(AllAttributes):
    """A recording as a test sees it; each number is its worst step's, the largest one.

    Times are in microseconds; None is what the recording does not say.
    """

    def __init__(
        self,
        facts: Facts | None,
        *,
        result: Any = _ABSENT,
        gate: Callable[[str], None] | None = None,
    ) -> None:
        """Use :func:`load`, or :meth:`from_trace`."""
        self._given = facts
        self._result = result
        self._gate = gate
        self._beside: tuple[Profile, ...] = ()
        self._rules: Iterable[Rule] | None = None
        self._repeat: Repeat | None = None
        self._explainer: Explainer | None = None

    @classmethod
    def from_trace(cls, trace: Trace, *, result: Any = _ABSENT, gate: Callable[[str], None] | None = None) -> Self:
        """Return the profile of a trace; ``gate`` is called with the name of what is looked at, and may raise."""
        return cls(Facts(trace), result=result, gate=gate)

    @classmethod
    def unmeasured(cls, *, gate: Callable[[str], None]) -> Self:
        """Return a profile of nothing, whose gate raises at every look at a number."""
        return cls(None, gate=gate)

    def with_context(self, *, rules: Iterable[Rule] | None, gate: Callable[[str], None] | None) -> Self:
        """Return the same profile with other rules for findings and another gate."""
        return self._changed(rules=rules, gate=gate)

    def with_others(self, beside: Iterable[Profile]) -> Self:
        """Return the same profile with what the same test measured beside it."""
        return self._changed(beside=tuple(beside))

    def with_repeat(self, repeat: Repeat) -> Self:
        """Return the same profile with what a repeat with stacks tells of it: places, and no number."""
        return self._changed(repeat=repeat)

    def with_explainer(self, explainer: Explainer) -> Self:
        """Return the same profile with what can repeat its measurement."""
        return self._changed(explainer=explainer)

    def with_result(self, result: Any) -> Self:
        """Return the same profile with what the last measured call returned."""
        return self._changed(result=result)

    def _changed(self, **changes: Any) -> Self:
        other = type(self)(self._given)
        for name in ("result", "gate", "rules", "beside", "repeat", "explainer"):
            other.__dict__[f"_{name}"] = changes.get(name, vars(self)[f"_{name}"])
        # What is found depends on who looks, what else was measured, and what a repeat tells.
        alike = all(vars(other)[f"_{name}"] is vars(self)[f"_{name}"] for name in ("rules", "beside", "repeat"))
        if alike and "_findings" in self.__dict__:
            other.__dict__["_findings"] = self._findings
        return other

    def __repr__(self) -> str:
        path = self._given.trace.path if self._given else None
        return f"<Profile of {path or 'a trace'}>"

    def __reduce__(self) -> tuple[Callable[[Trace], Self], tuple[Trace]]:
        """Pickle the recording's content; what the measured code returned is not in it, and no file is needed."""
        self._look("pickle")
        return type(self).from_trace, (self.trace,)

    def _look(self, name: str) -> None:
        if self._gate is not None:
            self._gate(name)

    @property
    def beside(self) -> tuple[Profile, ...]:
        """What the same test measured beside this, for findings that compare."""
        return self._beside

    @property
    def explainer(self) -> Explainer | None:
        """How to find out where the work comes from, None where it cannot be repeated."""
        return self._explainer

    @property
    def _facts(self) -> Facts:
        if self._given is None:
            self._look("trace")
            raise NotMeasured("nothing was measured")
        return self._given

    @property
    def trace(self) -> Trace:
        """The recording itself."""
        return self._facts.trace

    @property
    def launching(self) -> Launching:
        """Who launched what, for reports."""
        return self._facts.launching

    @property
    def scene(self) -> Scene:
        """The GPU work grouped and put in order, for findings."""
        return self._facts.scene

    @cached_property
    def _steps(self) -> tuple[StepProfile, ...]:
        steps = self._facts.steps
        return steps if self._repeat is None else tuple(step.with_repeat(self._repeat) for step in steps)

    @property
    def why_not(self) -> str | None:
        """Why the numbers may not be believed, None when they may."""
        return validity.why_not(self.trace)

    @property
    def measured(self) -> bool:
        """Whether the numbers may be believed."""
        return self.why_not is None

    @property
    def kernels_unknown(self) -> str | None:
        """Why the kernels of a recording that may be believed are not all in it, None where they are."""
        return self.launching.hidden

    @property
    def steps(self) -> tuple[StepProfile, ...]:
        """The recorded steps, each with its own numbers and kernels; without step ranges the whole trace is one."""
        self._look("steps")
        return self._steps

    @property
    def worst(self) -> Numbers:
        """Each number's largest value over the steps."""
        self._look("worst")
        return self.worst_of(self._steps)

    def worst_of(self, steps: Sequence[StepProfile]) -> Numbers:
        """Return each number's largest value over these steps."""
        self._look("worst")
        return numbers.worst([step.numbers for step in steps], self._facts.window)

    @property
    def median(self) -> Numbers:
        """Each number's median over the steps."""
        self._look("median")
        return self.median_of(self._steps)

    def median_of(self, steps: Sequence[StepProfile]) -> Numbers:
        """Return each number's median over these steps."""
        self._look("median")
        return numbers.median([step.numbers for step in steps], self._facts.window)

    @property
    def kernels(self) -> Kernels:
        """The kernels, in launch order, of the step that has most; of several such steps the earliest."""
        self._look("kernels")
        return max(self._steps, key=lambda step: step.numbers.kernels or 0).kernels

    @property
    def ops(self) -> Mapping[str, int]:
        """The operators that launch a kernel of that step or enclose one that does, with counts."""
        self._look("ops")
        return max(self._steps, key=lambda step: step.numbers.kernels or 0).ops

    @property
    def result(self) -> Any:
        """What the last measured call returned; NotMeasured for a recording that was loaded."""
        self._look("result")
        if self._result is _ABSENT:
            raise NotMeasured("there is no result: the profile was read from a recording, the code was not run")
        return self._result

    @property
    def compile(self) -> Compile:
        """What torch.compile did: regions, graph breaks, recompiles, skipped frames."""
        self._look("compile")
        return self._facts.compile

    @property
    def efficiency(self) -> Efficiency:
        """How well the GPU was used: where the steps' time went, tensor cores, FLOP/s, copies."""
        self._look("efficiency")
        return self._facts.efficiency

    @property
    def mfu(self) -> float | None:
        """The share of the GPU's peak that the slowest step reached, 0..1; None where FLOPs or peak are not known."""
        self._look("mfu")
        return self._facts.efficiency.throughput.mfu

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a person reading the recording would point at, the costliest first."""
        self._look("findings")
        return self._findings

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules by which findings are looked for."""
        from pytest_torchprof.findings import RULES  # noqa: PLC0415 - above this layer

        return RULES if self._rules is None else tuple(self._rules)

    @cached_property
    def _findings(self) -> tuple[Finding, ...]:
        from pytest_torchprof import findings  # noqa: PLC0415 - above this layer

        if self.kernels_unknown is not None:
            return ()
        open_profile = self if self._gate is None else self.with_context(rules=self._rules, gate=None)
        found = findings.find(open_profile, self.rules)
        sources = self._repeat.sources(self.rules) if self._repeat is not None else {}
        return tuple(_with_source(finding, sources.get(finding.code)) for finding in found)

    def range(self, name: str) -> Numbers:
        """Return the numbers of what was launched inside the user annotation, the largest over the steps.

        A backward pass inside it counts too, although autograd launches it on a thread of its own. NotMeasured if the
        recording has no annotation of this name.
        """
        self._look("range")
        trace = self.trace
        annotations = {trace.names[one] for one in set(trace.annotations.name)}
        if name not in annotations:
            known = ", ".join(sorted(annotations)[:10]) or "none at all"
            raise NotMeasured(f"there is no range {name!r} in the recording; user annotations in it: {known}")
        found = [parts.within(trace, step.part, name) for step in self._steps]
        # A step that the range does not appear in says nothing about it.
        return numbers.worst([numbers.of_part(trace, part) for part in found if part.ranges], Numbers())

    def table(self, sort_by: str | None = None, by: str = "kernel", top: int = 20) -> str:
        """Return the kernels, families, operators, ranges or modules as text, like ``key_averages().table``.

        ``sort_by`` is a column's name there (``cuda_time_total``) or here; UnknownLimit for other names.
        """
        self._look("table")
        if by in ("kernel", "family"):
            self.launching.refuse_hidden()
        from pytest_torchprof.report.analysis_text import table  # noqa: PLC0415 - above this layer

        return table(self.with_context(rules=self._rules, gate=None), by=by, sort_by=sort_by, top=top)

    def expect(self, **limits: object) -> None:
        """Check limits as the marker does; LimitsMissed or NotMeasured with all of them in the text."""
        from pytest_torchprof.limits import expect, of_compiling  # noqa: PLC0415 - above this layer

        if not of_compiling(limits):
            self._look("expect")
        expect(self.with_context(rules=self._rules, gate=None), limits)

    def diff(self, other: Profile) -> Any:
        """Return how the other profile's kernels and numbers differ from this one's."""
        self._look("diff")
        from pytest_torchprof.compare import diff  # noqa: PLC0415 - above this layer

        return diff(self, other)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording to a file, gzipped if its name ends so; it can be loaded and opened in Perfetto."""
        from pytest_torchprof.recording.reader import copy  # noqa: PLC0415

        self._look("save")
        if self.trace.path is None:
            raise UnreadableRecording("this trace was built in memory; there is no recording to save")
        if not os.path.exists(self.trace.path):  # noqa: PTH110 - see recording
            raise UnreadableRecording(
                f"The recording {os.path.basename(self.trace.path)} is gone: that of a measurement is kept until its "  # noqa: PTH119
                "test has ended. Call save() in the test itself, or keep all recordings with --torchprof-save=DIR."
            )
        copy(self.trace.path, path)

    def _number(self, name: str) -> Any:
        self._look(name)
        if name in numbers.OF_WINDOW:
            return getattr(self._facts.window, name)
        values = [value for step in self._steps if (value := getattr(step.numbers, name)) is not None]
        return max(values, default=None)


def _with_source(finding: Finding, source: object) -> Finding:
    if source is None or finding.evidence.get("source") is not None:
        return finding
    return replace(finding, evidence={**finding.evidence, "source": source})


def load(path: str | os.PathLike[str]) -> Profile | list[Profile]:
    """Return the profile of a trace file, or those of a folder of them as ``tensorboard_trace_handler`` writes it.

    UnreadableRecording for what is missing, damaged or no trace. In a folder, files of other endings and sound JSON
    without a trace's events (metadata that a tool left beside them) are passed over; what is cut off, damaged, no JSON
    at all or newer than this version is an error there too.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - see recording
        return load_file(path)
    files = sorted(_traces_in(os.fspath(path)))
    found = [profile for file in files if (profile := _unless_other_json(file)) is not None]
    if not found:
        beside = f"none of its {len(files)} JSON files is one" if files else "no file in it ends in .json or .json.gz"
        raise UnreadableRecording(f"There are no traces in the folder {os.fspath(path)}: {beside}. Check the path.")
    return found


def _unless_other_json(file: str) -> Profile | None:
    try:
        return load_file(file)
    except UnreadableRecording as refused:
        if refused.other_json:
            return None
        raise


def load_file(path: str | os.PathLike[str], *, by_two: bool = False) -> Profile:
    """Return the profile of a trace file; UnreadableRecording for what is missing, damaged, a folder or no trace.

    ``by_two`` allows a second process that reads a part of the file.
    """
    return Profile.from_trace(read(path, by_two=by_two))


# The last is read like any other, and refused with what to do: to pass it over would judge a part of what was recorded.
_ENDINGS = (".json", ".json.gz", ".pftrace")


def _traces_in(folder: str) -> Iterable[str]:
    for place, _, files in os.walk(folder):
        yield from (os.path.join(place, file) for file in files if file.endswith(_ENDINGS))  # noqa: PTH118
