"""Where a test keeps what the rules of the suite ask of it; loaded in every pytest run of every user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_torchprof.testing.suite_rules import RuleOfTest

RULE: pytest.StashKey[RuleOfTest] = pytest.StashKey()
