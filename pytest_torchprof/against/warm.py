"""Commits are measured in forks of one process that has imported torch, if a fork equals a fresh process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.against import VARIABLE, warm_process
from pytest_torchprof.against.environment import CACHES
from pytest_torchprof.against.imports import environment_folders, lies_in
from pytest_torchprof.against.side import read_side
from pytest_torchprof.against.warm_process import GIVEN_UP, names_in
from pytest_torchprof.system.processes import end, is_there, start

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.against.side import Side
    from pytest_torchprof.against.start import SideStart

_OF_A_COMMIT: Final = frozenset({VARIABLE, "PYTHONPATH", "COVERAGE_FILE", *CACHES})
"""The variables that differ from commit to commit."""
_AT_THE_START: Final = frozenset({"sitecustomize", "usercustomize"})
"""Modules that Python imports before anything else, wherever they are."""
_PATIENCE_S: Final = 20.0


class WarmPython:
    """Runs pytest of a side in a fork of one process if a fork equals a fresh process, else in a fresh process."""

    def __init__(self, top: Path) -> None:
        self._top = os.path.realpath(top)
        self._server: _Server | None = None
        self._is_given_up = sys.platform != "linux"  # On other systems torch's libraries do not survive a fork.

    def run(self, side_start: SideStart, log: Path) -> int:
        """Run a side's pytest to its end and return its exit status."""
        if self._is_given_up:
            return side_start.run(log)
        side = read_side(Path(side_start.environment[VARIABLE]))
        if self._server is None:
            self._server = _Server(side_start, side, log.parent / "warm.log")
            self._is_given_up = not self._server.is_of_use(self._top)
        if self._is_given_up or not self._server.can_be(side_start, side):
            return side_start.run(log)
        # The parent of a fork is the process that forked it.
        announced = replace(side, starter=self._server.pid).announce(Path(side_start.environment[VARIABLE]))
        status = self._server.run(side_start.with_variables(announced), log)
        if status == GIVEN_UP:
            side.announce(Path(side_start.environment[VARIABLE]))
            self._is_given_up = True  # The next commit would probably do the same.
            return side_start.run(log)
        return status

    def end(self) -> None:
        """End the process, and its fork."""
        if self._server is not None:
            self._server.end()


@contextmanager
def warm_python(top: Path) -> Iterator[WarmPython]:
    """Yield a runner of commits, as long as the block lasts."""
    python = WarmPython(top)
    try:
        yield python
    finally:
        python.end()


class _Server:
    """The process that forks."""

    def __init__(self, side_start: SideStart, side: Side, log: Path) -> None:
        self._python = side_start.python
        roots = {str(root) for root in side.roots}
        path = [folder for folder in side_start.environment["PYTHONPATH"].split(os.pathsep) if folder not in roots]
        inherited = {name: value for name, value in side_start.environment.items() if name != VARIABLE}
        self._environment = {**inherited, "PYTHONPATH": os.pathsep.join(path)}
        ours, its = socket.socketpair()
        with log.open("wb") as output:
            self._process = start(
                [side_start.python, "-P", warm_process.__file__, str(its.fileno())],
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[its.fileno()],
            )
        its.close()
        self._channel = ours
        self._lines = ours.makefile("rw")
        self._answered = self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_of_use(self, top: str) -> bool:
        """Return whether it can fork at all, and has loaded nothing of the repository."""
        if self._answered is None or not self._answered["forks_as_fresh"]:
            return False
        inside = [folder for folder in environment_folders() if lies_in(folder, top)]
        return not any(lies_in(file, top) and not lies_in(file, *inside) for file in self._answered["modules"])

    def can_be(self, side_start: SideStart, side: Side) -> bool:
        """Whether a fork equals the process that would be started: no loaded module would come from elsewhere there."""
        if self._process.poll() is not None or self._answered is None or side_start.python != self._python:
            return False
        path = side_start.environment["PYTHONPATH"].split(os.pathsep)
        own = {*path, *map(str, side.roots)}.difference(self._environment["PYTHONPATH"].split(os.pathsep))
        return (
            self._changed(side_start).keys() <= _OF_A_COMMIT
            and all(map(os.path.isabs, filter(None, path)))
            and names_in(own).isdisjoint(_AT_THE_START.union(self._answered["asked"]))
        )

    def run(self, side_start: SideStart, log: Path) -> int:
        """Run a fork to its end and return its status."""
        request = {
            "arguments": side_start.arguments,
            "folder": side_start.folder,
            "log": str(log),
            "environment": self._changed(side_start),
        }
        started = self._ask(request)
        if started is None:
            return -signal.SIGKILL
        ended = self._answer()
        if ended is None:
            _end_orphan(started["pid"])
            return -signal.SIGKILL
        return int(ended["status"])

    def end(self) -> None:
        """Close the channel, upon which it ends, as it does if this process is killed."""
        self._lines.close()
        self._channel.close()
        end(self._process, asks=False, patience_s=_PATIENCE_S)

    def _changed(self, side_start: SideStart) -> Mapping[str, str | None]:
        """Return the variables that have another value in a start; None for those that it lacks."""
        names = self._environment.keys() | side_start.environment.keys()
        return {
            name: side_start.environment.get(name)
            for name in names
            if side_start.environment.get(name) != self._environment.get(name)
        }

    def _ask(self, request: Mapping[str, object]) -> dict[str, Any] | None:
        try:
            self._lines.write(f"{json.dumps(request)}\n")
            self._lines.flush()
        except OSError:
            return None
        return self._answer()

    def _answer(self) -> dict[str, Any] | None:
        """Return its next message; None if it has ended."""
        try:
            line = self._lines.readline()
        except OSError:
            return None
        return dict(json.loads(line)) if line else None


def _end_orphan(pid: int) -> None:
    """End a fork whose process was killed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:  # It has ended, and what has its number now may be somebody else's.
        return
    until = time.monotonic() + _PATIENCE_S
    while is_there(pid) and time.monotonic() < until:  # It is not our child, so it cannot be waited for.
        time.sleep(0.01)
