"""Other processes: started, waited for and ended in one way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pytest_torchprof.system.processes import end, run, running, start

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and groups of processes are POSIX's"),
]

SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
HEARS_NOTHING = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]
HAS_A_CHILD = [
    sys.executable,
    "-c",
    f"""
import subprocess
child = subprocess.Popen({SLEEPS!r}, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
""",
]


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_process_wrote_and_its_status_are_returned():
    code = "import os, sys; os.write(1, b'out \\xff'); sys.stderr.write(repr(sys.stdin.read())); sys.exit(3)"
    assert run([sys.executable, "-c", code]) == (3, "out \udcff", "''")


def test_what_cannot_be_started_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        run([str(tmp_path / "nothing")])


def test_what_does_not_end_within_its_limit_is_ended():
    began = time.monotonic()
    assert run(HEARS_NOTHING, limit_s=1).status is None
    assert time.monotonic() - began < 60  # Of 600.


@pytest.mark.parametrize("problem", [KeyboardInterrupt, SystemExit, ValueError])
def test_no_way_out_of_the_block_leaves_the_process_behind(problem):
    started = []

    def leave() -> None:
        with running(SLEEPS, stdout=subprocess.PIPE) as process:
            started.append(process)
            process.stdout.readline()
            raise problem

    with pytest.raises(problem):
        leave()
    assert started[0].returncode == -signal.SIGTERM


def test_a_process_that_hears_nothing_is_made_to_end():
    with running(HEARS_NOTHING, stdout=subprocess.PIPE, patience_s=0.1) as process:
        process.stdout.readline()
    assert process.returncode == -signal.SIGKILL


def test_with_its_own_group_ends_what_a_process_has_started():
    with running(HAS_A_CHILD, own_group=True, stdout=subprocess.PIPE) as process:
        child = int(process.stdout.readline())
        assert os.getpgid(child) == process.pid
    until = time.monotonic() + 60
    while is_there(child):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_process_that_ends_by_itself_is_waited_for():
    process = start([sys.executable, "-c", "import time; time.sleep(0.2)"])
    end(process, asks=False)
    assert process.returncode == 0
