"""The ``torchprof`` command: the shared part of its sub-commands, each of which is a module imported on demand."""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, HelpFormatter, Namespace
from functools import partial
from importlib import import_module
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.text import MOST_DIGITS, printable, without_passwords
from pytest_torchprof.text.suggestions import choices_like
from pytest_torchprof.text.tables import screen_columns
from pytest_torchprof.text.wrapping import WIDTH, broken, command_lines, wrapped

if TYPE_CHECKING:
    from argparse import _ActionsContainer as Arguments
    from collections.abc import Callable, Iterable, Sequence

    from pytest_torchprof.reasons.command_line import WordOf
    from pytest_torchprof.reasons.reason import Reason

# Each is a module with add_arguments(parser) and run(arguments) -> exit status. Looking for modules at run time would
# import them all.
COMMANDS = {
    "analyze": "show where the time of a recording goes",
    "check": "judge a recording by limits",
    "run": "run a program under the profiler, and judge it",
    "allow": "write what a run missed into the list of exceptions from a suite's rules",
    "report": "write recordings or a run's results as one HTML file",
    "diff": "compare two recordings or baselines",
    "bisect": "find the commit that missed a limit first, or changed a test's kernels",
    "export": "write a recording for Perfetto, speedscope or flame graphs",
    "open": "show a recording in Perfetto",
    "schema": "print the JSON schema of what a command or a report holds",
    "doctor": "say what is wrong with the profiler or the device",
    "explain": "say what a limit, a finding or a message means",
    "history": "say which commit changed what a test launches, from the records of many runs",
    "fleet": "judge any number of recordings, and keep what they come to",
    "baseline": "list, show, compare, prune and merge stored baselines",
}
RUNS_CODE = frozenset({"run", "bisect"})
"""Commands whose process runs the user's code, which writes whenever it wants to."""
WRITES_AT_ONCE = RUNS_CODE | {"doctor"}
"""Commands whose text is not held back until the end, which may be minutes away."""
RANKS = "--ranks"
"""Help for folders whose recordings are those of one job's ranks."""
UNUSABLE = 2
"""The exit status for bad usage and for input that cannot be read."""


class UsageError(TorchprofError):
    """Invalid arguments on the command line; the command's help shows the valid ones."""

    code = Code.BAD_USAGE


_BRACKETS: Final = r"\[[^\[\]]*\]|\([^()]*\)"
"""A bracketed group in a line of usage."""


class _Help(HelpFormatter):
    """Help whose prose is wrapped to the terminal; examples, which are indented, can be pasted whatever its width."""

    def __init__(self, prog: str, width: int = WIDTH) -> None:
        # argparse makes one for each argument that is declared, and would ask for the width of the terminal each time.
        super().__init__(prog, width=width)

    def _format_usage(self, usage: str | None, *given: Any) -> str:
        """Return the usage as argparse has it, and in a narrow terminal with less of an indent."""
        shown = super()._format_usage(usage, *given)
        if max(map(len, shown.splitlines())) <= self._width:
            return shown
        # Each way to call it begins with the program's name.
        ways = re.split(rf"\s+(?={re.escape(self._prog)} )", " ".join(shown.split()).removeprefix("usage: "))
        first, *others = (re.sub(_BRACKETS, self._together, way) for way in ways)
        lines = [f"usage: {first}", *(f"       {way}" for way in others)]
        return "\n".join(broken(line, max(self._width, 20), hanging=9) for line in lines).replace("\0", " ") + "\n\n"

    def _together(self, group: re.Match[str]) -> str:
        return group[0].replace(" ", "\0") if len(group[0]) + 9 <= self._width else group[0]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = groupby(text.splitlines(), key=lambda line: line[:1].strip() != "")
        return "\n".join(
            line
            for prose, lines in blocks
            for line in (
                wrapped(" ".join(lines), indent, first=indent, width=width)
                if prose
                else chain.from_iterable(command_lines(example, width) for example in lines)
            )
        )


