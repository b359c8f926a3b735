"""Ranks of one job go through a measurement in step: what one finds out, all know, and none waits for ever."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import fresh
import jobs
import pytest
import rank_jobs
from facts import WORSE, says, verdicts_in, why_not
from msgspec import to_builtins
from rank_jobs import LONGEST_S, TOGETHER

from pytest_torchprof.capture.lockstep import Lockstep, OtherRanks
from pytest_torchprof.capture.rank import Rank, rank_in
from pytest_torchprof.capture.rank_messages import PhaseEnd, PhaseOfTest
from pytest_torchprof.capture.torch_store import MeetingPoint, connect, new_store
from pytest_torchprof.limits.evidence import WorstRank
from pytest_torchprof.limits.limit import MISSED
from pytest_torchprof.limits.seen import NumberSeen
from pytest_torchprof.reasons.capturing import CodeRaised, LoopLeft, ProfilerInside, ProfilerRuns, ThreadOfProfiler
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.composed import OfRank
from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.reasons.measuring import StepsLeft
from pytest_torchprof.reasons.other_ranks import (
    EndedItsRun,
    EndedWithoutMeasuring,
    RankElsewhere,
    RankProcess,
    RankStillSilent,
    RankTooLate,
    SubtestFailed,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo")

MARK = '@pytest.mark.torchprof(device="cpu", max_kernels=2{})'
MARKER = MARK.format("")
SHORT_S = 6
"""How long ranks wait for one that never comes: longer than one that comes takes on a busy machine."""

ONE_JOB = f"""
from torch.profiler import profile

@pytest.fixture
def calls():
    return []

@pytest.fixture
def profiled_on_rank_1():
    profiler = profile()
    if RANK == 1:
        profiler.__enter__()
    yield
    if RANK == 1:
        profiler.__exit__(None, None, None)

{MARKER}
def test_holds():
    step()

@pytest.mark.torchprof(device="cpu", max_rank_skew="10s", same_kernels=True)
def test_judged_together(torchprof):
    def late():
        distributed.all_reduce(x)
        if RANK == 1:
            time.sleep(0.3)
        distributed.all_reduce(x)
    profile = torchprof(late)
    assert [one.rank for one in profile.ranks] == [0, 1]
    assert profile.ranks.one_clock
    assert (profile.ranks.straggler, profile.ranks.missing, len(profile.ranks.collectives)) == (1, (), 10)
    waits = [one.wait_us for one in profile.collectives][1::2]
    assert min(waits) > 100_000 if RANK == 0 else max(waits) == 0, waits
    assert ("straggler" in [one.code for one in profile.findings]) is (RANK == 1)

@pytest.mark.torchprof(device="cpu", max_rank_skew="1ns", same_kernels=True)
def test_other_kernels_on_rank_1():
    step()
    if RANK == 1:
        torch.cos(x)

{MARKER}
def test_missed_on_rank_1():
    step()
    if RANK == 1:
        torch.cos(x)

{MARKER}
def test_missed_on_both():
    step()
    for _ in range(RANK + 1):
        torch.cos(x)

def test_profiled_elsewhere(torchprof, profiled_on_rank_1, calls):
    try:
        torchprof(lambda: (calls.append(1), step()))
    finally:
        assert not calls

def test_intruded_once(torchprof, calls):
    def code():
        calls.append(1)
        step()
        if RANK == 1 and len(calls) == 5:
            with profile():
                pass
    torchprof(code)
    assert len(calls) == 13

def test_intruded_always(torchprof, calls):
    def code():
        calls.append(1)
        step()
        if RANK == 1:
            with profile():
                pass
    try:
        torchprof(code)
    finally:
        assert len(calls) == 18

{MARKER}
def test_raises_on_rank_1():
    if RANK == 1:
        raise ValueError("boom")
    torch.sin(x)

{MARKER}
def test_fails_before_it_measures(torchprof):
    assert RANK == 0, "not here"
    torchprof(step)

