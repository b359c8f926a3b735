"""Processes that run tests for the one that the user started: workers of pytest-xdist, and ranks of a test's job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from pytest_torchprof.capture.cache_phase import CachePhase
    from pytest_torchprof.capture.lockstep import Announce
    from pytest_torchprof.testing.handed_over import ProcessResults

WORKER_KEY = "torchprof"
"""The name under which a worker hands over at its end what no report of a test has."""
ARGUMENTS_KEY = "torchprof_arguments"
"""The name under which a worker finds the arguments that pytest was called with."""
RESULTS = "torchprof_results"
"""The attribute of a test's last report with which a worker hands its measurements over: no crash loses them."""
CODE = "torchprof_code"
"""The attribute of a report with the code of our error by which a test failed."""
BRIEF = "torchprof_brief"
"""The attribute of a report with what the terminal shows of a failure with ``-q``, and what the error itself says."""
ONE_LINE = "torchprof_one_line"
"""The attribute of a report with what the short summary says of our error, which it cuts where the line ends."""
WHOLE = "torchprof_whole_text"
"""The attribute of a report with the text of a failure as no terminal has cut it, for what else holds it."""
HAND_OVER: pytest.StashKey[Callable[[ProcessResults], None]] = pytest.StashKey()
"""The function by which a rank hands its results over."""

SCRATCH: pytest.StashKey[Path] = pytest.StashKey()
"""The folder of a rank, which is removed with its job, even if the rank is killed."""
CACHES: pytest.StashKey[CachePhase] = pytest.StashKey()
"""The state in which a process that measures one test alone finds the compile caches."""
PROGRESS: pytest.StashKey[Announce] = pytest.StashKey()
"""The function by which a rank tells the process that waits for its job how far it has come."""


COLUMNS_KEY = "torchprof_columns"
"""The name under which a worker finds how many columns the terminal has."""
COLUMNS: pytest.StashKey[int | None] = pytest.StashKey()
"""The columns of the terminal; None where they are not known, as in a file."""


HISTORY_KEY = "torchprof_history_baseline"
"""The name under which a worker finds the folder with what the run's tests are compared with."""
HISTORY: pytest.StashKey[str] = pytest.StashKey()
"""The folder in which a process has put what a history tells of the branch that the tests are compared with."""


def note_columns(config: pytest.Config) -> None:
    """Keep the width of the terminal: while tests run, their output is captured, and the width cannot be seen."""
    import shutil  # noqa: PLC0415 - slow to import, for runs that measure nothing

    if COLUMNS in config.stash:  # A rank was given them.
        return
    here = shutil.get_terminal_size(fallback=(0, 24)).columns or None
    config.stash[COLUMNS] = getattr(config, "workerinput", {}).get(COLUMNS_KEY, here)


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process is a worker or a rank."""
    return is_of_xdist(config) or HAND_OVER in config.stash


def is_of_xdist(config: pytest.Config) -> bool:
    """Return whether this process is a worker of pytest-xdist, which runs tests in an order of its own."""
    return hasattr(config, "workerinput")


def nodeid_of(item: pytest.Item) -> str:
    """Return a test's node id as in a run without workers: ``--dist loadgroup`` ends it with the test's group."""
    plain = f"{item.parent.nodeid}::{item.name}" if item.parent is not None else item.nodeid
    return plain if item.nodeid.startswith(f"{plain}@") else item.nodeid


def hand_over(config: pytest.Config, results: ProcessResults) -> None:
    """Hand the results of this process to the one that it runs tests for."""
    if HAND_OVER in config.stash:
        config.stash[HAND_OVER](results)
    else:
        output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]
        output[WORKER_KEY] = results.to_json()


def arguments_of(config: pytest.Config) -> list[str]:
    """Return the arguments that pytest was called with; in a worker, those of the process that started it."""
    given = getattr(config, "workerinput", {}).get(ARGUMENTS_KEY, config.invocation_params.args)
    return [str(argument) for argument in given]
