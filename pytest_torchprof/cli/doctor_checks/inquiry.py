"""The way in which a check asks, and its answer as text for a person and for a bug report.

Code that may crash or hang runs in a fresh process with a time limit: the way it ends is an answer.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

import msgspec

from pytest_torchprof.capture.reasons import without_filters
from pytest_torchprof.reasons.fresh_processes import how_it_ended
from pytest_torchprof.system.processes import running
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.text import first_line, last_line, printable_line

if TYPE_CHECKING:
    from collections.abc import Callable


Facts = TypeVar("Facts")
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
    """One line of the report, with the remedy if something is wrong."""

    check: str
    status: Status
    text: str
    do: str = ""


def public(text: str) -> str:
    """Return a text fit for a bug report: without home folders, with installed packages by their own path."""
    own = str(Path.home())
    anonymous = _PACKAGES.sub("", text)
    if len(own) > 1:
        anonymous = re.sub(rf"{re.escape(own)}(?![\w.-])", "~", anonymous)
    return _HOMES.sub("~", anonymous)


def public_line(problem: object) -> str:
    """Return the first non-blank line of an exception or of a process's output, fit for a bug report."""
    line = printable_line(public(first_line(str(problem))), _LONGEST)
    if isinstance(problem, BaseException):
        return f"{type(problem).__name__}: {line}" if line else type(problem).__name__
    return line


LIMIT_S = 90.0


class ChildFailed(Exception):
    """Code in a process of its own raised, crashed or did not end; the text says which."""


class _ChildAnswer(msgspec.Struct, frozen=True):
    """The outcome of code in a process of its own."""

    raised: str | None = None
    facts: msgspec.Raw = msgspec.Raw(b"null")


def ask(work: Callable[..., Facts], *given: object, limit_s: float = LIMIT_S) -> Facts:
    """Call a function of a module in a fresh process and return its facts, of the type that its annotation names.

    Both they and what is given must be JSON. Raises ChildFailed.
    """
    with TemporaryDirectory(prefix="torchprof-doctor-") as folder:
        file, stderr = Path(folder, "facts.json"), Path(folder, "stderr.txt")
        # -P: no module in the current folder may replace an installed one.
        start = f"import sys; from {__name__} import main; main(*sys.argv[1:])"
        command = [sys.executable, "-P", "-c", start, f"{work.__module__}:{work.__name__}", json.dumps(given)]
        with stderr.open("wb") as errors:  # Not a pipe, which a compiler that it has started could keep open.
            ended = _run([*command, str(file)], errors, limit_s)
        if not file.is_file():
            raise ChildFailed(_how_it_ended(ended, limit_s, stderr.read_text(encoding="utf-8", errors="replace")))
        came = msgspec.json.decode(file.read_bytes(), type=_ChildAnswer)
    if came.raised is not None:
        raise ChildFailed(came.raised)
    facts: Facts = msgspec.json.decode(came.facts, type=get_type_hints(work).get("return", Any))
    return facts


def _run(command: list[str], stderr: IO[bytes], limit_s: float) -> int | None:
    """Return the exit status; None if the process had to be killed."""
    settings: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": stderr, "env": without_filters(os.environ)}
    # With the compilers that it has started.
    with running(command, own_group=True, patience_s=0, **settings) as process, suppress(subprocess.TimeoutExpired):
        return process.wait(limit_s)
    return None


def _how_it_ended(status: int | None, limit_s: float, stderr: str) -> str:
    if status is None:
        return f"it did not end within {limit_s:.0f} s and was ended"
    last = public_line(last_line(stderr))
    ending = f"; the last it said: {last}" if last else ""
    return f"its process {how_it_ended(status)}{ending}"


def main(where: str, given: str, path: str) -> None:
    """Do the work that was given to `ask`, in the process that it started."""
    module, _, name = where.partition(":")
    try:
        facts = msgspec.json.encode(getattr(import_module(module), name)(*json.loads(given)))
        came = _ChildAnswer(facts=msgspec.Raw(facts))
    except Exception as problem:  # noqa: BLE001 - whatever is raised is the answer
        came = _ChildAnswer(raised=public_line(problem))
    with replacing(Path(path)) as unfinished:
        unfinished.write_bytes(msgspec.json.encode(came))
