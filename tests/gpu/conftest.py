"""What the tests on a real GPU share."""

from __future__ import annotations

import sys

import pytest
import torch


@pytest.fixture
def fact(record_property):
    """Return a function that notes what was asked for rather than claimed, as a property of the test and printed."""

    def note(name, value):
        record_property(name, value)
        sys.stdout.write(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {name} = {value}\n")

    return note