class Parser(ArgumentParser):
    """A parser that raises our own errors, and names the option that may be meant."""

    passed_on: str | None = None
    """The argument that takes everything after ``--``, in a command that passes it on to another program."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **settings)

    # argparse's own signature has overloads for other types of namespaces.
    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Return the arguments and an empty list; UsageError for anything that is no argument of the command."""
        given, behind = list(args or ()), []
        if self.passed_on is not None and "--" in given:
            at = given.index("--")
            given, behind = given[:at], given[at + 1 :]
        arguments, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self._refuse(unknown[0])
        if self.passed_on is not None:
            setattr(arguments, self.passed_on, behind)
        return arguments, unknown

    def format_help(self) -> str:
        """Return the help, as wide as the terminal."""
        from shutil import get_terminal_size  # noqa: PLC0415 - slow to import, and only help has a width

        self.formatter_class = partial(_Help, width=get_terminal_size().columns - 2)
        return super().format_help()

    def _refuse(self, argument: str) -> NoReturn:
        from pytest_torchprof.reasons.command_line import ArgumentTooMany, WordOf  # noqa: PLC0415 - only a mistake needs it

        option = argument.partition("=")[0]
        # After "--", text that looks like an option is none.
        if option.startswith("-") and option not in self._option_string_actions:
            raise unknown(WordOf.OPTION, without_passwords(option), self._option_string_actions)
        raise UsageError.because(ArgumentTooMany(without_passwords(argument)))

    def error(self, message: str) -> NoReturn:
        """Raise UsageError in argparse's own words, where it would end the process."""
        # It quotes arguments, and the address of a history may hold a password.
        raise UsageError(without_passwords(message))


def unknown(what: WordOf, word: str, valid: Iterable[str]) -> UsageError:
    """Return the error for a word that is none of the valid ones, with the nearest of these or all."""
    from pytest_torchprof.reasons.command_line import UnknownWord  # noqa: PLC0415 - only a mistake needs it

    return UsageError.because(UnknownWord(what, word, *choices_like(word, valid)))


def add_device(parser: Arguments) -> None:
    """Declare ``--device``, for a command that reads recordings."""
    parser.add_argument(
        "--device",
        metavar="cpu|cuda",
        help="what was measured, where a recording does not say: cuda (the default), or cpu, whose kernels are the "
        "operators that compute",
    )


def add_ranks(parser: Arguments, meaning: str) -> None:
    """Declare ``--ranks``, for a command that looks at a job's ranks together."""
    parser.add_argument(
        RANKS, action="store_true", help=f"the folder holds the recordings of one job's ranks: {meaning}"
    )


def add_limits(parser: Arguments) -> None:
    """Declare ``--limit``, for a command that judges."""
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a limit of the torchprof marker (repeatable); VALUE is a Python or JSON literal, a selector such as "
        'gemm(layout="tn"), a list or dict of them, or else a text; a keyword that takes a list may be repeated',
    )


def add_top(parser: Arguments, so_many: str, *, default: int | None = None) -> None:
    """Declare ``--top``, for a command that shows the evidence of limits; ``so_many``: how many rows without it."""
    meaning = f"how many rows of evidence each limit has ({so_many})"
    parser.add_argument("--top", type=whole(1), default=default, metavar="N", help=meaning)


def add_thresholds(parser: Arguments) -> None:
    """Declare ``--threshold``, for a command that looks for findings."""
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="when something is a finding, e.g. hotspot.share=0.6; as in the ini file's torchprof_thresholds "
        "(repeatable)",
    )


def whole(least: int) -> Callable[[str], int]:
    """Return a function that reads an integer of at least ``least``."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < least:
            raise ArgumentTypeError(f"expected a whole number from {least} on, got {text!r}")
        return int(text)

    return read


def sentence(purpose: str) -> str:
    """Return the purpose of a command as the sentence with which its help begins."""
    return f"{purpose[0].upper()}{purpose[1:]}."


def parser_of(command: str | None = None, *, alone: bool = False) -> Parser:
    """Return the parser of the whole command line, which knows only the arguments of this command.

    ``alone``: no other command is declared at all, each of which takes as long as to import a module.
    """
    parser = Parser(
        prog="torchprof", description="Records, judges and compares which GPU kernels ran, by torch.profiler."
    )
    parser.epilog = "torchprof COMMAND --help says more, and torchprof explain WORD what a limit or a message means."
    parser.add_argument("--version", action="store_true", help="print the version, and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, purpose in COMMANDS.items():
        if alone and name != command:
            continue
        own = commands.add_parser(name, help=purpose, description=sentence(purpose))
        if name == command:
            import_module(f"{__name__}.{name}").add_arguments(own)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a sub-command; return its exit status, 2 for bad usage and for input that cannot be read."""
    given = sys.argv[1:] if argv is None else argv
    if "_ARGCOMPLETE" in os.environ:
        return _complete(os.environ.get("COMP_LINE", ""))
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # The process that started this one closes it.
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    return _run(_command_in(given), given, is_program=argv is None)


