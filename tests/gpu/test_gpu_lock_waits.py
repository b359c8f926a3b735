"""A run that waits for the GPU says so where there is no terminal, too."""

from __future__ import annotations

import time

import fresh
import pytest
import torch

from pytest_torchprof.capture.devices import live_device
from pytest_torchprof.capture.gpu_lock import holding

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

WAITS = "torchprof waits for the GPU, up to 60 minutes: process "
TEST = """
import pytest, torch
@pytest.mark.torchprof(max_kernels=2)
def test_it(): torch.ones(4, device="cuda") + 1
"""
# The first session takes as long as the other process asks for the lock: until it has said whom it waits for.
ARMS = """
import sys, time
from pathlib import Path
from pytest_torchprof import capture
from pytest_torchprof.capture import first_session

def probe(device, known=first_session._probe):
    print("arming", flush=True)
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)
    return known(device)

first_session._probe = probe
capture.arm("cuda:0")
"""


@pytest.fixture
def uuid():
    (name,) = live_device("cuda:0").lock_names(with_others=False)
    return name


def wait_for(process, text):
    """Wait until a process has written a text, wherever to."""
    while process.process.is_alive() and not any(
        path.exists() and text in path.read_text() for path in process.outputs
    ):
        time.sleep(0.01)
    assert any(text in path.read_text() for path in process.outputs if path.exists()), process.done()


def test_a_run_that_waits_names_whom_it_waits_for(pytester, uuid):
    """The lock is held before the run begins, so that it waits for nobody else, whatever measures on this GPU."""
    pytester.makepyfile(test_it=TEST)
    with holding(uuid, lambda _: None, doing="test_other.py::test_held"):
        other = fresh.start_pytest("-p", "no:cacheprovider")
        wait_for(other, WAITS)
    done = other.done()
    assert done.returncode == 0, done.stdout
    (said,) = (line for line in done.stderr.splitlines() if line.startswith(WAITS))
    assert said.endswith(" measures test_other.py::test_held (the run waits for it)")


def test_who_waits_for_a_process_that_has_not_measured_yet_is_told_what_that_does(tmp_path, uuid):
    told = []
    first = fresh.start_code(ARMS, str(tmp_path / "told"))
    of_first = first.process.pid
    wait_for(first, "arming")

    def announce(text):
        told.append(text)
        (tmp_path / "told").touch()

    with holding(uuid, announce):
        pass
    assert first.done().returncode == 0
    assert [text.partition(" measures ")[2] for text in told] == ["a few kernels before its first measurement"]
    assert f"process {of_first} " in told[0]
