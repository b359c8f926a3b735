"""Reasons why no process judges the files of a fleet: this machine has no further one, or the engine cannot be used."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class NoFurtherProcess(Reason, frozen=True):
    """The machine lets no further process or thread begin."""

    CODE = Code.JUDGING_FAILED
    FOR_THE_DOCTOR = False
    SENTENCE = "no process could be begun: {error}"
    REMEDY = "with fewer --jobs the same command goes on with what is left"
    ADVICE = "give the same command fewer `--jobs`: it goes on with what is left"

    error: str


class NoSuchEngine(Reason, frozen=True):
    """The engine is in none of the forms in which engines are named."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--engine {engine}: expected futures:MODULE:FACTORY, dask or dask:ADDRESS"
    ADVICE = "name it in one of these forms"

    engine: str


class FactoryNotLoaded(Reason, frozen=True):
    """The function that makes an executor cannot be imported."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--engine {engine}: {error}"
    ADVICE = "name a function in a module that can be imported here"

    engine: str
    error: str


class NoCluster(Reason, frozen=True):
    """Dask reaches no cluster, or cannot begin one."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--engine {engine}: there is no cluster: {error}"
    ADVICE = "check the scheduler's address, and whether it runs"

    engine: str
    error: str


class ExecutorNotMade(Reason, frozen=True):
    """The function that makes an executor has raised an error."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--engine: the executor cannot be made: {error}"
    ADVICE = "mend the function that makes it"

    error: str


class NoExecutor(Reason, frozen=True):
    """The function that is to make an executor has made something else."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--engine: expected a concurrent.futures.Executor, got {got}"
    ADVICE = "let the function return one"

    got: str
    """The name of its type."""


class ExecutorBroken(Reason, frozen=True):
    """An executor takes nothing, nor does another one that was made in its place."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--engine: the executor takes no files: {error}"
    ADVICE = "look at why its processes end"

    error: str
