"""Marks in a recording that say in which line of the user's code, and in which modules, its thread is.

torch's own stacks hold a frame for every Python call there was, at several times the cost.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pytest_torchprof.analysis.source_lines import EXPORTED_MARK, name_in_source
from pytest_torchprof.capture import torch_profiler
from pytest_torchprof.capture.observers import is_users_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

MOST_MARKS = 250_000
"""Some 75 MB of the recording. A loop that goes on after so many is no place that anybody would look for."""


_Place = tuple["FrameType | None", str, str]
"""What a frame of the user's or of a module is: the line, named as frames are, and the modules from the outermost."""
_NOWHERE: _Place = (None, "", "")


class Lines:
    """While it is open, each line of the user's code that this thread reaches leaves a mark.

    So does each module that is entered or left, and each return to a line: the last mark says where the thread is.
    Whoever traced the thread before (a debugger, coverage) does so again afterwards.
    """

    def __init__(self) -> None:
        from torch.nn import Module

        self.count = 0
        self._before: Any = None
        self._around: list[tuple[FrameType, Any]] = []
        self._inside = [_NOWHERE]
        self._lines: dict[tuple[str, int, str], str] = {}
        self._modules: dict[tuple[type, int], str] = {}
        self._of_name: Counter[str] = Counter()
        self._module_call = Module._wrapped_call_impl.__code__  # noqa: SLF001 - what every call of a module runs
        self._is_users = cache(is_users_file)
        self._shown = cache(_path_from_here)
        self._leave_mark: Callable[[str], None] = torch_profiler.mark_in_recording()

    @property
    def complete(self) -> bool:
        """Whether no line is missing; where some are, the marks there are would tell a wrong line."""
        return self.count <= MOST_MARKS

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        frames = []
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to the frames that are running
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        for one in reversed(frames):
            before = one.f_trace
            if self._called(one, "call", None) is not None:
                self._around.append((one, before))
                one.f_trace = self._reached
        self._mark()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        for frame, before in self._around:
            frame.f_trace = before
        self._around.clear()
        self._inside = [_NOWHERE]

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        """Return what is to be told of a frame that begins; None where it says nothing of places."""
        code = frame.f_code
        if code is self._module_call:
            _, line, modules = self._inside[-1]
            name = self._module(frame.f_locals["self"])
            self._inside.append((frame, line, f"{modules}.{name}" if modules else name))
            self._mark()
            frame.f_trace_lines = False
        elif self._is_users(code.co_filename):
            self._inside.append((frame, self._line(frame), self._inside[-1][2]))
        else:
            return None
        return self._reached

    def _reached(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self._inside[-1] = (frame, self._line(frame), self._inside[-1][2])
            self._mark()
        elif event == "return":
            while len(self._inside) > 1 and self._inside.pop()[0] is not frame:
                pass
            self._mark()
        return self._reached

    def _mark(self) -> None:
        self.count += 1
        if self.count > MOST_MARKS:
            sys.settrace(None)
            return
        _, line, modules = self._inside[-1]
        self._leave_mark(f"{EXPORTED_MARK}{line}, {modules}")

    def _line(self, frame: FrameType) -> str:
        code, number = frame.f_code, frame.f_lineno
        key = code.co_filename, number, code.co_name
        line = self._lines.get(key)
        if line is None:
            line = f"{self._shown(code.co_filename)}({number}): {name_in_source(code.co_name)}"
            self._lines[key] = line
        return line

    def _module(self, module: object) -> str:
        """Return the name of a module, numbered among those of its class in the order of their first calls."""
        key = type(module), id(module)
        name = self._modules.get(key)
        if name is None:
            kind = type(module).__name__
            name = self._modules[key] = f"{kind}_{self._of_name[kind]}"
            self._of_name[kind] += 1
        return name


def _path_from_here(file: str) -> str:
    """Return a file as a person would name it: from here, else, as torch does, from where it is imported."""
    folders = [Path.cwd(), *sorted(map(Path, filter(None, sys.path)), key=lambda folder: -len(folder.parts))]
    path = Path(file)
    return next((str(path.relative_to(folder)) for folder in folders if path.is_relative_to(folder)), file)
