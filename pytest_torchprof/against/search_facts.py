"""The grounds of a search among commits: why a commit is good, bad or skipped, and why the search found none."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.compare import Comparison  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.limits import Verdict  # noqa: TC001 - as above
from pytest_torchprof.reasons.commit_gaps import AnyCommitGap  # noqa: TC001 - as above
from pytest_torchprof.reasons.statement import Statement


class CommitAnswer(StrEnum):
    """The answer for a commit."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"
    """The commit cannot be measured."""


class WhyAnswered(Statement, frozen=True, tag_field="reason"):
    """Why a commit has its answer."""


class LimitJudged(WhyAnswered, frozen=True):
    """A limit holds there, is missed, or is not measured."""

    verdict: Verdict
    name: str | None = None
    """The measurement, by test id and label; None where there is no other."""

    @property
    def sentence(self) -> str:
        return _of(self.name, f"{self.verdict.written}: {self.verdict.text}")


class KernelsDiffer(WhyAnswered, frozen=True):
    """Other kernels are launched there than at the good commit."""

    comparison: Comparison
    name: str | None = None
    """The measurement, as above."""

    @property
    def sentence(self) -> str:
        return _of(self.name, self.comparison.summary)


class MeasurementMissing(WhyAnswered, frozen=True):
    """A measurement that is asked for is missing there."""

    gap: AnyCommitGap
    name: str | None = None
    """The measurement, as above."""

    @property
    def sentence(self) -> str:
        return _of(self.name, self.gap.sentence)


class RecordingMissing(WhyAnswered, frozen=True):
    """A measurement was made there, and its recording is gone."""

    SENTENCE = "its recording is not there"


class SameKernels(WhyAnswered, frozen=True):
    """The kernels are those of the good commit."""

    SENTENCE = "the kernels are the same"


class NothingMarked(WhyAnswered, frozen=True):
    """The tests ran, and none of them is one that is measured."""

    SENTENCE = "nothing was measured: the test has neither the torchprof marker nor the fixture"


class AllUnmeasured(WhyAnswered, frozen=True):
    """Nothing that is asked for was measured there."""

    gap: AnyCommitGap
    last_lines: tuple[str, ...] = ()
    """Of pytest's output, where no test ran."""

    @property
    def sentence(self) -> str:
        if not self.last_lines:
            return self.gap.whole
        return "\n".join([f"{self.gap}, and it said:", *(f"  | {line}" for line in self.last_lines)])


def _of(name: str | None, text: str) -> str:
    """Return a text about a measurement, with its name if it has to be told from others."""
    return text if name is None else f"{name}: {text}"


ANSWERS: Final[tuple[type[WhyAnswered], ...]] = tuple(WhyAnswered.__subclasses__())

if TYPE_CHECKING:
    AnyWhyAnswered = WhyAnswered
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyWhyAnswered = Union[ANSWERS]  # noqa: UP007 - of as many as there are


class WhyNotFound(Statement, frozen=True, tag_field="reason"):
    """Why a search has not found the first bad commit."""


class EndNotMeasured(WhyNotFound, frozen=True):
    """One of the two ends cannot be measured."""

    SENTENCE = "at {commit}: {why}"

    commit: str
    why: AnyWhyAnswered


class GoodEndIsBad(WhyNotFound, frozen=True):
    """The commit that is to be good is bad."""

    SENTENCE = "{commit} is to be good, and is not: {why}; name an older commit with --good"

    commit: str
    why: AnyWhyAnswered


class BadEndIsGood(WhyNotFound, frozen=True):
    """The commit that is to be bad keeps the limits."""

    SENTENCE = "{commit} is to be bad, and the limits hold there: {why}"

    commit: str
    why: AnyWhyAnswered


class NothingChanged(WhyNotFound, frozen=True):
    """Both ends launch the same kernels."""

    SENTENCE = "the kernels at {commit} are those at {before}: nothing has changed"

    commit: str
    before: str
    """The good commit."""


class OnlySkippedLeft(WhyNotFound, frozen=True):
    """The first bad commit is one of several, of which all but the last cannot be measured."""

    SENTENCE = "only commits that cannot be measured are left: it is one of {count}"

    count: int


class AnswerChanged(WhyNotFound, frozen=True):
    """A commit was measured once more, and has another answer."""

    SENTENCE = (
        "{commit} was {before}, and measured once more it is {after}: {why}; the test does not do the same each time"
    )

    commit: str
    before: CommitAnswer
    after: CommitAnswer
    why: AnyWhyAnswered


KINDS: Final[tuple[type[WhyNotFound], ...]] = tuple(WhyNotFound.__subclasses__())

if TYPE_CHECKING:
    AnyWhyNotFound = WhyNotFound
else:
    AnyWhyNotFound = Union[KINDS]  # noqa: UP007 - as above
