"""The user's lines from which Inductor generated a program, by the stacks that it keeps."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cache
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.analysis.source_lines import name_in_source
from pytest_torchprof.trace.compile_evidence import SourceLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)(?:\n +(?!File )(.*))?')


class StackFrame(NamedTuple):
    """A frame of a stack as torch writes it, with the text of its line."""

    file: str
    line: str
    function: str
    code: str


class CompiledLines(NamedTuple):
    """The lines of code that Dynamo has compiled in this process."""

    file: str
    function: str
    """As the user calls it, for code after a graph break too."""
    lines: tuple[int, ...]
    compilations: tuple[str, ...]
    """By id, "0/1"."""


class Sources(NamedTuple):
    """Access to the source files that a program comes from."""

    is_users: Callable[[str], bool]
    is_loaded: Callable[[str], bool]
    """Whether a file is that of a module of this process."""
    text: Callable[[str], Sequence[str]]
    """Returns the lines of a file; empty if it cannot be read."""
    shown: Callable[[str], str]
    """Returns the name of a file as it is shown."""


class _Move(NamedTuple):
    """The folder in which the code lay when it was compiled, and where the same code lies in this process."""

    then: PurePath
    now: PurePath

    def __call__(self, file: str) -> str:
        path = PurePath(file)
        return str(self.now / path.relative_to(self.then)) if path.is_relative_to(self.then) else file


class ProgramLines:
    """The user's lines from which the nodes and the lines of the program come.

    A program from a cache names the code of which it was first made, which may be another function, another checkout's
    or another program's. So a stack counts where its outermost frame is code that was compiled here, by its text.
    """

    def __init__(
        self, traces: Iterable[tuple[int, str | None]], sources: Sources, compiled: Sequence[CompiledLines]
    ) -> None:
        self._sources = sources
        self._compiled = compiled
        # Many nodes come from one line.
        self._line, self._move, self._is_here = cache(self._find_line), cache(self._find_move), cache(self._has_file)
        ordered = sorted(traces, key=lambda trace: trace[0])
        self._begins = [line for line, _ in ordered]
        self._stacks = [[StackFrame(*match) for match in _FRAME.findall(stack or "")] for _, stack in ordered]
        self._moves = {stack[0]: self._move(stack[0]) for stack in self._stacks if stack}
        # The graph tells the innermost frame of a node, which may be torch's.
        self._callers: dict[StackFrame, set[SourceLine | None]] = {}
        for stack in self._stacks:
            if stack:
                self._callers.setdefault(stack[-1], set()).add(self._users(stack))

    @property
    def compilations(self) -> tuple[str, ...]:
        """The compilations of the code in which the program's stacks begin, by id."""
        files = {frame: move(frame.file) for frame, move in self._moves.items() if move is not None}
        codes = [
            c for frame, file in files.items() for c in self._compiled if c.file == file and self._lines_in(c, frame)
        ]
        return tuple(sorted({identity for code in codes for identity in code.compilations}))

    def behind(self, line: int) -> list[SourceLine]:
        """Return the user's lines for one line of the program, counted from 1; the last is the most likely one.

        A call of a C++ kernel may be written when the next operator has begun, so that the line before is meant.
        """
        at = bisect_left(self._begins, line)
        return [place for stack in self._stacks[max(at - 2, 0) : at] if (place := self._users(stack)) is not None]

    def of_frame(self, frame: StackFrame) -> SourceLine | None:
        """Return the user's line for the innermost frame of a node; None where several are possible."""
        if self._sources.is_users(frame.file):
            # The frames around it are those of the program's other stacks, if it is not the outermost one itself.
            moves = {self._moves.get(frame) or self._move(frame)} - {None} or set(self._moves.values())
            return self._line(frame, moves.pop()) if len(moves) == 1 else None
        callers = self._callers.get(frame, set())
        return next(iter(callers)) if len(callers) == 1 else None

    def _users(self, stack: Sequence[StackFrame]) -> SourceLine | None:
        frame = next((frame for frame in reversed(stack) if self._sources.is_users(frame.file)), None)
        return None if frame is None else self._line(frame, self._moves[stack[0]])

    def _find_line(self, frame: StackFrame, move: _Move | None) -> SourceLine | None:
        if move is None:
            return None
        file = move(frame.file)
        line = self._now(file, frame) if self._is_here(file) else None
        function = name_in_source(frame.function)
        return None if line is None else SourceLine(file=self._sources.shown(file), line=line, function=function)

    def _has_file(self, file: str) -> bool:
        return any(code.file == file for code in self._compiled) or self._sources.is_loaded(file)

    def _find_move(self, frame: StackFrame) -> _Move | None:
        """Return how the code of an outermost frame has moved; None where this process has not compiled that code."""
        files = {code.file for code in self._compiled if self._lines_in(code, frame)}
        if frame.file in files:
            return _UNMOVED
        files = {file for file in files if PurePath(file).name == PurePath(frame.file).name}
        return _move_between(frame.file, files.pop()) if len(files) == 1 else None

    def _lines_in(self, code: CompiledLines, frame: StackFrame) -> list[int]:
        """Return the lines of compiled code that may be a frame's: those with its text in a function of its name."""
        if code.function != name_in_source(frame.function):
            return []
        text, written = self._sources.text(code.file), frame.code.strip()
        if not text or not written:
            return [int(frame.line)] if code.file == frame.file and int(frame.line) in code.lines else []
        return [number for number in code.lines if 0 < number <= len(text) and text[number - 1].strip() == written]

    def _now(self, file: str, frame: StackFrame) -> int | None:
        """Return where a line is now; None if that is not known.

        A graph from a cache says where it was when it was compiled.
        """
        recorded, text, code = int(frame.line), self._sources.text(file), frame.code.strip()
        same = {number for own in self._compiled if own.file == file for number in self._lines_in(own, frame)}
        if not same and text and code:
            same = {number for number, written in enumerate(text, 1) if written.strip() == code}
        if recorded in same or not (text and code):
            return recorded
        return same.pop() if len(same) == 1 else None


_UNMOVED = _Move(PurePath(), PurePath())


def _move_between(then: str, now: str) -> _Move:
    """Return the move of the folders above what two paths have in common at their ends."""
    before, after = PurePath(then).parts, PurePath(now).parts
    pairs = zip(reversed(before), reversed(after), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return _Move(PurePath(*before[: len(before) - common]), PurePath(*after[: len(after) - common]))
