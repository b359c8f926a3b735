"""A program, run in this process as ``python PROGRAM`` would run it."""

from __future__ import annotations

import atexit
import builtins
import os
import runpy
import sys
import threading
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn
from zipfile import is_zipfile

from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from types import TracebackType

_UNCAUGHT = 1
"""Python's exit status after an exception, and after ``sys.exit`` with a text."""
_INTERRUPTED = 130
_OURS = (__file__, "<frozen runpy>", "<frozen importlib._bootstrap>")


def run_as_python(program: list[str]) -> int:
    """Run SCRIPT ARGS or -m MODULE ARGS until its threads have ended too; return its exit status, 0 to 255.

    This returns only in the process that called it: a fork that reaches the program's end ends here. TorchprofError if
    there is no such module.
    """
    process = os.getpid()
    try:
        try:
            _run(program)
        finally:
            # Python waits in this way at the end of a program whose threads may still have work.
            threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
        status = 0
    except SystemExit as ended:
        status = _status_of(ended)
    except ImportError as problem:
        if program[0] == "-m" and _frames_of_program(problem) is None:
            from pytest_torchprof.reasons.measuring import NoSuchModule  # noqa: PLC0415 - for what fails alone

            raise TorchprofError.because(NoSuchModule(program[1])) from None
        _print_without_us(problem)
        status = _UNCAUGHT
    except BaseException as problem:  # noqa: BLE001 - any exception ends the program
        _print_without_us(problem)
        status = _INTERRUPTED if isinstance(problem, KeyboardInterrupt) else _UNCAUGHT
    if os.getpid() != process:
        _end(status)
    _flush()
    return status


def _run(program: list[str]) -> None:
    """Run a program, which finds its arguments, its modules and itself as Python would provide them."""
    module = program[0] == "-m"
    path = os.path.abspath(program[0])  # noqa: PTH100
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.argv = program[1:] if module else list(program)
    # The first entry is the folder of the torchprof command itself.
    sys.path[0] = os.getcwd() if module else os.path.dirname(path)  # noqa: PTH109, PTH120
    if module:
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    elif is_zipfile(path) or path.endswith(".pyc"):
        runpy.run_path(program[0], run_name="__main__")
    else:
        main.__file__, main.__loader__ = path, (loader := SourceFileLoader("__main__", path))
        exec(loader.source_to_code(loader.get_data(path), path), main.__dict__)  # noqa: S102 - the user's own program


def _status_of(ended: SystemExit) -> int:
    """Return Python's exit status after this exception, and print its text as Python does."""
    if ended.code is None or isinstance(ended.code, int):
        return int(ended.code or 0) & 0xFF  # The system keeps only these bits.
    sys.stderr.write(f"{ended.code}\n")
    return _UNCAUGHT


def _print_without_us(problem: BaseException) -> None:
    """Print an exception as Python does, from the program's own first line on."""
    frames = _frames_of_program(problem)
    sys.excepthook(type(problem), problem.with_traceback(frames), frames)


def _frames_of_program(problem: BaseException) -> TracebackType | None:
    frames = problem.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in _OURS:
        frames = frames.tb_next
    return frames


def _end(status: int) -> NoReturn:
    """End a fork of the program as Python would, but leave the profiler to the first process."""
    try:
        atexit._run_exitfuncs()  # noqa: SLF001
    finally:
        _flush()
        os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
