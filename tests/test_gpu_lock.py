"""One measurement at a time on a GPU: a lock that ends with its holder."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import fresh
import pytest
from facts import says

import pytest_torchprof
from pytest_torchprof.capture import gpu_lock
from pytest_torchprof.capture.gpu_lock import holding
from pytest_torchprof.capture.processes import only_measurement, show_waits
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.gpu_trouble import GpuInUse, LockHolder, LockUnopened

pytestmark = pytest.mark.any_torch

HOLDS = """
import os, sys, time
from functools import partial
from pathlib import Path
from pytest_torchprof.capture import gpu_lock
from pytest_torchprof.capture.processes import show_waits
uuid, seconds, account, everybodys, doing, leave = sys.argv[1:]
gpu_lock._EVERYBODYS = Path(everybodys)
if int(account):
    os.umask(0o077)
    os.setgroups([])
    os.setgid(int(account))
    os.setuid(int(account))
with gpu_lock.holding(uuid, partial(show_waits, phase="wait"), doing=doing):
    print("holding", time.monotonic_ns(), flush=True)
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until and not Path(leave).exists():
        time.sleep(0.01)
    print("leaving", time.monotonic_ns(), flush=True)
"""
NOWHERE = "/nowhere"
LIMIT_S = 120
"""How long something takes that never comes."""
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


def words_of_holder(seconds=60, *, account=0, doing="test_it.py::test_held", leave=NOWHERE):
    return [UUID, str(seconds), str(account), str(gpu_lock._EVERYBODYS), doing, str(leave)]


def process_of(seconds=60, **how):
    """Start a process that holds the lock for so long, or until there is the file ``leave``."""
    return fresh.start_code(HOLDS, *words_of_holder(seconds, **how))


def wait_for(process, *texts):
    """Wait until a process has written one of these texts, wherever to."""
    while process.process.is_alive() and not any(has_written(path, texts) for path in process.outputs):
        time.sleep(0.01)
    assert any(has_written(path, texts) for path in process.outputs), process.done().stderr


def has_written(path, texts):
    return path.exists() and any(text in path.read_text() for text in texts)


@contextmanager
def holder(seconds=60, **how):
    """Hold the lock in another process until the end of the block, or for so long."""
    other = process_of(seconds, **how)
    try:
        wait_for(other, "holding")
        yield other.process
    finally:
        other.process.kill()
        other.done()


def held_ns(process):
    """Return from when to when a process that has ended held the lock, by the clock of all processes."""
    done = process.done()
    assert done.returncode == 0, done.stderr
    (holding, since), (leaving, until) = map(str.split, done.stdout.splitlines())
    assert (holding, leaving) == ("holding", "leaving")
    return int(since), int(until)


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
        said, by = capsys.readouterr().err, process.pid
    assert said.startswith(f"torchprof waits for the GPU, up to 60 minutes: process {by} (")
    assert said.endswith(") measures test_it.py::test_held\n")


def test_a_wait_is_told_before_the_holder_lets_go_through_a_pipe_too():
    command = [sys.executable, "-c", HOLDS, *words_of_holder(0)]
    with holding(UUID, told_nothing, doing="test_here.py::test_first"):
        # A process of Python's own: what it writes is held back as in every program that writes into a pipe.
        waiter = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with selectors.DefaultSelector() as selector:
            selector.register(waiter.stderr, selectors.EVENT_READ)
            said = waiter.stderr.readline() if selector.select(LIMIT_S) else "nothing"
    rest = waiter.communicate(timeout=LIMIT_S)
    assert re.fullmatch(
        rf"torchprof waits for the GPU, up to 60 minutes: process {os.getpid()} \(.+\) "
        r"measures test_here\.py::test_first\n",
        said,
    )
    assert (waiter.returncode, rest[1]) == (0, "")
    assert rest[0].startswith("holding ")


def test_what_is_done_within_a_measurement_takes_not_its_name(capsys):
    with (
        holding(UUID, told_nothing, doing="test_it.py::test_outer"),
        holding(UUID, told_nothing, doing="the first session"),
    ):
        waiter = process_of(0)
        wait_for(waiter, "waits for the GPU", "holding")
    assert waiter.done().stderr.endswith(" measures test_it.py::test_outer\n")


def test_who_need_not_wait_tells_nothing():
    with holding(UUID, told_nothing):
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="takes two accounts, which only root has")
@pytest.mark.parametrize("accounts", [(FIRST, SECOND), (FIRST, 0), (0, FIRST)])
def test_accounts_measure_one_after_the_other(folder, accounts):
    """The file is the first one's, in a folder whose files nobody else may open for writing."""
    first, second = accounts
    one = process_of(account=first, leave=folder / "leave")
    wait_for(one, "holding")
    other = process_of(0, account=second)
    wait_for(other, "waits for the GPU", "holding")
    (folder / "leave").touch()
    (_, left), (entered, _) = held_ns(one), held_ns(other)
    assert left < entered
    for account in accounts:
        again = process_of(0, account=account)
        wait_for(again, "holding")
        assert "torchprof" not in again.done().stderr
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


def test_the_holders_that_an_earlier_version_wrote_as_a_text_are_read():
    reason = GpuInUse(
        2.0, "/run/lock/it", (LockHolder(7, "python", "test_it.py::test_held"), LockHolder(8, None, None))
    )
    earlier = from_plain({**reason.to_plain(), "holders": reason.held_by})
    assert isinstance(earlier, GpuInUse)
    assert str(earlier) == str(reason)
    assert from_plain(reason.to_plain()) == reason


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
    lock = folder / f"torchprof-{UUID}.lock"
    make(lock)
    with pytest.raises(pytest_torchprof.NotMeasured) as refused, holding(UUID, told_nothing):
        pytest.fail("measured without it")
    assert says(refused.value.reason, LockUnopened, lock=str(lock))


def test_the_cpu_has_none(folder):
    with only_measurement("cpu"):
        assert not list(folder.iterdir())
