"""``torchprof doctor``: the problems of the profiler or the device, in lines for a bug report."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import write
from pytest_torchprof.text.lines import in_lines
from pytest_torchprof.text.tables import terminal_width

if TYPE_CHECKING:
    from argparse import Namespace

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.cli.doctor_checks import Answer

WELL, ILL = 0, 1
_WIDEST: Final = 100
_STATUS, _CHECK = 11, 19
_INDENT: Final = 4
_LEAST: Final = 30
"""The columns that a text needs at least, to stand beside its check."""
# Installed distributions whose versions a bug report needs.
_VERSIONS = ("pytest-torchprof", "pytest", "torch", "triton", "nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12")

_DESCRIPTION: Final = """\
Looks at this machine as a measurement uses it: torch, its profiler, CUPTI, the driver and the GPU, the
environment, sessions of the profiler, kinds of launches, clocks, the CPU. Each line says "ok", "wrong" or
"not known"; a line that is wrong is followed by what to do. Takes up to a minute or two; each line is written
as soon as it is known, and a check that does not end is stopped after 90 to 150 seconds. Nothing is changed."""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.epilog = "exit status: 0 nothing is wrong, 1 something is wrong, 2 bad usage"
    parser.add_argument("--json", action="store_true", help="one JSON object, for a bug report")


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    from pytest_torchprof.cli.doctor_checks import WRONG, answers  # noqa: PLC0415

    given: list[Answer] = []
    if not arguments.json:
        _write_at_once(_heading())
    for answer in answers(begin=_progress):
        _progress("")
        given.append(answer)
        if not arguments.json:
            _write_at_once(_lines(answer))
    _progress("")
    if arguments.json:
        from pytest_torchprof.cli.doctor_json import doctor_text  # noqa: PLC0415 - for programs alone

        sys.stdout.write(doctor_text(versions(), given))
    else:
        _write_at_once(_end(given))
    return ILL if any(answer.status == WRONG for answer in given) else WELL


def _write_at_once(lines: list[str]) -> None:
    """Write lines at once: on a busy or broken machine the next ones take a long time."""
    write("".join(f"{line}\n" for line in lines), "doctor")


def _progress(name: str) -> None:
    """Show the current check on a terminal, in a line that disappears again."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[Klooking at {name} ..." if name else "\r\033[K")
        sys.stderr.flush()


def versions() -> dict[str, str]:
    """Return the installed versions that matter."""
    versions = {"python": platform.python_version(), "platform": f"{platform.system()}-{platform.machine()}"}
    for name in _VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _heading() -> list[str]:
    have = "  ".join(f"{name} {version}" for name, version in versions().items())
    return in_lines(f"torchprof doctor: {have}", _width(), indent="  ")


def _lines(answer: Answer) -> list[str]:
    lines = _wrapped(f"{answer.status:<{_STATUS}}{answer.check:<{_CHECK}}", answer.text)
    if answer.do and answer.status != "ok":
        lines += _wrapped(" " * (_STATUS + _CHECK), f"do: {answer.do}")
    return lines


def _end(given: list[Answer]) -> list[str]:
    wrong = sum(answer.status == "wrong" for answer in given)
    unknown = sum(answer.status == "not known" for answer in given)
    return ["", f"{wrong or 'nothing'} wrong" + (f", {unknown} not known" if unknown else "")]


def _wrapped(head: str, text: str) -> list[str]:
    width = _width()
    if width >= len(head) + _LEAST:
        indent = " " * len(head)
        return in_lines(text, width, head, indent)
    # Beside it a word might have to be broken.
    indent = " " * _INDENT
    below = in_lines(text, width, indent, indent)
    return [head.rstrip(), *below] if head.strip() else below


def _width() -> int:
    return min(terminal_width(), _WIDEST)
