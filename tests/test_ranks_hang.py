"""No job of several ranks runs for ever: one that makes no progress is ended, and each rank's place in the code is told."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import filelock
import fresh
import pytest
import rank_jobs
from facts import says
from left_behind import left_in

import pytest_torchprof
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.reasons.lost_ranks import RankStoodStill
from pytest_torchprof.reasons.ranks_started import NoRankGoesOn
from pytest_torchprof.testing.ranks.stacks import Stack

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo"),
]

TIMEOUT_S = 4
TESTS = (
    f"TIMEOUT_S = {TIMEOUT_S}"
    """
import os, time
import pytest, torch
from torch import distributed

two = pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
x = torch.ones(4)
calls = []

def step(ranks):
    calls.append(1)
    if ranks.rank and len(calls) == 3:
        time.sleep(600)
    distributed.all_reduce(x)

@two
@pytest.mark.xfail(reason="not for this")
def test_hangs_in_a_step(torchprof):
    torchprof(step, torchprof.ranks)

@pytest.fixture
def slow():
    yield
    while True:
        time.sleep(0.01)

@two
def test_hangs_in_the_teardown(torchprof, slow):
    torchprof(torch.sin, x)

def slow_backend(graph, inputs):
    time.sleep(2.5 * TIMEOUT_S)
    return graph

@two
def test_compiles_long(torchprof):
    torchprof(torch.compile(lambda: x.sin(), backend=slow_backend))

@two
def test_takes_long(torchprof):
    for label in "abc":
        with torchprof.measure(label) as m:
            for _ in m.steps():
                time.sleep(TIMEOUT_S / 6)
                torch.sin(x)
"""
)
JOBS = ("hangs", "long")
"""What the names of the tests of each job have in common: one job waits for its tests while the other waits for its own."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the jobs; give what was said, and the results. Workers that run tests of this file share one run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "hanging"
    with filelock.FileLock(f"{folder}.lock"):
        if not folder.exists():
            run_jobs(folder)
    results = [one for name in JOBS for one in json.loads((folder / f"{name}.json").read_text())["results"]]
    return SimpleNamespace(
        said={name: (folder / name).read_text() for name in JOBS},
        results={one["nodeid"].partition("::")[2]: one for one in results},
    )


def run_jobs(folder):
    folder.mkdir()
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(f"[pytest]\ntorchprof_rank_timeout = {TIMEOUT_S}\n")
    environment = {**os.environ, "TMPDIR": str(folder), "COLUMNS": "400"}
    words = ("-m", "pytest", "-p", "no:cacheprovider")
    started = {
        name: fresh.start_python(
            *words, "-k", name, f"--torchprof-report={name}.json", folder=folder, environment=environment
        )
        for name in JOBS
    }
    for name, process in started.items():
        (folder / name).write_text(process.done(rank_jobs.LONGEST_S).stdout)
    until = time.monotonic() + rank_jobs.LONGEST_S
    while left := left_in(folder):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def line_of(text, of):
    return next(number for number, line in enumerate(text.splitlines(), 1) if of in line)


def test_a_job_that_hangs_in_a_step_is_not_measured_and_names_each_ranks_step_and_line(run):
    result = run.results["test_hangs_in_a_step"]
    assert result["outcome"] == "not measured"
    collective, sleep = line_of(TESTS, "all_reduce"), line_of(TESTS, "sleep(600)")
    start, goal = f"not measured: {NoRankGoesOn(TIMEOUT_S, (), ()).text}", Goal(RunPoint.STEP, 2)
    assert result["message"].startswith(f"{start}rank 0 did not reach {goal}: test_it.py:{collective} in step (in ")
    assert f"; rank 1 did not reach {goal}: test_it.py:{sleep} in step [silent-rank]" in result["message"]
    assert says(from_plain(result["reason"]), RankStoodStill, goal=goal, waited=False)
    assert f"FAILED test_it.py::test_hangs_in_a_step - {result['message']}" in run.said["hangs"]


def test_the_failure_shows_the_stack_of_each_rank(run):
    failure = run.said["hangs"].partition("_ test_hangs_in_a_step _")[2].partition("_ test_hangs_in_the_teardown _")[0]
    for rank, place in ((0, "in all_reduce"), (1, "in step")):
        own = failure.partition(f"rank {rank} of 2, ")[2]
        frames = own.partition("the innermost call first:\n")[2].splitlines()
        assert place in frames[0] or place in frames[1]
        assert "in test_hangs_in_a_step" in own


def test_the_machinery_that_calls_the_test_is_not_in_its_stack():
    lines = [f'  File "{file}", line 1 in {name}' for file, name in (
        (f"{torch.__path__[0]}/distributed/distributed_c10d.py", "all_reduce"),
        ("/home/me/model.py", "step"),
        (pytest_torchprof.__file__, "measure"),
        ("/home/me/test_it.py", "test_it"),
        (f"{Path(pytest.__file__).parents[1]}/_pytest/python.py", "pytest_pyfunc_call"),
        (f"{Path(pytest.__file__).parents[1]}/pluggy/_callers.py", "_multicall"),
    )]  # fmt: skip
    assert Stack(tuple(lines), compiles=False).of_user == tuple(lines[:4])


def test_a_loop_that_waits_for_ever_is_no_progress(run):
    result = run.results["test_hangs_in_the_teardown"]
    assert result["outcome"] == "not measured"
    line = line_of(TESTS, "sleep(0.01)")
    for rank in (0, 1):
        assert f"rank {rank} did not reach {Goal(RunPoint.TEARDOWN)}: test_it.py:{line} in slow" in result["message"]


def test_a_test_that_tells_of_progress_may_take_longer(run):
    assert "2 failed" in run.said["hangs"]
    assert "2 passed" in run.said["long"]
    assert {one["outcome"] for name, one in run.results.items() if name == "test_takes_long"} == {"passed"}


def test_ranks_that_compile_may_take_longer(run):
    assert run.results["test_compiles_long"]["outcome"] == "passed"
