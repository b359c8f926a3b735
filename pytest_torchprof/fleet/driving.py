"""A run of a fleet: what is missing is given to a crew, and what comes back is kept."""

from __future__ import annotations

import heapq
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from pytest_torchprof.fleet.judging import FileTask, Hindrance, Trouble, encoded, is_quarantined, quarantined
from pytest_torchprof.reasons.errors import describe
from pytest_torchprof.reasons.fleet import JudgingFailed
from pytest_torchprof.remote.patience import pause_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.fleet.folder import FleetFolder
    from pytest_torchprof.fleet.progress import Progress

_PART_RECORDS: Final = 500
_PART_S: Final = 5.0
"""When a part is closed: what is in none yet is judged again if the driver is killed."""


class Crew(Protocol):
    """Judges files, by whatever processes."""

    at_once: int
    """How many files it is given together."""

    def submit(self, task: FileTask) -> Future[bytes | Trouble]:
        """Let a file be judged beside others."""

    def submit_alone(self, task: FileTask) -> Future[bytes | Trouble]:
        """Let a file be judged in a process of its own."""

    def renew(self) -> None:
        """Go on after processes have died."""

    def end(self) -> None:
        """End all processes at once."""


class _Try(Struct, frozen=True):
    """One try of a file."""

    task: FileTask
    alone: bool = False
    before: int = 0
    """How many tries of this kind failed before."""


class _Queue:
    """The tries to come: those of bad files first, which are due, then the files in their order."""

    def __init__(self, tasks: Iterable[FileTask]) -> None:
        self._tasks: Iterator[FileTask] = iter(tasks)
        self._again: deque[_Try] = deque()
        self._later: list[tuple[float, int, _Try]] = []
        self._count = 0

    def next(self) -> _Try | None:
        """Return what is to be tried now; None if there is nothing yet, or nothing more."""
        while self._later and self._later[0][0] <= time.monotonic():
            self._again.append(heapq.heappop(self._later)[2])
        if self._again:
            return self._again.popleft()
        task = next(self._tasks, None)
        return None if task is None else _Try(task)

    def again(self, attempt: _Try) -> None:
        """Try a file again, after a pause that grows."""
        self._count += 1
        due_in_s = pause_s(attempt.before) if attempt.before else 0.0
        heapq.heappush(self._later, (time.monotonic() + due_in_s, self._count, attempt))

    @property
    def due_in_s(self) -> float | None:
        """When the next try is due that has to wait; None if none has."""
        return max(self._later[0][0] - time.monotonic(), 0.0) if self._later else None


class _Part:
    """Records that are in no part yet."""

    def __init__(self, folder: FleetFolder) -> None:
        self._folder, self._lines, self._since = folder, list[bytes](), time.monotonic()

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) >= _PART_RECORDS:
            self.close()

    def close_if_old(self) -> None:
        if time.monotonic() - self._since >= _PART_S:
            self.close()

    def close(self) -> None:
        if self._lines:
            self._folder.add(self._lines)
        self._lines, self._since = [], time.monotonic()


def drive(tasks: Iterable[FileTask], crew: Crew, folder: FleetFolder, retries: int, progress: Progress) -> None:
    """Judge files until each has a record in the folder; TorchprofError if they cannot be kept."""
    queue, part = _Queue(tasks), _Part(folder)
    running: dict[Future[bytes | Trouble], _Try] = {}
    try:
        while True:
            while len(running) < crew.at_once and (attempt := queue.next()) is not None:
                submit = crew.submit_alone if attempt.alone else crew.submit
                running[submit(attempt.task)] = attempt
            if not running and queue.due_in_s is None:
                break
            if running:
                timeout_s = min(queue.due_in_s or _PART_S, _PART_S)
                done, _ = wait(running, timeout=timeout_s, return_when=FIRST_COMPLETED)
            else:
                time.sleep(queue.due_in_s or 0.0)
                done = set()
            came = [(running.pop(future), future) for future in done]
            problems = [_problem(future) for _, future in came]
            if any(isinstance(problem, BrokenExecutor) for problem in problems):
                crew.renew()
            for (attempt, future), problem in zip(came, problems, strict=True):
                line = _settled(attempt, future, problem, queue, retries)
                if line is not None:
                    part.add(line)
                    progress.see(attempt.task.file.size or 0, is_quarantined=is_quarantined(line))
            part.close_if_old()
            progress.show()
    finally:
        progress.end()
        for future in running:
            future.cancel()
        part.close()


def _problem(future: Future[bytes | Trouble]) -> BaseException | None:
    """Return what an engine says of a try whose process has died, or could not be reached."""
    return CancelledError("cancelled by the engine") if future.cancelled() else future.exception()


def _settled(
    attempt: _Try, future: Future[bytes | Trouble], problem: BaseException | None, queue: _Queue, retries: int
) -> bytes | None:
    """Return the record that a try came to, encoded; None if the file is tried again."""
    came = Trouble(cause=Hindrance.DEATH) if problem is not None else future.result()
    if not isinstance(came, Trouble):
        return came
    if came.cause is not Hindrance.READING and not attempt.alone:
        # Perhaps it was another file that ended the process, or took its memory.
        queue.again(_Try(attempt.task, alone=True))
        return None
    if came.cause in (Hindrance.READING, Hindrance.DEATH) and attempt.before < retries:
        queue.again(_Try(attempt.task, alone=attempt.alone, before=attempt.before + 1))
        return None
    reason = came.reason or JudgingFailed("" if problem is None else describe(problem))
    return encoded(quarantined(attempt.task, reason))
