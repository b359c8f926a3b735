"""Where a rank hangs: its Python stack, which faulthandler writes when the process that waits for the job asks for it.

It asks by a signal, which is answered without Python's lock: code that hangs in C with the lock lets no thread run.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.capture.observers import is_users_file, path_from_here

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# A signal that nobody else uses, if the system has one.
_SIGNAL: Final = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGUSR2", None)
_FILE: Final = "stacks"
_ANSWER_S: Final = 2.0
_SETTLE_S: Final = 0.05
_MOST_LINES: Final = 40
_THREAD: Final = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
# Where torch.compile works, and nothing that runs what it has compiled.
_COMPILER: Final = re.compile(
    r'  File ".*/(?:torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph)|triton/compiler/\w+'
    r"|torch/_inductor/(?:compile_fx|graph|lowering|scheduler|ir|async_compile|select_algorithm|autotune_process)"
    r'|torch/_inductor/(?:codegen|fx_passes)/\w+)\.py"'
)
_FRAME: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


class Stack(Struct, frozen=True):
    """The calls that a rank's main thread is in, the innermost first, as faulthandler writes them."""

    lines: tuple[str, ...]
    compiles: bool
    """Whether torch.compile is at work, which may take any length of time."""

    @property
    def of_user(self) -> tuple[str, ...]:
        """The lines without those of the machinery that calls the test; all lines if there are no others."""
        ends = [
            at
            for at, line in enumerate(self.lines, 1)
            if (frame := _FRAME.fullmatch(line)) and is_users_file(frame["file"])
        ]
        return self.lines[: ends[-1] if ends else None]

    @property
    def innermost(self) -> str:
        """The line of the user's code that runs, with the innermost call in brackets if that is another one."""
        frames = [frame for line in self.lines if (frame := _FRAME.fullmatch(line))]
        users = next((frame for frame in frames if is_users_file(frame["file"])), None)
        if users is None or users is frames[0]:
            return _place(frames[0]) if frames else "nowhere in Python"
        return f"{_place(users)} (in {frames[0]['function']}, {_where(frames[0])})"


def answer(folder: Path) -> None:
    """Let this process write its stacks into a rank's folder when it is asked to."""
    if _SIGNAL is None:
        return
    file = (folder / _FILE).open("w", encoding="utf-8")  # faulthandler keeps it.
    file.write(f"{threading.main_thread().ident:x}\n")
    file.flush()
    faulthandler.register(_SIGNAL, file, all_threads=True)


def taken(ranks: Mapping[int, tuple[Path, int]]) -> dict[int, Stack]:
    """Return the stack of each rank that answers; ``ranks`` are their folders and processes."""
    asked: dict[int, tuple[Path, int]] = {}
    for number, (folder, pid) in ranks.items():
        file = folder / _FILE
        if _SIGNAL is not None and file.is_file():
            with suppress(OSError):
                before = file.stat().st_size  # It may have been asked before.
                os.kill(pid, _SIGNAL)
                asked[number] = (file, before)
    _wait_for(asked.values())
    stacks = ((number, _main_stack(file, before)) for number, (file, before) in asked.items())
    return {number: stack for number, stack in stacks if stack is not None}


def _wait_for(files: Iterable[tuple[Path, int]]) -> None:
    until, sizes, files = time.monotonic() + _ANSWER_S, [0], list(files)
    while time.monotonic() < until:
        time.sleep(_SETTLE_S)
        last, sizes = sizes, [file.stat().st_size for file, _ in files]
        if sizes == last and all(_THREAD.search(_answered(file, before)) for file, before in files):
            return


def _answered(file: Path, before: int) -> str:
    return file.read_bytes()[before:].decode(errors="replace")


def _main_stack(file: Path, before: int) -> Stack | None:
    main = file.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    frames: list[str] | None = None
    for line in _answered(file, before).splitlines():
        if thread := _THREAD.match(line):
            if frames:
                break
            frames = [] if int(thread[1], 16) == int(main, 16) else None
        elif frames is not None and line.startswith("  "):
            frames.append(line)
    return None if frames is None else Stack(tuple(frames[:_MOST_LINES]), any(map(_COMPILER.match, frames)))


def _place(frame: re.Match[str]) -> str:
    return f"{_where(frame)} in {frame['function']}"


def _where(frame: re.Match[str]) -> str:
    return f"{path_from_here(frame['file'])}:{frame['line']}"
