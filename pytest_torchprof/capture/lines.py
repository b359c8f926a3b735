"""Marks in a recording with stacks which line of the user's code is reached: torch names frames by their first line."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pytest_torchprof.analysis.source_lines import EXPORTED_MARK
from pytest_torchprof.capture import torch_dynamo, torch_profiler

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, TracebackType

MOST_LINES = 100_000
"""Marks in a recording: some 20 MB of it. A loop that goes on after so many is no place that anybody would look for."""

_HERE = str(Path(__file__).parents[1])
_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "xdist", "unittest"})


class Lines:
    """While it is open, each line of the user's code that this thread reaches leaves a mark.

    Whoever traced the thread before (a debugger, coverage) does so again afterwards.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = None
        self._around: list[tuple[FrameType, Any]] = []
        self._users: dict[CodeType, bool] = {}
        self._names: dict[tuple[CodeType, int], str] = {}
        self._shown = cache(_shown)
        self._mark: Callable[[str], None] = torch_profiler.mark_in_recording()

    @property
    def complete(self) -> bool:
        """Whether no line is missing; where some are, the marks there are would tell a wrong line."""
        return self.count <= MOST_LINES

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to the frames that are running
        while frame is not None:
            if self._is_users(frame.f_code):
                self._around.append((frame, frame.f_trace))
                frame.f_trace = self._reached
            frame = frame.f_back
        sys.settrace(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sys.settrace(self._before)
        for frame, before in self._around:
            frame.f_trace = before
        self._around.clear()

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        return self._reached if self._is_users(frame.f_code) else None

    def _reached(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self.count += 1
            if not self.complete:
                sys.settrace(None)
                return None
            self._mark(self._name(frame.f_code, frame.f_lineno))
        return self._reached

    def _name(self, code: CodeType, line: int) -> str:
        name = self._names.get((code, line))
        if name is None:
            function = torch_dynamo.name_in_source(code.co_name)
            name = self._names[code, line] = f"{EXPORTED_MARK}{self._shown(code.co_filename)}({line}): {function}"
        return name

    def _is_users(self, code: CodeType) -> bool:
        known = self._users.get(code)
        if known is None:
            known = self._users[code] = is_users_file(code.co_filename)
        return known


def is_users_file(file: str) -> bool:
    """Whether a file is neither torch's, nor Python's, nor generated, nor of the machinery that runs the test."""
    if torch_dynamo.is_library_file(file) or file.startswith(_HERE) or "/torchinductor_" in file:
        return False
    return not _RUNNERS.intersection(Path(file).parts)


def _shown(file: str) -> str:
    """Return a file as a person would name it: from here, else, as torch does, from where it is imported."""
    folders = [Path.cwd(), *sorted(map(Path, filter(None, sys.path)), key=lambda folder: -len(folder.parts))]
    path = Path(file)
    return next((str(path.relative_to(folder)) for folder in folders if path.is_relative_to(folder)), file)
