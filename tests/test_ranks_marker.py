"""Tests of several ranks: each runs as a job of torch's launcher, and has one result."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import filelock
import fresh
import jobs
import pytest
from left_behind import left_in

from pytest_torchprof import load
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.composed import OfRank
from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.reasons.lost_ranks import RankDied, RankEndedByLauncher, RankOutlasted, TestDidNotRunOnRank
from pytest_torchprof.reasons.other_ranks import EndedItsRun
from pytest_torchprof.reasons.ranks_started import NotCollectedOnRank
from pytest_torchprof.reasons.refused_tests import TooFewGpus
from pytest_torchprof.report.result import Outcome, Result
from pytest_torchprof.testing.handed_over import ProcessResults
from pytest_torchprof.testing.ranks.launch import JobEnd, LostRank
from pytest_torchprof.testing.ranks.task import LastWord, RankEnd
from pytest_torchprof.testing.ranks.verdict import merged_state, verdict_of

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo")

CONFTEST = """
import os, pytest

@pytest.fixture(scope="session")
def started_in():
    return os.getpid()
"""
TWO = """
import os, signal, time
import pytest, torch
from torch import distributed

two = pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
x = torch.ones(4)
"""
TESTS = """
class TestSum:
    @two
    @pytest.mark.parametrize("name", ["a::b[c] /\\u00e9", "other"])
    def test_passes(self, torchprof, started_in, name, record_property):
        ranks = torchprof.ranks
        assert (ranks.world_size, ranks.local_rank, ranks.device.type) == (2, ranks.rank, "cpu")
        assert started_in == os.getpid() != os.getppid()
        def step():
            y = x * (ranks.rank + 1)
            distributed.all_reduce(y)
            return y
        torchprof(step).expect(collectives={"all_reduce": 1})
        print("printed by", ranks.rank)
        record_property("by", ranks.rank)
        record_property("loss", float("nan"))

@two
def test_misses(torchprof):
    more = torchprof.ranks.rank
    print("printed by", more)
    profile = torchprof(lambda: [x + 1 for _ in range(1 + more)])
    assert len(profile.kernels) == 1, "one too many"

@two
def test_exits(torchprof):
    torchprof(lambda: x + 1)
    if torchprof.ranks.rank == 1:
        pytest.exit("enough")

@two
@pytest.mark.xfail(reason="expected")
def test_dies(torchprof):
    torchprof(lambda: x + 1)
    if torchprof.ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    distributed.barrier()

@two
@pytest.mark.flaky(reruns=1)
def test_flaky(torchprof):
    one = x * (torchprof.ranks.rank + 1)
    distributed.all_reduce(one)
    assert one[0] == 3
    torchprof(lambda: x + 1)
    if torchprof.ranks.rank == 1 and not os.path.exists("was_here"):
        open("was_here", "w").close()
        pytest.fail("the first time")
    if torchprof.ranks.rank == 1:
        pytest.skip("the second time")
"""


def write(folder: Path, tests: str) -> None:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TWO + tests, encoding="utf-8")


def start(folder: Path, *words: str) -> fresh.Fresh:
    words = ("-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", *words)
    environment = {**os.environ, "TMPDIR": str(folder), "COLUMNS": "160"}
    return fresh.start_python(*words, folder=folder, environment=environment)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run jobs in a worker; give what was said and left. Workers that run tests of this file share one run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "jobs"
    with filelock.FileLock(f"{folder}.lock"):
        if not folder.exists():
            run_jobs(folder)
    said = (folder / "said").read_text()
    results = {one["nodeid"]: one for one in json.loads((folder / "r.json").read_text())["results"]}
    cases = {case.get("name"): case for case in ET.parse(folder / "r.xml").iter("testcase")}
    return SimpleNamespace(folder=folder, said=said, results=results, cases=cases)


def run_jobs(folder: Path) -> None:
    folder.mkdir()
    write(folder, TESTS)
    words = ("--torchprof-save=kept", "--torchprof-report=r.json", "--junitxml=r.xml", "--torchprof-baseline=update")
    done = start(folder, "-n1", "-rA", "--deselect=test_it.py::TestSum::test_passes[other]", *words).done()
    assert done.returncode == 1, done.stdout
    until = time.monotonic() + jobs.LONGEST_S
    while left := left_in(folder):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    (folder / "said").write_text(done.stdout)


OTHER_IDS = """
@two
@pytest.mark.parametrize("number", [os.getpid()])
def test_odd(torchprof, number):
    torchprof(lambda: x + 1)
