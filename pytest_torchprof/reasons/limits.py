"""Reasons of single limits: what they ask about cannot be told from the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.names_asked import ranges_instead
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.step_title import StepTitle  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import and_more, first_of, printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = 60
"""Characters of a kernel's name in a sentence."""


def _which(named: Sequence[tuple[int, str]]) -> str:
    """Return ": 3 x gemm bf16, 1 x fill"; empty where nothing is named."""
    names = [f"{count} x {printable_line(name, _NAME)}" for count, name in named]
    return f": {first_of(names, noun='name')}" if names else ""


class NothingRan(Reason, frozen=True):
    """Nothing ran on the device in a step."""

    CODE = Code.NOTHING_RAN
    SENTENCE = "nothing ran on the device in {step}; if that is meant, say min_kernels=0"
    MEANING = (
        "the measured code did no work there: it returned early, ran on another device, or the compiler removed "
        "what nobody uses. A test without a limit still asks for some work (*min_kernels=1*)"
    )
    ADVICE = "return what the code computes; write `min_kernels=0` if nothing is what you mean"

    step: StepTitle


class NothingRanOnRanks(Reason, frozen=True):
    """No rank ran a kernel, so that all ran the same ones."""

    CODE = Code.NOTHING_RAN
    SENTENCE = "no kernel ran on any rank; if that is meant, say min_kernels=0"
    ADVICE = "write `min_kernels=0` if nothing is what you mean"


class LaunchesWait(Reason, frozen=True):
    """A setting makes each launch wait, and nothing that is a time can be judged."""

    CODE = Code.LAUNCHES_WAIT
    SENTENCE = "{setting} makes every launch wait, so that times and ratios mean nothing"

    setting: str


class ClocksLocked(Reason, frozen=True):
    """The GPU's units were sampled, and its clocks are not those of the code alone."""

    CODE = Code.CLOCKS_LOCKED
    SENTENCE = (
        "the GPU's units were sampled (PM sampling), for which the profiler locks its clocks: times and ratios are "
        "not those of the code alone"
    )
    MEANING = (
        "the recording holds samples of the GPU's hardware counters (`PerformanceMetricsConfig`, "
        "`enable_pm_sampling`), and these lock its clocks: every kernel may take longer or shorter; counts are "
        "still judged"
    )
    ADVICE = "record times without the counters"


class FamilyUnknown(Reason, frozen=True):
    """A limit depends on kernels of which nobody knows what they compute."""

    CODE = Code.FAMILY_UNKNOWN
    MEANING = (
        "the limit holds as far as kernels are known; the named ones are in no table, and if they were of this "
        "family the limit would be missed, or could not be measured"
    )
    ADVICE = (
        "say once what they are, in the ini file: paste the lines that the message ends with, see [Your own "
        "kernels](limits.md#your-own-kernels)"
    )

    kernels: tuple[str, ...]
    family: str
    """The family to which they would have to belong for the limit not to hold."""
    surely: bool = True
    """Whether the limit would not hold then, or only might not."""

    @property
    def sentence(self) -> str:
        would = "would not hold" if self.surely else "may not hold"
        return f"what {_and_others(self.kernels)} computes is not known; as {self.family} it {would}"


def _and_others(names: Sequence[str]) -> str:
    return f"{printable_line(names[0], 60)}{and_more(len(names) - 1, 'kernel')}"


class NoVerdict(Reason, frozen=True):
    """The check of another plugin's limit returned no verdict, so that nobody knows whether the limit holds."""

    CODE = Code.NO_VERDICT
    SENTENCE = "the check of {limit} returned {returned} instead of a verdict"
    REMEDY = "let it return a Verdict, or a tuple of at least one"

    limit: str
    returned: str
    """As Python shows it."""


class UnreadableVerdict(Reason, frozen=True):
    """The verdict of another plugin's limit has a field that is not what it should be."""

    CODE = Code.NO_VERDICT
    SENTENCE = "the check of {limit} returned a verdict that cannot be read ({problem})"
    REMEDY = "correct it in the plugin that brings {limit}"

    limit: str
    problem: str
    """In the words of the library that reads it."""


class CheckRaised(Reason, frozen=True):
    """The check of another plugin's limit raised an error, so that nobody knows whether the limit holds."""

    CODE = Code.NO_VERDICT
    SENTENCE = "the check of {limit} raised {error}"
    REMEDY = "correct it in the plugin that brings {limit}"

    limit: str
    error: str
    """In Python's words, "ZeroDivisionError: division by zero"."""


class WithoutReason(Reason, frozen=True):
    """The check of another plugin's limit could not measure, and does not say why."""

    CODE = Code.NO_VERDICT
    SENTENCE = "the check of {limit} does not say why"
    REMEDY = "let its verdict have a reason"

    limit: str


