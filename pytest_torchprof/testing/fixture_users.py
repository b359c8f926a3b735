"""The tests that ask for the fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def asks_for_fixture(item: pytest.Item) -> bool:
    """Return whether a test, or one of its fixtures, asks for the fixture."""
    return "torchprof" in getattr(item, "fixturenames", ())
