"""``torchprof doctor``: what is wrong with the profiler or the device, in lines for a bug report."""

from __future__ import annotations

import json
import platform
import sys
import textwrap
from importlib import metadata
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import write

if TYPE_CHECKING:
    from argparse import Namespace

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.doctor import Answer

WELL, ILL = 0, 1
SCHEMA = 1
WIDTH = 100
_STATUS, _CHECK = 11, 19
# Installed distributions whose versions a bug report needs.
_VERSIONS = ("pytest-torchprof", "pytest", "torch", "triton", "nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12")

_DESCRIPTION: Final = """\
Looks at this machine as a measurement uses it: torch, its profiler, CUPTI, the driver and the GPU, the
environment, sessions of the profiler, kinds of launches, clocks, the CPU. Each line says "ok", "wrong" or
"not known"; a line that is wrong is followed by what to do. Takes up to a minute or two; each line is written
as soon as it is known, and what does not end is ended after 90 to 150 seconds. Nothing is changed."""


def add_arguments(parser: Parser) -> None:
    """Declare what the command takes."""
    parser.description = _DESCRIPTION
    parser.epilog = "exit status: 0 nothing is wrong, 1 something is wrong, 2 bad usage"
    parser.add_argument("--json", action="store_true", help="one JSON object, for a bug report")


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    from pytest_torchprof.doctor import WRONG, answers  # noqa: PLC0415

    found: list[Answer] = []
    if not arguments.json:
        _say(_heading())
    for answer in answers(begin=_progress):
        _progress("")
        found.append(answer)
        if not arguments.json:
            _say(_lines(answer))
    _progress("")
    if arguments.json:
        sys.stdout.write(_as_json(found))
    else:
        _say(_end(found))
    return ILL if any(one.status == WRONG for one in found) else WELL


def _say(lines: list[str]) -> None:
    """Write lines at once: a machine that is busy, or ill, takes long for the next ones."""
    write("".join(f"{line}\n" for line in lines), "doctor")


def _progress(name: str) -> None:
    """Say on a terminal what is being looked at, in a line that goes away again."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[Klooking at {name} ..." if name else "\r\033[K")
        sys.stderr.flush()


def versions() -> dict[str, str]:
    """Return the installed versions that matter."""
    found = {"python": platform.python_version(), "platform": f"{platform.system()}-{platform.machine()}"}
    for name in _VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _as_json(found: list[Answer]) -> str:
    rows = [{"check": one.check, "status": one.status, "text": one.text, "do": one.do or None} for one in found]
    return json.dumps({"schema": SCHEMA, "versions": versions(), "answers": rows}, indent=2) + "\n"


def _heading() -> list[str]:
    have = "  ".join(f"{name} {version}" for name, version in versions().items())
    return textwrap.wrap(f"torchprof doctor: {have}", WIDTH, subsequent_indent="  ")


def _lines(one: Answer) -> list[str]:
    lines = _wrapped(f"{one.status:<{_STATUS}}{one.check:<{_CHECK}}", one.text)
    if one.do and one.status != "ok":
        lines += _wrapped(" " * (_STATUS + _CHECK), f"do: {one.do}")
    return lines


def _end(found: list[Answer]) -> list[str]:
    wrong = sum(one.status == "wrong" for one in found)
    unknown = sum(one.status == "not known" for one in found)
    return ["", f"{wrong or 'nothing'} wrong" + (f", {unknown} not known" if unknown else "")]


def _wrapped(head: str, text: str) -> list[str]:
    indent = " " * len(head)
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False)