def test_skipped_on_rank_1(torchprof):
    if RANK == 1:
        pytest.skip("no such layer")
    torchprof(step)

def test_measures_once_more_on_rank_0(torchprof):
    torchprof(torch.sin, x)
    if RANK == 0:
        torchprof(torch.sin, x)

def test_several_measurements(torchprof):
    torchprof(step)
    with torchprof.measure("second", max_kernels=2) as m:
        for _ in m.steps():
            step()

{MARK.format(', tolerance={"time": 50.0}')}
def test_times():
    step()
    if RANK == 1:
        time.sleep(0.003)

@pytest.mark.torchprof(device="cpu", steps=3 + RANK)
def test_more_steps_on_rank_1():
    step()

{MARKER}
def test_left_early_on_rank_1(torchprof):
    with torchprof.measure("part") as m:
        for _ in m.steps():
            torch.sin(x)
            if RANK == 1:
                break

def test_asked_in_the_body(torchprof, calls):
    profile = torchprof(lambda: (calls.append(1), step(), [torch.cos(x) for _ in range(RANK)]))
    try:
        profile.expect(max_kernels=2)
    finally:
        assert len(calls) == 8

@pytest.mark.torchprof(device="cpu")
def test_cos_on_rank_1():
    step()
    if RANK == 1:
        torch.cos(x)

@pytest.mark.torchprof(device="cpu")
def test_more_cos_on_rank_1():
    step()
    for _ in range(RANK * int(os.environ.get("COSINES", "1"))):
        torch.cos(x)

def test_fails_after_it_measured(torchprof):
    torchprof(step)
    assert RANK == 0, "rank 1's result is wrong"

def test_skipped_after_it_measured(torchprof):
    torchprof(step)
    if RANK == 1:
        pytest.skip("no such layer")

def test_expected_after_it_measured(torchprof):
    torchprof(step)
    if RANK == 1:
        pytest.xfail("known")

@pytest.mark.xfail(reason="known")
def test_expected_of_all(torchprof):
    torchprof(step)
    assert RANK == 0

@pytest.fixture
def fails_after_the_test_on_rank_1():
    yield
    assert RANK == 0, "not given back"

def test_fails_in_its_teardown(torchprof, fails_after_the_test_on_rank_1):
    torchprof(step)

if hasattr(pytest, "Subtests"):
    def test_fails_in_a_subtest(torchprof, subtests):
        for part in range(2):
            with subtests.test(part=part):
                torchprof(step)
                assert not RANK or not part

def test_fails_unmeasured():
    assert RANK == 0

{MARKER}
def test_as_if_nothing_had_happened():
    step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder in which the ranks of the one job ran."""
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def job(folder):
    """Return what each of two ranks says of one run of all of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rank_jobs.without_ci(patch)
        Path("test_it.py").write_text(TOGETHER + ONE_JOB)
        words = ("--torchprof-save=kept", "--torchprof-baseline=update", "--torchprof-report=r.json", "-rA")
        return rank_jobs.run(2, *words)


@pytest.fixture(scope="module")
def report(job, folder):
    """Return the results that rank 0 has reported of that run."""
    assert job
    return json.loads((folder / "r.json").read_text())["results"]


def reason_of(report, test):
    """Return for which reason rank 0 has reported a test as not measured."""
    (result,) = (one for one in report if one["nodeid"].endswith(f"::{test}"))
    return from_plain(result["reason"])


def kept(folder, test):
    """Return the own key of each rank's recording of a test."""
    files = sorted((folder / "kept").glob(f"test_it.{test}.*.json.gz"))
    return {
        rank_in(path.name).number: json.loads(gzip.decompress(path.read_bytes()))["torchprof"]
        for path in files
        if ".stacks." not in path.name
    }


@pytest.mark.parametrize(
    "test", ["test_holds", "test_judged_together", "test_several_measurements", "test_as_if_nothing_had_happened"]
)
def test_what_holds_on_all_ranks_passes_on_all(job, test):
    assert [rank.outcome(test) for rank in job] == ["passed", "passed"], job


