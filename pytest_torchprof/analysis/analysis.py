"""The analysis of one trace and of each of its steps, for limits, findings and comparisons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from pytest_torchprof.analysis import numbers, validity
from pytest_torchprof.analysis.annotated_ranges import annotated_ranges, parts_annotated
from pytest_torchprof.analysis.collective_calls import Communication
from pytest_torchprof.analysis.collectives import Collective, StepCommunication
from pytest_torchprof.analysis.compilation import Compile, compile_of
from pytest_torchprof.analysis.efficiency import Efficiency, efficiency_of
from pytest_torchprof.analysis.gpu_work import GpuWork
from pytest_torchprof.analysis.launches import Launching
from pytest_torchprof.analysis.numbers import AllAttributes, Numbers
from pytest_torchprof.analysis.origin import Places
from pytest_torchprof.analysis.parts import Part
from pytest_torchprof.analysis.ranges import parts_within
from pytest_torchprof.analysis.ranks import InJob, Job
from pytest_torchprof.analysis.steps import HasViews, StepProfile, shared
from pytest_torchprof.analysis.user_ranges import instead_of
from pytest_torchprof.devices.range_names import step_name
from pytest_torchprof.kernels.kernels import Kernels
from pytest_torchprof.kernels.names import KernelName
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED, OwnKernels
from pytest_torchprof.kernels.reply import NOT_KNOWN
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.recordings import OneRankAlone
from pytest_torchprof.reasons.step_title import StepTitle
from pytest_torchprof.trace import Trace


class Analysis(HasViews, AllAttributes):
    """A recording's numbers, kernels, operators and compile evidence; each number is its worst step's, the largest.

    Times are in microseconds; None is what the recording does not say.
    """

    why_alone: Reason | None = None
    """Why it is judged alone, if the recordings of the other ranks of its job were looked for."""
    own_kernels: OwnKernels = NOTHING_DECLARED
    """The users' declarations of kernels that no table knows; views that share answers have the same."""

    def __init__(
        self,
        trace: Trace | None,
        *,
        beside: tuple[Analysis, ...] = (),
        repeat: Repeat | None = None,
        in_job: InJob | None = None,
        answers: dict[object, Any] | None = None,
    ) -> None:
        """Take the trace (None if nothing was measured), the test's other measurements, and a repeat of this one.

        ``in_job`` says which of the recordings of its job's ranks it is, if there are such.
        Nothing is computed yet; ``answers`` are those of another view of the trace.
        """
        super().__init__(answers)
        self._trace = trace
        self.beside = beside
        """The other measurements of the same test, for findings that compare."""
        self.repeat = repeat
        """A repeat of the measurement with stacks, which shows places in the code, and no numbers."""
        self.in_job = in_job
        """Which of the recordings of its job's ranks it is; None if it is judged alone."""

    def _look(self, name: str) -> None:
        """Allow or refuse a look at the attribute of this name: a profile may be closed."""

    @property
    def trace(self) -> Trace:
        """The recording itself."""
        if self._trace is None:
            self._look("trace")
            from pytest_torchprof.reasons.measuring import NothingMeasured  # noqa: PLC0415 - for what is refused alone

            raise NotMeasured(NothingMeasured())
        return self._trace

    @shared
    def launching(self) -> Launching:
        """The launches of the recording: which operator launched which work."""
        return Launching(self.trace, self.own_kernels)

    @shared
    def gpu_work(self) -> GpuWork:
        """The GPU work grouped and put in order."""
        return GpuWork(self.trace, self.launching)

    @shared
    def unknown_kernels(self) -> Mapping[str, Collection[KernelName]]:
        """The kernels of the steps whose family is not known, by name, with what else is known of each."""
        unknown: defaultdict[str, set[KernelName]] = defaultdict(set)
        names, launching = self.trace.names, self.launching
        for group in self.gpu_work.groups:
            if (decoded := self.gpu_work.decoded(group)).family is None:
                unknown[names[group.name]].add(decoded)
        for part in launching.parts if not self.trace.device_kind.has_launches else ():
            for op in part.operators:
                if (decoded := launching.decoded_operator(op)).family is None:
                    unknown[names[self.trace.ops.name[op]]].add(decoded)
        return dict(unknown)

    @property
    def unmatched_declarations(self) -> tuple[str, ...]:
        """The users' declarations that match no kernel of the steps."""
        return self.own_kernels.unmatched({kernel.name for step in self.steps for kernel in step.kernels})

    def supposing(self, family: str) -> Analysis | None:
        """Return the recording as it would be if all kernels that may belong to a family did.

        None if no kernel may belong to it.
        """
        unknown = self.unknown_kernels.items()
        names = frozenset(
            name for name, decodings in unknown if any(decoded.is_of(family) is NOT_KNOWN for decoded in decodings)
        )
        return self.as_if(self.own_kernels.supposing(names, family)) if names else None

    def as_if(self, own_kernels: OwnKernels) -> Analysis:
        """Return this recording with another declaration of the user's own kernels."""
        analysis = Analysis(self._trace, beside=self.beside, repeat=self.repeat, in_job=self.in_job)
        analysis.own_kernels = own_kernels
        return analysis

    @shared
    def _window(self) -> Numbers:
        return numbers.of_window(self.trace, self._compile)

    @shared
    def _compile(self) -> Compile:
        return compile_of(self.trace)

    @shared
    def communication(self) -> Communication:
        """The collectives of the steps, and how much of their time computing hid."""
        return Communication(self.trace, self.launching, self.gpu_work.communication)

    @property
    def communication_of_steps(self) -> tuple[StepCommunication, ...]:
        """The collectives of each step together."""
        return self.communication.steps

    @shared
    def _efficiency(self) -> Efficiency:
        return efficiency_of(self.gpu_work)

    @shared
    def _recorded_steps(self) -> tuple[StepProfile, ...]:
        return tuple(StepProfile(self.trace, self.launching, part) for part in self.launching.parts)

    @shared
    def _worst(self) -> Numbers:
        return numbers.worst([step.numbers for step in self._recorded_steps], self._window)

    @shared
    def _median(self) -> Numbers:
        return numbers.median([step.numbers for step in self._recorded_steps], self._window)

    @cached_property
    def _steps(self) -> tuple[StepProfile, ...]:
        if self.repeat is None:
            return self._recorded_steps
        return tuple(step.with_places(self.repeat.places_of) for step in self._recorded_steps)

    @shared
    def doubt(self) -> Reason | None:
        """Why the numbers cannot be believed; None if they can."""
        return validity.doubt_of(self.trace)

    @property
    def why_not(self) -> str | None:
        """Why the numbers cannot be believed, as text; None if they can."""
        return None if self.doubt is None else str(self.doubt)

    @property
    def measured(self) -> bool:
        """Whether the numbers can be believed."""
        return self.doubt is None

    @property
    def kernels_unknown(self) -> Reason | None:
        """Why a believable recording does not hold all kernels; None if it does."""
        return self.launching.hidden

    @property
    def steps(self) -> tuple[StepProfile, ...]:
        """The recorded steps, each with its own numbers and kernels; without step ranges the whole trace is one."""
        self._look("steps")
        return self._steps

    def title_of(self, step: StepProfile) -> StepTitle:
        """Return the name of a step for people."""
        number = next(i for i, other in enumerate(self.steps, 1) if other is step)
        own = step.name in (None, step_name(number - 1))
        return StepTitle(step=number, steps=len(self.steps), name=None if own else step.name)

    @property
    def worst(self) -> Numbers:
        """Each number's largest value over the steps."""
        self._look("worst")
        return self._worst

    def worst_of(self, steps: Sequence[StepProfile]) -> Numbers:
        """Return each number's largest value over these steps."""
        self._look("worst")
        return numbers.worst([step.numbers for step in steps], self._window)

    @property
    def median(self) -> Numbers:
        """Each number's median over the steps."""
        self._look("median")
        return self._median

    def median_of(self, steps: Sequence[StepProfile]) -> Numbers:
        """Return each number's median over these steps."""
        self._look("median")
        return numbers.median([step.numbers for step in steps], self._window)

    @property
    def kernels(self) -> Kernels:
        """The kernels, in launch order, of the step with most kernels; of several such steps the earliest."""
        self._look("kernels")
        return self.fullest_step.kernels

    @property
    def ops(self) -> Mapping[str, int]:
        """The operators that launch a kernel of that step or enclose one that does, with counts."""
        self._look("ops")
        return self.fullest_step.ops

    @property
    def fullest_step(self) -> StepProfile:
        """The step with most kernels; of several such steps the earliest."""
        return max(self._steps, key=lambda step: step.numbers.kernels or 0)

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """The collectives of all steps that this rank took part in, in the order in which they were asked for.

        If there are recordings of the other ranks, each also says how long this rank waited in it.
        """
        self._look("collectives")
        self.launching.refuse_hidden()
        return self.communication.collectives if self.in_job is None else self.in_job.job[self.in_job.rank].collectives

    @property
    def ranks(self) -> Job:
        """The recordings of all ranks of the job together; NotMeasured if there is only this one."""
        self._look("ranks")
        if self.in_job is None:
            reason = self.why_alone or OneRankAlone()
            raise self.launching.refusal(NotMeasured(reason))
        return self.in_job.job

    @property
    def compile(self) -> Compile:
        """The results of torch.compile: regions, graph breaks, recompiles, skipped frames."""
        self._look("compile")
        return self._compile

    @property
    def efficiency(self) -> Efficiency:
        """The use of the GPU: where the steps' time went, tensor cores, FLOP/s, copies."""
        self._look("efficiency")
        return self._efficiency

    @property
    def mfu(self) -> float | None:
        """The share of the GPU's peak that the slowest step reached, 0..1; None if FLOPs or peak are not known."""
        self._look("mfu")
        return self._efficiency.throughput.mfu

    def range(self, name: str) -> Numbers:
        """Return the numbers of the work launched inside the user annotation, the largest over the steps.

        A backward pass inside it counts too, although autograd launches it on a thread of its own. NotMeasured if the
        recording has no annotation of this name.
        """
        self._look("range")
        self._refuse_unknown_range(name)
        self.launching.refuse_hidden()
        return numbers_within(self.trace, [step.part for step in self._steps], name)

    def _refuse_unknown_range(self, name: str) -> None:
        """Raise NotMeasured if the recording has no user annotation of this name."""
        if not isinstance(name, str):
            from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

            raise self.launching.refusal(TorchprofError.because(WrongValue(ValueForm.RANGE, repr(name))))
        trace = self.trace
        names = {trace.names[index] for index in set(trace.annotations.name)}
        if name not in names and name not in annotated_ranges(trace):
            from pytest_torchprof.reasons.names_asked import NoRangeOfName  # noqa: PLC0415 - for what is refused alone

            raise self.launching.refusal(NotMeasured(NoRangeOfName(name, *instead_of(trace, name))))

    def _number(self, name: str) -> Any:
        self._look(name)
        if name in numbers.OF_WINDOW:
            return getattr(self._window, name)
        values = [value for step in self._steps if (value := getattr(step.numbers, name)) is not None]
        return max(values, default=None)


