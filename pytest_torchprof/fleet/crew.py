"""The processes of this machine that judge: each is replaced after some files, and a bad file has one to itself.

The first process begins before the command has imported what judges, and this module takes as little as it can.
"""

from __future__ import annotations

import gc
import os
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import active_children, parent_process
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Final

from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.system import interrupts
from pytest_torchprof.system.spawned_pool import SpawnedPool

if TYPE_CHECKING:
    from pytest_torchprof.fleet.bounds import Bounds
    from pytest_torchprof.fleet.judging import Answers, Tasks

_LIFETIME: Final = 1000
"""After how many files a process is replaced, so that what fragments its memory is gone."""
_FREE: Final = 8 << 20
"""The bytes of freed memory, and up to twice as many, that a process keeps from file to file."""


class LocalCrew:
    """As many spawned processes as are asked for."""

    def __init__(self, jobs: int, bounds: Bounds) -> None:
        """Begin one process, which gets ready while the files are listed; the others begin once they are needed."""
        self.at_once = 2 * jobs
        self._jobs, self._bounds = jobs, bounds
        self._given = 0
        # Of a program that calls the command, which stay.
        self._others = frozenset(active_children())
        self._alone = ThreadPoolExecutor(jobs)
        self._answers = TemporaryDirectory(prefix="torchprof-", ignore_cleanup_errors=True)
        self._pool: SpawnedPool | None = self._new_pool()
        # Where none begins now, the first file asks for one again.
        with suppress(BrokenExecutor):
            self._pool.submit(_be_there)

    def submit(self, tasks: Tasks) -> Future[Answers]:
        """Let files be judged beside others."""
        if self._given >= _LIFETIME * self._jobs:
            self.renew()
        try:
            return self._submit(tasks)
        except BrokenExecutor:  # A process has died that had nothing to do.
            self.renew()
        try:
            return self._submit(tasks)
        except BrokenExecutor as problem:
            raise no_process(problem) from None

    def _submit(self, tasks: Tasks) -> Future[Answers]:
        if self._pool is None:
            self._pool = self._new_pool()
            self._given = 0
        self._given += len(tasks)
        return self._pool.submit(judge_beside, tasks, self._bounds)

    def _new_pool(self) -> SpawnedPool:
        return SpawnedPool(self._answers.name, processes=self._jobs, begin=_begin)

    def submit_alone(self, tasks: Tasks) -> Future[Answers]:
        """Let files be judged in a process of their own."""
        try:
            return self._alone.submit(_judge_alone, tasks, self._bounds)
        except RuntimeError as problem:  # Where no process may begin, no thread may.
            raise no_process(problem) from None

    def renew(self) -> None:
        """Take new processes for the files to come; the ones there finish what they have."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self._pool = None

    def end(self) -> None:
        """End all processes at once."""
        for process in {*active_children()} - self._others:
            process.kill()
        if self._pool is not None:
            with suppress(RuntimeError):  # A pool whose own thread could not be begun cannot wait for it.
                self._pool.shutdown(wait=True, cancel_futures=True)
        self._alone.shutdown(wait=True, cancel_futures=True)
        self._answers.cleanup()


def _judge_alone(tasks: Tasks, bounds: Bounds) -> Answers:
    from pytest_torchprof.fleet.alone import judge_alone  # noqa: PLC0415 - what judges

    try:
        return judge_alone(tasks, bounds)
    except (OSError, RuntimeError) as problem:
        raise no_process(problem) from None


def no_process(problem: Exception) -> TorchprofError:
    """Return the error of a run for which this machine has no further process or thread."""
    from pytest_torchprof.reasons.fleet_engines import NoFurtherProcess  # noqa: PLC0415 - for what fails alone

    return TorchprofError.because(NoFurtherProcess(str(problem)))


def judge_beside(tasks: Tasks, bounds: Bounds) -> Answers:
    """Return the results of files, in a process that judges other files before and after them."""
    from pytest_torchprof.fleet.bounded import judge_within  # noqa: PLC0415 - what judges

    came = [judge_within(task, bounds) for task in tasks]
    # Nothing of the files stays: what was there before them was frozen, and what is kept from them, such as decoded
    # names, grows old, so that neither is gone through.
    gc.collect(1)
    return came


def _begin() -> None:
    """Make a new process ready."""
    interrupts.ignore()
    try:
        Thread(target=_end_with_driver, daemon=True).start()
    except RuntimeError:  # No further thread either: the driver says so, which sees this process end.
        os._exit(1)
    # What is imported stays: to look through it again and again takes a tenth of the time.
    gc.disable()
    from pytest_torchprof.fleet import bounded  # noqa: F401, PLC0415 - what judges

    gc.freeze()
    # The C library of Linux returns freed memory to the system above a bound that follows the largest block freed so
    # far. To take it anew for each small file costs a twentieth of its time.
    bytes(_FREE)


def _be_there() -> None:
    """Do nothing: a process begins when it is given something."""


def _end_with_driver() -> None:
    driver = parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)
