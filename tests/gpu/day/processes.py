"""Processes that end in time: what hangs is ended with all that it has started, and costs its own answer alone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# pytest, when it is interrupted, still says what it has found; what hangs in the driver cannot be waited for.
_TO_SAY_GOODBYE_S = 10

_FORKS = multiprocessing.get_context("forkserver")


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
    fork: bool,
    python: str = sys.executable,
) -> int | None:
    """Run Python with these words; its output goes to LOG.out and LOG.err. Return its status, None where it was ended.

    A fork of a process that has imported torch starts faster, and is no proof of what a process does from its start on.
    """
    files = [str(log.with_name(f"{log.name}.{stream}")) for stream in ("out", "err")]
    if fork:
        return _forked([*words], limit_s, files, environment)
    with Path(files[0]).open("wb") as out, Path(files[1]).open("wb") as err:
        started = subprocess.Popen(
            [python, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=os.environ | environment,
            start_new_session=True,
        )
    return _ended(started.pid, limit_s, started.wait)


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
    status = _waited(wait, limit_s)
    for sign in () if status is not None else (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, sign)
        if _waited(wait, _TO_SAY_GOODBYE_S) is not None:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)  # what the process has left behind
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
    kind, *words = python
    if kind == "-m":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *words[1:]]
        exec(words[0], {"__name__": "__main__"})
    else:
        sys.argv = python
        runpy.run_path(kind, run_name="__main__")
