"""Reasons that nothing in a recording has the name that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import first_of

if TYPE_CHECKING:
    from collections.abc import Sequence


_MOST_NAMES: Final = 10


def ranges_instead(name: str, near: str | None, there: Sequence[str]) -> str:
    """Return a text for somebody who asks for a range that is not there, with the one that may be meant or all."""
    unrecorded = "" if name.isascii() else ' (torch records names that are not ASCII as "unknown")'
    if not there:
        return f"the recording has no ranges of the user's{unrecorded}"
    if near is not None:
        return f"did you mean {near!r}?{unrecorded}"
    return f"ranges in the recording: {first_of(there, _MOST_NAMES)}{unrecorded}"


class NoSuchRange(Reason, frozen=True):
    """The range whose occurrences are to be the steps is not there."""

    CODE = Code.NO_SUCH_RANGE
    MEANING = (
        "no range on the CPU has this name: the name is mistyped, the range was not entered, or compiled code has "
        "dropped it"
    )
    ADVICE = "the text lists the names that exist, and so does `torchprof analyze FILE --by range`"

    name: str
    near: str | None
    """The range that may be meant."""
    there: tuple[str, ...]
    """The user's ranges in the recording."""

    @property
    def sentence(self) -> str:
        absent = self.words("the range {name:name} that is to be the step is not in the recording")
        return f"{absent}; {ranges_instead(self.name, self.near, self.there)}"


class NoRangeOfName(Reason, frozen=True):
    """The recording has no range of the name that is asked for."""

    CODE = Code.NOT_IN_RECORDING
    ADVICE = "use one of the names in the text; `torchprof analyze FILE --by range` lists them"

    name: str
    near: str | None
    """The range that may be meant."""
    there: tuple[str, ...]
    """The user's ranges in the recording."""

    @property
    def sentence(self) -> str:
        absent = self.words("there is no range {name!r} in the recording")
        return f"{absent}; {ranges_instead(self.name, self.near, self.there)}"


class NoRangeInSteps(Reason, frozen=True):
    """The recording has ranges of the name, and none begins in a step."""

    CODE = Code.NOT_IN_RECORDING
    SENTENCE = "no range {name!r} begins in a step of the recording"
    ADVICE = "enter it in the measured code"

    name: str


class NoSuchOperator(Reason, frozen=True):
    """Neither the recording nor torch has an operator of the name."""

    CODE = Code.NO_SUCH_OPERATOR
    MEANING = (
        "nothing can have the name, so that to forbid it would always hold; a library's operators are known where "
        "it is imported"
    )
    ADVICE = "write the operator as `profile.ops` or `torchprof analyze --by op` shows it, or as the text says"

    written: str
    near: str | None
    torch_loaded: bool

    @property
    def sentence(self) -> str:
        unsure = "" if self.torch_loaded else " (which is not loaded here, so that libraries' own are not known)"
        meant = "" if self.near is None else "; did you mean {near!r}?"
        return self.words("there is no operator {written!r}, neither in the recording nor in torch" + unsure + meant)


class OnlyNamespace(Reason, frozen=True):
    """The name asked for is the namespace of operators."""

    CODE = Code.NO_SUCH_OPERATOR
    SENTENCE = "{written!r} is a namespace: all of its operators are '{written}::*'"
    ADVICE = "write it so"

    written: str


class PartOfOperators(Reason, frozen=True):
    """The name asked for is a part of operators' names."""

    CODE = Code.NO_SUCH_OPERATOR
    SENTENCE = "no operator is called {written!r}, and it is a part of words of {operators:list}: write these"
    ADVICE = "write those that are meant"

    written: str
    operators: tuple[str, ...]


class MatchUnknown(Reason, frozen=True):
    """Whether kernels match a pattern cannot be told."""

    CODE = Code.MATCH_UNKNOWN
    SENTENCE = "whether {pattern} matches cannot be told for {kernels:kernel}"
    MEANING = (
        "neither names nor the inputs of operators say it; one of the kernels may match. Names of one's own Triton "
        "or CUDA kernels are in no table"
    )
    ADVICE = (
        "ask for what is known: a name, a family, an operator; or say once what your kernels are, with the lines "
        "below the message: [Your own kernels](limits.md#your-own-kernels)"
    )

    pattern: str
    kernels: int
