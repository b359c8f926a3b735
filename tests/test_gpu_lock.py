"""One measurement at a time on a GPU: a lock that ends with its holder."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import pytest_torchprof
from pytest_torchprof.capture.processes import holding, only_measurement

pytestmark = pytest.mark.any_torch

REPOSITORY = Path(__file__).parents[1]
UUID = "GPU-00000000-1111"
HOLDS = """
import sys, time
from pytest_torchprof.capture.processes import holding
with holding(sys.argv[1]):
    print("holding", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder(seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, UUID, str(seconds)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "holding\n"
    return process


def test_only_one_process_measures_on_a_gpu_at_a_time(own_folder):
    with holder(60) as process:
        with (
            pytest.raises(
                pytest_torchprof.NotMeasured, match=rf"holds .*torchprof-{UUID}\.lock: end it, .* \[gpu-in-use\]"
            ),
            holding(UUID, wait_s=0.2),
        ):
            pytest.fail("two at once")
        process.kill()


def test_who_waits_gets_its_turn():
    told = []
    with holder(3), holding(UUID, wait_s=60, tell=told.append):
        assert told == ["waits for the GPU, on which another process measures"]


def test_who_need_not_wait_tells_nothing():
    told = []
    with holding(UUID, tell=told.append):
        assert told == []


def test_the_lock_of_a_killed_process_is_taken_over():
    with holder(60) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with holding(UUID, wait_s=0):
            pass


def test_another_gpu_is_another_lock():
    with holder(60) as process:
        with holding("GPU-2", wait_s=0):
            pass
        process.kill()


def test_a_thread_that_holds_it_does_not_wait_for_itself():
    with holding(UUID, wait_s=0), holding(UUID, wait_s=0):
        pass


def test_another_thread_waits():
    entered = []

    def measure():
        with holding(UUID):
            entered.append(time.monotonic_ns())

    other = threading.Thread(target=measure)
    with holding(UUID):
        other.start()
        other.join(0.3)
        left = time.monotonic_ns()
    other.join()
    assert entered[0] > left


def test_every_user_can_open_it(own_folder):
    with holding(UUID):
        pass
    assert (own_folder / f"torchprof-{UUID}.lock").stat().st_mode & 0o666 == 0o666


def test_a_lock_that_cannot_be_opened_is_not_measured(own_folder):
    (own_folder / f"torchprof-{UUID}.lock").mkdir()
    with pytest.raises(pytest_torchprof.NotMeasured, match=r"the lock of this GPU, .*cannot be opened"), holding(UUID):
        pytest.fail("measured without it")


def test_the_cpu_has_none(own_folder):
    with only_measurement("cpu"):
        assert not list(own_folder.iterdir())
