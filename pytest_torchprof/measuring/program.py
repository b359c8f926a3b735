"""A program that runs under the profiler in a process of its own, and is judged in the process that waits for it.

A program that ends its process by ``os._exit``, ``exec`` or a signal leaves no record behind, which is noticed. The
process that runs it is a fork of this one, which has not imported torch and has no other thread.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import tempfile
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_torchprof import capture
from pytest_torchprof.capture.measurement import why_unbelievable
from pytest_torchprof.limits import Screen
from pytest_torchprof.measuring.as_python import run_as_python
from pytest_torchprof.measuring.script import device_for, judge, problem_of, stands_in
from pytest_torchprof.profiles import Profile
from pytest_torchprof.reasons.decoding import from_stored, portable
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError, not_measured
from pytest_torchprof.reasons.measuring import NoRecordingOfProgram, ProgramEnded
from pytest_torchprof.reasons.reason import StoredReason  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.recording.reader import read
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.text.tables import screen_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.limits import Asked, Verdict
    from pytest_torchprof.reasons.errors import LimitsMissed
    from pytest_torchprof.reasons.reason import Reason

_RECORDING, _ENDED = "recording.json", "ended.json"
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGQUIT")
_FROM_A_TERMINAL = ("SIGINT", "SIGQUIT")
_PR_SET_PDEATHSIG = 1


class _Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The record that the program's process leaves beside the recording when both are complete."""

    status: int = 0
    """The program's own exit status; nothing was recorded if it is not 0."""
    device: str | None = None
    """The device that was measured."""
    reason: StoredReason | None = None
    """Why the recording, if there is one, cannot be trusted."""
    refused: bool = False
    """Whether the reason is a request that cannot be met, so that the program did not run."""


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """The outcome of a program: its own failure, or a recording and its problem."""

    failed: int | None = None
    """The exit status of a program that failed by itself."""
    problem: LimitsMissed | NotMeasured | None = None
    profile: Profile | None = None
    """The recording, trusted or not; None if there is none."""
    verdicts: tuple[Verdict, ...] = ()
    """The verdicts on the limits, if the recording could be judged."""


@contextmanager
def run_program(
    program: list[str], asked: Sequence[Asked], device: str, top: int | None = None
) -> Iterator[ProgramOutcome]:
    """Run SCRIPT ARGS or -m MODULE ARGS once, as one step, and judge it; its recording lasts as long as the ``with``.

    ``top``: how many rows of evidence each limit has; without it, as many as the screen has room for.

    Raises TorchprofError for a missing device. The other process ends in this function, by SystemExit.
    """
    # An object that removes the folder when it is collected would be in both processes.
    folder = Path(tempfile.mkdtemp(prefix="torchprof-"))
    sys.stdout.flush()
    sys.stderr.flush()
    judge_id = os.getpid()
    process = os.fork()
    if not process:
        _end_with(judge_id)
        raise SystemExit(_measure(program, asked, device, folder))
    try:
        with _passing_signals_on(process):
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        yield _outcome(program, status, folder, asked, device, top=top)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------------------------------------- the process that judges


@contextmanager
def _passing_signals_on(process: int) -> Iterator[None]:
    """Pass signals that would end this process on to the program, which decides, as this process waits for it."""

    def pass_on(number: int, _: object) -> None:
        if signal.Signals(number).name in _FROM_A_TERMINAL and _in_the_foreground():
            return  # The terminal sends the signal to the whole foreground group: the program has got it already.
        with suppress(ProcessLookupError):
            os.kill(process, number)

    before = {}
    for name in _PASSED_ON:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_the_foreground() -> bool:
    """Return whether this process is in the foreground of a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _outcome(  # noqa: PLR0913 - what was run, what became of it, and what is asked of it
    program: Sequence[str], status: int, folder: Path, asked: Sequence[Asked], device: str, *, top: int | None
) -> ProgramOutcome:
    ended = _read_ended(folder)
    if ended is None or status < 0:
        name = program[1] if program[0] == "-m" else program[0]
        return ProgramOutcome(problem=not_measured(ProgramEnded(name, status)))
    if ended.status or status:
        return ProgramOutcome(failed=ended.status or status)
    if ended.refused and (refusal := from_stored(ended.reason)) is not None:
        raise TorchprofError.because(refusal)
    profile: Profile | None = None

    def check(path: Path) -> Reason | None:
        nonlocal profile
        profile = Profile.from_trace(read(path))
        return profile.doubt

    recording, reason = folder / _RECORDING, from_stored(ended.reason)
    if recording.exists():
        try:
            reason = reason or why_unbelievable(recording, check)
        except NotMeasured as unreadable:
            reason = unreadable.reason
    if profile is None or reason is not None:
        reason = reason or NoRecordingOfProgram()
        return ProgramOutcome(problem=not_measured(reason, ask_the_doctor=reason.for_the_doctor), profile=profile)
    verdicts = judge(profile, asked, stands_in=stands_in(device, ended.device or device))
    problem = problem_of(verdicts, profile, Screen.of_columns(screen_columns(), rest="--top N", top=top))
    return ProgramOutcome(problem=problem, profile=profile, verdicts=verdicts)


def _read_ended(folder: Path) -> _Ended | None:
    try:
        return msgspec.json.decode((folder / _ENDED).read_bytes(), type=_Ended)
    except (OSError, msgspec.DecodeError):
        return None


# ------------------------------------------------------------------------------------------------ the program's process


def _end_with(judge_id: int) -> None:
    """Let the system kill this process if the waiting process, the only one that the caller knows, is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != judge_id:
            os._exit(0)


def _measure(program: list[str], asked: Sequence[Asked], device: str, folder: Path) -> int:
    """Run the program under the profiler, write the record of its end, and return its exit status."""
    ended = _record(program, asked, device, folder / _RECORDING)
    with suppress(OSError), replacing(folder / _ENDED) as unfinished:  # A program without this record is not judged.
        unfinished.write_bytes(msgspec.json.encode(ended))
    return ended.status


def _record(program: list[str], asked: Sequence[Asked], device: str, recording: Path) -> _Ended:
    measured = None
    try:
        measured = device_for(asked, device)
        plan = capture.Plan(
            device=measured,
            asked=device,
            warmup=0,
            steps=1,
            record=frozenset(),
            nodeid=None,
            label=None,
            repeatable=False,
        )
        capture.tell_slow_export(measured)
        with closing(capture.iterations(plan, recording, lambda _: None)) as calls:
            for _ in calls:
                if status := run_as_python(program):
                    return _Ended(status=status)
    except NotMeasured as problem:
        return _Ended(device=measured, reason=portable(problem.reason).to_plain())
    except TorchprofError as problem:
        return _Ended(reason=portable(problem.reason).to_plain(), refused=True)
    return _Ended(device=measured)
