"""A run that waits for the GPU says so where there is no terminal, too."""

from __future__ import annotations

import threading

import fresh
import pytest
import torch

from pytest_torchprof.capture.devices import live_device
from pytest_torchprof.capture.gpu_lock import holding

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]


def test_a_run_that_waits_names_whom_it_waits_for(pytester):
    pytester.makepyfile(
        test_it="""
        import pytest, torch
        @pytest.mark.torchprof(max_kernels=2)
        def test_it(): torch.ones(4, device="cuda") + 1
        """
    )
    (uuid,) = live_device("cuda:0").lock_names(with_others=False)
    other = fresh.start_pytest("-p", "no:cacheprovider")
    with holding(uuid, lambda _: None, doing="test_other.py::test_held"):
        threading.Event().wait(25)
    done = other.done()
    assert done.returncode == 0, done.stdout
    assert "torchprof waits for the GPU, up to 60 minutes: process " in done.stderr
    assert "measures test_other.py::test_held (the run waits for it)" in done.stderr
