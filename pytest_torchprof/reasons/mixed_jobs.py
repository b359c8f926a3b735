"""Reasons why recordings are not taken together as those of the ranks of one job."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason

_NOT_ONE: Final = "the recordings are not of one job: "
_ONE_JOB: Final = "name a folder that holds those of one job only"


class JobOfOtherSize(Reason, frozen=True):
    """Two recordings are of jobs of different numbers of ranks."""

    CODE = Code.MIXED_JOBS
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_NOT_ONE}{{path}} is of a job of {{ranks:rank}}, {{first}} of one of {{ranks_of_first}}"
    REMEDY = _ONE_JOB

    path: str
    ranks: int
    first: str
    ranks_of_first: int


class SameRankTwice(Reason, frozen=True):
    """Two recordings are of the same rank."""

    CODE = Code.MIXED_JOBS
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_NOT_ONE}{{path}} is of rank {{rank}}, as {{other}} is"
    REMEDY = _ONE_JOB

    path: str
    rank: int
    other: str


class RankOfOtherTest(Reason, frozen=True):
    """Two recordings are of different tests."""

    CODE = Code.MIXED_JOBS
    FOR_THE_DOCTOR = False
    REMEDY = _ONE_JOB

    path: str
    test: str | None
    """None where the recording names none."""
    first: str
    first_test: str | None

    @property
    def sentence(self) -> str:
        tests = ("no test" if name is None else f"the test {name}" for name in (self.test, self.first_test))
        return f"{_NOT_ONE}{self.path} is of {next(tests)}, {self.first} of {next(tests)}"


class RankOfOtherRun(Reason, frozen=True):
    """Two recordings are of different runs."""

    CODE = Code.MIXED_JOBS
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_NOT_ONE}{{path}} is of another run than {{other}}"
    REMEDY = _ONE_JOB

    path: str
    other: str


class OtherProcessGroups(Reason, frozen=True):
    """Two recordings say different things of a process group."""

    CODE = Code.MIXED_JOBS
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_NOT_ONE}{{path}} has other process groups than {{other}}: {{group}}"
    REMEDY = _ONE_JOB

    path: str
    other: str
    group: str


class ProcessGroupMissing(Reason, frozen=True):
    """A recording lacks a process group in which another one has its rank."""

    CODE = Code.MIXED_JOBS
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_NOT_ONE}{{path}} has other process groups than {{other}}, which has it in group {{group}}"
    REMEDY = _ONE_JOB

    path: str
    other: str
    group: str


class RecordedAtOtherTime(Reason, frozen=True):
    """A recording begins long after an earlier one has ended."""

    CODE = Code.MIXED_JOBS
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_NOT_ONE}{{path}} was recorded at another time than {{other}}: {{later_us:us}} later"
    REMEDY = _ONE_JOB

    path: str
    other: str
    later_us: float


class OtherCollectiveNumbers(Reason, frozen=True):
    """The collectives of a recording have other numbers than those of the ranks with which it has a group."""

    CODE = Code.MIXED_JOBS
    FOR_THE_DOCTOR = False
    REMEDY = _ONE_JOB

    path: str
    first: int
    last: int
    first_elsewhere: int
    last_elsewhere: int

    @property
    def sentence(self) -> str:
        return (
            f"{_NOT_ONE}{self.path} has collectives {self.first} to {self.last} of a process group, and another rank "
            f"{self.first_elsewhere} to {self.last_elsewhere}, so that it is of another run, or of other steps"
        )


class OneRankRecorded(Reason, frozen=True):
    """There is no second rank to compare with."""

    CODE = Code.NO_RANK
    FOR_THE_DOCTOR = False
    MEANING = "`--ranks` compares the ranks of a job"
    ADVICE = "put the recordings of all ranks into one folder"
    SENTENCE = "there is one rank's recording; a comparison needs those of two ranks at least."


class RankNotRecorded(Reason, frozen=True):
    """A recording does not say which rank it is of."""

    CODE = Code.NO_RANK
    FOR_THE_DOCTOR = False
    MEANING = "torch writes the rank once torch.distributed is initialized"
    ADVICE = "record it again with the process group, or look at the file by itself"
    SENTENCE = "{path}: does not say which rank it is of. torch writes that where torch.distributed is initialized."

    path: str
