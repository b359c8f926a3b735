"""``torchprof run script.py``: run a program under the profiler, once, and judge all of it as one step."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pytest_torchprof.cli import UsageError, parse
from pytest_torchprof.cli.check import HOLDS, MISSED, UNKNOWN, read_limit_texts
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import LimitsMissed, NotMeasured
from pytest_torchprof.text import counted, printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.profiles import Profile

USAGE = """usage: torchprof run [--limit NAME=VALUE ...] [--save FILE] [--device auto|cpu|cuda] SCRIPT.py [ARGS ...]
       torchprof run [...] -m MODULE [ARGS ...]

Runs a Python program under the profiler, as `python SCRIPT.py ARGS` would, and judges it by the limits of the
torchprof marker. It runs once, without a warm-up, and all of it is one step, imports and compilation included. Other
processes that it starts are not recorded. Without a limit, it prints what ran. Values are as for torchprof check.

  torchprof run --limit max_syncs=10 --save run.json.gz train.py --steps 3

exit status: 0 all limits hold, 1 one was missed, 3 something could not be measured, 2 bad usage; where the program
itself fails, its own exit status, with a line that says so
"""
_OPTIONS = {
    "--limit": "NAME=VALUE, e.g. --limit max_kernels=5",
    "--save": "the name of a file, e.g. --save run.json.gz",
    "--device": "auto, cpu or cuda",
}
_UNCAUGHT = 1
"""What Python exits with after an exception, and where a program says in a text why it ends."""


class _ProgramFailed(BaseException):
    """The program has ended by itself, and not well; no exception that a program catches."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def own_words(words: list[str]) -> list[str]:
    """Return the words that are this command's; those from the program's name on are the program's."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-"):
        at += 2 if words[at] in _OPTIONS else 1
    return words[:at]


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    own = own_words(words)
    arguments, program = parse(own, options=_OPTIONS), words[len(own) :]
    if not program or program in (["-m"], ["-"]):
        raise UsageError("expected a SCRIPT.py to run, or -m MODULE")
    if program[0] != "-m" and not os.path.isfile(program[0]):  # noqa: PTH113
        raise UsageError(f"there is no script {printable_line(program[0])}")
    limits = read_limit_texts(arguments.options["--limit"])
    from pytest_torchprof.measuring.script import ScriptBlock  # noqa: PLC0415  (help and usage errors do without)

    block = ScriptBlock(None, limits, repeatable=False, steps=1, warmup=0, device=arguments.last("--device") or "auto")
    status, problem = HOLDS, None
    try:
        with block:
            for _ in block.steps():
                _run_program(program)
    except _ProgramFailed as failed:
        ended = f"{printable_line(program[0])} itself ended with exit status {failed.status}"
        sys.stderr.write(f"torchprof run: {ended}: nothing was judged\n")
        return failed.status
    except (LimitsMissed, NotMeasured) as raised:
        status, problem = (MISSED if isinstance(raised, LimitsMissed) else UNKNOWN), raised
    _tell(block.measured, problem, len(limits), arguments.last("--save"))
    return status


def _tell(profile: Profile | None, problem: Exception | None, limits: int, save: str | None) -> None:
    """Write what came of it, and keep the recording, believed or not."""
    if problem is not None:
        sys.stdout.write(f"{problem}\n")
    elif limits:
        sys.stdout.write(f"{counted(limits, 'limit')} {'holds' if limits == 1 else 'hold'}\n")
    elif profile is not None:
        sys.stdout.write(f"{profile.table()}\n")
    if save is not None and profile is not None:
        profile.save(save)
        sys.stdout.write(f"recording: {printable_line(save)}\n")
    elif save is not None:
        said = coded("there is no recording to save", Code.RECORDING_NOT_WRITTEN)
        sys.stderr.write(f"torchprof run: {said}\n")


def _run_program(program: list[str]) -> None:
    """Run it in this process, as Python would; _ProgramFailed where it does not end well."""
    with _as_python(program):
        try:
            if program[0] == "-m":
                runpy.run_module(program[1], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program[0], run_name="__main__")
        except SystemExit as ended:
            if status := _status_of(ended):
                raise _ProgramFailed(status) from None
        except Exception as problem:  # noqa: BLE001 - whatever a program raises ends it
            _print_without_us(problem)
            raise _ProgramFailed(_UNCAUGHT) from None


@contextmanager
def _as_python(program: list[str]) -> Iterator[None]:
    """Let a program find its arguments and its modules where it looks for them."""
    arguments, places = sys.argv, sys.path
    module = program[0] == "-m"
    sys.argv = program[1:] if module else list(program)
    # The first entry is where the torchprof command itself lies.
    sys.path = [os.getcwd() if module else os.path.dirname(os.path.abspath(program[0])), *places[1:]]  # noqa: PTH100, PTH109, PTH120
    try:
        yield
    finally:
        sys.argv, sys.path = arguments, places
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def _status_of(ended: SystemExit) -> int:
    """Return the exit status that Python has after this."""
    if ended.code is None or isinstance(ended.code, int):
        return int(ended.code or 0)
    sys.stderr.write(f"{ended.code}\n")
    return _UNCAUGHT


def _print_without_us(problem: Exception) -> None:
    """Print an exception as Python does, from the program's own first line on."""
    frames = problem.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        frames = frames.tb_next
    traceback.print_exception(type(problem), problem, frames)
