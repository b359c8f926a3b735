"""What the tests of the simulated device share."""

from __future__ import annotations

import ctypes
import json
from textwrap import dedent

import fresh
import pytest
import torch
from fakegpu.recording import BOTH, events_of
from simulated import gpu_is_simulated
from torch.profiler import profile


def pytest_runtest_setup(item):
    if item.get_closest_marker("simulated_gpu") and not gpu_is_simulated():
        pytest.skip("needs the simulated device: tests/fakegpu/fakegpu python -m pytest tests/fakegpu")


@pytest.fixture
def fault(monkeypatch):
    """Return a function that sets variables of the device (without their FAKEGPU_) for the rest of the test."""
    library = ctypes.CDLL(None)

    def ask_for(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"FAKEGPU_{name}", str(value))
        library.fakegpu_reload()

    yield ask_for
    monkeypatch.undo()
    library.fakegpu_reload()


@pytest.fixture
def recorded(tmp_path):
    """Return a function that records a step and returns the events of these categories."""

    def record(step, *categories):
        with profile(activities=BOTH) as prof:
            step()
            torch.cuda.synchronize()
        return events_of(prof, tmp_path, *categories)

    return record


@pytest.fixture
def process():
    """Return a function that runs code in a fresh process, with variables of its own; it prints one JSON value."""

    def run(*parts, **variables):
        code = "".join(dedent(part) for part in ("import json, torch\n", *parts))
        done = fresh.run_code(code, **{f"FAKEGPU_{name}": str(value) for name, value in variables.items()})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
