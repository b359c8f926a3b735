"""Tests of as many ranks in one file share a job, and each finds what it would find in a job of its own."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import filelock
import fresh
import pytest
import rank_jobs
from left_behind import left_in

from pytest_torchprof.reasons.run_options import NoRanksScope

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo"),
]

HEAD = """
import os, sys
import pytest, torch
from torch import distributed

two = pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
x = torch.ones(4)
torch.manual_seed(0)

def note(what):
    with open("noted", "a") as file:
        file.write(f"{what} {os.environ.get('RANK')} {os.getpid()}\\n")

@pytest.fixture(autouse=True)
def noted(request):
    note(request.node.name)

def reduce(ranks):
    y = x * (ranks.rank + 1)
    distributed.all_reduce(y)
    assert y[0] == 3
"""
TESTS = """
@pytest.fixture(scope="module")
def module():
    note("set-up")
    yield
    note("teardown")

@pytest.fixture
def group():
    distributed.init_process_group("gloo")
    yield
    distributed.destroy_process_group()

@two
def test_first(torchprof, module):
    print("told by the first test")
    torchprof(reduce, torchprof.ranks)
    torch.rand(torchprof.ranks.rank)

@two
def test_fails_on_one_rank(torchprof, module):
    print("told by the second test")
    torchprof(reduce, torchprof.ranks)
    distributed.all_reduce(torch.zeros(4), async_op=torchprof.ranks.rank == 0)
    assert torchprof.ranks.rank == 0, "not here"

def test_of_no_ranks():
    assert "RANK" not in os.environ

@two
def test_draws_the_same_numbers(torchprof):
    one = torch.rand(4)
    both = [torch.empty(4), torch.empty(4)]
    torchprof.ranks
    distributed.all_gather(both, one)
    assert torch.equal(both[0], both[1])
    torchprof(torch.sin, x)

@two
@pytest.mark.parametrize("number", [1, 2])
def test_makes_its_own_group(torchprof, group, number):
    torchprof(reduce, torchprof.ranks)

@two
def test_leaves_its_group(torchprof):
    distributed.init_process_group("gloo")
    torchprof(reduce, torchprof.ranks)

@two
def test_after_a_group(torchprof, group):
    torchprof(reduce, torchprof.ranks)

@two
def test_dies(torchprof):
    torchprof(reduce, torchprof.ranks)
    if torchprof.ranks.rank:
        os.kill(os.getpid(), 9)
    distributed.barrier()

@two
def test_after_a_loss(torchprof, module):
    torchprof(reduce, torchprof.ranks)

@pytest.mark.torchprof(device="cpu", ranks=1, warmup=1, steps=2)
def test_of_one_rank(torchprof):
    torchprof(torch.sin, x)
"""


def pytest_in(folder, *words):
    environment = {**os.environ, "TMPDIR": str(folder), "COLUMNS": "160"}
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-rA", *words)
    said = fresh.run_python(*words, folder=folder, environment=environment, limit_s=rank_jobs.LONGEST_S).stdout
    until = time.monotonic() + rank_jobs.LONGEST_S
    while left := left_in(folder):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    assert not list(folder.glob("torchprof-*"))
    return said


def noted(folder):
    """Return which processes noted what, by its name."""
    found = {}
    for line in (folder / "noted").read_text().splitlines():
        name, _, process = line.rsplit(" ", 2)
        found.setdefault(name, []).append(process)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the tests once; workers that run tests of this file share one run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "sharing"
    with filelock.FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            (folder / "test_it.py").write_text(HEAD + TESTS)
            (folder / "said").write_text(pytest_in(folder, "--junitxml=r.xml", "--torchprof-baseline=update"))
    cases = {case.get("name"): case for case in ET.parse(folder / "r.xml").iter("testcase")}
    return SimpleNamespace(said=(folder / "said").read_text(), noted=noted(folder), cases=cases, folder=folder)


def same_job(run, *names):
    return len({frozenset(run.noted[name]) for name in names}) == 1


def test_tests_of_one_file_share_a_job_also_after_a_failure(run):
    names = ("test_first", "test_fails_on_one_rank", "test_draws_the_same_numbers", "test_makes_its_own_group[1]")
    assert same_job(run, *names, "test_makes_its_own_group[2]", "test_leaves_its_group")
    assert "FAILED test_it.py::test_fails_on_one_rank - rank 1 of 2: AssertionError: not here" in run.said
    assert "2 failed, 9 passed" in run.said


def test_fixtures_of_the_module_are_set_up_once_in_a_job_and_torn_down_at_its_end(run):
    assert Counter(run.noted["set-up"]) == Counter(run.noted["teardown"])
    assert sorted(run.noted["set-up"]) == sorted({*run.noted["test_first"], *run.noted["test_after_a_loss"]})


def test_a_process_group_that_a_test_leaves_ends_the_job(run):
    assert not same_job(run, "test_leaves_its_group", "test_after_a_group")


def test_after_the_loss_of_a_rank_the_others_get_a_new_job(run):
    assert "FAILED test_it.py::test_dies - rank 1 of 2: was killed by SIGKILL [rank-lost]" in run.said
    assert not same_job(run, "test_dies", "test_after_a_loss")


def test_what_is_printed_and_reported_is_that_of_the_test(run):
    failure = run.said.partition("_ test_fails_on_one_rank _")[2].partition("_ test_dies _")[0]
    assert failure.count("told by the second test\n") == 2
    assert "told by the first test" not in failure
    assert [name for name, case in run.cases.items() if case.find("failure") is not None] == [
        "test_fails_on_one_rank",
        "test_dies",
    ]


def test_a_baseline_is_kept_for_each_test_that_passed(run):
    (file,) = (run.folder / "__torchprof__").glob("*.json")
    text = file.read_text()
    for name in ("test_first", "test_draws_the_same_numbers", "test_after_a_loss", "test_of_one_rank"):
        assert f'"{name}"' in text
    assert "test_fails_on_one_rank" not in text
    assert "test_dies" not in text


SHORT = """
@two
def test_a(torchprof):
    torchprof(reduce, torchprof.ranks)

