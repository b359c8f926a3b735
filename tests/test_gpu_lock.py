"""One measurement at a time on a GPU: a lock that ends with its holder."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import fresh
import pytest

import pytest_torchprof
from pytest_torchprof.capture import gpu_lock
from pytest_torchprof.capture.gpu_lock import holding
from pytest_torchprof.capture.processes import only_measurement, show_waits

pytestmark = pytest.mark.any_torch

HOLDS = """
import os, sys, time
from functools import partial
from pathlib import Path
from pytest_torchprof.capture import gpu_lock
from pytest_torchprof.capture.processes import show_waits
uuid, seconds, account, everybodys, doing = sys.argv[1:]
gpu_lock._EVERYBODYS = Path(everybodys)
if int(account):
    os.umask(0o077)
    os.setgroups([])
    os.setgid(int(account))
    os.setuid(int(account))
with gpu_lock.holding(uuid, partial(show_waits, phase="wait"), doing=doing):
    print("holding", flush=True)
    time.sleep(float(seconds))
"""
NOWHERE = "/nowhere"
SHOWN = partial(show_waits, phase="wait")
FIRST, SECOND = 54321, 54322
"""Accounts of the machine that nobody has."""


@pytest.fixture(params=["of the system", "for temporary files"], autouse=True)
def folder(request, monkeypatch):
    """Let the locks be in one of the two places where they may be, which every account may write to.

    The folder that ``TMPDIR`` names may be one that no other account may enter.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        of_system = request.param == "of the system"
        monkeypatch.setattr(gpu_lock, "_EVERYBODYS", Path(name if of_system else NOWHERE))
        monkeypatch.setenv("TMPDIR", tempfile.gettempdir() if of_system else name)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(name)


UUID = "GPU-00000000-1111"


def process_of(seconds, *, account=0, doing="test_it.py::test_held"):
    told = [UUID, str(seconds), str(account), str(gpu_lock._EVERYBODYS), doing]
    return fresh.start_code(HOLDS, *told)


@contextmanager
def holder(seconds=60, **how):
    """Hold the lock in another process until the end of the block, or for so long."""
    other = process_of(seconds, **how)
    try:
        while not (other.outputs[0].exists() and "holding" in other.outputs[0].read_text()):
            assert other.process.is_alive(), other.done().stderr
            time.sleep(0.01)
        yield other.process
    finally:
        other.process.kill()
        other.done()


def told_nothing(words):
    pytest.fail(f"told {words!r}")


def test_only_one_process_measures_on_a_gpu_at_a_time(folder):
    with holder() as process:
        held = (
            rf"holds {folder}/torchprof-{UUID}\.lock \(process {process.pid} \(\w+\) measures test_it\.py::test_held\)"
        )
        with (
            pytest.raises(pytest_torchprof.NotMeasured, match=rf"{held}; end it, .* \[gpu-in-use\]"),
            holding(UUID, lambda _: None, wait_s=0.2),
        ):
            pytest.fail("two at once")


def test_who_waits_says_at_once_for_whom_and_how_long_and_gets_its_turn(capsys):
    with holder(2) as process, holding(UUID, SHOWN):
        said = capsys.readouterr().err
    assert said.startswith(f"torchprof waits for the GPU, up to 60 minutes: process {process.pid} (")
    assert said.endswith(") measures test_it.py::test_held\n")


def test_who_need_not_wait_tells_nothing():
    with holding(UUID, told_nothing):
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="takes two accounts, which only root has")
@pytest.mark.parametrize("accounts", [(FIRST, SECOND), (FIRST, 0), (0, FIRST)])
def test_accounts_measure_one_after_the_other(folder, accounts):
    """The file is the first one's, in a folder whose files nobody else may open for writing."""
    first, second = accounts
    with holder(1.5, account=first), holder(0, account=second) as other:
        pass
    for account in accounts:
        done = process_of(0, account=account).done()
        assert (done.returncode, done.stdout, done.stderr) == (0, "holding\n", "")
    assert other.exitcode is not None
    (lock,) = folder.glob("*.lock")
    assert (lock.stat().st_uid, lock.stat().st_mode & 0o777) == (first, 0o644)


@pytest.mark.skipif(os.getuid() != 0, reason="takes two accounts, which only root has")
def test_another_accounts_measurement_is_named(capsys):
    with holder(1.5, account=FIRST, doing="test_other.py::test_model"), holding(UUID, SHOWN):
        assert capsys.readouterr().err.endswith(" measures test_other.py::test_model\n")


def test_what_another_account_has_written_is_shown_on_one_line(capsys):
    with holder(1.5, doing="test\n\x1b[31m" + 300 * "a"), holding(UUID, SHOWN):
        said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "\x1b" not in said
    assert len(said) < 400


def test_the_lock_of_a_killed_process_is_taken_over():
    with holder() as process:
        process.kill()
        process.join()
        with holding(UUID, told_nothing, wait_s=0):
            pass


def test_a_file_that_was_removed_is_made_anew(folder):
    for _ in range(2):
        with holding(UUID, told_nothing):
            (folder / f"torchprof-{UUID}.lock").unlink()


def test_another_gpu_is_another_lock():
    with holder(), holding("GPU-2", told_nothing, wait_s=0):
        pass


def test_a_thread_that_holds_it_does_not_wait_for_itself():
    with holding(UUID, told_nothing, wait_s=0), holding(UUID, told_nothing, wait_s=0):
        pass


def test_another_thread_waits():
    entered = []

    def measure():
        with holding(UUID, lambda _: None):
            entered.append(time.monotonic_ns())

    other = threading.Thread(target=measure)
    with holding(UUID, told_nothing):
        other.start()
        other.join(0.3)
        left = time.monotonic_ns()
    other.join()
    assert entered[0] > left


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("elsewhere")])
def test_a_lock_that_cannot_be_opened_is_not_measured(folder, make):
    make(folder / f"torchprof-{UUID}.lock")
    with (
        pytest.raises(pytest_torchprof.NotMeasured, match=r"the lock of this GPU, .*cannot be opened"),
        holding(UUID, told_nothing),
    ):
        pytest.fail("measured without it")


def test_the_cpu_has_none(folder):
    with only_measurement("cpu"):
        assert not list(folder.iterdir())
