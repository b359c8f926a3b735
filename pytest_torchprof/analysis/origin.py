"""Places in the user's code from which work came, and those of one step's work together."""

from __future__ import annotations

import linecache
import os
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof.text import and_more, counted
from pytest_torchprof.text.reprs import at_line, bracketed
from pytest_torchprof.trace.compile_evidence import SourceLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace.compile_evidence import SourceLine


class Origin(Struct, frozen=True, kw_only=True):
    """A place in the user's code, and the modules that were running there."""

    file: str | None = None
    line: int = 0
    function: str = ""
    exact: bool = False
    """Whether the line is the one that ran; else it is the one at which the function begins."""
    module: str | None = None
    """From the outermost: ``MLP_0.Linear_1``."""
    backward: bool = False
    """Whether the work is the backward pass of the code that was called there."""
    lines: tuple[SourceLine, ...] = ()
    """All lines of a kernel that was generated from several, the first included; else empty."""

    def __repr__(self) -> str:
        known = self.exact or bool(self.lines)
        line = at_line(self.file, self.line)
        return bracketed(self, line if known else line and f"function at {line}", self.function, self.module)

    @property
    def file_line(self) -> str | None:
        """``model.py:12``, None where no frame is the user's."""
        return None if self.file is None else f"{self.file}:{self.line}"

    @property
    def source(self) -> str | None:
        """``model.py:12``, or ``forward (model.py:10)`` where no line is known; None without a frame of the user's."""
        known = self.exact or self.lines or self.file is None
        return self.file_line if known else f"{self.function} ({self.file_line})"

    def __str__(self) -> str:
        """Return the place as text: ``model.py:42 in forward, MLP_0.Linear_1``."""
        if self.file is None:
            place = ""
        elif self.lines:
            place = _lines_text(self.lines)
        elif self.exact:
            place = f"{self.file_line} in {self.function}"
        else:
            place = self.source or ""
        return "backward of " * self.backward + ", ".join(part for part in (place, self.module) if part)


_MOST_LINES = 8


def _lines_text(lines: Sequence[SourceLine]) -> str:
    """Return lines as text: ``model.py:12, 13 in forward and layers.py:40 in gelu``."""
    numbers_of: dict[tuple[str, str], list[str]] = {}
    for line in lines[:_MOST_LINES]:
        numbers_of.setdefault((line.file, line.function), []).append(str(line.line))
    places = [f"{file}:{', '.join(numbers)} in {function}" for (file, function), numbers in numbers_of.items()]
    return " and ".join(places) + and_more(len(lines) - _MOST_LINES, "line")


def in_code(origin: Origin | None, lines: Sequence[SourceLine]) -> Origin | None:
    """Return the origin of compiled code's work, with the lines that the generated code names, which no stack has."""
    if not lines:
        return origin
    first = lines[0]
    return replace(
        origin or Origin(),
        file=first.file,
        line=first.line,
        function=first.function,
        exact=True,
        lines=tuple(lines) if len(lines) > 1 else (),
    )


Work = tuple[str, str | None]
"""The name of a kernel, copy or blocking call, and the operator that made it."""


class Places(Struct, frozen=True, kw_only=True):
    """The origins of one step's work, and why there are none where they were looked for."""

    work: Mapping[Work, Sequence[Origin | None]] = field(default_factory=dict)
    """The origins of each time that the work was done, in order; None where no line is known."""
    kernels: Sequence[Work] = ()
    """The kernels in the order in which they were launched, where ``work`` was seen."""
    operators: Mapping[str, Counter[Origin]] = field(default_factory=dict)
    """The origins of the operators that launched it or enclose an operator that did."""
    order: Callable[[], object] | None = None
    """In which order a repeat did the work; None where these are the step's own."""
    why_not: Reason | None = None

    def __repr__(self) -> str:
        return bracketed(
            self, f"of {counted(len(self.kernels), 'kernel')}", None if self.why_not is None else str(self.why_not)
        )

    def with_code(self, generated: Places) -> Places:
        """Return these of a repeat with the lines that generated code tells, which no stack can."""
        work = dict(self.work)
        for item, origins in generated.work.items():
            seen = [*self.work.get(item, ()), *[None] * len(origins)]
            work[item] = [_code_origin(origin, beside) for origin, beside in zip(origins, seen, strict=False)]
        return replace(self, work=work)

    def of(self, work: Iterable[Work]) -> list[tuple[int, Origin]]:
        """Return how often this work was done from where, the most frequent place first."""
        counted: Counter[Origin] = Counter()
        for item in work:
            counted.update(origin for origin in self.work.get(item, ()) if origin is not None)
        return _most_frequent(counted)

    def of_operator(self, name: str) -> list[tuple[int, Origin]]:
        """Return how often an operator of this name was called from where, the most frequent place first."""
        return _most_frequent(self.operators.get(name, Counter()))


def _code_origin(generated: Origin | None, seen: Origin | None) -> Origin | None:
    """Return the place that generated code tells, with the modules that were seen running there."""
    if generated is None or seen is None or generated.file is None:
        return generated or seen
    held, copy = seen.file, generated.file
    generated = replace(generated, module=seen.module, backward=seen.backward)
    if held is None or held == copy or os.path.basename(held) != os.path.basename(copy):  # noqa: PTH119 - as below
        return generated
    # A graph from a cache may have been compiled from a copy of the file: its lines hold where both read the same.
    numbers = [generated.line, *(line.line for line in generated.lines)]
    if any(_text_of_line(held, number) != (_text_of_line(copy, number) or None) for number in numbers):
        return seen
    return replace(generated, file=held, lines=tuple(replace(line, file=held) for line in generated.lines))


def _text_of_line(file: str, number: int) -> str:
    # Not by pathlib, whose import costs more than a small file.
    return linecache.getline(file, number).strip() if os.path.isfile(file) else ""  # noqa: PTH113


def _most_frequent(counted: Counter[Origin]) -> list[tuple[int, Origin]]:
    return [(count, origin) for origin, count in counted.most_common()]
