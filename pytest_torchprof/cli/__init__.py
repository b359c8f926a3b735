"""The ``torchprof`` command: what its sub-commands share; each is a module that is imported when it is called."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import TYPE_CHECKING, NamedTuple, TextIO

from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# Each is a module with USAGE and run(words) -> exit status. Looking for modules at run time would import them all.
COMMANDS = {
    "analyze": "show where the time of a recording goes",
    "check": "judge a recording by limits",
    "run": "run a program under the profiler, and judge it",
    "report": "write recordings or a run's results as one HTML file",
    "diff": "compare two recordings or baselines",
    "bisect": "find the commit that missed a limit first, or changed a test's kernels",
    "export": "write a recording for Perfetto, speedscope or flame graphs",
    "open": "show a recording in Perfetto",
    "doctor": "say what is wrong with the profiler or the device",
    "explain": "say what a limit, a finding or a message means",
    "baseline": "list, show, compare, prune and merge stored baselines",
}
RUNS_CODE = frozenset({"run", "bisect"})
"""Whose process runs code of the user's: it writes when it wants to, and ends as Python ends."""
WRITES_AT_ONCE = RUNS_CODE | {"doctor"}
"""Whose text is not kept until the end, which may be minutes away."""
USAGE = "usage: torchprof COMMAND ...\n\n{commands}\n\nSee torchprof COMMAND --help.\n"
RANKS = "--ranks"
"""The recordings in a folder are those of one job's ranks."""
DEVICE_OPTION = {"--device": "cpu or cuda"}
"""Of each command that reads recordings."""
UNUSABLE = 2
"""The exit status for bad usage and for what cannot be read."""


class UsageError(TorchprofError):
    """Words on the command line that do not belong there; the command's help says which do."""

    code = Code.BAD_USAGE


class Arguments(NamedTuple):
    """What a command was called with."""

    files: list[str]
    options: dict[str, list[str]]
    """The values of each option, in order."""
    flags: frozenset[str]

    def last(self, option: str) -> str | None:
        """Return the value of an option that counts once; None where it is not there."""
        values = self.options[option]
        return values[-1] if values else None


def parse(words: list[str], *, flags: Collection[str] = (), options: Mapping[str, str] | None = None) -> Arguments:
    """Sort the words; UsageError for what is neither. ``options`` maps each to what it takes, in words."""
    takes = options or {}
    found = Arguments([], {name: [] for name in takes}, frozenset(flags).intersection(words))
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in takes:
            given = value if equals else next(rest, None)
            if given is None:
                raise UsageError(f"{name} takes {takes[name]}")
            found.options[name].append(given)
        elif word in flags:
            if words.count(word) > 1:
                raise UsageError(f"{word} is there twice")
        elif word.startswith("-") and word != "-":
            raise UsageError(f"unknown option {word!r}")
        else:
            found.files.append(word)
    return found


def main(argv: list[str] | None = None) -> int:
    """Run a sub-command; return its exit status, 2 for bad usage and for what cannot be read."""
    words = sys.argv[1:] if argv is None else argv
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # Closed by who started the process.
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    if not words or words[0] in ("-h", "--help"):
        (sys.stdout if words else sys.stderr).write(_usage())
        return 0 if words else UNUSABLE
    if words[0] == "--version":
        from importlib.metadata import version  # noqa: PLC0415 - slow to import, rarely asked for

        sys.stdout.write(f"torchprof {version('pytest-torchprof')}\n")
        return 0
    if words[0] not in COMMANDS:
        unknown = coded(printable(f"there is no command {words[0]!r}"), Code.BAD_USAGE)
        sys.stderr.write(f"torchprof: {unknown}\n\n{_usage()}")
        return UNUSABLE
    status = _run(words[0], words[1:])
    if argv is None and words[0] not in RUNS_CODE:
        # The process ends here: to free what it read, object by object, would take 2 % of its time.
        sys.stderr.flush()
        os._exit(status)
    return status


class _LaterText(io.StringIO):
    """Text that is written to a stream later, and tells what that stream can show."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding


def _run(command: str, words: list[str]) -> int:
    from importlib import import_module  # noqa: PLC0415

    # A name out of a trace may hold characters that the terminal's encoding has not.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    collecting, screen, text = gc.isenabled(), sys.stdout, _LaterText(sys.stdout)
    if command not in RUNS_CODE:
        # The process is short and makes no cycles worth looking for in its million objects: 6 % of the time.
        gc.disable()
    if command not in WRITES_AT_ONCE:
        # Written at the end, so that the verdict stands whatever becomes of the text.
        sys.stdout = text
    try:
        module = import_module(f"{__name__}.{command}")
        own = module.own_words(words) if command in RUNS_CODE else words
        if "-h" in own or "--help" in own:
            sys.stdout.write(module.USAGE)
            status = 0
        else:
            status = module.run(words)
    except UsageError as problem:
        return refuse(command, coded(f"{problem.text}; see torchprof {command} --help", Code.BAD_USAGE))
    except TorchprofError as problem:
        return refuse(command, str(problem))
    except KeyboardInterrupt:
        return 130
    finally:
        sys.stdout = screen
        if collecting:
            gc.enable()
    return write(text.getvalue(), command) or status


def refuse(command: str, problem: str) -> int:
    """Say on stderr what a command cannot do; return UNUSABLE."""
    # Files are named in it, and what they hold.
    sys.stderr.write("\n".join(map(printable, f"torchprof {command}: {problem}".split("\n"))) + "\n")
    return UNUSABLE


def write(text: str, command: str) -> int:
    """Write the text; return 0, or UNUSABLE where it cannot be written."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough; the interpreter's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return refuse(command, coded(f"what was found cannot be written: {error.strerror}.", Code.REPORT_NOT_WRITTEN))
    return 0


def _usage() -> str:
    return USAGE.format(commands="\n".join(f"  {name:<10}{purpose}" for name, purpose in COMMANDS.items()))
