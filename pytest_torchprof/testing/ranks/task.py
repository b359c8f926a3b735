"""The tasks and the results of ranks: files in a folder of the job's own."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct, field

from pytest_torchprof.capture.cache_phase import CachePhase  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.testing.handed_over import ProcessResults  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.testing.ranks import stacks
from pytest_torchprof.testing.ranks.reports import from_line, has_failed, to_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

ALIVE: Final = "alive.lock"
"""The lock of the process that waits for the job: a rank that gets it was left alone."""
GIVEN_UP: Final = "given-up"
"""The file that is there once that process gives the job up, and is about to read and remove the folder's content."""
LEFT_ALONE: Final = 70
"""The exit status of a rank whose job was given up."""
_TASK: Final = "task.json"
_REPORTS: Final = "reports.jsonl"
_END: Final = "end.json"
_PID: Final = "pid"
_SIGN: Final = "sign.json"
START: Final = Goal(RunPoint.START_OF_TESTS)
"""The first goal of a rank."""


class Task(Struct, frozen=True, kw_only=True):
    """The tests that a job may have to run."""

    nodeids: tuple[str, ...]
    file: str
    """The absolute path of their test file."""
    phase: CachePhase | None = None
    """How the process finds the compile caches; None where nobody asked for it."""
    history: str | None = None
    """The folder with what the tests are compared with, if that comes out of a history."""
    columns: int | None = None
    """The columns of the terminal, to which the ranks' output does not go; None where they are not known."""

    def write(self, folder: Path) -> None:
        """Tell it to the ranks."""
        (folder / _TASK).write_bytes(msgspec.json.encode(self))


def read_task(folder: Path) -> Task:
    """Return the task that ``Task.write`` wrote."""
    return msgspec.json.decode((folder / _TASK).read_bytes(), type=Task)


class Turn(Struct, frozen=True, kw_only=True):
    """The next thing for the ranks to do: run a test, or end."""

    nodeid: str | None
    """The test; None where no other follows."""
    following: str | None = None
    """The test of the file that pytest runs after it, in a job or not: fixtures are kept until then."""
    last: bool = False
    """Whether the job ends with it."""
    meets_anew: bool = False
    """Whether process groups of the tests before have used up the store at which ranks meet."""

    def write(self, folder: Path, number: int) -> None:
        """Tell it to the ranks."""
        with replacing(folder / f"turn{number}.json") as unfinished:
            unfinished.write_bytes(msgspec.json.encode(self))


def read_turn(folder: Path, number: int) -> Turn | None:
    """Return the turn that ``Turn.write`` wrote; None if it has not done so yet."""
    try:
        return msgspec.json.decode((folder / f"turn{number}.json").read_bytes(), type=Turn)
    except FileNotFoundError:
        return None


class LeftBehind(Enum):
    """The state that a test may leave behind and that keeps other tests from running in its process."""

    PROCESS_GROUP = "process group"
    """One that is neither this package's nor a shared fixture's."""
    NO_PROCESS_GROUP = "no process group"
    """The process group of a shared fixture is gone."""
    OTHER_PROCESS_GROUP = "other process group"
    """This package's has taken the place of a shared fixture's."""
    PROFILER = "profiler"
    """It still runs."""
    BROKEN_DEVICE = "broken device"
    """It cannot be used any more."""


class LastWord(Struct, frozen=True, kw_only=True):
    """The state of a rank at the end of a test."""

    results: ProcessResults | None = None
    """The results of its run, as a worker hands them over; None where the plugin had nothing to do."""
    status: int | None = None
    """pytest's exit status, 0 if it goes on; None if the rank did not come to the test's end."""
    goes_on: bool = False
    """Whether the rank waits for another test."""
    left: LeftBehind | None = None
    """The state that the test has left behind; None if another test may follow."""
    groups: Mapping[str, int] = {}
    """How many collectives the rank has taken part in, by process group that stays."""


