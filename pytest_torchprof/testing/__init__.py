"""The pytest side: what a run collects, how a test is measured and judged, and what a user sees of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.testing.fixture_users import asks_for_fixture
from pytest_torchprof.testing.rule_key import RULE

if TYPE_CHECKING:
    from pytest_torchprof.testing.ranks.item import JobItem
    from pytest_torchprof.testing.session import RunState
    from pytest_torchprof.testing.test_run import TestRun

# Where the plugin stores its state in pytest's objects.
STATE: pytest.StashKey[RunState] = pytest.StashKey()
RUN: pytest.StashKey[TestRun] = pytest.StashKey()
REFUSAL: pytest.StashKey[BaseException | None] = pytest.StashKey()
"""The error that the call of a test raises, or has raised, because its plan cannot be carried out."""
JOB: pytest.StashKey[JobItem] = pytest.StashKey()
PASSED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether all phases of a test so far have passed."""


def is_ours(item: pytest.Item) -> bool:
    """Return whether a test is measured: it is marked, asks for the fixture, or a rule of the suite reaches it."""
    if not isinstance(item, pytest.Function):
        return False  # A doctest in a marked module has no body that could be a step.
    return RULE in item.stash or item.get_closest_marker("torchprof") is not None or asks_for_fixture(item)
