"""The other calls of torch's profiler meanwhile: the lines that start it, or switch its recording off.

Run with torch 2.10.0, 2.13.0 and 2.15.0 on Python 3.11.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.capture import torch_profiler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class ProfilerStart(Struct, frozen=True, kw_only=True):
    """Someone started a profiler: on which thread, and from which line ("test_x.py:12") outside torch."""

    thread: int
    line: str


class SwitchedOff(Struct, frozen=True, kw_only=True):
    """Someone kept the running profiler from recording: from which line, and by which function, as a user calls it."""

    line: str
    function: str


@contextmanager
def profiler_starts() -> Iterator[list[ProfilerStart]]:
    """Note every profiler that is started meanwhile, on any thread.

    torch has no hook for it, and its flags do not distinguish a session that was taken over from one that still runs;
    but stopping or exporting a session that lost its place ends the process (torch 2.13).
    """
    module = torch_profiler.autograd_profiler()
    starts: list[ProfilerStart] = []
    enable = module._enable_profiler

    def noting(*args: Any, **kwargs: Any) -> None:
        enable(*args, **kwargs)
        starts.append(ProfilerStart(thread=threading.get_ident(), line=_line_outside_torch()))

    module._enable_profiler = noting
    try:
        yield starts
    finally:
        module._enable_profiler = enable


@contextmanager
def switched_off() -> Iterator[list[SwitchedOff]]:
    """Note what switches the running profiler's collection off meanwhile, or the recording of operators on a thread.

    torch leaves no trace of either, and says until the end that it records. Who has taken a function out of torch's
    modules before calls it unnoticed.
    """
    calls: list[SwitchedOff] = []
    switches = [
        (holder, name, original)
        for holder in (
            torch_profiler.autograd_profiler(),
            import_module("torch.autograd"),
            import_module("torch._C._autograd"),
        )
        for name in _SWITCHES
        if (original := getattr(holder, name, None)) is not None
    ]
    for holder, name, original in switches:
        setattr(holder, name, _noting_switch(name, original, calls))
    try:
        yield calls
    finally:
        for holder, name, original in switches:
            setattr(holder, name, original)


def _noting_switch(name: str, original: Callable[..., Any], calls: list[SwitchedOff]) -> Callable[..., Any]:
    def noting(enable: bool, *args: Any, **kwargs: Any) -> Any:
        if not enable:
            calls.append(SwitchedOff(line=_line_outside_torch(), function=_SWITCHES[name]))
        return original(enable, *args, **kwargs)

    return noting


_SWITCHES = {
    "_toggle_collection_dynamic": "toggle_collection_dynamic",
    "_enable_record_function": "_enable_record_function",
}
"""torch's functions, and what a user calls."""


@contextmanager
def before_profilers(do: Callable[[], None]) -> Iterator[None]:
    """Call a function whenever someone is about to start a profiler, on any thread."""
    module = torch_profiler.autograd_profiler()
    prepare = module._prepare_profiler

    def preparing(*args: Any, **kwargs: Any) -> Any:
        do()
        return prepare(*args, **kwargs)

    module._prepare_profiler = preparing
    try:
        yield
    finally:
        module._prepare_profiler = prepare


def _line_outside_torch() -> str:
    import torch

    inside = (__file__, torch_profiler.__file__, str(Path(torch.__file__).parent) + os.sep)
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