@two
def test_b(torchprof):
    torchprof(reduce, torchprof.ranks)
    assert not os.path.exists("fail")
"""


def short(tmp_path, *words, ini=""):
    (tmp_path / "test_it.py").write_text(HEAD + SHORT)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    return pytest_in(tmp_path, *words)


def test_each_test_may_have_a_job_of_its_own(tmp_path):
    assert "2 passed" in short(tmp_path, ini="torchprof_ranks_scope = test")
    assert not set(noted(tmp_path)["test_a"]) & set(noted(tmp_path)["test_b"])


def test_a_job_whose_next_test_never_comes_ends_with_the_run(tmp_path):
    (tmp_path / "fail").touch()
    (tmp_path / "test_more.py").write_text(HEAD + SHORT)
    assert re.search("1 failed, 1 passed", short(tmp_path, "-x"))
    assert "stopping after 1 failures" in short(tmp_path, "-x", "-k", "test_b")


KEPT = """
@pytest.fixture(scope="module")
def group():
    distributed.init_process_group("gloo")
    yield
    distributed.destroy_process_group()

@two
def test_a(torchprof, group):
    torchprof(reduce, torchprof.ranks)
    assert torchprof.ranks.rank == 0, "not here"

@two
def test_out_of_step(torchprof, group):
    torchprof(reduce, torchprof.ranks)
    if torchprof.ranks.rank == 0:
        distributed.all_reduce(x, async_op=True)

@two
def test_in_step(torchprof, group):
    torchprof(reduce, torchprof.ranks)
"""


def test_a_group_that_tests_share_is_kept_until_the_ranks_are_out_of_step_in_it(tmp_path):
    (tmp_path / "test_it.py").write_text(HEAD + KEPT)
    assert "1 failed, 2 passed" in pytest_in(tmp_path)
    assert same_job(SimpleNamespace(noted=noted(tmp_path)), "test_a", "test_out_of_step")
    assert not same_job(SimpleNamespace(noted=noted(tmp_path)), "test_out_of_step", "test_in_step")


WAITS = """
@two
def test_a(torchprof):
    torchprof(reduce, torchprof.ranks)

def test_between():
    import time
    time.sleep(600)

test_b = test_a
"""


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_job_that_waits_for_its_next_test_ends_with_the_run(tmp_path, sent):
    (tmp_path / "test_it.py").write_text(HEAD + WAITS)
    how = {"folder": tmp_path, "environment": {**os.environ, "TMPDIR": str(tmp_path)}}
    started = fresh.start_python("-m", "pytest", "-p", "no:cacheprovider", **how)
    until = time.monotonic() + rank_jobs.LONGEST_S
    while not (tmp_path / "noted").exists() or "test_between" not in (tmp_path / "noted").read_text():
        assert time.monotonic() < until
        assert started.process.is_alive()
        time.sleep(0.1)
    assert left_in(tmp_path)["folders"]
    os.kill(started.process.pid, getattr(signal, sent))
    started.done(rank_jobs.LONGEST_S)
    while left := left_in(tmp_path):
        assert time.monotonic() < until + rank_jobs.LONGEST_S, left
        time.sleep(0.1)
    # Those of the ranks; whoever is killed leaves its own.
    assert sent != "SIGINT" or not list(tmp_path.glob("torchprof-*"))


def test_another_scope_is_refused(run_tests):
    result = run_tests("def test_it(torchprof): x + 1", "-o", "torchprof_ranks_scope=module")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{NoRanksScope('module').text} *bad-option]*"])