def test_a_limit_that_one_rank_misses_fails_on_all_and_each_names_it(job, folder):
    first, second = (rank.said("test_missed_on_rank_1") for rank in job)
    assert "1 limit missed: max_kernels" in first
    assert f"max_kernels=2 rank 1: {NumberSeen('kernels', 3)}" in first
    assert "aten::cos" in first
    assert f"max_kernels=2 {NumberSeen('kernels', 3)}" in second
    assert str(WorstRank(1, 2)) in second
    assert {ours["calls"] for ours in kept(folder, "test_missed_on_rank_1").values()} == {8}


def test_a_replay_judges_the_recordings_of_all_ranks_together(job, folder, monkeypatch):
    assert job[0].outcome("test_judged_together") == "passed"
    monkeypatch.chdir(folder)
    again = rank_jobs.run(2, "--torchprof-replay=kept", "-k", "judged_together or other_kernels")
    assert [rank.outcome("test_judged_together") for rank in again] == ["passed", "passed"], again
    assert "2 limits missed: max_rank_skew, same_kernels" in again[0].said("test_other_kernels_on_rank_1")


def test_limits_on_all_ranks_together_come_out_the_same_on_each(job, folder):
    together = ("max_rank_skew", "same_kernels")
    skew, kernels = (one for one in verdicts_in(folder / "r.json") if one.limit in together and one.status == MISSED)
    assert skew.seen[0].collectives == 5
    for rank in job:
        said = rank.said("test_other_kernels_on_rank_1")
        assert "2 limits missed: max_rank_skew, same_kernels" in said
        assert str(kernels.evidence[0]) in said
        assert str(skew.seen[0]) in said
        assert str(WorstRank(1, 2)) not in said


def test_where_all_miss_it_the_worst_is_named(job):
    first, second = (rank.said("test_missed_on_both") for rank in job)
    assert f"max_kernels=2 {NumberSeen('kernels', 3)}" in first
    assert str(WorstRank(1, 2, seen=(NumberSeen("kernels", 4),))) in first
    assert f"max_kernels=2 {NumberSeen('kernels', 4)}" in second
    assert f"{WorstRank(1, 2)} " in second


def test_all_repeat_for_the_lines_that_one_needs(job, folder):
    for rank, one in enumerate(job):
        assert "lines: not known" not in one.said("test_missed_on_rank_1")
        assert list((folder / "kept").glob(f"test_it.test_missed_on_rank_1.*.rank{rank}of2.stacks.json.gz"))
    assert re.search(r"test_it.py:\d+ in test_missed_on_rank_1", job[1].said("test_missed_on_rank_1"))


def test_where_one_cannot_measure_none_does_and_the_code_is_not_called(job, report):
    first, second = (rank.said("test_profiled_elsewhere") for rank in job)
    assert reason_of(report, "test_profiled_elsewhere") == OfRank(1, ProfilerRuns(ThreadOfProfiler.THIS))
    assert f"not measured: {OfRank(1, ProfilerRuns(ThreadOfProfiler.THIS))}" in first
    assert f"not measured: {ProfilerRuns(ThreadOfProfiler.THIS)}" in second


def test_where_one_must_measure_again_all_do(job, folder):
    assert [rank.outcome("test_intruded_once") for rank in job] == ["passed", "passed"], job[0].said(
        "test_intruded_once"
    )
    assert [ours["attempts"] for ours in kept(folder, "test_intruded_once").values()] == [2, 2]


def test_after_three_attempts_none_is_measured(job, report):
    first, second = (rank.said("test_intruded_always") for rank in job)
    reason = reason_of(report, "test_intruded_always")
    assert (type(reason), reason.rank, type(reason.why)) == (OfRank, 1, ProfilerInside)
    assert f"not measured: {reason}" in first
    assert f"not measured: {reason.why}" in second


