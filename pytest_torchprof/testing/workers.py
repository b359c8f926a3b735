"""Workers of pytest-xdist, which run tests for the process that was called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

WORKER_KEY = "torchprof"
"""Under which name a worker hands its results over."""


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is one."""
    return hasattr(config, "workerinput")
