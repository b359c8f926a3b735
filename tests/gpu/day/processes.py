"""Processes that end in time: what hangs is ended with all that it has started, and costs its own answer alone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# pytest, when it is interrupted, still says what it has found; what hangs in the driver cannot be waited for.
_TO_SAY_GOODBYE_S = 10

_FORKS = multiprocessing.get_context("forkserver")

_running: set[int] = set()
_stopped = threading.Event()


class Stopped(Exception):
    """All processes were ended, so what became of this one tells nothing."""


def import_once(python: str) -> None:
    """Let forks of this Python find torch imported."""
    _FORKS.set_executable(python)
    _FORKS.set_forkserver_preload(["torch", "torch.profiler"])


def run(
    words: Sequence[str],
    *,
    limit_s: float,
    log: Path,
    environment: dict[str, str],
    fork: bool = False,
    python: str = sys.executable,
    behind: Sequence[str] = (),
) -> int | None:
    """Run Python with these words; its output goes to LOG.out and LOG.err. Return its status, None where it was ended.

    ``behind``: a command that starts it, and becomes it. A fork of a process that has imported torch starts faster, and is no proof of what a process does from its start on.
    """
    if fork:
        files = [f"{log}.{stream}" for stream in ("out", "err")]
        return _forked([*words], limit_s, files, environment)
    return run_command((*behind, python, *words), limit_s=limit_s, log=log, environment=environment)


def run_command(words: Sequence[str], *, limit_s: float, log: Path, environment: dict[str, str]) -> int | None:
    """Run a command as Python is run here."""
    with Path(f"{log}.out").open("wb") as out, Path(f"{log}.err").open("wb") as err:
        started = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=os.environ | environment,
            start_new_session=True,
        )
    return _ended(started.pid, limit_s, started.wait)


def end_all() -> None:
    """End all that is running, at once: whoever waits for it gets Stopped."""
    _stopped.set()
    for group in list(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _forked(python: list[str], limit_s: float, files: list[str], environment: dict[str, str]) -> int | None:
    process = _FORKS.Process(target=_as_python, args=(python, str(Path.cwd()), files, environment))
    process.start()

    def wait(timeout: float) -> int:
        process.join(timeout)
        if process.exitcode is None:
            raise subprocess.TimeoutExpired(python, timeout)
        return process.exitcode

    return _ended(process.pid or 0, limit_s, wait)


def _ended(group: int, limit_s: float, wait: Callable[[float], int]) -> int | None:
    _running.add(group)
    status = _waited(wait, limit_s)
    for sign in () if status is not None else (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, sign)
        if _waited(wait, _TO_SAY_GOODBYE_S) is not None:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)  # what the process has left behind
    _running.discard(group)
    if _stopped.is_set():
        raise Stopped
    return status


def _waited(wait: Callable[[float], int], limit_s: float) -> int | None:
    try:
        return wait(limit_s)
    except subprocess.TimeoutExpired:
        return None


def _as_python(python: list[str], folder: str, files: list[str], environment: dict[str, str]) -> None:
    """Do in this fork what Python does with these words."""
    os.setsid()
    os.chdir(folder)
    for stream, path in enumerate(files, start=1):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, stream)
    os.environ.update(environment)
    tempfile.tempdir = None  # of the environment that the server of forks was started in
    kind, *words = python
    searched = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = ["" if kind in ("-m", "-c") else str(Path(kind).parent), *filter(None, searched)]
    if kind == "-m":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *words[1:]]
        exec(words[0], {"__name__": "__main__"})
    else:
        sys.argv = python
        runpy.run_path(kind, run_name="__main__")