def test_code_that_raises_on_one_rank_is_that_ranks_failure_and_the_others_say_so(job):
    first, second = (rank.said("test_raises_on_rank_1") for rank in job)
    assert f"not measured: {OfRank(1, CodeRaised('ValueError: boom'))}" in first
    assert second.startswith("ValueError: boom")


def test_junit_of_rank_0_has_the_outcome_of_all_ranks(job):
    first, _ = job
    # Rank 1 misses what the body asks for there, or fails in a subtest; rank 0 alone would have passed.
    assert first.outcomes["test_asked_in_the_body"] == first.outcomes["test_fails_in_a_subtest"] == {"failed"}
    failed = [test for test in first.tests if first.outcome(test) == "failure"]
    assert [test for test in failed if "passed" in first.outcomes[test]] == []


def test_ranks_that_would_call_the_code_different_numbers_of_times_do_not_call_it(job):
    for rank in job:
        said = rank.said("test_more_steps_on_rank_1")
        assert "rank 0 warmup=3, steps=3; rank 1 " in said
        assert said.endswith("[other-rank]")


def test_what_the_body_asks_for_is_judged_on_each_rank_and_fails_on_all(job):
    first, said = (rank.said("test_asked_in_the_body") for rank in job)
    assert "failed on rank 1: max_kernels=2: 3 kernels" in first
    assert first.endswith("[other-rank]")
    assert "max_kernels=2 3 kernels" in said
    assert "lines: not known: other ranks" in said


@pytest.mark.parametrize(
    ("test", "outcomes", "why"),
    [
        ("test_fails_after_it_measured", ["failure", "failure"], "failed on rank 1: AssertionError: rank 1's result is wrong"),
        ("test_skipped_after_it_measured", ["skipped", "skipped"], "skipped on rank 1: no such layer"),
        ("test_expected_after_it_measured", ["skipped", "skipped"], "xfailed on rank 1: known"),
        ("test_expected_of_all", ["skipped", "skipped"], "xfailed on rank 1: known"),
        ("test_fails_in_its_teardown", ["error", "error"], "failed on rank 1, in its teardown: AssertionError: not given back"),
        ("test_fails_unmeasured", ["passed", "failure"], ""),
    ],
)  # fmt: skip
def test_a_measured_test_ends_on_all_ranks_as_on_the_one_where_it_ends_worst(job, report, test, outcomes, why):
    assert [rank.outcome(test) for rank in job] == outcomes, job
    assert why in job[0].said(test)
    if why:
        (result,) = (one for one in report if one["nodeid"].endswith(f"::{test}"))
        assert why in result["message"]
        assert result["outcome"] == {"skipped": why.split()[0], "failure": "failed", "error": "failed"}[outcomes[0]]
        assert result["baseline"] == "not written"


def test_an_expected_failure_says_which_ranks_passed(job):
    assert "XFAIL test_it.py::test_expected_of_all - known (passed on rank 0)" in job[1].text
    assert "XFAIL test_it.py::test_expected_of_all - xfailed on rank 1: known" in job[0].text


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest 9 has subtests")
def test_a_subtest_ends_no_test(job):
    assert "SUBFAILED(part=1) test_it.py::test_fails_in_a_subtest" in job[1].text
    assert f"failed on rank 1: {SubtestFailed()}" in job[0].said("test_fails_in_a_subtest")


def test_a_loop_that_one_rank_leaves_is_told(job):
    first, second = (rank.said("test_left_early_on_rank_1") for rank in job)
    assert f"not measured: {OfRank(1, LoopLeft())}" in first
    assert StepsLeft.REMEDY in second


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("test_fails_before_it_measures", "it failed (AssertionError: not here"),
        ("test_skipped_on_rank_1", "it skipped (no such layer)"),
        ("test_measures_once_more_on_rank_0", "it passed"),
    ],
)
def test_a_rank_that_ends_the_test_without_measuring_is_not_waited_for(job, test, why):
    said = job[0].said(test)
    assert "not measured: rank 1 " in said
    assert f": {why}" in said


