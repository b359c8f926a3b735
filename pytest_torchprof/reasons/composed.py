"""Reasons that hold others: another rank's, several at once, those of a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.comparing import SideName  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import KnownAsItsCause, Reason
from pytest_torchprof.reasons.statement import OncePhrase
from pytest_torchprof.reasons.step_title import StepTitle  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import counted, enumerated

if TYPE_CHECKING:
    from collections.abc import Iterable


class _KnownAsTheFirst:
    """Reasons together: users look the first one up."""

    __slots__ = ()
    whys: tuple[decoding.AnyReason, ...]

    @property
    def code(self) -> Code | None:
        """The code that users know it by."""
        return self.whys[0].code


class OfRank(KnownAsItsCause, Reason, frozen=True):
    """A reason that another rank of the job has; it is for that rank's own doctor."""

    FOR_THE_DOCTOR = False

    rank: int
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"rank {self.rank}: {self.why.text}"


class OfRecording(KnownAsItsCause, Reason, frozen=True):
    """A reason why a recording is not measured, where it is compared with another."""

    file: str
    """Its path; empty where it has none."""
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"{self.file or 'a recording'} is not measured: {self.why.text}"


class OfRule(KnownAsItsCause, Reason, frozen=True):
    """A reason that lies in one of the rules of a suite or of a fleet."""

    FOR_THE_DOCTOR = False

    rule: str
    """Its file, and its table or its name."""
    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"{self.rule}: {self.why.text}"


class Several(_KnownAsTheFirst, Reason, frozen=True):
    """Reasons of which each would be enough."""

    whys: tuple[decoding.AnyReason, ...]

    @classmethod
    def of(cls, whys: Iterable[Reason]) -> Reason:
        """Return one reason for all of these: the only one itself, or `Several`."""
        different = tuple(dict.fromkeys(whys))
        return different[0] if len(different) == 1 else cls(different)

    @property
    def for_the_doctor(self) -> bool:
        return any(why.for_the_doctor for why in self.whys)

    def __str__(self) -> str:
        return "; ".join(map(str, self.whys))


class InStep(_KnownAsTheFirst, Reason, frozen=True):
    """A fact of one step is not known."""

    whys: tuple[decoding.AnyReason, ...]
    step: StepTitle | None
    """Which one; None for the only step, and for a reason that concerns no single step."""

    @property
    def text(self) -> str:
        return "; ".join(dict.fromkeys(why.text for why in self.whys)) + (
            f" in {self.step}" if self.step is not None else ""
        )


class CuptiUser(OncePhrase):
    """A program that may have CUPTI besides torch.profiler."""

    PROTON = "proton", "Proton (triton.profiler)"
    JAX = "jax", "JAX (jax.profiler)"
    TENSORFLOW = "tensorflow", "TensorFlow (tf.profiler)"
    CUSPY = "cuspy", "torch's own monitor of CUPTI (CuspyConfig)"
    CUPTI_MONITOR = "cupti-monitor", "torch's own monitor of CUPTI"
    CUPTI_PYTHON = "cupti-python", "cupti-python"
    DAEMON = "daemon", "a daemon such as dynolog, which starts profilers of torch's here (KINETO_USE_DAEMON)"


class WithOthersInCupti(KnownAsItsCause, Reason, frozen=True):
    """The GPU's side is missing, and others in the process may have CUPTI, which serves one profiler at a time."""

    why: decoding.AnyReason
    users: tuple[CuptiUser, ...]

    @property
    def text(self) -> str:
        users = enumerated([str(user) for user in self.users])
        serves = f"CUPTI serves one profiler at a time, and may serve {users} in this process"
        return f"{self.why.text}. {serves}"


class SkippedGraphsUnknown(KnownAsItsCause, Reason, frozen=True):
    """Graphs replayed, and whether Inductor left out others is not known."""

    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"whether Inductor skipped a graph is not known: {self.why.text}"


class RepeatUnmeasured(KnownAsItsCause, Reason, frozen=True):
    """The repeat with stacks, which is to tell lines, was not measured itself."""

    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"the repeat with stacks was not measured: {self.why.text}"


class AllowanceUntold(Reason, frozen=True):
    """Whether calls or copies are among those that are allowed cannot be told."""

    CODE = Code.NOT_RECORDED
    MEANING = "the limit has exceptions, and the recording does not tell whether these calls or copies are among them"
    ADVICE = "record what the text says is missing"

    allowed: tuple[str, ...]
    count: int
    noun: str
    """The noun that is counted: "blocking call"."""
    because: decoding.AnyReason

    @property
    def sentence(self) -> str:
        what = counted(self.count, self.noun)
        return f"whether {enumerated(self.allowed)} allows {what} cannot be told: {self.because.text}"

    @property
    def action(self) -> str:
        return self.because.action


class FindingUntold(Reason, frozen=True):
    """A recording does not tell whether it has a finding that is forbidden."""

    CODE = Code.NOT_RECORDED

    finding: str
    because: decoding.AnyReason
    of_ranks: bool = False

    @property
    def sentence(self) -> str:
        where = "these recordings" if self.of_ranks else "this recording"
        return f"{self.finding} cannot be told from {where}: {self.because.text}"


class OfSide(KnownAsItsCause, Reason, frozen=True):
    """Why one side of a comparison with a commit has no times of a test."""

    side: SideName
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"{self.side}: {self.why.text}"


class PairsLost(Reason, frozen=True):
    """Pairs of processes came to nothing, so that there are too few."""

    CODE = Code.NO_TIMES
    MEANING = "processes that were to take times failed, or took none; the text has the last one's reason"
    ADVICE = "look at that reason: a test must pass when it runs only with the other timed ones"

    pairs: int
    needed: int
    why: decoding.AnyReason
    """Why the last one did."""

    @property
    def sentence(self) -> str:
        return f"{counted(self.pairs, 'pair')} of processes, and {self.needed} are needed: {self.why.text}"


class FurtherPairsLost(Reason, frozen=True):
    """There are pairs enough, and those that were to decide came to nothing."""

    CODE = Code.NO_TIMES
    MEANING = "pairs enough for a verdict leave it open, and those that were to decide it failed"
    ADVICE = "look at that reason, as above"

    why: decoding.AnyReason
    """Why the last one did."""

    @property
    def sentence(self) -> str:
        return f"further processes measured nothing: {self.why.text}"


class OfKeyword(KnownAsItsCause, Reason, frozen=True):
    """Why a keyword cannot have its value."""

    FOR_THE_DOCTOR = False

    keyword: str
    """As it is given: with its option on a command line."""
    value: str | None
    """The value as it is written, "..." for one that is too long; None where the reason has what of it is wrong."""
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"{self.keyword}{'' if self.value is None else f'={self.value}'}: {self.why.text}"


class OfRange(KnownAsItsCause, Reason, frozen=True):
    """Why limits within a range cannot be as they are asked for."""

    FOR_THE_DOCTOR = False

    range: str
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f'in "{self.range}": {self.why.text}'


class OfEntry(KnownAsItsCause, Reason, frozen=True):
    """Why one entry of a value cannot be as it is."""

    FOR_THE_DOCTOR = False

    entry: str
    """As it is written."""
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"{self.entry}: {self.why.text}"


class MaybeOfFunction(KnownAsItsCause, Reason, frozen=True):
    """Why a keyword cannot be meant for the measurement; it may be meant for the measured code."""

    FOR_THE_DOCTOR = False

    why: decoding.AnyReason

    @property
    def text(self) -> str:
        bind = "bind a keyword argument of the measured code to it: functools.partial(function, ...)"
        return f"{self.why.text}; {bind}"