"""


@pytest.mark.any_torch
def test_an_id_that_a_rank_has_not_collected_is_said_to_be_that(tmp_path):
    write(tmp_path, OTHER_IDS)
    done = start(tmp_path).done()
    said = " ".join(done.stdout.split())
    assert done.returncode == 1
    function = "test_it.py::test_odd"
    words = re.escape(NotCollectedOnRank("<test>", function, ("<other>",)).text)
    assert re.search(re.sub("<(test|other)>", rf"{function}\\[\\d+\\]", words), said)


PASSING = "test_passes[a::b[c] /\\xe9]"


def test_a_test_of_two_ranks_has_one_result_and_a_recording_for_each(run):
    assert f"PASSED test_it.py::TestSum::{PASSING}" in run.said
    assert run.results[f"test_it.py::TestSum::{PASSING}"]["outcome"] == "passed"
    kept = [load(path) for path in sorted((run.folder / "kept").glob("*test_passes*"))]
    assert [(one.trace.metadata.rank, one.trace.metadata.world_size) for one in kept] == [(0, 2), (1, 2)]
    assert {one.trace.metadata.nodeid for one in kept} == {f"test_it.py::TestSum::{PASSING}"}


def test_what_each_rank_wrote_stands_under_its_name(run):
    for rank in (0, 1):
        assert f"Captured stdout call, rank {rank} of 2" in run.said
        assert run.said.count(f"printed by {rank}\n") == 2


def test_a_failure_is_told_by_the_rank_that_failed(run):
    assert "FAILED test_it.py::test_misses - rank 1 of 2: AssertionError: one too many" in run.said
    assert 'assert len(profile.kernels) == 1, "one too many"' in run.said
    assert "rank 0 of 2: passed" in run.said
    failure = run.cases["test_misses"].find("failure")
    assert "one too many" in failure.get("message")
    assert run.results["test_it.py::test_misses"]["outcome"] == "failed"


def test_a_rank_that_dies_is_not_measured_and_no_expected_failure(run):
    assert "FAILED test_it.py::test_dies - rank 1 of 2: was killed by SIGSEGV [rank-lost]" in run.said
    assert f"rank 0 of 2: {RankEndedByLauncher(1, -signal.SIGSEGV)}" in run.said
    assert "Fatal Python error: Segmentation fault" in run.said
    died = run.results["test_it.py::test_dies"]
    assert died["outcome"] == "not measured"
    assert from_plain(died["reason"]) == OfRank(1, RankDied(-signal.SIGSEGV))


def test_a_rank_that_ends_its_run_fails_its_test_alone(run):
    assert "FAILED test_it.py::test_exits - rank 1 of 2: pytest was ended there: Exit: enough" in run.said
    ended = EndedItsRun(rank=1, goal=Goal(RunPoint.END_OF_TEST), explanation="Exit: enough")
    assert f"rank 0 of 2: not measured: {ended.sentence}" in run.said


def test_a_rerun_is_a_new_job_and_a_rank_that_skips_skips_the_test(run):
    assert "1 rerun" in run.said
    assert "rank 1 of 2: the second time" in run.said


def test_baselines_and_properties_are_those_of_rank_0(run):
    (file,) = (run.folder / "__torchprof__").glob("*.json")
    assert [key.partition("[")[0] for key in json.loads(file.read_text())["entries"]] == ["TestSum::test_passes"]
    properties = [(one.get("name"), one.get("value")) for one in run.cases[PASSING].iter("property")]
    assert [(name, value) for name, value in properties if name in ("by", "loss")] == [("by", "0"), ("loss", "nan")]


def test_recordings_of_ranks_are_judged_without_a_job(run):
    said = start(run.folder, "--torchprof-replay=kept", f"test_it.py::TestSum::{PASSING}").done().stdout
    assert "1 passed" in said, said
    said = start(run.folder, "--torchprof-replay=kept", "-k", "other").done().stdout
    assert "rank 0 of 2: " in said
    assert "[replay-missing]" in said


def phase(outcome="passed", line="", when="call", ended_s=0.0, code=None):
    why = ("test_it.py", 1, f"Skipped: {line}") if outcome == "skipped" else line
    report = pytest.TestReport("test_it", ("test_it.py", 1, "test_it"), {}, outcome, why, when, stop=ended_s)
    if code is not None:
        report.torchprof_code = code
    return report


def end_of(*reports, results=(), status=0):
    return RankEnd(reports=reports, last=LastWord(status=status, results=ProcessResults(results=tuple(results))))


KILLED = LostRank(number=1, why=RankDied(-9), last_lines=(), outlived=False)
HUNG = LostRank(number=0, why=RankOutlasted(65, "in forward"), last_lines=(), outlived=True)


@pytest.mark.parametrize(
    ("ranks", "lost", "told"),
    [
        ([end_of(phase()), end_of(phase("failed", "wrong"))], (), "rank 1 of 2: wrong"),
        # Both the same: the lower one tells it. Otherwise the one that failed first.
        ([end_of(phase("failed", "no", ended_s=9)), end_of(phase("failed", "no", ended_s=8))], (), "no"),
        ([end_of(phase("failed", "reset", ended_s=9)), end_of(phase("failed", "no", ended_s=8))], (), "rank 1 of 2: no"),
        # Who waits for a rank that is lost fails by that; who waits for one that failed is given up.
        ([end_of(phase("failed", "reset", ended_s=9)), RankEnd()], (KILLED,), "rank 1 of 2: was killed by SIGKILL [rank-lost]"),
        ([RankEnd(), end_of(phase("failed", "no"))], (HUNG,), "rank 1 of 2: no"),
        ([end_of(phase("failed", "on rank 1", ended_s=8, code="other-rank")), end_of(phase("failed", "no", ended_s=9))], (), "rank 1 of 2: no"),
        ([end_of(phase()), end_of(status=5)], (), f"rank 1 of 2: {TestDidNotRunOnRank(5)}"),
        ([end_of(phase()), end_of(phase(when="setup"), phase("skipped", "why"))], (), "rank 1 of 2: why"),
    ],
)  # fmt: skip
def test_the_rank_that_is_the_cause_tells_it(ranks, lost, told):
    assert verdict_of(JobEnd(ranks=tuple(ranks), lost=lost)).line == told


def test_the_result_of_a_rank_that_is_lost_has_the_reason():
    measured = Result(nodeid="test_it", label=None, outcome=Outcome.PASSED)
    verdict = verdict_of(JobEnd(ranks=(end_of(phase(), results=(measured,)), RankEnd()), lost=(KILLED,)))
    _, lost = merged_state("test_it", verdict).of_ranks
    assert (lost.rank, lost.outcome, lost.reason) == (1, Outcome.NOT_MEASURED, RankDied(-9))


def test_an_expected_failure_says_which_ranks_passed():
    passed, failed = phase(), phase("skipped")
    passed.wasxfail = failed.wasxfail = "known"
    verdict = verdict_of(JobEnd(ranks=(end_of(passed), end_of(failed)), lost=()))
    assert (verdict.outcome, verdict.expected) == ("xfailed", "known (passed on rank 0)")


def test_what_a_rank_measured_of_a_test_that_failed_on_another_did_not_pass():
    measured = Result(nodeid="test_it", label=None, outcome=Outcome.PASSED)
    broken = end_of(phase("failed", "ImportError: none", when="collect"), status=2)
    verdict = verdict_of(JobEnd(ranks=(end_of(phase(), results=(measured,)), broken), lost=()))
    (result,) = merged_state("test_it", verdict).results
    assert (result.outcome, result.message) == ("failed", "rank 1 of 2: ImportError: none")


@pytest.mark.any_torch
def test_a_job_ends_with_who_waits_for_it(tmp_path):
    write(tmp_path, "@two\ndef test_hangs():\n    open(str(os.getpid()), 'w').close()\n    time.sleep(600)\n")
    process = start(tmp_path)
    until = time.monotonic() + jobs.LONGEST_S
    while sum(path.name.isdigit() for path in tmp_path.iterdir()) < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    process.done(0)
    while left := left_in(tmp_path):
        assert time.monotonic() < until + jobs.LONGEST_S, left
        time.sleep(0.1)


def test_in_a_job_of_its_size_a_test_runs_in_place(tmp_path, monkeypatch):
    write(
        tmp_path,
        """
