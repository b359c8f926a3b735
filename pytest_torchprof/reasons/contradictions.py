"""Reasons why a record cannot be believed: one part of it denies another, and no run was so."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase


class RecordKeyTwice(Reason, frozen=True):
    """A record has one of its keys twice."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "has {key!r} more than once"

    key: str


class EndedBeforeBegin(Reason, frozen=True):
    """A run ended before it began."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "it ended at {ended}, before it began at {began}"

    began: str
    ended: str


class BeganTooEarly(Reason, frozen=True):
    """A run began years ago, by a clock that was not set."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "it began at {began}, before there was anything to measure"

    began: str


class EndsInFuture(Reason, frozen=True):
    """A run ends after today."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "it began at {began} and ended at {ended}, still to come"

    began: str
    ended: str


class LocalWithJob(Reason, frozen=True):
    """A run is a person's, and has a job of a CI service."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "it is a local run, and has a job of a CI service"


class CommitAfterRun(Reason, frozen=True):
    """The commit that was measured is of a later day."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "its commit is of {date}, after the run ended at {ended}"

    date: str
    ended: str


class OtherMachine(Reason, frozen=True):
    """A run's machine has what none of its environments has."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "its machine has the {part} {name!r}, and none of its environments does"

    part: str
    """The "gpu", "cpu" or "driver"."""
    name: str


class CommitFault(Phrase):
    """How a commit cannot be."""

    OWN_ANCESTOR = "own-ancestor", "the commit {commit} comes before itself"
    OTHER_PARENT = "other-parent", "the first parent of the commit {commit} is not the first of its ancestors"
    ANCESTOR_TWICE = "ancestor-twice", "the commit {commit} has an ancestor more than once"


class ImpossibleCommit(Reason, frozen=True):
    """The commits before that of a run cannot be as they are."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False

    commit: str
    fault: CommitFault

    @property
    def sentence(self) -> str:
        return self.words(self.fault.text)


class MeasurementFault(Phrase):
    """How a measurement cannot be."""

    HALF_A_RANK = "half-a-rank", "{test} has a rank or a number of ranks, and not both"
    NOT_MEASURED = "not-measured", "{test} was not measured, and has numbers"
    NO_ENVIRONMENT = "no-environment", "{test} has numbers, and names no environment"
    MEASURED_TWICE = "measured-twice", "has more than one measurement of {test} with the same label and rank"
    LEFT_OUT_TOO = "left-out-too", "{test} was measured, and is listed among the tests that were not"


class ImpossibleMeasurement(Reason, frozen=True):
    """A measurement in a record cannot be as the record has it."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False

    test: str
    fault: MeasurementFault

    @property
    def sentence(self) -> str:
        return self.words(self.fault.text)


class NoSuchRank(Reason, frozen=True):
    """A measurement is of a rank beyond the number of ranks."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{test} ran on rank {rank} of {ranks}"

    test: str
    rank: int
    ranks: int


class OtherKernelCount(Reason, frozen=True):
    """A measurement has more or fewer kernels than are listed for it."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{test} has {known:.6g} kernels, and lists {listed}"

    test: str
    known: float
    listed: int


class KernelTwice(Reason, frozen=True):
    """A structure lists a kernel twice."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "the structure {structure} lists a kernel more than once"

    structure: str


class TimesFault(Phrase):
    """How the times of a measurement cannot be."""

    OUT_OF_ORDER = "out-of-order", "the quartiles of a time are not in order"
    MEDIAN_OUTSIDE = "median-outside", "the median of a time lies outside its quartiles"


class ImpossibleTimes(Reason, frozen=True):
    """The times of a measurement cannot be as they are."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{fault}"

    fault: TimesFault


class PartOfRecord(Phrase):
    """A part of a record that measurements name."""

    ENVIRONMENT = "environment", "an environment"
    STRUCTURE = "structure", "a structure"
    LAUNCH_ORDER = "launch-order", "a launch order"


class PartMissing(Reason, frozen=True):
    """A measurement names a part that its record does not have."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{test} names {lacking} that is not in the record"

    test: str
    lacking: PartOfRecord


class StructureTwice(Reason, frozen=True):
    """A record has one structure twice, of which nobody knows what it launches."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "has a structure more than once"


class OtherTimesCount(Reason, frozen=True):
    """A record does not have one row of what varies for each measurement."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{measured:measurement}, of which {timed:grouped} {timed:has|have} times"

    measured: int
    timed: int
