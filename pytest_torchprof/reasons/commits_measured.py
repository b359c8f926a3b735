"""Reasons why measuring commits is asked for in a way in which it cannot be done."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase


class NoShareOfTime(Reason, frozen=True):
    """By how much tests may become slower is no share."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "write it so"
    SENTENCE = "--torchprof-against-time={written}: expected a share such as 10% or 0.1"

    written: str


class NoBudget(Reason, frozen=True):
    """For how long times are taken is no number of seconds."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "write it so"
    SENTENCE = "--torchprof-against-budget={written}: expected seconds such as 120s"

    written: str


class PythonAndInstall(Reason, frozen=True):
    """A Python is named, and a command that installs into another one."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "leave one of them out"
    SENTENCE = (
        "--torchprof-against-python and --torchprof-against-install exclude each other: install what that Python is "
        "to import in its own environment"
    )


class OneOfSeveral(Reason, frozen=True):
    """A command or option that starts processes of its own is given to a rank of a job."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "start one process, without a launcher"
    SENTENCE = "{command} starts processes of its own, and this is one of several: {rank}; run one alone"

    command: str
    """An option of pytest's, or a command of ours."""
    rank: str


class OptionExcluded(Reason, frozen=True):
    """Another option says what a test is compared with, or that nothing is measured."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "leave one of them out"
    SENTENCE = "{command} and {option} exclude each other: commits are measured, and compared with each other"

    command: str
    """An option of pytest's, or a command of ours."""
    option: str


class BisectWithTimes(Reason, frozen=True):
    """Times are to be compared, which a search among commits does not do."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "leave them out"
    SENTENCE = "torchprof bisect compares no times: leave out --torchprof-against-time and --torchprof-against-budget"


class PytestNotStarted(Reason, frozen=True):
    """Pytest refuses the arguments of a search."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "see what pytest says"
    SENTENCE = "pytest cannot be started with these arguments, as it says itself"


class SameEnds(Reason, frozen=True):
    """The good and the bad commit of a search are the same."""

    CODE = Code.NO_ANCESTOR
    FOR_THE_DOCTOR = False
    ADVICE = "name a commit that was still good"
    SENTENCE = "--good and --bad are the same commit, {commit}: name one that was still good"

    commit: str


class Kinship(Phrase):
    """How the ends of a search are related, of which the bad one does not come after the good one."""

    CUT_OFF = "cut-off", "; this clone is shallow and may lack the commits between them: git fetch --unshallow"
    EXCHANGED = "exchanged", ", it comes before it: exchange --good and --bad"
    PARTED = "parted", ": their branches parted at {parted_at}, which --good={parted_at} names"
    STRANGERS = "strangers", ", and they have no commit in common"


class BadNotAfterGood(Reason, frozen=True):
    """The bad commit of a search does not come after the good one."""

    CODE = Code.NO_ANCESTOR
    FOR_THE_DOCTOR = False
    ADVICE = "name another good commit, or do what the text says"

    good: str
    bad: str
    kinship: Kinship
    parted_at: str | None = None
    """The commit at which their branches parted, if they did."""

    @property
    def sentence(self) -> str:
        return self.words("{bad} does not come after {good}" + self.kinship.text)


class NoTestFound(Reason, frozen=True):
    """Pytest finds no test at the bad commit of a search."""

    CODE = Code.NO_TEST
    FOR_THE_DOCTOR = False
    ADVICE = "name a test that there is at that commit"

    tests: tuple[str, ...]
    """As they are named."""
    commit: str
    last_lines: tuple[str, ...]
    """The end of what pytest says."""

    @property
    def sentence(self) -> str:
        says = f"pytest finds no test {' '.join(self.tests)} at {self.commit}, and says:"
        return "\n".join([says, *(f"  | {line}" for line in self.last_lines)])
