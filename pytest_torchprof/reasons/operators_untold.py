"""Reasons that the operators of kernels, which a limit asks about, cannot be told."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.limits import _which
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import counted


class OperatorUntold(Reason, frozen=True):
    """The recording does not tell which operator launched kernels."""

    CODE = Code.OPERATOR_UNKNOWN
    MEANING = (
        "they ran in a CUDA graph whose capture was not seen, or in an operator inside of another one there, or the "
        "recording has no operators"
    )
    ADVICE = (
        "let the warm-up [capture the graph](compile.md#cuda-graphs), ask for the outer operator or for kernels "
        "(`kernels`, `forbid_kernels`), or measure without the graph"
    )

    kernels: int
    named: tuple[tuple[int, str], ...] = ()
    """How many of which, most first."""

    @property
    def sentence(self) -> str:
        return self.words("which operator launched them cannot be told for {kernels:kernel}") + _which(self.named)


class CarriedUntold(Reason, frozen=True):
    """Which operators kernels of Inductor's carry cannot be told."""

    CODE = Code.OPERATOR_UNKNOWN
    MEANING = "their names have no operators (`unique_kernel_names` or `descriptive_names` is off), or are cut off"
    ADVICE = "turn on these settings of `torch._inductor.config` for the test"

    kernels: int
    named_after: tuple[str, ...] = ()
    """Operators in their names that they may not carry."""

    @property
    def sentence(self) -> str:
        sentence = self.words("which operators they carry cannot be told for {kernels:kernel} of Inductor's")
        if not self.named_after:
            return sentence
        are = self.words("{kernels:is|are}")
        return f"{sentence}, which {are} named after {' and '.join(self.named_after)} and may not carry it"


class NameOfOperator(Reason, frozen=True):
    """A pattern on kernels names an operator, and whether kernels match it cannot be told."""

    CODE = Code.MATCH_UNKNOWN
    SENTENCE = (
        "{pattern} is an operator, for which ops, forbid_ops and op= ask, and no kernel's name here: whether {pattern} "
        "matches cannot be told for {kernels:kernel}"
    )
    MEANING = (
        '`forbid_kernels="aten::mm"` where `aten::mm` ran: a kernel is called so only where the CPU is the device '
        "and the operator itself computes"
    )
    ADVICE = '`forbid_ops="aten::mm"`, `ops={"aten::mm": 1}`, `gemm(op="mm")`'

    pattern: str
    kernels: int


class OperatorRanWithoutKernel(Reason, frozen=True):
    """A pattern on kernels names an operator that ran and launched none."""

    CODE = Code.MATCH_UNKNOWN
    SENTENCE = "{pattern} is an operator, for which ops, forbid_ops and op= ask: it ran, and is no kernel here"
    MEANING = "the operator ran in the step and computes nothing itself, so that no kernel is called so"
    ADVICE = '`forbid_ops="aten::item"`; for what it costs, `max_syncs=0`'

    pattern: str


class OperatorMatchUntold(Reason, frozen=True):
    """Whether calls of operators match a pattern cannot be told."""

    CODE = Code.MATCH_UNKNOWN

    pattern: str
    count: int
    noun: str
    named: tuple[tuple[int, str], ...] = ()
    """How many of which, most first."""

    @property
    def sentence(self) -> str:
        what = counted(self.count, self.noun)
        return f"whether {self.pattern} matches cannot be told for {what}{_which(self.named)}"


class MatchesUntold(Reason, frozen=True):
    """Whether kernels match any of several patterns cannot be told."""

    CODE = Code.MATCH_UNKNOWN
    SENTENCE = "whether they match cannot be told for {kernels:kernel}"

    kernels: int


class NothingToFuse(Reason, frozen=True):
    """Operators that are to stay apart did not all run."""

    CODE = Code.NOTHING_TO_FUSE
    MEANING = (
        "`not_fused` concerns compiled code and operators that run in it: in eager code each operator has kernels "
        "of its own, and an operator that no kernel carries has another name, or was taken apart"
    )
    ADVICE = "compile the code; take a name from the list of what the kernels carry"

    absent: tuple[str, ...]
    """The operators that no kernel carries; empty where nothing was compiled at all."""

    @property
    def sentence(self) -> str:
        if not self.absent:
            return "nothing was compiled, so that nothing could be fused"
        return f"no kernel carries {' or '.join(self.absent)}: what does not run is fused with nothing"
