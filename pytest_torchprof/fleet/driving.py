"""A run of a fleet: what is missing is given to a crew, and what comes back is kept."""

from __future__ import annotations

import heapq
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.fleet.judging import Hindrance, Trouble, encoded, is_quarantined, quarantined
from pytest_torchprof.reasons.errors import TorchprofError, describe
from pytest_torchprof.reasons.fleet import JudgingFailed
from pytest_torchprof.system.remote.patience import pause_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.fleet.folder import FleetFolder
    from pytest_torchprof.fleet.judging import Answers, FileTask, Tasks
    from pytest_torchprof.fleet.progress import Progress

_PART_RECORDS: Final = 500
_PART_S: Final = 5.0
"""When a part is closed: what is in none yet is judged again if the driver is killed."""
_TOGETHER_FILES: Final = 16
_TOGETHER_BYTES: Final = 256 << 10
"""How many small files are given to a process together, which otherwise took longer than many of them take."""


class Crew(Protocol):
    """Judges files, by whatever processes."""

    at_once: int
    """How many tries it is given at once."""

    def submit(self, tasks: Tasks) -> Future[Answers]:
        """Let files be judged beside others."""

    def submit_alone(self, tasks: Tasks) -> Future[Answers]:
        """Let files be judged in a process of their own."""

    def renew(self) -> None:
        """Go on after processes have died."""

    def end(self) -> None:
        """End all processes at once."""


class _Try(Struct, frozen=True):
    """One try of a file, or of a few small ones."""

    tasks: Tasks
    alone: bool = False
    before: int = 0
    """How many tries of this kind failed before."""


class _Queue:
    """The tries to come: those of bad files first, which are due, then the files in their order."""

    def __init__(self, tasks: Iterable[FileTask]) -> None:
        self._tasks: Iterator[Tasks] = together(tasks)
        self._again: deque[_Try] = deque()
        self._later: list[tuple[float, int, _Try]] = []
        self._count = 0

    def next(self) -> _Try | None:
        """Return the next try; None if none is due yet, or if none is left."""
        while self._later and self._later[0][0] <= time.monotonic():
            self._again.append(heapq.heappop(self._later)[2])
        if self._again:
            return self._again.popleft()
        tasks = next(self._tasks, None)
        return None if tasks is None else _Try(tasks)

    def again(self, attempt: _Try) -> None:
        """Try files again, after a pause that grows."""
        self._count += 1
        due_in_s = pause_s(attempt.before) if attempt.before else 0.0
        heapq.heappush(self._later, (time.monotonic() + due_in_s, self._count, attempt))

    @property
    def due_in_s(self) -> float | None:
        """In how many seconds the next waiting try is due; None if none waits."""
        return max(self._later[0][0] - time.monotonic(), 0.0) if self._later else None


class _Part:
    """Records that no part of the run's folder holds yet."""

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
    """Judge files until each has a record in the folder, large ones first.

    TorchprofError if records cannot be kept, or if nobody takes the files.
    """
    queue, part = _Queue(largest_first(tasks)), _Part(folder)
    running: dict[Future[Answers], _Try] = {}
    try:
        while True:
            while len(running) < crew.at_once and (attempt := queue.next()) is not None:
                submit = crew.submit_alone if attempt.alone else crew.submit
                running[submit(attempt.tasks)] = attempt
            if not running and queue.due_in_s is None:
                break
            if running:
                timeout_s = min(queue.due_in_s or _PART_S, _PART_S)
                done, _ = wait(running, timeout=timeout_s, return_when=FIRST_COMPLETED)
            else:
                time.sleep(queue.due_in_s or 0.0)
                done = set()
            # In the order in which they were given: that of a set is any.
            came = [(running.pop(future), future) for future in [*running] if future in done]
            if any(isinstance(_problem(future), BrokenExecutor) for _, future in came):
                crew.renew()
            for attempt, future in came:
                for task, line in _settled(attempt, future, queue, retries):
                    part.add(line)
                    progress.see(task.file.size or 0, is_quarantined=is_quarantined(line))
            part.close_if_old()
            progress.show()
    finally:
        progress.end()
        for future in running:
            future.cancel()
        part.close()


def largest_first(tasks: Iterable[FileTask]) -> list[FileTask]:
    """Return files by their sizes, so that at the end no process has a large one for which all others wait."""
    return sorted(tasks, key=lambda task: inf if task.file.size is None else task.file.size, reverse=True)


def together(tasks: Iterable[FileTask]) -> Iterator[Tasks]:
    """Yield files in their order, small ones that follow each other together.

    A file comes by itself if its size is not known, or if it has to be fetched, which takes longer.
    """
    batch: list[FileTask] = []
    size_bytes = 0
    for task in tasks:
        file = task.file
        own_bytes = _TOGETHER_BYTES if file.size is None or file.is_remote else file.size
        if batch and (len(batch) == _TOGETHER_FILES or size_bytes + own_bytes > _TOGETHER_BYTES):
            yield tuple(batch)
            batch, size_bytes = [], 0
        batch.append(task)
        size_bytes += own_bytes
    if batch:
        yield tuple(batch)


def _problem(future: Future[Answers]) -> BaseException | None:
    """Return the error of a try whose process has died or could not be reached; None if it succeeded."""
    return CancelledError("cancelled by the engine") if future.cancelled() else future.exception()


def _settled(attempt: _Try, future: Future[Answers], queue: _Queue, retries: int) -> Iterator[tuple[FileTask, bytes]]:
    """Yield the records that a try came to, encoded, with their files; the others are tried again."""
    problem = _problem(future)
    if isinstance(problem, TorchprofError):
        raise problem
    if problem is not None and not attempt.alone:
        # Perhaps it was another file that ended the process.
        queue.again(replace(attempt, alone=True))
        return
    answers: Answers = future.result() if problem is None else [Trouble(cause=Hindrance.DEATH)] * len(attempt.tasks)
    for task, came in zip(attempt.tasks, answers, strict=False):
        if not isinstance(came, Trouble):
            yield task, came
        elif (again := _again(attempt, task, came, retries)) is not None:
            queue.again(again)
        else:
            reason = came.reason or JudgingFailed("" if problem is None else describe(problem))
            yield task, encoded(quarantined(task, reason))
    if rest := attempt.tasks[len(answers) :]:
        queue.again(_Try(rest, alone=True))


def _again(attempt: _Try, task: FileTask, came: Trouble, retries: int) -> _Try | None:
    """Return the next try of a file without a record; None if it is not tried again."""
    if came.cause is not Hindrance.READING and not (attempt.alone and len(attempt.tasks) == 1):
        # Perhaps it was another file that took its memory.
        return _Try((task,), alone=True)
    if came.cause in (Hindrance.READING, Hindrance.DEATH) and attempt.before < retries:
        return _Try((task,), alone=attempt.alone, before=attempt.before + 1)
    return None
