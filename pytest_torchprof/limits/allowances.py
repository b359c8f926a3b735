"""The exceptions that a test allows to a limit: waits and copies by their operator, their range, or their line."""

from __future__ import annotations

import re
import sys
from functools import cache, partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.parts import copy_direction
from pytest_torchprof.analysis.ranges import Inside, stretches_of, waiting_threads
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES, Reply, known, same
from pytest_torchprof.kernels.selectors import Operator, compile_op_pattern
from pytest_torchprof.limits.limit import as_list
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.wrong_values import NameOf, UnknownName, ValueForm, WrongValue
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.limits.items import Item


_PLACE = re.compile(r"(?P<file>.+\.py)(?::(?P<line>[0-9]+))?")
_WORD = re.compile(r"(\w+):(?!:)")
_DIRECTION = re.compile(r"(?:Memcpy )?(?P<direction>[A-Z]to[A-Z])")


class Allowance(Struct, frozen=True):
    """One entry of ``allow_syncs`` or ``allow_memcpys``."""

    written: str
    answers: Callable[[Analysis, Sequence[Item]], list[Reply]]
    """Returns for each item whether it is allowed."""
    needs_lines: bool = False
    names_direction: bool = False
    operator: Operator | None = None
    """The operator that it names, if it names one."""

    def __str__(self) -> str:
        """Return it as it is written in the test."""
        return self.written


def read_allowances(value: object) -> tuple[Allowance, ...]:
    """Return the allowances in the order in which they are written; UnknownLimit for a value that is not one."""
    return tuple(_allowance(entry) for entry in dict.fromkeys(as_list(value)))


def read_allowed_copies(value: object) -> tuple[Allowance, ...]:
    """Return the allowances of copies, which may also be named by their direction."""
    return tuple(_direction(entry) or _allowance(entry) for entry in dict.fromkeys(as_list(value)))


def _direction(entry: object) -> Allowance | None:
    match = _DIRECTION.fullmatch(entry) if isinstance(entry, str) else None
    return Allowance(str(entry), partial(_by_direction, match["direction"]), names_direction=True) if match else None


def _allowance(entry: object) -> Allowance:
    if not isinstance(entry, str) or not entry.strip():
        raise UnknownLimit.because(WrongValue(ValueForm.ALLOWED, repr(entry)))
    if entry.startswith("range:"):
        if not (name := entry.removeprefix("range:").strip()):
            raise UnknownLimit.because(WrongValue(ValueForm.ALLOWED_RANGE)).of_entry(repr(entry))
        return Allowance(entry, partial(_by_range, name))
    path = entry.replace("\\", "/")
    if place := _PLACE.fullmatch(path):
        line = int(place["line"]) if place["line"] else None
        return Allowance(entry, partial(_by_place, place["file"], line), needs_lines=True)
    if ".py" in path or "/" in path:
        raise UnknownLimit.because(WrongValue(ValueForm.SOURCE_FILE)).of_entry(repr(entry))
    if word := _WORD.match(entry):
        unknown = UnknownName(NameOf.WORD, repr(word[1]), *choices_like(word[1], ["range"]))
        raise UnknownLimit.because(unknown).of_entry(repr(entry))
    operator = compile_op_pattern(entry)
    return Allowance(entry, partial(_by_operator, operator), operator=operator)


def _by_operator(pattern: Operator, analysis: Analysis, items: Sequence[Item]) -> list[Reply]:
    """Return for each item whether one of the operators around it matches."""
    if not len(analysis.trace.ops):
        return [NOT_KNOWN] * len(items)
    chain = analysis.launching.chain
    return [NOT_KNOWN if item.call < 0 else known(holds=any(map(pattern.matches_op, chain(item.op)))) for item in items]


def _by_range(name: str, analysis: Analysis, items: Sequence[Item]) -> list[Reply]:
    """Return for each item whether it lies inside the user's ranges of this name, wherever these begin."""
    trace = analysis.trace
    stretches = stretches_of(trace, trace.ranges(name))
    calls = [item.call for item in items if item.call >= 0]
    if not stretches:
        return [NO] * len(items)
    inside = Inside(trace, stretches, waiting_threads(trace, calls))
    return [NOT_KNOWN if item.call < 0 else known(holds=inside.launched(item.call)) for item in items]


def _by_place(file: str, line: int | None, _analysis: Analysis, items: Sequence[Item]) -> list[Reply]:
    """Return for each item whether it comes from this file of the user's, or from this line of it."""
    in_file = cache(partial(_is_file, file))
    return [_is_there(item, in_file, line) for item in items]


def _is_there(item: Item, in_file: Callable[[str], Reply], line: int | None) -> Reply:
    origin = item.origin
    if origin is None or not item.is_placed or origin.file is None:
        return NOT_KNOWN
    if (in_its_file := in_file(origin.file)) is not YES:
        return in_its_file
    if line is None or (origin.exact and origin.line == line):
        return YES
    # torch names a frame after the line at which its function begins.
    return NO if origin.exact else NOT_KNOWN


def _is_file(asked: str, recorded: str) -> Reply:
    """Return whether the path in a test, a whole one or its end, is that of the file that a recording names.

    It is not known if the recording holds less of the path than the test, and no such file is here, or several are.
    """
    if _ends_with(recorded, asked):
        return YES
    if _is_absolute(recorded) or not _ends_with(asked, recorded):
        return NO
    answers: dict[Path, bool] = {}
    for path in _places(recorded):
        # Links may lead to one file by several paths.
        own = path.resolve()
        answers[own] = answers.get(own, False) or _ends_with(str(path), asked) or _ends_with(str(own), asked)
    replies = set(answers.values())
    return known(holds=replies.pop()) if len(replies) == 1 else NOT_KNOWN


def _ends_with(path: str, end: str) -> bool:
    """Return whether a path ends with another, by whole names; an absolute path is no end of another one."""
    parts, last = _parts(path), _parts(end)
    return parts == last if _is_absolute(end) else parts[-len(last) :] == last


def _parts(path: str) -> tuple[str, ...]:
    return PurePosixPath(path.replace("\\", "/")).parts


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or PureWindowsPath(path).is_absolute()


def _places(recorded: str) -> list[Path]:
    """Return the paths of the file here: in the working directory, or where modules are imported from."""
    folders = dict.fromkeys([Path.cwd(), *(Path(folder).absolute() for folder in sys.path)])
    return [path for folder in folders if (path := folder / recorded).is_file()]


def _by_direction(direction: str, _analysis: Analysis, items: Sequence[Item]) -> list[Reply]:
    return [same(copy_direction(item.name), direction) for item in items]
