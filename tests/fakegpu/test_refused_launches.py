"""A launch that the driver refused, and whose error the code catches, is no loss of the profiler's."""

from __future__ import annotations

from contextlib import closing, suppress

import pytest
import torch

import pytest_torchprof
from pytest_torchprof import capture

pytestmark = pytest.mark.simulated_gpu


def measured(step, path):
    """Return the profile of three steps; NotMeasured after three attempts."""
    plan = capture.Plan(device="cuda:0", warmup=1, steps=3, record=frozenset(), nodeid="t.py::t", label=None)
    with closing(capture.iterations(plan, path, lambda path: pytest_torchprof.load(path).doubt)) as iterations:
        for _ in iterations:
            step()
    return pytest_torchprof.load(path)


def test_what_falls_back_on_another_kernel_is_measured(fault, tmp_path):
    x = torch.ones(8, device="cuda")

    def step():
        with suppress(RuntimeError):
            x.sin_()
            pytest.fail("the launch was not refused")
        x.cos_()

    fault(REFUSE_KERNEL="sin_kernel")
    found = measured(step, tmp_path / "t.json")
    assert found.why_not is None
    assert [(step.kernels.count, step.launches) for step in found.steps] == [(1, 2)] * 3
    assert all("cos_kernel" in step.kernels.names[0] for step in found.steps)
