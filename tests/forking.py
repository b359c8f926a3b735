"""What a fork (`fresh`) starts is a fork too, where it would be this Python with pytest or torch's launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import fresh
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

_Popen = subprocess.Popen
MODULES = ("pytest", "torch.distributed.run")


def start_forks() -> None:
    """From now on let this process start forks."""
    subprocess.Popen = subprocess_handler.Popen = Popen


class Popen(_Popen):
    """As that of Python, which it is for all other processes."""

    def __new__(cls, args: object, *_: object, **settings: object) -> subprocess.Popen | Fork:
        words = _words_of(args)
        outputs = [_file(settings.get(name), stream) for stream, name in ((1, "stdout"), (2, "stderr"))]
        if settings.get("stderr") == subprocess.STDOUT:
            outputs[1] = outputs[0]
        if words is None or None in outputs:
            return super().__new__(cls)
        return Fork(
            fresh.Fresh(
                fresh.as_python,
                *words,
                environment=settings.get("env") or os.environ,
                folder=settings.get("cwd"),
                outputs=outputs,
                leads_group=settings.get("start_new_session", False),
            )
        )


class Fork:
    """A fork that is waited for and ended as a process is that Popen has started."""

    stdin = stdout = stderr = None

    def __init__(self, started: fresh.Fresh) -> None:
        self._process = started.process
        self.pid = started.process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a fork", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


def _words_of(args: object) -> list[str] | None:
    """Return what this Python is told, if that is something a fork can do."""
    if not isinstance(args, (list, tuple)) or args[0] != sys.executable:
        return None
    words = [word for word in map(str, args[1:]) if word != "-u"]  # What is written reaches a file in time.
    module = words[1:] if words[0] == "-P" else words
    return words if module[0] == "-m" and module[1] in MODULES else None


def _file(given: object, stream: int) -> Path | None:
    """Return the file that a process would write to, if it is one that a fork can open by its name."""
    if given == subprocess.DEVNULL:
        return Path(os.devnull)
    number = stream if given in (None, subprocess.STDOUT) else given if isinstance(given, int) else given.fileno()
    path = Path(f"/proc/self/fd/{number}").readlink() if number >= 0 else Path()
    return path if path.is_file() else None
