"""Fresh processes of the tests have at hand what takes long to import."""

from __future__ import annotations

import fresh
import pytest

pytestmark = pytest.mark.any_torch


def test_a_fork_has_at_hand_what_takes_long_to_import():
    """A server of forks goes on without what it could not import, and each fork would import torch again."""
    assert fresh.run_code("import sys; print('preloaded' in sys.modules)").stdout == "True\n"
