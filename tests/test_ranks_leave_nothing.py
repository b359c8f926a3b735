"""Nothing is left after a job of several ranks, however it ends: no process, no socket that listens, no lock that is held."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import rank_jobs
from children import Child
from left_behind import left_in, listens, processes

from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.reasons.lost_ranks import RankLostWithLauncher, RankOutlasted

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo"),
    pytest.mark.skipif(not Path("/proc/locks").exists(), reason="looks at /proc"),
]

TIMEOUT_S = 2
SILENT = f"not measured: rank 1 did not reach {Goal(RunPoint.WARM_UP_CALL, 1)} within {TIMEOUT_S} s"
HEAD = """
import os, signal, time
from pathlib import Path
import pytest, torch
from torch import distributed

RANK = int(os.environ.get("RANK", -1))
x = torch.ones(4)

@pytest.fixture(autouse=True)
def known(request):
    if RANK >= 0:
        Path(f"{request.node.name}.{RANK}").write_text(os.environ["MASTER_PORT"])
        while not Path(f"{request.node.name}.{1 - RANK}").exists():
            time.sleep(0.05)

def sleep_on_rank_1():
    torch.sin(x)
    if RANK == 1:
        time.sleep(600)
"""
OF_THE_MARKER = """
two = pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)

@two
def test_sleeps():
    sleep_on_rank_1()

@two
def test_interrupted():
    time.sleep(600)
"""
LOST = """
two = pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)

@two
def test_fails_while_another_sleeps():
    assert RANK, "not here"
    time.sleep(600)

@two
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_launcher_ends(name):
    if RANK:
        os.kill(os.getppid(), signal.Signals[name])
    time.sleep(600)
"""
UNDER_TORCHRUN = """
@pytest.mark.torchprof(device="cpu", warmup=1, steps=2)
def test_sleeps():
    sleep_on_rank_1()

def test_interrupted():
    time.sleep(600)
"""

KILLS_TORCHRUN = """
measured = pytest.mark.torchprof(device="cpu", warmup=1, steps=2)

@measured
def test_first():
    torch.sin(x)

def test_kills():
    if RANK == 1:
        os.kill(os.getppid(), signal.SIGKILL)

@measured
def test_second():
    torch.sin(x)
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def start(folder: Path, source: str, *launcher: str, only: str = "test") -> subprocess.Popen[str]:
    """Start pytest on a module in a folder, the process group's own as in a shell."""
    folder.mkdir(exist_ok=True)
    (folder / "test_it.py").write_text(HEAD + source)
    (folder / "pytest.ini").write_text(f"[pytest]\ntorchprof_rank_timeout = {TIMEOUT_S}\n")
    words = ("-p", "no:cacheprovider", "-rA", "--torchprof-save=kept", "-k", only)
    return Child(
        [sys.executable, *launcher, "-m", "pytest", *words],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "160", "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ports(folder: Path, test: str) -> set[int]:
    """Return where the ranks of a test's job met; none before both have begun."""
    told = [path.read_text() for path in folder.glob(f"{test}.[01]")]
    return {int(one) for one in told} if len(told) == 2 and all(told) else set()


def wait_until(true: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    until = time.monotonic() + rank_jobs.LONGEST_S
    while not true():
        assert process is None or process.poll() is None, process and process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_job_of_the_marker_leaves_nothing(tmp_path, monkeypatch):
    rank_jobs.without_ci(monkeypatch)
    process = start(tmp_path, OF_THE_MARKER)
    try:
        wait_until(lambda: ports(tmp_path, "test_interrupted"), process)
        # Those of the second job alone: who waits for it, the launcher, two ranks.
        assert len(alive := processes(tmp_path)) == 4, alive
        assert [listens(port) for port in ports(tmp_path, "test_sleeps")] == [False]
        assert [listens(port) for port in ports(tmp_path, "test_interrupted")] == [True]
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=rank_jobs.LONGEST_S)[0]
    finally:
        process.kill()
    assert f"rank 0 of 2: {SILENT}" in said
    # Who has waited for another rank is not waited for as long again.
    assert f"rank 1 of 2: {RankOutlasted(5, '').sentence}" in said
    assert "KeyboardInterrupt" in said
    assert left_in(tmp_path, *ports(tmp_path, "test_interrupted")) == {}


def test_a_job_that_loses_a_rank_or_its_launcher_leaves_nothing(tmp_path, monkeypatch):
    rank_jobs.without_ci(monkeypatch)
    # Each waits for what does not end by itself: they do so at once.
    started = {only: start(tmp_path / only, LOST, only=only) for only in ("fails", "SIGTERM", "SIGKILL")}
    said = {only: process.communicate(timeout=rank_jobs.LONGEST_S)[0] for only, process in started.items()}
    assert "test_fails_while_another_sleeps - rank 0 of 2: AssertionError: not here" in said["fails"]
    assert f"rank 1 of 2: {RankOutlasted(TIMEOUT_S + 5, '').sentence}" in said["fails"]
    # The other rank may have met nobody before.
    for name, status in (("SIGKILL", -signal.SIGKILL), ("SIGTERM", 1)):
        lost = re.escape(str(RankLostWithLauncher(status)))
        assert re.search(rf"test_launcher_ends\[{name}\] - rank [01] of 2: {lost}", said[name])
    tests = ("test_fails_while_another_sleeps", "test_launcher_ends[[]SIGTERM]", "test_launcher_ends[[]SIGKILL]")
    for only, test in zip(started, tests, strict=True):
        assert ports(tmp_path / only, test)
        assert left_in(tmp_path / only, *ports(tmp_path / only, test)) == {}


def test_torchrun_leaves_nothing(tmp_path, monkeypatch):
    rank_jobs.without_ci(monkeypatch)
    process = start(tmp_path, UNDER_TORCHRUN, *TORCHRUN)
    try:
        # Rank 0 has given up waiting, and the other one still sleeps.
        wait_until((tmp_path / "test_interrupted.0").exists, process)
        assert [listens(port) for port in ports(tmp_path, "test_sleeps")] == [True]
        # The launcher hands the signal on. With a second one from the terminal pytest may end without its summary.
        os.kill(process.pid, signal.SIGINT)
        said = process.communicate(timeout=rank_jobs.LONGEST_S)[0]
    finally:
        process.kill()
    assert said.count("! KeyboardInterrupt !") == 2
    assert SILENT in said
    assert left_in(tmp_path, *ports(tmp_path, "test_sleeps")) == {}


def test_ranks_end_whose_torchrun_was_killed(tmp_path, monkeypatch):
    rank_jobs.without_ci(monkeypatch)
    process = start(tmp_path, KILLS_TORCHRUN, *TORCHRUN)
    # It ends once the ranks have: they write where it did.
    said = process.communicate(timeout=rank_jobs.LONGEST_S)[0]
    assert process.returncode == -signal.SIGKILL
    assert said.count("FAILED test_it.py::test_second - not measured: the ranks ") == 2
    assert said.count("= 1 failed, 2 passed") == 2
    wait_until(lambda: left_in(tmp_path, *ports(tmp_path, "test_kills")) == {})