class RankEnd(Struct, frozen=True, kw_only=True):
    """Everything that one rank has left of a test."""

    reports: tuple[pytest.TestReport, ...] = ()
    """The reports of the test's phases, or of why it did not run."""
    last: LastWord = field(default_factory=LastWord)

    @property
    def failed(self) -> bool:
        """Whether a phase failed."""
        return has_failed(self.reports)

    @property
    def waited(self) -> bool:
        """Whether it failed because nothing had been heard of another rank for as long as ranks wait."""
        return has_failed(self.reports, Code.SILENT_RANK)


class Sign(Struct, frozen=True):
    """The last progress that a rank has reported."""

    number: int
    goal: Goal
    """The goal that it is about to reach, or has reached."""
    waits: bool
    """Whether it has reached the goal and waits for the other ranks, which it does not do for ever."""

    @property
    def in_test(self) -> bool:
        """Whether its test has begun."""
        return self.goal != START


class RankFolder:
    """The folder in which one rank leaves the results of its tests."""

    def __init__(self, job: Path, rank: int, config: pytest.Config) -> None:
        self.root = job / f"rank{rank}"
        self._config = config
        """Its hooks turn reports into text, and text into reports."""
        self._signs = 0

    def of_turn(self, number: int) -> TurnFolder:
        """Return the folder in which it leaves the results of one test."""
        return TurnFolder(self.root / str(number), self._config)

    def begin(self, pid: int) -> None:
        """Note that the rank has begun, with its process."""
        self.root.mkdir(exist_ok=True)
        stacks.answer(self.root)  # Before anybody knows whom to ask.
        (self.root / _PID).write_text(str(pid))

    @property
    def pid(self) -> int | None:
        """The rank's process; None before it has begun."""
        try:
            return int((self.root / _PID).read_text() or 0) or None
        except OSError:
            return None

    def announce(self, goal: Goal, *, waits: bool = False) -> None:
        """Note how far the rank has come."""
        self._signs += 1
        with replacing(self.root / _SIGN) as unfinished:
            # Python's own writer, as below: a label, or the name of a fixture, may hold lone surrogates too.
            unfinished.write_text(json.dumps(msgspec.to_builtins(Sign(self._signs, goal, waits))), encoding="utf-8")

    @property
    def sign(self) -> Sign | None:
        """How far the rank has come; None before it has reported any progress."""
        try:
            return msgspec.convert(json.loads((self.root / _SIGN).read_bytes()), Sign)
        except OSError:
            return None


class TurnFolder:
    """The folder in which one rank leaves the results of one test."""

    def __init__(self, path: Path, config: pytest.Config) -> None:
        self._path = path
        self._config = config

    def add(self, report: pytest.TestReport) -> None:
        """Write a report, which may turn out to be the last."""
        self._path.mkdir(exist_ok=True)
        with (self._path / _REPORTS).open("a", encoding="utf-8") as file:
            file.write(f"{to_line(report, self._config)}\n")

    def end(self, last: LastWord) -> None:
        """Write the last word, whole or not at all; the reports are there already."""
        self._path.mkdir(exist_ok=True)
        with replacing(self._path / _END) as unfinished:
            # Python's own writer: ids of tests may hold lone surrogates.
            unfinished.write_text(json.dumps(msgspec.to_builtins(last, enc_hook=str)), encoding="utf-8")

    @property
    def ended(self) -> bool:
        """Whether the rank has left everything."""
        return (self._path / _END).is_file()

    def read(self) -> RankEnd:
        """Return the reports and the last word that the rank has left so far."""
        file = self._path / _END
        last = msgspec.convert(json.loads(file.read_bytes()), LastWord) if self.ended else LastWord()
        return RankEnd(reports=tuple(self._reports()), last=last)

    def _reports(self) -> Iterator[pytest.TestReport]:
        file = self._path / _REPORTS
        # A rank that was killed may have left half a line.
        for line in file.read_bytes().splitlines(keepends=True) if file.is_file() else ():
            if line.endswith(b"\n"):
                yield from_line(line, self._config)
