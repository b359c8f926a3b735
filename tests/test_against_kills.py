"""A comparison may end at any moment, and two may run at once: the repository stays as it was, and the next run works."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest
from kills_at_random import AGAINST, SEARCH, left, make
from repository import PACKAGE, SLOWER, TESTS, Repository

from pytest_torchprof.against.orphans import ENDED

pytestmark = pytest.mark.any_torch

TWO = TESTS + TESTS.replace("test_wave", "test_again").replace("waves.wave(x)", "torch.cos(x)")
WORSE = {"test_wave": ("worse (+1 kernel)", "failed"), "test_again": ("same", "passed")}
CONFTEST = """
import os, signal, time
from pathlib import Path

SIDE = "commit" if ".torchprof" in __file__ else "tree"

def stop(moment):
    if os.environ.get("STOPS_AT") == f"{moment} {SIDE}":
        Path(os.environ["STOPPED"]).write_text(str(os.getpid()))
        time.sleep(600)

def pytest_collection_modifyitems():
    stop("collected of the")

def pytest_runtest_call(item):
    stop("measured of the")
    if "SENT" in os.environ and SIDE == "commit":
        os.kill(os.getppid(), int(os.environ["SENT"]))
        time.sleep(30)

def pytest_sessionfinish():
    stop("over for the")
"""
GIT = """#!/bin/sh
case " $* " in *" $STOPS_AT "*)
    echo $$ > "$STOPPED.unfinished" && mv "$STOPPED.unfinished" "$STOPPED" && exec sleep 600;;
esac
exec {git} "$@"
"""
FRESH = "--torchprof-against-fresh"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    files = {"waves.py": PACKAGE, "tests/test_waves.py": TWO, "conftest.py": CONFTEST}
    made = Repository(tmp_path_factory.mktemp("kills") / "repository", files)
    made.write({"waves.py": SLOWER, "notes.txt": "not added"})
    return made


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    return make(tmp_path_factory.mktemp("searched") / "repository", {"conftest.py": CONFTEST})


@pytest.fixture(scope="module")
def before(repository):
    return repository.state()


def stopped(made, folder, program, words, moment, *, by_fork=True):
    """Start a run that stops at a moment; return its process and the number of the one that stopped."""
    (folder / "bin").mkdir()
    (folder / "temporary").mkdir()
    git = folder / "bin" / "git"
    git.write_text(GIT.replace("{git}", shutil.which("git")))
    git.chmod(0o755)
    path = f"{git.parent}{os.pathsep}{os.environ['PATH']}"
    told = {"STOPS_AT": moment, "STOPPED": str(folder / "stopped"), "TMPDIR": str(folder / "temporary")}
    process = made.start(*words, program=program, by_fork=by_fork, PATH=path, **told)
    while not ((folder / "stopped").exists() and (number := (folder / "stopped").read_text().strip())):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    return process, int(number)


ALL = ("--torchprof-against=main", FRESH)


@pytest.mark.parametrize(
    "moment", ["read-tree", "collected of the commit", "measured of the commit", "measured of the tree"]
)
def test_a_kill_of_all_leaves_nothing_that_lasts(repository, before, tmp_path, moment):
    process, _ = stopped(repository, tmp_path, AGAINST[0], ALL, moment)
    with process:
        os.killpg(process.pid, signal.SIGKILL)
    assert repository.state() == before


def test_the_run_after_a_kill_removes_what_is_left(repository, before, tmp_path):
    process, _ = stopped(repository, tmp_path, AGAINST[0], ALL, "measured of the commit")
    with process:
        os.killpg(process.pid, signal.SIGKILL)
    assert list((repository.path / ".torchprof/against").glob("*/tree"))
    run = repository.against("main")
    assert run.rows == WORSE
    assert repository.state() == before
    assert not list((repository.path / ".torchprof/against").glob("*/tree"))


def test_a_side_ends_soon_after_who_started_it(repository, before):
    killed = str(int(signal.SIGKILL))
    with repository.start("--torchprof-against=main", FRESH, by_fork=True, SENT=killed) as process:
        assert process.wait() == -signal.SIGKILL
    (log,) = (repository.path / ".torchprof/against/runs").glob("*/log")
    # In the middle of its test, and not once that is over.
    while not all(text in (said := log.read_text()) for text in (ENDED, "KeyboardInterrupt")):
        assert " passed" not in said
        time.sleep(0.1)
    assert repository.state() == before


def test_pairs_of_times_end_soon_after_who_started_them(repository, before):
    with repository.start("--torchprof-against=main", "--torchprof-against-time=10%", by_fork=True) as process:
        while "times of 2 measurements against" not in process.stdout.readline():
            assert process.poll() is None
        process.kill()
        # What was started writes to the same pipe, which ends with the last of them.
        said = process.stdout.read()
    assert ENDED in said
    assert repository.state() == before


def test_an_interrupt_ends_the_run(repository, before):
    process = repository.start("--torchprof-against=main", FRESH, by_fork=True, SENT=str(int(signal.SIGINT)))
    out = process.communicate(timeout=300)[0]
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "torchprof: interrupted while main (" in out
    assert "Traceback" not in out
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


KILLS = [
    (AGAINST, "read-tree", signal.SIGTERM, "parent"),
    (AGAINST, "read-tree", signal.SIGKILL, "child"),
    (AGAINST, "collected of the commit", signal.SIGTERM, "parent"),
    (AGAINST, "measured of the commit", signal.SIGKILL, "child"),
    (AGAINST, "measured of the tree", signal.SIGTERM, "parent"),
    (AGAINST, "over for the commit", signal.SIGKILL, "parent"),
    (SEARCH, "read-tree", signal.SIGTERM, "parent"),
    (SEARCH, "read-tree", signal.SIGKILL, "child"),
    (SEARCH, "measured of the commit", signal.SIGTERM, "parent"),
    (SEARCH, "measured of the commit", signal.SIGKILL, "parent"),
]


@pytest.mark.parametrize(("how", "moment", "sent", "whom"), KILLS)
def test_who_is_killed_leaves_nothing(searched, tmp_path, how, moment, sent, whom):
    """At the moments that matter; tests/kills_at_random.py does it at any."""
    check_kill(searched, tmp_path, how, moment, sent, whom)


def test_a_fork_of_a_search_that_is_killed_leaves_nothing(searched, tmp_path):
    """Where a process that has imported torch forks for each commit."""
    check_kill(searched, tmp_path, SEARCH, "measured of the commit", signal.SIGKILL, "child", by_fork=False)


def check_kill(made, folder, how, moment, sent, whom, *, by_fork=True):
    before = made.state()
    process, number = stopped(made, folder, *how, moment, by_fork=by_fork)
    os.kill(number if whom == "child" else process.pid, sent)
    out = process.communicate(timeout=300)[0]
    assert left(made, folder / "temporary") == {}
    # pytest has some of its own.
    assert "Traceback" not in out or f"{os.sep}pytest_torchprof{os.sep}" not in out
    assert made.state() == before
