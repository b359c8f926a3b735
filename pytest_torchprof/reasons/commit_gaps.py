"""Why a commit has no measurement of a test: each cause with its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.starting import AnyWhyNotStarted  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.statement import Statement
from pytest_torchprof.text import last_line, raised_line


class CommitGap(Statement, frozen=True, tag_field="gap"):
    """Why a commit has no measurement of a test."""

    @property
    def in_one_line(self) -> str:
        """Its last line, where all of it is more."""
        return last_line(self.sentence)

    @property
    def whole(self) -> str:
        """All that is known of it."""
        return self.sentence


class TestFailed(CommitGap, frozen=True):
    """The test failed there."""

    __test__ = False

    error: str
    """The first line of pytest's report, or the lines on each measurement that fails it."""

    @property
    def sentence(self) -> str:
        return f"it failed: {' '.join(map(str.strip, self.error.splitlines()))}"


class TestSkipped(CommitGap, frozen=True):
    """The test was skipped there."""

    __test__ = False
    SENTENCE = "it was skipped: {explanation}"

    explanation: str
    """The text of the skip."""


class NotCollectable(CommitGap, frozen=True):
    """The test's file raises an error there when it is imported."""

    file: str
    error_text: str
    """The end of pytest's report."""

    @property
    def sentence(self) -> str:
        return f"{self.file} cannot be collected: {raised_line(self.error_text)}"

    @property
    def in_one_line(self) -> str:
        return last_line(self.error_text)

    @property
    def whole(self) -> str:
        return self.error_text


class NotTheWorkingTrees(CommitGap, frozen=True):
    """The file that ran there was not the working tree's."""

    SENTENCE = "{file} was not the working tree's: git ignores it, or neither its name nor its folder is one of tests"

    file: str


class MeasuredNothing(CommitGap, frozen=True):
    """The test passed there, without this measurement."""

    SENTENCE = "it passed, and measured nothing of this name"


class LeftUncollected(CommitGap, frozen=True):
    """The test's file was collected there, and the test was not."""

    SENTENCE = "it was not collected: the code there, or a conftest.py, leaves it out"


class Deselected(CommitGap, frozen=True):
    """The test was collected there, and not run."""

    SENTENCE = "it was deselected, as it was not in the working tree"


class EndedEarlier(CommitGap, frozen=True):
    """pytest ended there before it came to the test."""

    SENTENCE = "the run ended with status {status} before this was measured"

    status: int


class NoOutcomes(CommitGap, frozen=True):
    """The process that was to run the tests there has left nothing of them."""

    status: int | None = None
    """Its exit status; None where it is not known."""

    @property
    def sentence(self) -> str:
        if self.status is None:
            return "its run ended before its tests did"
        return f"pytest ended there with status {self.status}"


class NotStarted(CommitGap, frozen=True):
    """The tests could not be run there at all."""

    SENTENCE = "{why}"

    why: AnyWhyNotStarted


class OnOtherDevice(CommitGap, frozen=True):
    """It was measured there on a device of another kind."""

    SENTENCE = "it was measured on another device: compare with --torchprof-against-fresh"


class NoSuchMeasurement(CommitGap, frozen=True):
    """No test there has a measurement of this name."""

    SENTENCE = "it has no test that measures this"


KINDS: Final[tuple[type[CommitGap], ...]] = tuple(CommitGap.__subclasses__())

if TYPE_CHECKING:
    AnyCommitGap = CommitGap
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyCommitGap = Union[KINDS]  # noqa: UP007 - of as many as there are
