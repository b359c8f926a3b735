"""Problems of a whole run: it fails for them although no test has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons import decoding
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.reasons.reason import Reason, Verbatim
from pytest_torchprof.text import first_of

if TYPE_CHECKING:
    from pytest_torchprof.reasons.errors import TorchprofError


def reason_of(problem: TorchprofError) -> Reason:
    """Return the reason of an error for other processes; the error's words where they say more than its reason."""
    reason = problem.reason
    is_all = reason.text == problem.text
    return decoding.portable(reason) if is_all else Verbatim.of(problem.text, problem.code)


class ReportNotWritten(Reason, frozen=True):
    """The file of a report cannot be written."""

    CODE = Code.REPORT_NOT_WRITTEN
    ADVICE = "name a file that can be written"
    FOR_THE_DOCTOR = False
    SENTENCE = "--torchprof-report={path}: cannot be written: {error}"

    path: str
    error: str


class RecordingsBehindLink(Reason, frozen=True):
    """The folder for recordings beside a report is a link."""

    CODE = Code.REPORT_NOT_WRITTEN
    ADVICE = "remove the link"
    FOR_THE_DOCTOR = False
    SENTENCE = (
        "--torchprof-report={path}: cannot be written: {folder} is a link, and nothing is written or removed through it"
    )

    path: str
    folder: str


class ReportNotMade(Reason, frozen=True):
    """The report of a run cannot be made."""

    CODE = Code.REPORT_NOT_WRITTEN
    ADVICE = "do what it says behind the path"
    FOR_THE_DOCTOR = False

    path: str
    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"--torchprof-report={self.path}: {self.why.text}"


class StepSummaryNotWritten(Reason, frozen=True):
    """The page that GitHub Actions shows for the job cannot be added to."""

    CODE = Code.REPORT_NOT_WRITTEN
    ADVICE = "let the job write the file that the variable GITHUB_STEP_SUMMARY names"
    FOR_THE_DOCTOR = False
    SENTENCE = "the step summary {path} cannot be written: {error}"

    path: str
    error: str


class RecordNotKept(Reason, frozen=True):
    """The record of a run cannot be put beside the recordings that are kept."""

    CODE = Code.REPORT_NOT_WRITTEN
    ADVICE = "name a folder that can be written"
    FOR_THE_DOCTOR = False

    folder: str
    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"--torchprof-keep: {self.folder} {self.why.text}"


class NoRecordingJudged(Reason, frozen=True):
    """A replay has judged nothing."""

    CODE = Code.REPLAY_UNUSED
    ADVICE = "check which tests were selected, and the folder"
    FOR_THE_DOCTOR = False
    SENTENCE = "--torchprof-replay={folder}: no test judged a recording"

    folder: str


class RuleWithoutTest(Reason, frozen=True):
    """A rule of the suite matches no test."""

    CODE = Code.BAD_OPTION
    SENTENCE = "{rule} matches no test"
    REMEDY = (
        "correct the pattern, which has to fit the whole node id (tests/test_a.py::test_b, from the root directory), "
        "or remove it"
    )

    rule: str


class RuleOfNoFunction(Reason, frozen=True):
    """A rule of the suite matches what cannot be measured."""

    CODE = Code.NOTHING_MEASURED
    ADVICE = "narrow the pattern of the rule to test functions"
    FOR_THE_DOCTOR = False

    tests: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"a rule matches what is no test function, such as a doctest, and not measured: {first_of(self.tests)}"


class NothingCompared(Reason, frozen=True):
    """No test was measured on both sides of a comparison."""

    CODE = Code.NOTHING_COMPARED
    ADVICE = "check which tests were selected"
    FOR_THE_DOCTOR = False

    commit: str
    measured_there: bool
    measured_here: bool

    @property
    def sentence(self) -> str:
        there, here = ("something" if is_any else "nothing" for is_any in (self.measured_there, self.measured_here))
        return unmeasured_text(
            f"no test was measured both at {self.commit} and in the working tree, so nothing was compared; "
            f"there {there} was measured, and here {here}"
        )


class TimesNotCompared(Reason, frozen=True):
    """A run has stopped before the times of its measurements were compared."""

    CODE = Code.NO_TIMES
    ADVICE = "let the run go on to its end, without `-x` and `--maxfail`"
    FOR_THE_DOCTOR = False

    measurements: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"times were not compared, since the run stopped before its end: {first_of(self.measurements)}"