def test_times_are_as_many_samples_on_each_rank(job, folder):
    assert [rank.outcome("test_times") for rank in job] == ["passed", "passed"], job[0].said("test_times")
    first, second = kept(folder, "test_times").values()
    lengths = [[len(batch["samples_us"]) for batch in ours["timing"]["batches"]] for ours in (first, second)]
    assert lengths[0] == lengths[1]
    assert len(lengths[0]) == 2
    assert first["calls"] == second["calls"]


def test_the_baseline_is_rank_0s_and_holds_what_passed_on_all(job, folder):
    assert job[0].status == 1
    assert set(entries(folder)) == {
        "test_cos_on_rank_1",
        "test_more_cos_on_rank_1",
        "test_holds",
        "test_judged_together",
        "test_intruded_once",
        "test_several_measurements",
        "test_several_measurements (second)",
        "test_as_if_nothing_had_happened",
        "test_times",
    }


def entries(folder):
    """Return the entries of the one baseline, by test."""
    (path,) = folder.rglob("__torchprof__/*.json")
    return json.loads(path.read_text())["entries"]


def test_a_baseline_holds_what_differs_between_ranks(job, folder, monkeypatch):
    assert [rank.outcome("test_cos_on_rank_1") for rank in job] == ["passed", "passed"]
    entry = entries(folder)["test_cos_on_rank_1"]
    assert [kernel["name"] for kernel in entry["steps"][0][:-1]] == ["c10d::allreduce_", "aten::sin"]
    assert [kernel["name"] for kernel in entry["ranks"]["1"]["steps"][0][:-1]][-1] == "aten::cos"

    monkeypatch.chdir(folder)
    first, second = rank_jobs.run(2, "--torchprof-baseline=strict", "-k", "cos_on_rank_1", COSINES="2")
    assert [rank.outcome("test_cos_on_rank_1") for rank in (first, second)] == ["passed", "passed"]
    assert f"rank 1: {WORSE}" in first.said("test_more_cos_on_rank_1")
    assert WORSE in second.said("test_more_cos_on_rank_1")
    assert all("cos" in rank.said("test_more_cos_on_rank_1") for rank in (first, second))

    done = rank_jobs.run(2, "--torchprof-baseline=update", "-k", "cos_on_rank_1", COSINES="0")
    assert [rank.status for rank in done] == [0, 0]
    assert entries(folder)["test_cos_on_rank_1"] == entry
    assert "ranks" not in entries(folder)["test_more_cos_on_rank_1"]


# Ranks that go


@pytest.mark.any_torch
@pytest.mark.parametrize("value", ["0", "-1", "abc", "nan", "inf", "60 s"])
def test_a_timeout_that_is_none_stops_the_run(pytester, value):
    pytester.makeini(f"[pytest]\ntorchprof_rank_timeout = {value}\n")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = f"*torchprof_rank_timeout = {value}: expected seconds above 0, such as 60 [[]bad-option]*"
    result.stderr.fnmatch_lines([said])


@pytest.fixture
def ranks(pytester, monkeypatch):
    """Return a function that runs a module's tests in several ranks."""
    rank_jobs.without_ci(monkeypatch)

    def run(source, *args, world=2, timeout_s=60, head=TOGETHER):
        pytester.makeini(f"[pytest]\ntorchprof_rank_timeout = {timeout_s}\n")
        pytester.makepyfile(test_it=head + source.replace("MARKER", MARKER))
        return rank_jobs.run(world, *args)

    return run


