"""Files that only the process of the command reaches: copies of them are given to those that judge."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_torchprof.fleet.at_hand import fetch_to, is_same
from pytest_torchprof.fleet.judging import Answers, FileTask, Tasks, encoded, quarantined
from pytest_torchprof.reasons.errors import UnreadableRecording
from pytest_torchprof.reasons.fleet import ChangedSinceListed
from pytest_torchprof.system.remote.addresses import protocol_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.fleet.driving import Crew

_OWN: Final = "memory"


class StagingCrew:
    """A crew that is given copies of files in this process's memory, which stay until its end."""

    def __init__(self, crew: Crew) -> None:
        """Copy nothing yet."""
        self.at_once = crew.at_once
        self._crew = crew
        self._folder = TemporaryDirectory(prefix="torchprof-")

    def submit(self, tasks: Tasks) -> Future[Answers]:
        """Let files be judged beside others."""
        return self._submit(tasks, self._crew.submit)

    def submit_alone(self, tasks: Tasks) -> Future[Answers]:
        """Let files be judged in a process of their own."""
        return self._submit(tasks, self._crew.submit_alone)

    def renew(self) -> None:
        """Go on after processes have died."""
        self._crew.renew()

    def end(self) -> None:
        """End all processes at once."""
        self._crew.end()
        self._folder.cleanup()

    def _submit(self, tasks: Tasks, submit: Callable[[Tasks], Future[Answers]]) -> Future[Answers]:
        if all(protocol_of(task.file.url) != _OWN for task in tasks):
            return submit(tasks)
        # A file behind an address comes by itself.
        (task,) = tasks
        try:
            copy = self._copied(task)
            changed = not is_same(task.file)
        except UnreadableRecording:
            # Reading it says so.
            return submit(tasks)
        if not changed:
            return submit((replace(task, copy=str(copy)),))
        known: Future[Answers] = Future()
        known.set_result([encoded(quarantined(task, ChangedSinceListed()))])
        return known

    def _copied(self, task: FileTask) -> Path:
        copy = Path(self._folder.name, f"{task.key}-{task.file.url.rpartition('/')[2]}")
        if not copy.exists():
            fetch_to(task.file, copy)
        return copy
