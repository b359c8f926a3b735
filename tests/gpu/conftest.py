"""What the tests on a GPU share, a real one or the simulated one of tests/fakegpu."""

from __future__ import annotations

import sys

import pytest
import torch
from simulated import gpu_is_simulated


def pytest_runtest_setup(item):
    mark = item.get_closest_marker("real_gpu")
    if mark and gpu_is_simulated():
        pytest.skip(f"needs a real GPU: {mark.args[0]}")


@pytest.fixture
def fact(record_property):
    """Return a function that notes what was asked for rather than claimed, as a property of the test and printed."""

    def note(name, value):
        record_property(name, value)
        sys.stdout.write(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {name} = {value}\n")

    return note
