"""A worker of pytest-xdist as the process that started it sees it: what it is given, and what it hands back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_torchprof.testing import STATE
from pytest_torchprof.testing.declared import is_anything_given
from pytest_torchprof.testing.workers import (
    ARGUMENTS_KEY,
    COLUMNS,
    COLUMNS_KEY,
    HISTORY,
    HISTORY_KEY,
    RESULTS,
    WORKER_KEY,
    arguments_of,
)

if TYPE_CHECKING:
    import pytest


def divide_gpus(config: pytest.Config, specs: list[Any]) -> None:
    """Give each worker a GPU of its own, if that is asked for; ``specs`` describe the workers that will be started."""
    from pytest_torchprof.testing.options import run_options

    if run_options(config).gpus == "each":
        from pytest_torchprof.testing.gpus import give_each_its_own

        give_each_its_own(specs)


def prepare_worker(node: Any) -> None:
    """Give a worker that is about to start what it cannot see, such as how this process was called."""
    node.workerinput[ARGUMENTS_KEY] = arguments_of(node.config)
    node.workerinput[COLUMNS_KEY] = node.config.stash[COLUMNS]
    if not is_anything_given(node.config):
        return
    from pytest_torchprof.testing.options import run_options

    if (options := run_options(node.config)).history_branch is not None:
        from pytest_torchprof.testing.history_baseline import history_baseline

        if history_baseline(node.config, options) is not None:
            node.workerinput[HISTORY_KEY] = node.config.stash[HISTORY]


def keep_results(report: Any) -> None:
    """Keep what a worker has measured of the test of this report, which is the test's last one."""
    from pytest_torchprof.testing.collection import state_of

    state_of(report.node.config).note_of_worker(report.node.gateway.id, getattr(report, RESULTS))


def take_over(node: Any) -> None:
    """Take over the results of a worker that is done; of one that crashed those of the tests that had ended."""
    rest = getattr(node, "workeroutput", {}).get(WORKER_KEY)
    if rest is not None or STATE in node.config.stash:
        from pytest_torchprof.testing.collection import state_of
        from pytest_torchprof.testing.handed_over import ProcessResults

        own = state_of(node.config)
        own.merge_worker(node.gateway.id, None if rest is None else ProcessResults.from_json(rest))
