"""The processes in which ``torchprof fleet run`` judges, as forks of one that has imported what judges already.

To start Python for each of them takes longer than to judge the files of a test.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import fresh

from pytest_torchprof.cli import main
from pytest_torchprof.fleet import alone
from pytest_torchprof.system import spawned_pool
from pytest_torchprof.system.processes import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def forked(jobs: int | None, _context: object, begin: Callable[[], None]) -> ProcessPoolExecutor:
    """Return a pool of forks, each with the variables that are set now, as a process that is spawned has them."""
    return ProcessPoolExecutor(jobs, fresh.forks(), _begin, (dict(os.environ), begin))


def run_alone(words: Sequence[str], *, limit_s: float) -> Ended:
    """Run what has files to itself, which is told what to judge behind the name of its module."""
    told = words[words.index(alone.__name__) + 1 :]
    done = fresh.Fresh(_alone, *told, environment=os.environ).done(limit_s)
    return Ended(done.returncode, done.stdout, done.stderr)


def start_driver(*words: object, most_bytes: int | None = None) -> fresh.Fresh:
    """Start the command in a fork, whose own forks judge; a program would spawn its processes anew.

    ``most_bytes``: how large a file may become on a disk that is full.
    """
    return fresh.Fresh(_drive, most_bytes, *map(str, words), environment=os.environ)


def _drive(most_bytes: int | None, *words: str) -> None:
    if most_bytes is not None:
        import resource  # Windows has none.

        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    spawned_pool.ProcessPoolExecutor = _of_children
    alone.run = run_alone
    sys.exit(main(["fleet", "run", *words, "--jobs", "2"]))


def _of_children(jobs: int | None, _context: object, begin: Callable[[], None]) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, get_context("fork"), begin)


def _alone(*told: str) -> None:
    sys.exit(alone.main(*told))


def _begin(environment: Mapping[str, str], begin: Callable[[], None]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    begin()
