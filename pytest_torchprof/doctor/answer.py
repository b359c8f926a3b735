"""What one check found out, in words for a person and for a bug report."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_torchprof.text import printable_line

OK: Literal["ok"] = "ok"
WRONG: Literal["wrong"] = "wrong"
UNKNOWN: Literal["not known"] = "not known"
Status = Literal["ok", "wrong", "not known"]

SEE_THE_GPU = "see whether the GPU is well (nvidia-smi, dmesg); if it is, this line belongs into a bug report"

_LONGEST = 400
_PACKAGES = re.compile(r"[^\s:'\"]*/(?=(?:site|dist)-packages\b)")
_HOMES = re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s:'\"]+|(?<![\w.])/root(?=[/\s:'\"]|$)")


@dataclass(frozen=True, slots=True)
class Answer:
    """One line of the report, and what to do where something is wrong."""

    check: str
    status: Status
    text: str
    do: str = ""


def public(text: str) -> str:
    """Return a text as it may stand in a bug report: no home folders, installed packages by their own path."""
    own = str(Path.home())
    anonymous = _PACKAGES.sub("", text)
    if len(own) > 1:
        anonymous = re.sub(rf"{re.escape(own)}(?![\w.-])", "~", anonymous)
    return _HOMES.sub("~", anonymous)


def first_line(problem: object) -> str:
    """Return the first line that says something of an exception or of what a process wrote, fit for a bug report."""
    lines = (line.strip() for line in str(problem).splitlines())
    said = printable_line(public(next(filter(None, lines), "")), _LONGEST)
    if isinstance(problem, BaseException):
        return f"{type(problem).__name__}: {said}" if said else type(problem).__name__
    return said