MEETS = """
def meet(where):
    open(f"{where}{RANK}", "w").close()
    until = time.monotonic() + 60
    while not os.path.exists(f"{where}{1 - RANK}"):
        assert time.monotonic() < until, "the other rank does not come"
        time.sleep(0.05)
"""
WAITED_FOR = (
    """
MARKER
def test_sleeps():
    torch.sin(x)
    if RANK == 1:
        meet("sleeps")

MARKER
def test_after():
    torch.sin(x)

def test_heard_of_again():
    if RANK == 0:
        meet("sleeps")
    meet("heard of again")
""",
    """
def test_sleeps_after_it_measured(torchprof):
    torchprof(torch.sin, x)
    if RANK == 1:
        meet("sleeps after")

def test_heard_of_once_more():
    if RANK == 0:
        meet("sleeps after")
    meet("heard of once more")
""",
    """
MARKER
def test_one():
    torch.sin(x)

MARKER
def test_two():
    torch.sin(x)

if RANK == 1:
    del test_one
""",
)


@pytest.fixture(scope="module")
def waited_for(tmp_path_factory):
    """Return what each of two ranks says of jobs in which one waits for the other: they do so at once."""
    started = {}
    with pytest.MonkeyPatch.context() as patch:
        rank_jobs.without_ci(patch)
        for tests in WAITED_FOR:
            patch.chdir(folder := tmp_path_factory.mktemp("waited_for"))
            Path("pytest.ini").write_text(f"[pytest]\ntorchprof_rank_timeout = {SHORT_S}\n")
            Path("test_it.py").write_text(TOGETHER + MEETS + tests.replace("MARKER", MARKER))
            started[folder] = rank_jobs.start(2)
        jobs_done = []
        for folder, ranks in started.items():
            patch.chdir(folder)
            jobs_done.append(rank_jobs.ended(ranks))
    return [
        replace(runs[0], tests={name: one for run in runs for name, one in run.tests.items()})
        for runs in zip(*jobs_done, strict=True)
    ]


PROCESS = RankProcess(4711, "somewhere")


def expression(reason):
    """Return the expression for what is said for a reason, of whichever process and after however long."""
    told = re.escape(f"not measured: {reason.sentence}")
    return told.replace("4711", r"\d+").replace("somewhere", ".+").replace(re.escape("1.5 s"), r"\d+ s")


def too_late(goal, timeout_s=1.5):
    return expression(RankTooLate(1, goal, timeout_s, PROCESS))


def test_a_silent_rank_ends_the_measurement_in_bounded_time_and_is_not_waited_for_again(waited_for):
    said = waited_for[0].said("test_sleeps")
    assert re.search(too_late(Goal(RunPoint.WARM_UP_CALL, 1)), said)
    silent = expression(RankStillSilent(1, "test_it.py::test_sleeps", PROCESS))
    assert re.search(silent, waited_for[0].said("test_after"))


def test_a_rank_that_does_not_end_a_measured_test_is_waited_for_no_longer(waited_for):
    said = waited_for[0].said("test_sleeps_after_it_measured")
    assert re.search(too_late(Goal(RunPoint.END_OF_TEST)), said)


def test_ranks_that_run_different_tests_are_told(waited_for):
    said = waited_for[0].said("test_one") + waited_for[0].said("test_two")
    where = " within \\d+ s, .* heard of in test_it.py::test_(one|two)"
    assert re.search(where, said)
    assert "not collected test_it.py::test_one" in said
    assert "not collected test_it.py::test_two" not in said


KILLED = """
MARKER
def test_it():
    torch.sin(x)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_rank_that_is_gone_is_named(ranks):
    first, second = ranks(KILLED, timeout_s=SHORT_S)
    assert (first.status, second.status) == (1, -signal.SIGKILL)
    assert re.search(too_late(Goal(RunPoint.WARM_UP_CALL, 1), SHORT_S), first.said("test_it"))


WITHOUT_COLLECTIVES = """
MARKER
def test_it():
    torch.sin(x)
    if RANK == 0:
        os._exit(0)
