"""What a fork (`fresh`) starts is a fork too, if it is pytest, torch's launcher, a worker of xdist, a script or code of ours."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO, Self

import fresh
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

_Popen = subprocess.Popen
MODULES = ("pytest", "torch.distributed.run")
TEXT = {"text", "encoding", "errors", "universal_newlines"}
"""What asks for a pipe of text."""
WORKER = ["-c", "import sys;exec(eval(sys.stdin.readline()))"]


def start_forks() -> None:
    """From now on let this process start forks."""
    subprocess.Popen = subprocess_handler.Popen = Popen


class Popen(_Popen):
    """As that of Python, which it is for all other processes."""

    def __new__(cls, args: object, *_: object, **settings: object) -> subprocess.Popen | Fork:
        words = words_of(args)
        if words is None:
            return super().__new__(cls)
        if words[1:] == WORKER:
            return _worker(words)
        names = {"stdout": 1, "stderr": 2}
        piped = set() if settings.keys() & TEXT else {name for name in names if settings.get(name) == subprocess.PIPE}
        files = {name: _file(settings.get(name), stream) for name, stream in names.items() if name not in piped}
        if None in files.values():
            return super().__new__(cls)
        pipes = {name: _pipe() for name in piped}
        outputs = [files[name] if name in files else pipes[name][1] for name in names]
        if settings.get("stderr") == subprocess.STDOUT:
            outputs[1] = outputs[0]
        how = {"folder": settings.get("cwd"), "leads_group": settings.get("start_new_session", False)}
        environment = settings.get("env") or os.environ
        fork = Fork(args, fresh.Fresh(fresh.as_python, *words, environment=environment, outputs=outputs, **how))
        for name, (read, written) in pipes.items():
            setattr(fork, name, read)
            written.close()
        return fork

    def __init__(self, args: object, *others: object, **settings: object) -> None:
        # Most of what it takes to make an environment is its pip, which hardly a test asks for.
        makes_environment = isinstance(args, list) and args[1:3] == ["-m", "venv"]
        super().__init__([*args, "--without-pip"] if makes_environment else args, *others, **settings)


class Fork:
    """A fork that is waited for and ended as a process is that Popen has started."""

    stdin = stdout = stderr = None

    def __init__(self, args: object, started: fresh.Fresh) -> None:
        self.args = args
        self._process = started.process
        self.pid = started.process.pid
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None and self._process.exitcode is not None:
            self._status = self._process.exitcode
            self._process.close()
        return self._status

    returncode = property(poll)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a fork", timeout)
        return self.returncode

    def communicate(self, no_input: None = None, timeout: float | None = None) -> tuple[bytes | None, bytes | None]:
        """Return what it writes to pipes, once it has ended; it reads nothing."""
        assert no_input is None
        readers = ThreadPoolExecutor()
        texts = [stream and readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
        # Who waits for too long ends it, and asks no more.
        readers.shutdown(wait=False)
        self.wait(timeout)
        return tuple(text and text.result() for text in texts)

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
        for stream in filter(None, (self.stdin, self.stdout, self.stderr)):
            stream.close()


def words_of(args: object) -> list[str] | None:
    """Return which Python is told what, if that is something a fork can do."""
    if not isinstance(args, (list, tuple)) or not fresh.can_be(str(args[0])):
        return None
    # What is written reaches a file in time.
    python, *words = [word for word in map(str, args) if word not in ("-u", "-B")]
    if words[:1] and words[0].endswith(".py"):
        return [python, *words]
    # The plugin asks by -P -c, and hardly a test does. Where -S stands between them, the start is what it asks about.
    option, what, *_ = words[1:] if words[0] == "-P" else words
    is_known = what in MODULES if option == "-m" else words[:2] == ["-P", "-c"] or words == WORKER
    return [python, *words] if is_known else None


def _worker(words: list[str]) -> Fork:
    """Start one that is told by a pipe what to do, and answers by another."""
    its_input, told = os.pipe()
    (answers, its_output), told_by = _pipe(), Connection(its_input, writable=False)
    errors = _file(None, 2) or Path(os.devnull)
    its = {"outputs": [its_output, errors], "told_by": told_by}
    fork = Fork(words, fresh.Fresh(fresh.as_python, *words, environment=os.environ, **its))
    for pipe in (its_output, told_by):
        pipe.close()
    fork.stdin, fork.stdout = os.fdopen(told, "wb"), answers
    return fork


def _pipe() -> tuple[BinaryIO, Connection]:
    """Return the end of a pipe that is read here, and the other one for a fork."""
    end, other = os.pipe()
    return os.fdopen(end, "rb"), Connection(other, readable=False)


def _file(given: object, stream: int) -> Path | Connection | None:
    """Return the file or terminal that a process would write to, if it is one that a fork can write to."""
    if given == subprocess.DEVNULL:
        return Path(os.devnull)
    number = stream if given in (None, subprocess.STDOUT) else given if isinstance(given, int) else given.fileno()
    path = Path(f"/proc/self/fd/{number}").readlink() if number >= 0 else Path()
    if path.is_file() or path.is_char_device():
        return path
    # What pytest captures has no name.
    is_file = number >= 0 and stat.S_ISREG(os.fstat(number).st_mode)
    return Connection(os.dup(number), readable=False) if is_file else None
