"""The profile that a test looks at: the numbers, kernels and operators of a recording."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.analysis import Analysis, Repeat
from pytest_torchprof.analysis.range_view import OccurrenceProfile, RangeView
from pytest_torchprof.analysis.ranks import InJob, Job
from pytest_torchprof.analysis.steps import StepProfile
from pytest_torchprof.devices.kinds import device_kinds
from pytest_torchprof.findings import RULES, Finding, Rule, explaining, find_or_fail, standing_out
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED, OwnKernels
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError, UnreadableRecording, not_measured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.recordings import (
    BuiltInMemory,
    GpuWasMeasured,
    NoFolderOfRanks,
    NothingWasRun,
    NoTracesThere,
    RecordedElsewhere,
    RecordingGone,
)
from pytest_torchprof.reasons.wrong_calls import refusing_wrong_calls
from pytest_torchprof.recording.files import stacks_name
from pytest_torchprof.recording.reader import path_given, read
from pytest_torchprof.text import printable_line
from pytest_torchprof.text.reprs import short_name
from pytest_torchprof.trace import Trace

if TYPE_CHECKING:
    from pytest_torchprof.limits import Asked, Screen, Verdict
    from pytest_torchprof.limits.keywords import LimitsOfProfile

__all__ = ["Explainer", "Profile", "StepProfile", "load", "load_file", "load_ranks"]

READABLE_WITHOUT_GPU = frozenset({"compile", "graph_breaks", "recompiles", "result", "trace", "why_not", "measured"})
"""The numbers that are known where the CPU stands in for a GPU."""
_ABSENT: Any = object()
_BUILDING = (
    "with_",
    "as_if",
    "supposing",
    "unknown_kernels",
    "own_kernels",
    "unmeasured",
    "launching",
    "gpu_work",
    "communication",
    "beside",
    "in_job",
    "why_alone",
    "repeat",
    "worst_of",
    "median_of",
)


class Explainer(Protocol):
    """Explains where the work of a measurement comes from, by repeating it; the plugin has one explainer for each."""

    screen: Screen
    """The room that its failures have."""
    judges: bool
    """Whether limits are judged at all."""
    settings: Mapping[str, object]
    """The keywords that change how limits count, where limits are given without them."""

    def expected(self, asked: Iterable[Asked]) -> None:
        """Note the limits that a test asks for itself."""

    def refused(self, verdicts: Iterable[Verdict], problem: TorchprofError | None) -> None:
        """Note which of the limits that a test asked for itself did not hold; the test may catch the error, if any."""

    def explained(self, profile: Profile) -> Profile:
        """Return the profile with the places that a repeat shows; the first call makes the repeat, if possible."""


class _View(Struct, frozen=True, kw_only=True, eq=False):
    """The parts in which profiles of one recording differ."""

    beside: tuple[Analysis, ...] = ()
    repeat: Repeat | None = None
    in_job: InJob | None = None
    why_alone: Reason | None = None
    result: Any = _ABSENT
    gate: Callable[[str], None] | None = None
    rules: tuple[Rule, ...] | None = None
    own_kernels: OwnKernels = NOTHING_DECLARED
    explainer: Explainer | None = None


def _noted(profile: Profile, _: str, problem: TorchprofError) -> TorchprofError:
    return profile.launching.refusal(problem)


class Profile(Analysis):
    """A recording as a test sees it; each number is that of its worst step, the largest value.

    Times are in microseconds; a number that the recording does not hold is None.
    """

    def __init__(self, trace: Trace | None, view: _View, answers: dict[object, Any] | None = None) -> None:
        """Use :func:`load`, or :meth:`from_trace`."""
        super().__init__(trace, beside=view.beside, repeat=view.repeat, in_job=view.in_job, answers=answers)
        self.own_kernels = view.own_kernels
        self.why_alone = view.why_alone
        self._view = view

    @classmethod
    def from_trace(cls, trace: Trace, *, result: Any = _ABSENT, gate: Callable[[str], None] | None = None) -> Self:
        """Return the profile of a trace; ``gate`` is called with the name of what is looked at, and may raise."""
        return cls(trace, _View(result=result, gate=gate))

    @classmethod
    def unmeasured(cls, *, gate: Callable[[str], None]) -> Self:
        """Return a profile without a recording, whose gate raises when any number is read."""
        return cls(None, _View(gate=gate))

    def with_context(self, *, rules: Iterable[Rule] | None, gate: Callable[[str], None] | None) -> Self:
        """Return a copy with other rules for findings and another gate."""
        return self._changed(rules=None if rules is None else tuple(rules), gate=gate)

    def with_own_kernels(self, own_kernels: OwnKernels) -> Self:
        """Return a copy with further declarations of kernels that no table knows, which are asked first."""
        return self.as_if(own_kernels.before(self.own_kernels)) if own_kernels.declared else self

    def as_if(self, own_kernels: OwnKernels) -> Self:
        """Return a copy with other declarations of the user's kernels."""
        # Answers that were computed before do not hold for it.
        return type(self)(self._trace, replace(self._view, own_kernels=own_kernels))

    def with_others(self, beside: Iterable[Analysis]) -> Self:
        """Return a copy that knows the other measurements of the same test."""
        return self._changed(beside=tuple(beside))

    def with_repeat(self, repeat: Repeat) -> Self:
        """Return a copy with the places that a repeat with stacks shows, and none of its numbers."""
        return self._changed(repeat=repeat)

    def with_ranks(self, in_job: InJob) -> Self:
        """Return a copy that is one of its job's ranks."""
        return self._changed(in_job=in_job)

    def without_ranks(self, why: Reason) -> Self:
        """Return a copy that is judged without the other ranks of its job, with the reason."""
        return self._changed(why_alone=why)

    def with_explainer(self, explainer: Explainer) -> Self:
        """Return a copy with an explainer, which can repeat its measurement."""
        return self._changed(explainer=explainer)

    def with_result(self, result: Any) -> Self:
        """Return a copy with the value that the last measured call returned."""
        return self._changed(result=result)

    def _changed(self, **changes: Any) -> Self:
        return type(self)(self._trace, replace(self._view, **changes), self._answers)

    def _open(self) -> Self:
        return self if self._view.gate is None else self._changed(gate=None)

    def __dir__(self) -> list[str]:
        """Return the names that a person looks for, without those by which the plugin builds profiles."""
        return sorted(name for name in super().__dir__() if not name.startswith(("_", *_BUILDING)))

    def __repr__(self) -> str:
        path = self._trace.path if self._trace else None
        return f"<Profile of {short_name(path) if path else 'a trace'}>"

    def __reduce__(self) -> tuple[Callable[[Trace], Self], tuple[Trace]]:
        """Pickle the recording's content, without the value that the measured code returned; no file is needed."""
        self._look("pickle")
        return type(self).from_trace, (self.trace,)

    def _look(self, name: str) -> None:
        if self._view.gate is not None:
            self._view.gate(name)

    @property
    def result(self) -> Any:
        """The value that the last measured call returned; NotMeasured for a recording that was loaded."""
        self._look("result")
        if self._view.result is _ABSENT:
            raise NotMeasured(NothingWasRun())
        return self._view.result

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules by which findings are looked for."""
        return RULES if self._view.rules is None else self._view.rules

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that a person reading the recording would point at, the costliest first.

        Raises NotMeasured if the rule of another plugin fails: it is not known whether there is such a finding.
        """
        self._look("findings")
        for reason in self.failed_rules.values():
            raise self.launching.refusal(not_measured(reason))
        return self.known_findings

    @property
    def known_findings(self) -> tuple[Finding, ...]:
        """The findings of the rules that do not fail."""
        return standing_out(self._open(), self._results_of_rules[0])

    @property
    def failed_rules(self) -> Mapping[str, Reason]:
        """Why rules of other plugins failed, by their codes."""
        return self._results_of_rules[1]

    @cached_property
    def _results_of_rules(self) -> tuple[tuple[Finding, ...], Mapping[str, Reason]]:
        return find_or_fail(self._open(), self.rules)

    def why_missed(self, limit: str) -> list[Finding]:
        """Return the findings that may explain why the limit of this name was missed, the likeliest first."""
        return explaining(limit, self._results_of_rules[0], self.rules)

    def ranges(self, name: str) -> tuple[OccurrenceProfile, ...]:
        """Return the outermost occurrences of a user annotation in the steps, each with numbers and kernels.

        They are in the order in which they begin, and count as for ``range``. Raises NotMeasured if none begins in the
        steps.
        """
        self._look("ranges")
        self._refuse_unknown_range(name)
        self.launching.refuse_hidden()
        occurrences = RangeView(self._open(), name).occurrences
        if not occurrences:
            from pytest_torchprof.reasons.names_asked import NoRangeInSteps  # noqa: PLC0415 - for what is refused alone

            raise self.launching.refusal(NotMeasured(NoRangeInSteps(name)))
        return occurrences

    def table(self, sort_by: str | None = None, by: str = "kernel", top: int = 20) -> str:
        """Return the kernels, families, operators, ranges or modules as text, like ``key_averages().table``.

        As wide as the terminal, or as COLUMNS says; the line below the table names the columns that it has no room for.
        ``sort_by`` is a column's name there (``cuda_time_total``) or here; UnknownLimit for other names.
        """
        self._look("table")
        if by in ("kernel", "family"):
            self.launching.refuse_hidden()
        from pytest_torchprof.report.analysis_tables import table  # noqa: PLC0415 - only who asks pays

        return table(self._open(), by=by, sort_by=sort_by, top=top)

    def _repr_html_(self) -> str:
        """Return the kernels as a table for a notebook, or as text why they are not known."""
        from pytest_torchprof.report import analysis_tables  # noqa: PLC0415 - only who asks pays

        try:
            self._look("table")
        except NotMeasured as problem:
            return analysis_tables.reason_in_notebook(str(problem))
        if self.launching.hidden is not None:
            return analysis_tables.reason_in_notebook(str(not_measured(self.launching.hidden)))
        return analysis_tables.in_notebook(self._open())

    @refusing_wrong_calls("expect()", "expect(max_kernels=5)", _noted)
    def expect(self, **limits: Unpack[LimitsOfProfile]) -> None:
        """Check limits as the marker does; LimitsMissed or NotMeasured with all of them in the text."""
        from pytest_torchprof import limits as of_tests  # noqa: PLC0415 - only who asks pays

        explainer = self._view.explainer
        defaults = explainer.settings if explainer is not None else None
        try:
            of_tests.refuse_none(limits, "expect()")
            own_kernels, limits_of_them = of_tests.divided(limits)
            asked = of_tests.read_limits(limits_of_them, known=of_tests.catalogue(self.rules), defaults=defaults)
        except TorchprofError as refused:
            raise self.launching.refusal(refused) from None
        if not of_tests.of_compiling(limits):
            self._look("expect")
        if explainer is not None and not explainer.judges:
            return
        if explainer is not None:
            explainer.expected(asked)
        profile = self._open().with_own_kernels(own_kernels)
        verdicts = of_tests.check_limits(profile, asked)
        if explainer is not None and any(verdict.wants_lines for verdict in verdicts):
            # The same verdicts, with lines: what explains them changes none.
            profile = explainer.explained(profile)
            verdicts = of_tests.check_limits(profile, asked)
        screen = explainer.screen if explainer else of_tests.Screen()
        problem = of_tests.error_for(verdicts, profile, profile.why_missed, screen=screen)
        if explainer is not None:
            explainer.refused(verdicts, problem)
        if problem is not None:
            raise problem

    def diff(self, other: Profile) -> Any:
        """Return how the other profile's kernels and numbers differ from this one's."""
        if not isinstance(other, Profile):
            from pytest_torchprof.reasons.misuse import CallWithout, Takes  # noqa: PLC0415 - for what is refused alone

            given = printable_line(repr(other), 60)
            raise TorchprofError.because(CallWithout("diff()", Takes.PROFILE, given, Code.BAD_VALUE))
        self._look("diff")
        from pytest_torchprof.compare import diff  # noqa: PLC0415 - only who asks pays

        return diff(self, other)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording to a file, gzipped if its name ends so; it can be loaded and opened in Perfetto."""
        target = path_given(path, "save()")
        self._look("save")
        if self.trace.path is None:
            raise UnreadableRecording.because(BuiltInMemory())
        if not os.path.exists(self.trace.path):  # noqa: PTH110 - see recording
            raise UnreadableRecording.because(RecordingGone(os.path.basename(self.trace.path)))  # noqa: PTH119 - as above
        from pytest_torchprof.recording.writer import copy  # noqa: PLC0415 - only who asks pays

        copy(self.trace.path, target)


# A list of them for a folder, which no type checker can know.
_MaybeSeveral = Any


def load(path: str | os.PathLike[str], *, device: str | None = None) -> Profile | _MaybeSeveral:
    """Return the profile of a trace file, or those of a folder of them as ``tensorboard_trace_handler`` writes it.

    ``device="cpu"`` takes a recording that torch.profiler made without a GPU for one of the CPU as device: its kernels
    are the operators that compute. A recording of this plugin's says itself what was measured.

    UnreadableRecording for what is missing, damaged or no trace. In a folder, files of other endings and sound JSON
    without a trace's events (metadata that a tool left beside them) are passed over; what is cut off, damaged, no JSON
    at all or newer than this version is an error there too.
    """
    file = path_given(path, "load()")
    if not os.path.isdir(file):  # noqa: PTH112 - see recording
        return load_file(file, device=device)
    return list(load_each(file, device=device))


def load_each(folder: str | os.PathLike[str], *, device: str | None = None) -> Iterator[Profile]:
    """Yield the profiles of a folder's traces, one read after the other; errors are as in ``load``.

    A repeat with stacks is no measurement of its own: it is left out where it lies beside the one that it repeats.
    """
    files = sorted(traces_in(os.fspath(folder)))
    count = 0
    for file in files:
        profile = _unless_other_json(file, device)
        if profile is not None:
            count += 1
            yield profile
            # The next one takes as much memory again.
            profile = None
    if not count:
        raise UnreadableRecording.because(NoTracesThere(os.fspath(folder), len(files)))


def load_ranks(folder: str | os.PathLike[str], *, device: str | None = None) -> Job:
    """Return the job of several ranks whose recordings a folder holds, one file for each rank.

    They are read one after the other, and of each its collectives and its kernels' names are kept. ``device`` and the
    errors are as in ``load``; TorchprofError for recordings of several jobs, or of one rank.
    """
    place = path_given(folder, "load_ranks()")
    if not os.path.isdir(place):  # noqa: PTH112 - see recording
        raise UnreadableRecording.because(NoFolderOfRanks(place))
    from pytest_torchprof.analysis.joining import joined  # noqa: PLC0415 - who looks at one rank needs none of it
    from pytest_torchprof.analysis.rank_parts import part_of  # noqa: PLC0415 - as above

    return joined(map(part_of, load_each(place, device=device)))


def _unless_other_json(file: str, device: str | None) -> Profile | None:
    try:
        return load_file(file, device=device)
    except UnreadableRecording as refused:
        if refused.cause is not None and refused.cause.OTHER_JSON:
            return None
        raise


def load_file(path: str | os.PathLike[str], *, device: str | None = None) -> Profile:
    """Return the profile of a trace file; UnreadableRecording for what is missing, damaged, a folder or no trace.

    ``device`` is as in ``load``.
    """
    trace = read(path)
    return Profile.from_trace(trace if device is None else _taken_for(trace, device))


def _taken_for(trace: Trace, device: str) -> Trace:
    if device not in (known := [kind.name for kind in device_kinds()]):
        from pytest_torchprof.reasons.asked_wrongly import NoDeviceOfKind  # noqa: PLC0415 - for what is refused alone

        raise TorchprofError.because(NoDeviceOfKind(tuple(known), repr(device)))
    if trace.recorded_device is not None and trace.device_kind.name != device:
        raise TorchprofError.because(RecordedElsewhere(trace.recorded_device, device), str(trace.path))
    of_device = replace(trace, taken_for=device)
    if len(trace.gpu) and not of_device.device_kind.has_launches:
        raise TorchprofError.because(GpuWasMeasured(len(trace.gpu), device), str(trace.path))
    return of_device


# The last is read like any other, and refused with what to do: to pass it over would judge a part of what was recorded.
ENDINGS = (".json", ".json.gz", ".pftrace")


def traces_in(folder: str, onerror: Callable[[OSError], None] | None = None) -> Iterable[str]:
    """Yield the paths of a folder's files that may be recordings; ``onerror`` is called as by ``os.walk``."""
    for place, _, files in os.walk(folder, onerror=onerror):
        repeats = {stacks_name(file) for file in files}
        yield from (os.path.join(place, file) for file in files if may_be_recording(file) and file not in repeats)  # noqa: PTH118


def may_be_recording(name: str) -> bool:
    """Return whether a file of this name is looked at where no one has named it, in whatever case its ending is."""
    return name.lower().endswith(ENDINGS)