"""


def test_where_the_rank_is_gone_that_holds_the_store_the_others_say_so(ranks):
    _, second = ranks(WITHOUT_COLLECTIVES)
    assert second.status == 1
    assert "not measured: " in second.said("test_it")
    assert "[silent-rank]" in second.said("test_it")


def test_ranks_that_measure_under_different_labels_are_told():
    store, others = torch.distributed.HashStore(), OtherRanks(timeout_s=0.1)
    phase = PhaseOfTest("a test", run=1)
    first, _ = (Lockstep(others, store, phase, Rank(rank, 2), label) for rank, label in enumerate(("one", "two")))
    reason = why_not(lambda: first.exchange("the plan", []))
    assert says(reason, RankElsewhere, timeout_s=0.1, test=None, label="two")


def test_why_a_rank_was_not_measured_reaches_the_others_as_it_is():
    store, others, phase = torch.distributed.HashStore(), OtherRanks(timeout_s=0.1), PhaseOfTest("a test", run=1)
    first, _ = (Lockstep(others, store, phase, Rank(rank, 2)) for rank in range(2))
    why = RankTooLate(0, Goal(RunPoint.END_OF_TEST), 0.1, RankProcess(1, "here"))
    store.set(f"{phase.key}/ended/1", json.dumps(to_builtins(PhaseEnd("failed", why))))
    reason = why_not(lambda: first.exchange("the plan", []))
    assert reason == EndedWithoutMeasuring(1, "failed", why)
    assert f"(not measured: {why})" in reason.sentence


STOPS = """
@pytest.fixture(scope="session", autouse=True)
def first_failure_is_the_last_on_rank_1(request):
    request.config.option.maxfail = RANK

def test_first(torchprof):
    torchprof(torch.sin, x)
    STOP

MARKER
def test_second():
    torch.sin(x)

MARKER
def test_third():
    torch.sin(x)
"""


@pytest.mark.parametrize(
    ("stop", "first", "why"),
    [
        ("assert not RANK", "failed on rank 1: assert not 1", "Failed: stopping after 1 failures"),
        ("if RANK: pytest.exit('enough')", "of the test: Exit: enough", "Exit: enough"),
    ],
)  # fmt: skip
def test_a_rank_that_has_ended_its_run_is_not_waited_for(ranks, stop, first, why):
    said = ranks(STOPS.replace("STOP", stop))[0]
    assert first in said.said("test_first")
    for test in ("test_second", "test_third"):
        assert str(EndedItsRun(1, Goal(RunPoint.MEASUREMENT), why)) in said.said(test)


def test_four_ranks(ranks):
    source = "MARKER\ndef test_it():\n    step()\n    for _ in range(RANK):\n        torch.cos(x)\n"
    for rank, one in enumerate(ranks(source, world=4)):
        assert one.status == 1
        assert f"rank 3{' of 4' if rank else ''}: 5 kernels" in one.said("test_it") or rank == 3
        assert (str(WorstRank(3, 4)) in one.said("test_it")) is (rank > 0)


CONNECTED = """
seen = set()

def connections():
    ours = {os.stat(path).st_ino for path in map("/proc/self/fd/{}".format, os.listdir("/proc/self/fd")) if os.path.exists(path)}
    rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/self/net/{name}").readlines()[1:]]
    end = f":{int(os.environ['MASTER_PORT']):04X}"
    return frozenset(row[1] for row in rows if row[2].endswith(end) and int(row[9]) in ours)

@pytest.mark.parametrize("number", [1, 2])
def test_it(torchprof, number):
    torchprof(lambda: (step(), seen.add(connections())))

def test_of_all():
    assert len(seen) == 1, seen
    # The process group has its own.
    assert len(*seen) >= 2
