"""Forks of a process that has imported torch (`fresh`), each of which is the child of whoever has started it.

What becomes of the one when the other is killed, whom a signal to a group reaches, and what a pipe reads to its end is as it is for
processes that Python starts. Elsewhere than on Linux they are those.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import forking
import fresh
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

if TYPE_CHECKING:
    from collections.abc import Callable

_Popen = subprocess.Popen
_TOLD = list(inspect.signature(_Popen._execute_child).parameters)[1:]
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_ADOPT_ORPHANS = 36
_LONGEST = 1 << 17


class Child(_Popen):
    """A child that does what Python does with its words: ``[python, "-m", "pytest", ...]`` or ``[python, "-c", CODE, ...]``."""

    def __init__(
        self, args: list[object], *others: object, by: Callable[..., None] = fresh.as_python, **settings: object
    ) -> None:
        """Start it; ``by`` is what does in the fork as Python does."""
        self._by = by
        super().__init__(args, *others, **settings)

    def _execute_child(self, *given: object) -> None:
        told = dict(zip(_TOLD, given, strict=True))
        words = self.words_of(told["args"]) if sys.platform == "linux" else None
        if words is None:
            super()._execute_child(*given)
            return
        environment = dict(os.environ if told["env"] is None else told["env"])
        folder = os.fspath(told["cwd"] or Path.cwd())
        pipes = [told[name] for name in _PIPES]
        files = [stream if file == -1 else file for stream, file in enumerate((pipes[0], pipes[3], pipes[5]))]
        task = pickle.dumps((environment, folder, self._by, words))
        self.pid = _birth_place().start(task, files, leads_group=told["start_new_session"])
        self._child_created = True
        self._close_pipe_fds(*pipes)

    @staticmethod
    def words_of(args: list[object]) -> list[str] | None:
        """Return the words if a fork can do what they say."""
        return [word for word in map(str, args) if word not in ("-u", "-B")] if fresh.can_be(str(args[0])) else None


class _OfChild(Child):
    words_of = staticmethod(forking.words_of)


class _BirthPlace:
    """A process that has done nothing but import torch, and forks for its owner."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._lock = channel, threading.Lock()

    def start(self, task: bytes, files: list[int], *, leads_group: bool) -> int:
        """Start a task with these files as its streams, and return the number of its process."""
        with self._lock:
            # Who forks it ends at once: it is ours then, as we are above both.
            _adopt_orphans(True)
            socket.send_fds(self._channel, [bytes([leads_group]) + task], files)
            pid = int(self._channel.recv(32))
            while _parent_of(pid) != os.getpid():
                time.sleep(0.001)
            _adopt_orphans(False)
        return pid


@cache
def _birth_place() -> _BirthPlace:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fresh.Fresh(_serve_tests, environment=os.environ, told_by=its, outputs=[Path(os.devnull)] * 2)
    its.close()
    # By which it ends: what is waited for at our end.
    atexit.register(ours.close)
    return _BirthPlace(ours)


def _adopt_orphans(does: bool) -> None:
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, int(does), 0, 0, 0)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# ----------------------------------------------------------------------------------------------------- in other processes


class _File(NamedTuple):
    """A file of which only the number is known."""

    number: int

    def fileno(self) -> int:
        return self.number


def _serve_tests() -> None:
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _serve(channel)


def _serve(channel: socket.socket) -> None:
    """Start what is asked for until our owner has ended."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN)
    os.chdir("/")
    while True:
        told, files, *_ = socket.recv_fds(channel, _LONGEST, 3)
        if not told:
            os._exit(0)
        if (starter := os.fork()) == 0:
            starter = os.getpid()
            if pid := os.fork():
                channel.send(str(pid).encode())
                os._exit(0)
            channel.close()
            while os.getppid() == starter:
                time.sleep(0.001)
            _be(told[1:], files, leads_group=bool(told[0]))
        os.waitpid(starter, 0)
        for file in files:
            os.close(file)


def _be(task: bytes, files: list[int], *, leads_group: bool) -> None:
    if leads_group:
        os.setsid()
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        for file in files:
            os.close(file)
        _serve(its)
    its.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os._exit(ForkServerProcess(target=_run, args=(_BirthPlace(ours), task, files))._bootstrap())


def _run(place: _BirthPlace, task: bytes, files: list[int]) -> None:
    environment, folder, by, words = pickle.loads(task)
    told_by, *outputs = map(_File, files)
    where = fresh._Where(environment, folder, outputs, told_by, leads_group=False)
    fresh._run(where, _start_children_of, place, by, *words)


def _start_children_of(place: _BirthPlace, by: Callable[..., None], *words: str) -> None:
    globals()["_birth_place"] = lambda: place
    subprocess.Popen = subprocess_handler.Popen = _OfChild
    by(*words)