@pytest.fixture(scope="session")
def groups():
    return set()

@two
@pytest.mark.parametrize("number", [1, 2])
def test_it(torchprof, groups, number):
    assert torchprof.ranks.world_size == 2
    groups.add(distributed.group.WORLD)
    assert len(groups) == 1, "the process group is that of the run"
    torchprof(lambda: distributed.all_reduce(x * 2)).expect(collectives="all_reduce")
""",
    )
    monkeypatch.chdir(tmp_path)
    ranks = [fresh.start_pytest("-p", "no:cacheprovider", "test_it.py", **told) for told in jobs.environment(2)]
    for done in [rank.done(jobs.LONGEST_S) for rank in ranks]:
        assert "2 passed" in done.stdout, done.stdout


def test_in_a_job_of_another_size_it_is_skipped(run_tests, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    result = run_tests("@pytest.mark.torchprof(ranks=2)\ndef test_it(): x + 1", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*ranks=2, and this job has 4 ranks*"])


def test_without_a_job_a_test_that_asks_for_its_ranks_is_told_what_to_do(run_tests):
    result = run_tests("def test_it(torchprof): torchprof.ranks")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*torchrun*no-job]*"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a GPU")
def test_where_gpus_are_missing_it_is_skipped_and_refused_where_they_are_required(run_tests):
    source = "@pytest.mark.torchprof(ranks=2, device='cuda')\ndef test_it(): x + 1"
    result = run_tests(source, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*{TooFewGpus(2, 0).text}*"])
    refused = run_tests(source, "--torchprof-require-gpu")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"*{TooFewGpus(2, 0).text} *no-gpu]*"])


@pytest.mark.parametrize("value", ["0", "1.5", "'two'", "True", "None"])
def test_a_number_that_is_none_is_refused(run_tests, value):
    result = run_tests(f"@pytest.mark.torchprof(ranks={value})\ndef test_it(): x + 1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*ranks={value}: *from 1 [[]bad-value]*"])


def test_one_device_for_several_ranks_is_refused(run_tests):
    result = run_tests("@pytest.mark.torchprof(ranks=2, device='cuda:1')\ndef test_it(): x + 1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*device='cuda:1' is one GPU*write device='cuda' *contradiction]*"])


@pytest.mark.any_torch
def test_each_worker_has_a_gpu_of_its_own(pytester, monkeypatch):
    # A part of a GPU is known by its name alone, so that no GPU need be there.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-one, MIG-two")
    pytester.makepyfile("""
        import os, time
        def test_a(worker_id): print(f"{worker_id}:{os.environ['CUDA_VISIBLE_DEVICES']}.")
        test_b = test_c = test_d = test_e = test_f = test_a
    """)
    said = fresh.run_pytest("-n3", "-rP", "--torchprof-gpus=each", "-p", "no:cacheprovider").stdout.str()
    for worker, gpu in (("gw0", "MIG-one"), ("gw1", "MIG-two"), ("gw2", "MIG-one")):
        assert f"{worker}:{gpu}." in said, said
