"""What torch is asked for by private names: should one go, it is said, and nothing becomes slow in silence."""

from __future__ import annotations

import pytest
import torch

from pytest_torchprof.capture import torch_profiler
from pytest_torchprof.cli.doctor_checks.machine import Machine, of_kineto

pytestmark = pytest.mark.skipif(torch.__version__ < (2, 13), reason="has no trace_only")


@pytest.fixture(scope="module")
def machine():
    """What the checks ask about: its GPU they ask for in a process that imports torch, once."""
    return Machine()


def test_torch_can_be_asked_for_the_file_only(machine):
    """Fails with the first torch whose option has another name."""
    assert not torch_profiler.lacks_file_only()
    assert not any("trace_only" in answer.text for answer in of_kineto(machine))


def test_the_doctor_says_where_it_cannot(machine, monkeypatch):
    known = torch._C._profiler._ExperimentalConfig

    def renamed(**options):
        if "trace_only" in options:
            raise TypeError
        return known(**options)

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", renamed)
    (answer,) = of_kineto(machine)
    assert "no longer knows trace_only" in answer.text
    assert "Please report it" in answer.text