def _command_in(given: Sequence[str]) -> str | None:
    return next((argument for argument in given if not argument.startswith("-")), None)


def _complete(line: str) -> int:
    """Answer a shell that asks what may follow on a line; return the exit status, UNUSABLE without argcomplete."""
    try:
        from argcomplete import autocomplete  # noqa: PLC0415 - only a shell asks
    except ImportError:
        return UNUSABLE
    autocomplete(parser_of(_command_in(line.split()[1:])))
    return 0


class _LaterText(io.StringIO):
    """Text that is written to a stream later, and knows what that stream can display."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding


def _run(command: str | None, given: list[str], *, is_program: bool) -> int:
    """Run a sub-command; ``is_program``: the process is the command's own, and ends after it."""
    # A name from a trace may contain characters that the terminal's encoding lacks.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    collecting, screen, text = gc.isenabled(), sys.stdout, _LaterText(sys.stdout)
    if command not in RUNS_CODE:
        # The process is short and makes no cycles worth looking for in its million objects: 9 % of the time.
        gc.disable()
    if command not in WRITES_AT_ONCE:
        # Written at the end, so that the verdict is settled whatever becomes of the text.
        sys.stdout = text
    try:
        status = _answer(command, given)
    except UsageError as problem:
        from pytest_torchprof.reasons.command_line import WrongUsage  # noqa: PLC0415 - only a mistake needs it

        asked = command if command in COMMANDS else None
        return refuse(asked, WrongUsage(problem.reason, _command_text(asked)))
    except TorchprofError as problem:
        return refuse(command, problem)
    except KeyboardInterrupt:
        return 130
    finally:
        sys.stdout = screen
        if is_program and command not in RUNS_CODE:
            # Python's end would look for them once more: another 3 %.
            gc.freeze()
        if collecting:
            gc.enable()
    return write(text.getvalue(), command) or status


def _answer(command: str | None, given: list[str]) -> int:
    if command is not None and command not in COMMANDS:
        from pytest_torchprof.reasons.command_line import WordOf  # noqa: PLC0415 - only a mistake needs it

        raise unknown(WordOf.COMMAND, command, COMMANDS)
    # What stands before the command, such as --help, is about all of them.
    parser = parser_of(command, alone=given[:1] == [command])
    try:
        arguments = parser.parse_args(given)
    except SystemExit:  # argparse has written its help.
        return 0
    if arguments.version:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import, rarely asked for

        sys.stdout.write(f"torchprof {version('pytest-torchprof')}\n")
        return 0
    if command is None:
        parser.print_help(sys.stderr)
        return UNUSABLE
    try:
        status: int = import_module(f"{__name__}.{command}").run(arguments)
    except OSError as problem:
        if problem.errno != errno.ENAMETOOLONG:
            raise
        from pytest_torchprof.reasons.command_line import NameTooLong  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(NameTooLong(str(problem.filename))) from None
    return status


def _command_text(command: str | None) -> str:
    return "torchprof" if command is None else f"torchprof {command}"


def refuse(command: str | None, problem: TorchprofError | Reason) -> int:
    """Write the problem of a command (None: torchprof itself) to stderr, and return UNUSABLE."""
    # It names files and quotes their contents.
    text = "\n".join(map(printable, f"{_command_text(command)}: {problem}".split("\n")))
    # Programs search a pipe for whole lines.
    sys.stderr.write(broken(text, screen_columns() if sys.stderr.isatty() else None) + "\n")
    return UNUSABLE


def write(text: str, command: str | None) -> int:
    """Write the text; return 0, or UNUSABLE if it cannot be written."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough; the interpreter's own flush at exit must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        from pytest_torchprof.reasons.reports import OutputNotWritten  # noqa: PLC0415 - only a failure needs it

        return refuse(command, OutputNotWritten(str(error.strerror)))
    return 0