class Polled(Reason, frozen=True):
    """A step may have waited without a call that blocks."""

    CODE = Code.POLLED
    REMEDY = "wait with event.synchronize()"
    MEANING = "a loop of `event.query()` or `stream.query()` waits as a blocking call does, and no call says so"

    times: int
    step: StepTitle | None
    """Which one; None for the only step."""

    @property
    def sentence(self) -> str:
        in_step = "" if self.step is None else f" in {self.step}"
        asked = f"the code asked {self.times} times in a row whether the GPU was done{in_step}"
        return f"{asked}, and whether it waited for that is not known"


class NoPackageOfName(Reason, frozen=True):
    """The user's own code is given by a name that is neither a package nor a folder."""

    CODE = Code.OWN_UNKNOWN
    MEANING = (
        "nothing would ever count: the name is mistyped, or the package is not installed on the machine that judges "
        "and broke no graph"
    )
    ADVICE = (
        "write the name under which it is imported; judge the recording where the package is installed, or without "
        "`own`"
    )

    name: str
    near: str | None = None
    """The name that may be meant."""

    @property
    def sentence(self) -> str:
        meant = "" if self.near is None else "; did you mean {near!r}?"
        return self.words(
            "own={name!r}: no package or module of that name has files here, and no file of the recording lies in one"
            + meant
        )


class RangeNotInStep(Reason, frozen=True):
    """A step has no occurrence of a range."""

    CODE = Code.NOT_IN_RECORDING
    ADVICE = "enter it in each step, around the call of compiled code"

    name: str
    step: StepTitle
    compiled: bool
    """Whether code was compiled, inside of which ranges are dropped."""
    others: int
    """The steps in which it begins."""
    near: str | None
    """The range that may be meant."""
    there: tuple[str, ...]
    """The user's ranges in the recording."""

    @property
    def sentence(self) -> str:
        compiled = (
            "; torch.compile drops ranges inside the code that it compiles: put it around the call of that code"
            if self.compiled
            else ""
        )
        elsewhere = self.words("it begins in {others:other step}")
        instead = elsewhere if self.others else ranges_instead(self.name, self.near, self.there)
        return f'no range "{printable_line(self.name)}" begins in {self.step}{compiled}; {instead}'


class RangeOfLaunchesUnknown(Reason, frozen=True):
    """Whether a range launched operations cannot be told without their launches."""

    CODE = Code.NOT_RECORDED
    SENTENCE = '{operations:GPU operation} without a recorded launch: whether "{name:line}" launched them is not known'

    operations: int
    name: str


class RangeOfGraphUnknown(Reason, frozen=True):
    """Work of CUDA graphs carries no annotation, and may belong to the range that others carry."""

    CODE = Code.NOT_RECORDED
    MEANING = (
        "the range is known by what torch's `mark_kernels` noted of the nodes of CUDA graphs, and of these it noted "
        "nothing: their graph was captured without `enable_annotations=True`, or they ran on a stream that the scope "
        "did not see"
    )
    ADVICE = "annotate all graphs that the steps replay; or limit the kernels of the whole step"

    name: str
    operations: int
    named: tuple[tuple[int, str], ...] = ()
    """How many of which, most first."""

    @property
    def sentence(self) -> str:
        without = self.words("{operations:GPU operation} of CUDA graphs without an annotation")
        whether = self.words('whether they belong to "{name:line}" is not known')
        return f"{without}{_which(self.named)}; {whether}"


class NoCompileTimes(Reason, frozen=True):
    """The recording does not tell how long compilation took."""

    CODE = Code.NO_COMPILE_EVIDENCE
    SENTENCE = "the recording holds no compile times"


class NothingCompiled(Reason, frozen=True):
    """No compilation took place that could be timed."""

    CODE = Code.NO_COMPILE_EVIDENCE
    SENTENCE = "nothing was compiled during the measurement"


class NoGraphRan(Reason, frozen=True):
    """No graph of Inductor's ran whose calls could be looked at."""

    CODE = Code.NO_COMPILE_EVIDENCE
    SENTENCE = "no graph of Inductor's ran in the measured steps"


class GraphLaunchesUntold(Reason, frozen=True):
    """The recording does not link kernels to their launches."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the recording does not link kernels to their launches, so graph launches cannot be told"
    MEANING = "it has no launches, or no numbers that tie kernels to them, as in files of some versions of ROCm"
    ADVICE = "limit the kernels themselves"


class NotMeasuredWithCaches(Reason, frozen=True):
    """The recording has no measurement with caches as they are asked for."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = "the recording has no measurement with {phase} caches"
    REMEDY = "compile_cache='warm' in the marker measures both"
    MEANING = '`max_compile_time={"cold": ...}` was asked of a profile whose test does not measure with such caches'
    ADVICE = 'put `compile_cache="warm"` into the marker'

    phase: str
