"""Engines that users have already: any ``concurrent.futures.Executor``, and Dask by its own client."""

from __future__ import annotations

import os
import uuid
from concurrent.futures import BrokenExecutor, Executor
from importlib import import_module
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.fleet.alone import judge_alone
from pytest_torchprof.fleet.bounded import judge_within
from pytest_torchprof.reasons.errors import TorchprofError, describe
from pytest_torchprof.reasons.fleet_engines import (
    ExecutorBroken,
    ExecutorNotMade,
    FactoryNotLoaded,
    NoCluster,
    NoExecutor,
    NoSuchEngine,
)
from pytest_torchprof.reasons.fleet_stores import LibraryMissing
from pytest_torchprof.system.answer_files import FilePool

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from pytest_torchprof.fleet.bounds import Bounds
    from pytest_torchprof.fleet.judging import Answers, Tasks


class Engine(Struct, frozen=True):
    """Where the executor comes from, and how it is given back."""

    executor: Callable[[], Executor]
    close: Callable[[], None]


class EngineCrew:
    """The processes of an engine, which starts and replaces them itself."""

    def __init__(self, engine: Engine, at_once: int, bounds: Bounds) -> None:
        """Take an executor; whatever error the engine raises is a TorchprofError."""
        self.at_once = at_once
        self._engine, self._bounds = engine, bounds
        executor = _made(engine)
        self._answers = TemporaryDirectory(prefix="torchprof-", ignore_cleanup_errors=True)
        self._pool = FilePool(executor, self._answers.name)

    def submit(self, tasks: Tasks) -> Future[Answers]:
        """Let files be judged beside others."""
        return self._submit(judge_there, tasks, self._bounds, _this_process())

    def submit_alone(self, tasks: Tasks) -> Future[Answers]:
        """Let files be judged in a process of their own, which one of the engine's starts."""
        return self._submit(judge_alone, tasks, self._bounds)

    def _submit(self, work: Callable[..., Answers], *given: Any) -> Future[Answers]:
        try:
            return self._pool.submit(work, *given)
        except BrokenExecutor:
            self.renew()
        try:
            return self._pool.submit(work, *given)
        except BrokenExecutor as problem:
            raise TorchprofError.because(ExecutorBroken(str(problem))) from None

    def renew(self) -> None:
        """Take another executor; an engine that replaces its processes itself gives the same ones again."""
        self._pool.shutdown(wait=False)
        self._pool = FilePool(_made(self._engine), self._answers.name)

    def end(self) -> None:
        """Give back what was taken."""
        self._pool.shutdown(wait=False)
        self._engine.close()
        self._answers.cleanup()


def judge_there(tasks: Tasks, bounds: Bounds, driver: str) -> Answers:
    """Return the results of files, in a process of the engine."""
    # An executor of threads has no process that may end.
    return judge_alone(tasks, bounds) if driver == _this_process() else [judge_within(task, bounds) for task in tasks]


def engine_called(name: str) -> Engine:
    """Return the engine of this name; TorchprofError if there is none, or if it cannot be used."""
    kind, colon, rest = name.partition(":")
    if kind == "dask" and (rest or not colon):
        return _dask(rest or None)
    module, _, factory = rest.partition(":")
    if kind != "futures" or not module or not factory:
        raise TorchprofError.because(NoSuchEngine(name))
    try:
        made: Callable[[], Executor] = getattr(import_module(module), factory)
    except (ImportError, AttributeError) as problem:
        raise TorchprofError.because(FactoryNotLoaded(name, describe(problem))) from None
    return Engine(made, lambda: None)


def _dask(address: str | None) -> Engine:
    if find_spec("distributed") is None:
        lacking = LibraryMissing("--engine dask", ("Dask",), "pip install 'pytest-torchprof[fleet]'")
        raise TorchprofError.because(lacking)
    from distributed import Client  # noqa: PLC0415 - an extra

    try:
        client = Client(address) if address else Client(threads_per_worker=1, dashboard_address=None)
    except Exception as problem:  # noqa: BLE001 - whatever Dask and its network raise
        name = "dask" if address is None else f"dask:{address}"
        raise TorchprofError.because(NoCluster(name, describe(problem))) from None
    # The same file may have to be judged again, so that its result must not be kept by what was asked.
    return Engine(lambda: client.get_executor(pure=False), client.close)


def _made(engine: Engine) -> Executor:
    try:
        executor = engine.executor()
    except Exception as problem:  # noqa: BLE001 - it is the user's
        raise TorchprofError.because(ExecutorNotMade(describe(problem))) from None
    if not callable(getattr(executor, "submit", None)):
        raise TorchprofError.because(NoExecutor(type(executor).__name__))
    return executor


def _this_process() -> str:
    return f"{uuid.getnode()}:{os.getpid()}"