def numbers_within(
    trace: Trace, steps: Sequence[Part], name: str, for_others: Mapping[int, frozenset[int]] | None = None
) -> Numbers:
    """Return the numbers of the work launched inside user annotations of this name, the largest over the steps.

    ``for_others``: as in `parts_within`.
    """
    inside = parts_within(trace, steps, name, for_others) or parts_annotated(trace, steps, name)
    return numbers.worst([numbers.of_part(trace, part) for part in inside], Numbers())


class Repeat:
    """A repeat of a measurement with stacks; it shows places in the code, and no numbers."""

    def __init__(self, analysis: Analysis | None, why_not: Reason | None = None) -> None:
        """Take the repeat itself, or why there is none."""
        self.analysis = analysis
        self._why_not = why_not

    def places_of(self, step: StepProfile, again: StepProfile | None = None) -> Places:
        """Return the origins of the step's work, if the repeat did the same; ``again`` is its counterpart there."""
        if self.analysis is None:
            return Places(why_not=self._why_not)
        repeated = again or self.analysis.steps[0]
        places = repeated.places
        was, is_now = Counter(kernel.name for kernel in step.kernels), Counter(name for name, _ in places.kernels)
        if was != is_now:
            return Places(why_not=_first_difference(was, is_now))
        return replace(places, order=lambda: repeated.order)


def _first_difference(was: Counter[str], is_now: Counter[str]) -> Reason:
    from pytest_torchprof.reasons.lines import RepeatRanOthers  # noqa: PLC0415 - few repeats do other work

    more, less = is_now - was, was - is_now
    name = next(iter(more or less))
    return RepeatRanOthers(name, more[name] - less[name])
