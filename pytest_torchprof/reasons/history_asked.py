"""Reasons that lie in what a history is asked: it has nothing of that name, or a name can mean several things."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import first_of, quoted


class NoDate(Reason, frozen=True):
    """A day is written otherwise than as a date."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{written!r} is no date; expected one such as 2026-05-01"

    written: str


class NoSuchForm(Reason, frozen=True):
    """A run is to be written in a form that there is not."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    name: str
    known: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"--as {self.name}: expected one of {' '.join(self.known)}"


class NoHistory(Reason, frozen=True):
    """Nobody has made a history there."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    SENTENCE = "{store}: there is no history"
    ADVICE = "check the path, or make it with `pytest --torchprof-history=STORE`"

    store: str

    @property
    def remedy(self) -> str:
        return f"pytest --torchprof-history={quoted(self.store)} makes it"


class NoSuchTest(Reason, frozen=True):
    """No run of a history has measured a test of this name."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    ADVICE = "write the nearest name, which the text has"

    test: str
    near: str | None
    """The test that is meant."""
    tests: tuple[str, ...]
    """All that there are, where none is near."""

    @property
    def sentence(self) -> str:
        hint = f"it has {first_of(self.tests)}" if self.near is None else f"did you mean {self.near!r}?"
        return f"the history has no test {self.test!r}; {hint}"


class NotMeasuredThere(Reason, frozen=True):
    """A test was not measured on the machine that is asked for."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    ADVICE = "name one of those in the text"

    machine: str
    machines: tuple[str, ...]
    """The machines on which it was."""

    @property
    def sentence(self) -> str:
        return f"--machine {self.machine}: the test was not measured there; it was on {first_of(self.machines)}"


class NoSuchRun(Reason, frozen=True):
    """A history has no run of this id or commit."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    SENTENCE = "{store} has no run whose id or commit begins with {beginning}"
    ADVICE = "`torchprof history export STORE --as .csv` has the ids and the commits of all"

    store: str
    beginning: str


class SeveralRuns(Reason, frozen=True):
    """Several runs have an id or a commit that begins so."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    beginning: str
    runs: tuple[str, ...]
    """Their ids."""

    @property
    def sentence(self) -> str:
        runs = f"{len(self.runs)} runs have it in their id or commit"
        return f"--run {self.beginning}: {runs}; give the id of one: {first_of(self.runs)}"


class TooFewDigits(Reason, frozen=True):
    """So little of an id is written that it may be the beginning of any."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    beginning: str
    least: int
    """How many digits have to be written."""
    of_run: bool = False

    @property
    def sentence(self) -> str:
        if self.of_run:
            return self.words("--run {beginning}: too short: give at least {least} digits of its id or its commit")
        return self.words("{beginning!r} is too short: give at least {least} digits of the id")


class RecordUnread(Reason, frozen=True):
    """A history has no record under an id, or one that cannot be read."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    SENTENCE = "{store}: no record is called {run}, or it cannot be read"
    ADVICE = "`torchprof history verify STORE` names the records that cannot be read"

    store: str
    run: str
    """Its id."""


class NoReportKept(Reason, frozen=True):
    """A run's report is asked for, and its record is of a version that kept none."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    ADVICE = "ask for one of the tables in the text"

    store: str
    run: str
    version: str
    forms: tuple[str, ...]
    """The forms that the record can be made into."""

    @property
    def sentence(self) -> str:
        why = f"its record, by pytest-torchprof {self.version}, holds figures alone"
        return f"{self.store}: {self.run}: no report: {why}: {' '.join(self.forms)} can be made of it"


class OnlyStoppedRuns(Reason, frozen=True):
    """No run of a branch is complete."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    SENTENCE = "{branch} has no run that was not stopped"
    ADVICE = "name a run, with `--run`"

    branch: str


class NoRecordThere(Reason, frozen=True):
    """The source to take into a history has no record of a run."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{source}: no record of a run is there"
    ADVICE = "check the path"

    source: str
