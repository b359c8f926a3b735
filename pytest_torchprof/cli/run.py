"""``torchprof run script.py``: run a program under the profiler, once, and judge all of it as one step."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pytest_torchprof.cli import UsageError, parse
from pytest_torchprof.cli.check import HOLDS, MISSED, UNKNOWN, read_limit_texts
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import LimitsMissed
from pytest_torchprof.text import counted, printable_line

if TYPE_CHECKING:
    from pytest_torchprof.profiles import Profile

USAGE = """usage: torchprof run [--limit NAME=VALUE ...] [--save FILE] [--device auto|cpu|cuda] SCRIPT.py [ARGS ...]
       torchprof run [...] -m MODULE [ARGS ...]

Runs a Python program under the profiler, as `python SCRIPT.py ARGS` would, and judges it by the limits of the
torchprof marker. It runs once, without a warm-up, and all of it is one step, imports and compilation included; what it
registers with atexit is not. The program has a process of its own and is judged in the one that you called; processes
that it starts are neither recorded nor judged. Without a limit, it prints what ran. Values are as for torchprof check.

  torchprof run --limit max_syncs=10 --save run.json.gz train.py --steps 3

exit status: 0 all limits hold, 1 one was missed, 3 something could not be measured, 2 bad usage; where the program
itself fails, its own exit status, with a line that says so. A program that was killed, or ended by os._exit or exec,
was not measured
"""
_OPTIONS = {
    "--limit": "NAME=VALUE, e.g. --limit max_kernels=5",
    "--save": "the name of a file, e.g. --save run.json.gz",
    "--device": "auto, cpu or cuda",
}


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
    from pytest_torchprof.limits import read_limits  # noqa: PLC0415  (help and usage errors do without)
    from pytest_torchprof.measuring.program import run_program  # noqa: PLC0415
    from pytest_torchprof.measuring.script import read_option  # noqa: PLC0415

    asked, device = read_limits(limits), read_option("device", arguments.last("--device") or "auto")
    with run_program(program, asked, device) as outcome:
        if outcome.failed is not None:
            ended = f"{printable_line(program[0])} itself ended with exit status {outcome.failed}"
            sys.stderr.write(f"torchprof run: {ended}: nothing was judged\n")
            return outcome.failed
        _tell(outcome.profile, outcome.problem, len(limits), arguments.last("--save"))
        if outcome.problem is None:
            return HOLDS
        return MISSED if isinstance(outcome.problem, LimitsMissed) else UNKNOWN


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
