"""What a rank is told, and what it leaves: files in a folder of the job's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.codes import Code
from pytest_torchprof.testing.ranks import stacks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALIVE: Final = "alive.lock"
"""Held by the process that waits for the job: who gets it was left alone."""
GIVEN_UP: Final = "given-up"
"""There once that process gives the job up, and will read and remove what is in the folder."""
LEFT_ALONE: Final = 70
"""The exit status of a rank whose job was given up."""
_TASK: Final = "task.json"
_PHASES: Final = "phases.jsonl"
_END: Final = "end.json"
_PID: Final = "pid"
_SIGN: Final = "sign.json"
START: Final = "the start of its tests"
"""The first that a rank makes for."""


class Task(Struct, frozen=True, kw_only=True):
    """The one test that a rank runs."""

    nodeid: str
    file: str
    """The whole path of its test file."""

    def write(self, folder: Path) -> None:
        """Tell it to the ranks."""
        (folder / _TASK).write_bytes(msgspec.json.encode(self))


def read_task(folder: Path) -> Task:
    """Return what ``Task.write`` wrote."""
    return msgspec.json.decode((folder / _TASK).read_bytes(), type=Task)


class Phase(Struct, frozen=True, kw_only=True):
    """A report of one phase of the test on one rank, or of what kept it from running."""

    when: str
    outcome: str
    text: str = ""
    """Why it failed or was skipped, whole."""
    short: str = ""
    """The same as the terminal shows it with ``-q``; empty where that is the whole text."""
    line: str = ""
    """The same in a line."""
    place: tuple[str, int] | None = None
    """Where it was skipped."""
    expected: str | None = None
    """The reason of an expected failure; None where none was expected."""
    ended_s: float = 0.0
    """When it ended, by the host's clock."""
    sections: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, Any], ...] = ()


class RankEnd(Struct, frozen=True, kw_only=True):
    """What one rank has left."""

    phases: tuple[Phase, ...] = ()
    state: str | None = None
    """The state of its run, as a worker hands it over; None where the plugin had nothing to do."""
    status: int | None = None
    """pytest's exit status; None where the rank did not come to its end."""

    @property
    def failed(self) -> bool:
        """Whether a phase did."""
        return any(phase.outcome == "failed" for phase in self.phases)

    @property
    def waited(self) -> bool:
        """Whether it failed because nothing had been heard of another rank for as long as ranks wait."""
        return any(phase.outcome == "failed" and f"[{Code.SILENT_RANK}]" in phase.text for phase in self.phases)


class Sign(Struct, frozen=True):
    """The last that a rank has told of how far it has come."""

    number: int
    goal: str
    """What it is about to reach, or has reached."""
    waits: bool
    """Whether it has reached it, and waits for the other ranks, which it does not do for ever."""

    @property
    def in_test(self) -> bool:
        """Whether its test has begun."""
        return self.goal != START


class RankFolder:
    """Where one rank leaves what comes of its test."""

    def __init__(self, job: Path, number: int) -> None:
        self.path = job / f"rank{number}"
        self._signs = 0

    def begin(self, pid: int) -> None:
        """Note that the rank has come so far."""
        self.path.mkdir(exist_ok=True)
        stacks.answer(self.path)  # Before anybody knows whom to ask.
        (self.path / _PID).write_text(str(pid))

    @property
    def pid(self) -> int | None:
        """The rank's process; None before it has begun."""
        try:
            return int((self.path / _PID).read_text() or 0) or None
        except OSError:
            return None

    def tell(self, goal: str, *, waits: bool = False) -> None:
        """Leave how far the rank has come."""
        self._signs += 1
        part = self.path / f"{_SIGN}.part"
        part.write_bytes(msgspec.json.encode(Sign(self._signs, goal, waits)))
        part.replace(self.path / _SIGN)

    @property
    def sign(self) -> Sign | None:
        """How far the rank has come; None before it has told."""
        try:
            return msgspec.json.decode((self.path / _SIGN).read_bytes(), type=Sign)
        except OSError:
            return None

    def add(self, phase: Phase) -> None:
        """Leave a phase's report, also for the case that no other follows."""
        line = json.dumps(msgspec.to_builtins(phase, enc_hook=str), default=str)
        with (self.path / _PHASES).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def end(self, state: str | None, status: int) -> None:
        """Leave the last word, whole or not at all."""
        part = self.path / f"{_END}.part"
        part.write_text(json.dumps({"state": state, "status": status}), encoding="utf-8")
        part.replace(self.path / _END)

    @property
    def ended(self) -> bool:
        """Whether the rank has left all that it leaves."""
        return (self.path / _END).is_file()

    def read(self) -> RankEnd:
        """Return what the rank has left so far."""
        end = json.loads((self.path / _END).read_text(encoding="utf-8")) if self.ended else {}
        return RankEnd(phases=tuple(self._phases()), **end)

    def _phases(self) -> Iterator[Phase]:
        file = self.path / _PHASES
        # A rank that was killed may have left half a line.
        for line in file.read_bytes().splitlines(keepends=True) if file.is_file() else ():
            if line.endswith(b"\n"):
                yield msgspec.json.decode(line, type=Phase)
