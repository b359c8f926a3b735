"""Where the plugin stores its state in pytest's objects; whether a test is ours, and a process an xdist worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_torchprof.testing.run_state import RunState
    from pytest_torchprof.testing.test_run import TestRun

STATE: pytest.StashKey[RunState] = pytest.StashKey()
RUN: pytest.StashKey[TestRun] = pytest.StashKey()
PASSED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether all phases of a test so far have passed."""
WORKER_KEY = "torchprof"
"""Under which name a worker of pytest-xdist hands its results over."""


def is_ours(item: pytest.Item) -> bool:
    """Whether a test is measured: marked, or asking for the fixture."""
    if not isinstance(item, pytest.Function):
        return False  # A doctest in a marked module has no body that could be a step.
    return item.get_closest_marker("torchprof") is not None or "torchprof" in item.fixturenames


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")