"""


@pytest.mark.skipif(not Path("/proc/self/net/tcp6").exists(), reason="looks at /proc")
def test_a_rank_has_one_connection_for_all_measurements(ranks):
    for rank in ranks(CONNECTED):
        assert rank.outcome("test_of_all") == "passed", rank.said("test_of_all")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_takes_no_answers_from_its_parents_connection():
    store = new_store("127.0.0.1")
    connection = connect(MeetingPoint("127.0.0.1", store.port, of_a_rank=True))
    if not (child := os.fork()):
        os._exit(connection.reaches_the_store())
    assert os.waitpid(child, 0)[1] == 0
    assert connection.reaches_the_store()


def test_a_connection_does_not_reach_a_store_that_is_gone():
    store = new_store("127.0.0.1")
    connection = connect(MeetingPoint("127.0.0.1", store.port, of_a_rank=True))
    assert connection.reaches_the_store()
    del store
    assert not connection.reaches_the_store()


def test_ranks_that_reach_nobody_measure_as_often_as_all_others(ranks):
    alone = "import os\nimport pytest, torch\nRANK = int(os.environ['RANK'])\nx = torch.ones(8)\n"
    first, second = ranks(
        "MARKER\ndef test_it():\n    torch.sin(x)\n    if RANK: torch.cos(x), torch.cos(x)\n", head=alone
    )
    assert (first.status, second.status) == (0, 1)


IN_NO_PYTEST = """
import os
import torch
from torch import distributed
from pytest_torchprof import measure

rank = int(os.environ["RANK"])
distributed.init_process_group("gloo")
x, calls = torch.ones(4), 0
with measure("step", device="cpu") as m:
    for _ in m.steps():
        calls += 1
        distributed.all_reduce(x)
        for _ in range(rank):
            torch.cos(x)
distributed.destroy_process_group()
print(calls, len(m.profile.kernels), m.profile.trace.metadata.rank, m.profile.trace.metadata.world_size)
"""


def test_processes_that_are_no_pytest_measure_each_by_itself_and_call_the_code_as_often():
    started = [fresh.start_code(IN_NO_PYTEST, **told) for told in jobs.environment(2)]
    done = [rank.done(LONGEST_S) for rank in started]
    assert [one.stdout.strip() for one in done] == ["8 1 0 2", "8 2 1 2"], [one.stderr for one in done]


# Under torchrun itself

UNDER_TORCHRUN = """
MARKER
def test_one():
    step()

def test_two(torchprof):
    torchprof(step)
    with torchprof.measure("again", max_kernels=2) as m:
        for _ in m.steps():
            step()

def test_fails_on_rank_1(torchprof):
    torchprof(step)
    assert RANK == 0
"""


def torchrun(folder, *args):
    """Run pytest in two ranks by torchrun, all of them forks; return the finished process."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    ranks = ("-m", "pytest", "-p", "no:cacheprovider", "--torchprof-device=cpu", *args)
    return fresh.run_python(*launcher, *ranks, folder=folder, environment=os.environ, limit_s=LONGEST_S)


def test_torchrun_leaves_a_recording_of_each_rank_and_one_baseline_and_report(pytester, monkeypatch):
    rank_jobs.without_ci(monkeypatch)
    pytester.makepyfile(test_it=TOGETHER + UNDER_TORCHRUN.replace("MARKER", MARKER))
    done = torchrun(pytester.path, "--torchprof-save=kept", "--torchprof-baseline=update", "--torchprof-report=r.json")
    assert done.returncode == 1, done.stdout
    assert "rank 0 writes the baselines and reports" in done.stdout
    names = sorted(path.name for path in (pytester.path / "kept").iterdir())
    assert [name.partition(".rank")[2] for name in names] == ["0of2.json.gz", "1of2.json.gz"] * 4
    ours = [json.loads(gzip.decompress((pytester.path / "kept" / name).read_bytes()))["torchprof"] for name in names]
    assert [one["local_rank"] for one in ours] == [0, 1] * 4
    assert len({one["run_id"] for one in ours}) == 1
    assert set(entries(pytester.path)) == {"test_one", "test_two", "test_two (again)"}
    # No rank is ended before it has told its results.
    assert done.stdout.count("= 1 failed, 2 passed") == 2
    results = json.loads((pytester.path / "r.json").read_text())["results"]
    assert [one["outcome"] for one in results] == ["passed", "passed", "passed", "failed"]
    assert results[-1]["message"] == "failed on rank 1: assert 1 == 0 [other-rank]"
