"""Marks in a recording that say in which line of the user's code, and in which modules, its thread is.

torch's own stacks hold a frame for every Python call there was, at several times the cost.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter, defaultdict
from contextlib import suppress
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

from pytest_torchprof.analysis.source_lines import EXPORTED_MARK, name_in_source, quote_mark
from pytest_torchprof.capture import torch_profiler
from pytest_torchprof.capture.observers import is_users_file, path_from_here
from pytest_torchprof.capture.torch_compile import outside_dynamo
from pytest_torchprof.reasons.lines import TooManyLines, TraceFunctionReplaced

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from torch.nn import Module

    from pytest_torchprof.reasons.reason import Reason

MOST_MARKS = 250_000
"""Some 75 MB of the recording. Nobody would look for a single line of a loop that goes on after this many marks."""


_Position = tuple["FrameType | None", str, str]
"""A frame of the user's or of a module: the frame, its line named as frames are, and the modules, outermost first."""
_NOWHERE: _Position = (None, "", "")
_CAN_RESUME = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


class Lines:
    """While it is open, each line of the user's code that this thread reaches leaves a mark.

    So does each module that is entered or left, and each return to a line: the last mark says where the thread is.
    A tracer that was there before (a debugger, coverage) gets every event meanwhile, and goes on afterwards.

    Of the other threads only autograd's thread for a device is watched, once :meth:`watch_backward` was called.
    """

    def __init__(self) -> None:
        from torch.nn import Module

        self.count = 0
        self._open = False
        self._replaced = False
        self._before: Any = None
        self._tracer, self._autograd_tracer, self._local = map(
            outside_dynamo, (self._called, self._called_by_autograd, self._reached)
        )
        self._around: list[tuple[FrameType, Any, Any, bool]] = []
        self._threads: dict[int, list[_Position]] = defaultdict(lambda: [_NOWHERE])
        self._lines: dict[tuple[str, int, str], str] = {}
        self._modules: dict[int, tuple[weakref.ref[Module], str]] = {}
        self._of_name: Counter[str] = Counter()
        self._module_call = Module._wrapped_call_impl.__code__  # noqa: SLF001 - what every call of a module runs
        self._shown = cache(path_from_here)
        self._leave_mark: Callable[[str], None] = torch_profiler.mark_in_recording()

    @property
    def why_not(self) -> Reason | None:
        """Why some lines left no mark; None if all did. The marks that there are would then give wrong lines."""
        if self.count > MOST_MARKS:
            return TooManyLines(MOST_MARKS)
        return TraceFunctionReplaced() if self._replaced else None

    @property
    def _inside(self) -> list[_Position]:
        """The position of the calling thread: its frames of interest, from the outermost."""
        return self._threads[get_ident()]

    def watch_backward(self, device: str) -> None:
        """Watch also the Python code of backward passes on a GPU, which autograd runs on a thread of its own.

        That thread has lived since the device's first backward pass; only what runs on it can set its trace function.
        """
        import torch

        here = get_ident()

        def watch(_: torch.Tensor) -> None:
            if get_ident() != here and sys.gettrace() is None:
                sys.settrace(self._autograd_tracer)

        # If no backward pass can run, there is none to be watched.
        with suppress(Exception), torch.inference_mode(False), torch.enable_grad():
            passed = torch.ones(1, device=device, requires_grad=True).clone()
            passed.register_hook(watch)  # type: ignore[no-untyped-call]
            passed.backward()  # type: ignore[no-untyped-call]

    def _called_by_autograd(self, frame: FrameType, event: str, argument: object) -> Any:
        if not self._open:
            # Nobody else can: this is the first code that runs on that thread afterwards.
            sys.settrace(None)
            return None
        return self._called(frame, event, argument)

    def __enter__(self) -> Self:
        self._before, self._open = sys.gettrace(), True
        frames = []
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to the frames that are running
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        for running in reversed(frames):
            if self._enter(running):
                before, tells_lines = running.f_trace, running.f_trace_lines
                ours = self._beside(running, before)
                running.f_trace = ours
                self._around.append((running, ours, before, tells_lines))
        sys.settrace(self._tracer)
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        if sys.gettrace() is self._tracer:
            sys.settrace(self._before)
        else:
            # The code has set another trace function, or none; ours got no event meanwhile.
            self._replaced = True
        for frame, ours, before, tells_lines in self._around:
            if frame.f_trace is ours:
                frame.f_trace, frame.f_trace_lines = before, tells_lines
        self._around.clear()
        self._threads.clear()

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        """Return the trace function of a frame that begins or goes on; the earlier tracer's if it gets no marks."""
        theirs = None
        if self._before is not None and sys.gettrace() is self._tracer:
            theirs = self._before(frame, event, argument)
            if sys.gettrace() is self._before:
                # Coverage's replaces whoever calls it.
                sys.settrace(self._tracer)
        return self._beside(frame, theirs) if self._enter(frame) else theirs

    def _enter(self, frame: FrameType) -> bool:
        """Return whether a frame is the user's or a module's, and enter it if so."""
        code = frame.f_code
        _, line, modules = self._inside[-1]
        if code is self._module_call:
            name = self._module(frame.f_locals["self"])
            self._inside.append((frame, line, f"{modules}.{name}" if modules else name))
            self.mark()
        elif is_users_file(code.co_filename):
            self._inside.append((frame, self._line(frame), modules))
            if code.co_flags & _CAN_RESUME:
                # A frame may go on in the middle of a line.
                self.mark()
        else:
            return False
        return True

    def _beside(self, frame: FrameType, theirs: Any) -> Any:
        """Return a trace function for a frame that also passes its events on to the earlier tracer."""
        tells_lines, frame.f_trace_lines = frame.f_trace_lines, frame.f_code is not self._module_call
        if self._before is None or theirs is None:
            return self._local

        def both(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal theirs
            self._reached(frame, event, argument)
            if tells_lines or event != "line":
                theirs = theirs(frame, event, argument) or theirs
            return ours

        frame.f_trace_lines |= tells_lines
        ours = outside_dynamo(both)
        return ours

    def _reached(self, frame: FrameType, event: str, _argument: object) -> Any:
        if not self._open:
            return None
        if sys.gettrace() not in (self._tracer, self._autograd_tracer):
            self._replaced = True
        if event == "line":
            if frame.f_code is not self._module_call:
                self._inside[-1] = (frame, self._line(frame), self._inside[-1][2])
                self.mark()
        elif event == "return":
            while len(self._inside) > 1 and self._inside.pop()[0] is not frame:
                pass
            self.mark()
        return self._local

    def mark(self) -> None:
        """Leave a mark of where the calling thread is."""
        self.count += 1
        if self.count > MOST_MARKS:
            if self._before is None:
                sys.settrace(None)
            return
        _, line, modules = self._inside[-1]
        self._leave_mark(f"{EXPORTED_MARK}{line}, {modules}")

    def _line(self, frame: FrameType) -> str:
        code, number = frame.f_code, frame.f_lineno
        key = code.co_filename, number, code.co_name
        line = self._lines.get(key)
        if line is None:
            line = quote_mark(f"{self._shown(code.co_filename)}({number}): {name_in_source(code.co_name)}")
            self._lines[key] = line
        return line

    def _module(self, module: Module) -> str:
        """Return the name of a module, numbered among those of its class in the order of their first calls."""
        known = self._modules.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        kind = type(module).__name__
        name = quote_mark(f"{kind}_{self._of_name[kind]}")
        self._of_name[kind] += 1
        # It is not kept alive: its memory may be what is measured. Another module may then get its id.
        self._modules[id(module)] = weakref.ref(module), name
        return name
