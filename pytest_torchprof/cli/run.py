"""``torchprof run script.py``: run a program under the profiler, once, and judge all of it as one step."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER
from typing import TYPE_CHECKING, Final, TextIO

from pytest_torchprof.cli import UsageError, add_limits, add_top
from pytest_torchprof.cli.check import HOLDS, MISSED, UNKNOWN, write_json
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured
from pytest_torchprof.text import counted, printable_line
from pytest_torchprof.text.tables import on_screen

if TYPE_CHECKING:
    from argparse import Namespace

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.reason import Reason

_USAGE: Final = """\
torchprof run [--limit NAME=VALUE ...] [--top N] [--save FILE]
                     [--device auto|cpu|cuda] SCRIPT.py [ARGS ...]
       torchprof run [...] -m MODULE [ARGS ...]"""
_DESCRIPTION: Final = """\
Runs a Python program under the profiler, as `python SCRIPT.py ARGS` would, and judges it by the limits of the
torchprof marker. It runs once, without a warm-up, and all of it is one step, imports and compilation
included; what it registers with atexit is not. The program has a process of its own and is judged in the one
that you called; processes that it starts are neither recorded nor judged. Without a limit, the command prints
what ran."""
_EPILOG: Final = """\
example:
  torchprof run --limit max_syncs=10 --save run.json.gz train.py --steps 3

exit status: 0 all limits hold, 1 one was missed, 3 something could not be measured, 2 bad usage; where the
program itself fails, its own exit status, with a line that says so. A program that was killed, or ended by
os._exit or exec, was not measured"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.usage = _USAGE
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "program", nargs=REMAINDER, metavar="SCRIPT.py [ARGS ...]", help="the program, and its arguments"
    )
    parser.add_argument(
        "-m", dest="module", nargs=REMAINDER, metavar="MODULE [ARGS ...]", help="run a module, as python -m does"
    )
    add_limits(parser)
    add_top(parser, "as many as the screen has room for")
    parser.add_argument(
        "--json",
        action="store_true",
        help="the verdicts as one JSON object, in one line behind what the program writes; a process that it leaves "
        "behind can write behind that, so go by the exit status",
    )
    parser.add_argument("--save", metavar="FILE", help="keep the recording in this file")
    parser.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda", help="what is measured (auto: a GPU where there is one)"
    )


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    if arguments.json and not arguments.limit:
        from pytest_torchprof.reasons.command_line import VerdictsOfNothing  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(VerdictsOfNothing())
    program = _program_of(arguments)
    from pytest_torchprof.limits import read_limits  # noqa: PLC0415  (help and usage errors do without)
    from pytest_torchprof.limits.written import read_limit_texts  # noqa: PLC0415
    from pytest_torchprof.measuring.program import run_program  # noqa: PLC0415
    from pytest_torchprof.measuring.script import read_option  # noqa: PLC0415
    from pytest_torchprof.reasons.measuring import ProgramFailed  # noqa: PLC0415
    from pytest_torchprof.report.verdicts import no_finding  # noqa: PLC0415

    limits = read_limit_texts(arguments.limit)
    asked, device = read_limits(limits), read_option("device", arguments.device)
    with run_program(program, asked, device, arguments.top) as outcome:
        if outcome.failed is not None:
            failed = ProgramFailed(program[1] if program[0] == "-m" else program[0], outcome.failed)
            sys.stderr.write(f"torchprof run: {failed.sentence}\n")
            if arguments.json:
                # What the program has written last is not to be taken for a verdict.
                write_json((), no_finding, failed)
            return outcome.failed
        if arguments.json:
            reason = None if outcome.verdicts else _reason(outcome.problem)
            write_json(outcome.verdicts, no_finding if outcome.profile is None else outcome.profile.why_missed, reason)
        else:
            _write_outcome(outcome.profile, outcome.problem, len(limits), arguments.top)
        if arguments.save is not None:
            _save(outcome.profile, arguments.save, sys.stderr if arguments.json else sys.stdout)
        if outcome.problem is None:
            return HOLDS
        return MISSED if isinstance(outcome.problem, LimitsMissed) else UNKNOWN


def _program_of(arguments: Namespace) -> list[str]:
    """Return the program as arguments of python; UsageError if there is none."""
    program: list[str] = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if arguments.module is not None:
        # Only after a "--" do its arguments no longer count as the option's.
        program = ["-m", *arguments.module, *arguments.program]
    if not program or program in (["-m"], ["-"]):
        from pytest_torchprof.reasons.command_line import Needed, NotGiven  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(NotGiven(Needed.PROGRAM))
    if program[0] != "-m" and not os.path.isfile(program[0]):  # noqa: PTH113
        from pytest_torchprof.reasons.command_line import NoSuchScript  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(NoSuchScript(program[0]))
    return program


def _reason(problem: Exception | None) -> Reason | None:
    return problem.reason if isinstance(problem, NotMeasured) else None


def _write_outcome(profile: Profile | None, problem: Exception | None, limits: int, top: int | None) -> None:
    if problem is not None:
        sys.stdout.write(f"{on_screen(str(problem))}\n")
    elif limits:
        sys.stdout.write(f"{counted(limits, 'limit')} {'holds' if limits == 1 else 'hold'}\n")
    elif profile is not None:
        sys.stdout.write(f"{profile.table() if top is None else profile.table(top=top)}\n")


def _save(profile: Profile | None, save: str, out: TextIO) -> None:
    """Keep the recording, whether it can be trusted or not."""
    if profile is not None:
        profile.save(save)
        out.write(f"recording: {printable_line(save)}\n")
    else:
        from pytest_torchprof.reasons.command_line import NothingToSave  # noqa: PLC0415 - only a failure needs it

        sys.stderr.write(f"torchprof run: {NothingToSave()}\n")
