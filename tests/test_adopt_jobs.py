"""Jobs that a test starts itself: the recordings of all ranks, adopted and judged rank by rank and together."""

from __future__ import annotations

import shutil
from pathlib import Path

import jobs
import pytest
from facts import verdicts_in

from pytest_torchprof.limits.limit import MISSED
from pytest_torchprof.limits.seen import RankSkew
from pytest_torchprof.reasons.adopting import RanksNotAdopted

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo")

LATE = """
x = torch.ones(100)
def step():
    distributed.barrier()
    if rank == 1:
        time.sleep(0.5)
        torch.cos(x)
    distributed.all_reduce(x)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the folder of a job in which rank 1 does more, and is late."""
    folder = tmp_path_factory.mktemp("job")
    jobs.record(folder, LATE, steps=3)
    return folder


@pytest.fixture
def adopt(run_tests, recorded):
    """Return a function that runs a test which adopts the job with these arguments, and then says more."""

    def run(arguments, then="pass", *args, folder=recorded):
        body = f"profiles = torchprof.adopt({str(folder)!r}, 'train', {arguments})\n    {then}"
        report = "--torchprof-report=told.json"
        return run_tests(f"@cpu\ndef test_it(torchprof):\n    {body}\n", report, *args, in_process=True)

    return run


def said(result):
    return " ".join(result.stdout.str().split())


def skew_told():
    """Return the rank skew by which the one limit that is missed is so."""
    (verdict,) = [verdict for verdict in verdicts_in(Path("told.json")) if verdict.status == MISSED]
    (seen,) = verdict.seen
    assert (verdict.limit, type(seen)) == ("max_rank_skew", RankSkew)
    return seen


def test_each_profile_tells_of_all_ranks(adopt):
    then = """assert {one.ranks.straggler for one in profiles} == {1}
    first, second = profiles
    assert [one.rank for one in first.ranks] == [0, 1] and len(first.ranks) == 2
    assert first.ranks[1].collectives == second.collectives
    waits = [one.wait_us for one in first.collectives if one.name == "all_reduce"]
    assert all(0.8 * 500_000 < one for one in waits) and len(waits) == 3, waits
    assert {one.wait_us for one in second.collectives if one.name == "all_reduce"} == {0}
    joined = [one for one in first.ranks.collectives if one.name == "all_reduce"]
    assert [one.wait_us(0) for one in joined] == waits
    assert [one.transfer_us for one in second.collectives] == [one.transfer_us for one in second.ranks.collectives]
    assert [one.code for one in first.findings if "rank" in one.evidence] == []
    assert {one.code for one in second.findings if "rank" in one.evidence} == {"straggler", "rank-differs"}
    with pytest.raises(Exception, match="rank 2; .* 0, 1 "):
        first.ranks[2]"""
    adopt('files="any"', then).assert_outcomes(passed=1)


def test_limits_on_all_ranks_hold_and_are_missed_once(adopt):
    adopt('files=2, max_rank_skew="10s", max_kernels=3').assert_outcomes(passed=1)
    result = adopt('files=2, max_rank_skew="100us"')
    result.assert_outcomes(failed=1)
    skew = skew_told()
    assert skew.collectives == 6
    # Once as the failure, and once in the short summary.
    assert said(result).count(str(skew)) == 2
    result = adopt("files=2, same_kernels=True")
    result.assert_outcomes(failed=1)
    assert "train[0]: 1 limit missed: same_kernels" in said(result)
    assert "rank 1 against rank 0: 1 more x pointwise cos in step 1" in said(result)


def test_a_limit_on_all_ranks_is_there_afterwards_too(adopt):
    then = "profiles[1].expect(same_kernels=True)"
    result = adopt("files=2", then)
    result.assert_outcomes(failed=1)
    assert "rank 1 against rank 0: 1 more x pointwise cos in step 1" in said(result)


def test_findings_about_ranks_are_forbidden(adopt):
    result = adopt('files="any", forbid=["straggler", "rank-differs"]')
    result.assert_outcomes(failed=1)
    assert "train[1]: 1 limit missed: forbid" in said(result)
    assert "train[0]: 1 limit" not in said(result)


def test_a_replay_judges_them_too(adopt):
    limits = 'files="any", max_rank_skew="100us"'
    adopt(limits, "pass", "--torchprof-save=kept").assert_outcomes(failed=1)
    result = adopt(limits, "pass", "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    assert skew_told().collectives == 6


def test_ranks_that_are_missing_are_named(adopt, recorded, tmp_path):
    shutil.copy(recorded / "rank1.json", tmp_path)
    result = adopt('files="any", max_kernels=9', folder=tmp_path)
    result.assert_outcomes(failed=1)
    assert str(RanksNotAdopted(missing=(0,), there=1)) in said(result)
    adopt("files=1, max_kernels=9", folder=tmp_path).assert_outcomes(passed=1)
    for limit in ('max_rank_skew="10s"', "same_kernels=True", 'forbid="straggler"'):
        result = adopt(f"{limit}", folder=tmp_path)
        result.assert_outcomes(failed=1)
        assert "not measured" in said(result)


def test_one_rank_tells_nothing_of_the_others(adopt, recorded, tmp_path):
    shutil.copy(recorded / "rank1.json", tmp_path)
    adopt("", "profiles.ranks", folder=tmp_path).assert_outcomes(failed=1)
    assert "[one-rank]" in said(adopt("", "profiles.ranks", folder=tmp_path))
