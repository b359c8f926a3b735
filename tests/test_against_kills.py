"""A comparison may end at any moment, and two may run at once: the repository stays as it was, and the next run works."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from kills_at_random import AGAINST, SEARCH, killed, make
from repository import PACKAGE, SLOWER, TESTS, Repository

from pytest_torchprof.against.orphans import ENDED

pytestmark = pytest.mark.any_torch

TWO = TESTS + TESTS.replace("test_wave", "test_again").replace("waves.wave(x)", "torch.cos(x)")
WORSE = {"test_wave": ("worse (+1 kernel)", "failed"), "test_again": ("same", "passed")}
CONFTEST = """
import os, signal

def pytest_runtest_call(item):
    if "SENT" in os.environ and ".torchprof" in item.path.parts:
        os.kill(os.getppid(), int(os.environ["SENT"]))
"""
FRESH = "--torchprof-against-fresh"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    files = {"waves.py": PACKAGE, "tests/test_waves.py": TWO, "conftest.py": CONFTEST}
    made = Repository(tmp_path_factory.mktemp("kills") / "repository", files)
    made.write({"waves.py": SLOWER, "notes.txt": "not added"})
    return made


@pytest.fixture(scope="module")
def before(repository):
    return repository.state()


def test_a_kill_at_any_moment_leaves_nothing_that_lasts(repository, before):
    with repository.start("--torchprof-against=main", FRESH) as process:
        time.sleep(random.Random(7).uniform(0.5, 6))
        os.killpg(process.pid, signal.SIGKILL)
    assert repository.state() == before
    run = repository.against("main")
    assert run.rows == WORSE
    assert repository.state() == before
    assert not list((repository.path / ".torchprof/against").glob("*/tree"))


def test_a_side_ends_soon_after_who_started_it(repository, before):
    killed = str(int(signal.SIGKILL))
    with repository.start("--torchprof-against=main", FRESH, SENT=killed) as process:
        assert process.wait() == -signal.SIGKILL
    (log,) = (repository.path / ".torchprof/against/runs").glob("*/log")
    while ENDED not in (said := log.read_text()):
        assert "2 passed" not in said
        time.sleep(0.1)
    assert repository.state() == before


def test_pairs_of_times_end_soon_after_who_started_them(repository, before):
    with repository.start("--torchprof-against=main", "--torchprof-against-time=10%") as process:
        while "times of 2 measurements against" not in process.stdout.readline():
            assert process.poll() is None
        process.kill()
        # What was started writes to the same pipe, which ends with the last of them.
        said = process.stdout.read()
    assert ENDED in said
    assert repository.state() == before


def test_an_interrupt_ends_the_run(repository, before):
    # Whoever started a fork is not its parent.
    run = repository.against("main", FRESH, by_fork=False, SENT=str(int(signal.SIGINT)))
    assert run.status == pytest.ExitCode.INTERRUPTED
    assert "torchprof: interrupted while main (" in run.out
    assert "Traceback" not in run.out
    assert repository.state() == before
    assert not list((repository.path / ".torchprof/against").glob("*/tree"))


def test_two_runs_at_once_wait_for_each_other(repository, before, tmp_path):
    logs = [tmp_path / "first", tmp_path / "second"]
    started = [repository.fork("--torchprof-against=main", FRESH, log=log) for log in logs]
    assert [process.done().returncode for process in started] == [1, 1]
    outs = [log.read_text() for log in logs]
    assert all("worse (+1 kernel)  failed" in out for out in outs)
    assert sum("waits for another run" in out for out in outs) == 1
    assert not any("kept from an earlier run" in out for out in outs)
    assert repository.state() == before


@pytest.mark.parametrize(
    ("how", "sent", "whom"),
    [
        (AGAINST, signal.SIGTERM, "parent"),
        (AGAINST, signal.SIGKILL, "child"),
        (SEARCH, signal.SIGTERM, "parent"),
        (SEARCH, signal.SIGKILL, "child"),
    ],
)
def test_who_is_killed_at_a_random_moment_leaves_nothing(tmp_path, how, sent, whom):
    """As tests/kills_at_random.py does as often as it is asked to."""
    made, chance = make(tmp_path / "made"), random.Random(7)
    before = made.state()
    # How long a run takes, and until it has started others, is the machine's.
    for moment_s in (4, 2, 8, 20):
        who, _, found = killed(made, how, sent, whom, moment_s + chance.random(), chance)
        assert found == {}
        if not who.startswith("nobody"):
            break
    assert not who.startswith("nobody")
    assert made.state() == before
