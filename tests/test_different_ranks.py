"""Ranks that do not fit together: of other runs, with other collectives, or not matched; none of it is told as waiting."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from functools import partial

import jobs
import pytest
from facts import says, why_refused
from jobs import rank_of, recording, reduce

from pytest_torchprof import load_ranks
from pytest_torchprof.cli import main
from pytest_torchprof.findings.ranks import find_in_job
from pytest_torchprof.reasons.job_limits import MissingRanks
from pytest_torchprof.reasons.mixed_jobs import (
    OtherCollectiveNumbers,
    OtherProcessGroups,
    ProcessGroupMissing,
    RankOfOtherRun,
    RecordedAtOtherTime,
)

pytestmark = pytest.mark.any_torch

SECOND = 10**9
STEP_S = 0.1
"""How long the recordings of ``recording`` are."""


@pytest.fixture
def job(tmp_path):
    """Return a function that writes recordings into a folder of their own."""

    def write(*builders):
        folder = tmp_path / "job"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for number, builder in enumerate(builders):
            builder.write(folder / f"{number}.json")
        return folder

    return write


@pytest.fixture
def check(capsys):
    """Return a function that judges a folder of ranks, and gives the status and what was said."""

    def judge(folder, *limits):
        words = [word for one in limits for word in ("--limit", one)]
        status = main(["check", str(folder), "--ranks", *words])
        said = capsys.readouterr()
        return status, " ".join((said.out + said.err).split())

    return judge


@pytest.fixture
def told(capsys):
    """Return a function that gives what is told of a folder of ranks, as text or as data."""

    def tell(folder, *words):
        assert main(["analyze", str(folder), "--ranks", *words]) == 0
        said = capsys.readouterr().out
        return json.loads(said) if "--json" in words else " ".join(said.split())

    return tell


# Of one run


@pytest.mark.parametrize("hosts", [("one", "one"), ("one", "two"), (None, None), (None, "one")])
@pytest.mark.parametrize("apart_s", [3600, 86_400, 90])
def test_recordings_that_were_made_at_other_times_are_refused_wherever(job, check, hosts, apart_s):
    ranks = [recording(rank, [1000], host=hosts[rank], base=rank * apart_s * SECOND) for rank in (0, 1)]
    folder = job(*ranks)
    assert says(why_refused(lambda: load_ranks(folder)), RecordedAtOtherTime)
    status, said = check(folder, "max_kernels=9")
    assert (status, "[mixed-jobs]" in said) == (2, True), said


def test_a_rank_of_many_that_was_recorded_later_is_refused_whichever_it_is(job):
    for late in range(4):
        ranks = [recording(one, [1000], size=4, host=None, base=3600 * SECOND * (one == late)) for one in range(4)]
        folder = job(*ranks)
        assert says(why_refused(partial(load_ranks, folder)), RecordedAtOtherTime)


@pytest.mark.parametrize("apart_ms", [12, 500])
def test_recordings_of_one_host_that_are_a_little_apart_are_of_one_run(job, apart_ms):
    """As of an asynchronous collective: the rank that has asked for it does not wait for the others."""
    base = round(STEP_S * SECOND) + apart_ms * 10**6
    assert len(load_ranks(job(recording(0, [1000]), recording(1, [1000], base=base)))) == 2


def test_a_run_that_follows_another_one_on_the_same_host_is_refused(job):
    folder = job(recording(0, [1000]), recording(1, [1000], base=4 * SECOND))
    reason = why_refused(lambda: load_ranks(folder))
    assert isinstance(reason, RecordedAtOtherTime)
    assert reason.later_us == pytest.approx(3.9e6, rel=0.01)


def test_clocks_of_hosts_that_differ_by_seconds_are_of_one_run(job):
    ranks = [recording(rank, [1000], host=f"host{rank}", base=20 * rank * SECOND) for rank in (0, 1)]
    assert len(load_ranks(job(*ranks)).collectives) == 1


def test_other_run_ids_are_refused_also_beside_a_rank_that_has_none(job):
    ranks = [recording(rank, [1000], size=3) for rank in range(3)]
    for number, run in ((1, "a"), (2, "b")):
        ranks[number].own(steps=1, rank=number, world_size=3, run_id=run)
    ranks[0].own(steps=1, rank=0, world_size=3)
    folder = job(*ranks)
    assert says(why_refused(lambda: load_ranks(folder)), RankOfOtherRun)


WORLD = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]}
PAIR = {"pg_name": "1", "pg_desc": "tp", "pg_size": 2, "ranks": [1, 2]}


@pytest.mark.parametrize(
    "layouts",
    [
        [[WORLD], [WORLD, PAIR], [WORLD, {**PAIR, "ranks": [2, 3]}], [WORLD]],
        [[WORLD], [WORLD, PAIR], [WORLD, {**PAIR, "ranks": [], "pg_size": 4}], [WORLD]],
        [[WORLD], [WORLD, PAIR], [WORLD], [WORLD]],
    ],
    ids=["other ranks", "another size", "not known to a member"],
)
def test_other_process_groups_are_refused_whichever_ranks_have_them(job, layouts):
    ranks = [recording(rank, [1000], size=4, pg_config=layout) for rank, layout in enumerate(layouts)]
    folder = job(*ranks)
    assert isinstance(why_refused(lambda: load_ranks(folder)), OtherProcessGroups | ProcessGroupMissing)


def test_groups_of_some_ranks_and_a_group_of_all_that_lists_none_are_one_layout(job):
    everyone = {**WORLD, "ranks": []}
    layouts = [[everyone], [WORLD, PAIR], [everyone, PAIR], [WORLD]]
    ranks = [recording(rank, [1000], size=4, pg_config=layout) for rank, layout in enumerate(layouts)]
    found = load_ranks(job(*ranks))
    assert found.groups_called("default_pg") == [(0, 1, 2, 3)]


def numbered(rank, *numbers, **told):
    return rank_of(rank, *(reduce(100 + 200 * at, 200 + 200 * at, Seq=one) for at, one in enumerate(numbers)), **told)


def test_collectives_of_other_numbers_are_of_another_run(job):
    folder = job(numbered(0, 1, 2, host=None), numbered(1, 501, 502, host=None))
    numbers = {"first": 1, "last": 2, "first_elsewhere": 501, "last_elsewhere": 502}
    assert says(why_refused(lambda: load_ranks(folder)), OtherCollectiveNumbers, **numbers)
    assert len(load_ranks(job(numbered(0, 1, 2), numbered(1, 2, 3))).collectives) == 1


# What is not matched

NAMELESS = {"Process Group Name": None, "Process Group Ranks": None, "Group size": None}


def test_a_rank_whose_collectives_are_not_matched_waits_nobody_knows_how_long(job, told, check):
    """9 ms in an all_reduce of which the group is not recorded."""
    folder = job(rank_of(0, reduce(100, 9_200, **NAMELESS)), rank_of(1, reduce(9_100, 9_200, **NAMELESS)))
    found = told(folder, "--json")
    assert [(one["wait_us"], one["caused_us"], one["unmatched"]) for one in found["ranks"]] == [(None, None, 1)] * 2
    assert (found["skew_us"], found["wait_share"]) == (None, None)
    assert load_ranks(folder).wait_us(0) is None
    assert "- -" in told(folder)
    assert check(folder, "forbid=straggler")[0] == 3


def test_waiting_that_is_matched_in_part_is_told_as_the_least(job, told):
    known, unknown = [reduce(1000 * at, 1000 * at + 500) for at in (1, 2)], reduce(4000, 9000, **NAMELESS)
    folder = job(
        rank_of(0, *known, unknown),
        rank_of(1, *(reduce(one[0] + 40, one[1]) for one in known), reduce(8900, 9000, **NAMELESS)),
    )
    found = told(folder, "--json")["ranks"]
    assert [(one["wait_us"], one["matched_wait_us"], one["matched"]) for one in found] == [(None, 80, 2), (None, 0, 2)]
    assert ">=80.0 us" in told(folder)


def test_a_skew_that_others_may_decide_is_not_measured(job, check):
    """Of three collectives one is matched; with one that is not the median cannot be more than the matched ones."""
    known = [reduce(1000 * at, 1000 * at + 500) for at in (1, 2, 3)]
    unknown = [reduce(1000 * at, 1000 * at + 500, **NAMELESS) for at in (5, 6, 7)]
    few = job(*(rank_of(rank, *known[:1], *unknown) for rank in (0, 1)))
    status, said = check(few, "max_rank_skew=1ms")
    assert (status, "[not-recorded]" in said) == (3, True)
    assert check(job(*(rank_of(rank, *known, *unknown[:1]) for rank in (0, 1))), "max_rank_skew=1ms")[0] == 0


# Other collectives


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"In msg nelems": 500, "Out msg nelems": 500},
            "all_reduce in step 1 has 2,000 B of fp32, and 1000 B of fp32 on rank 0",
        ),
        ({"dtype": "Half"}, "all_reduce in step 1 has 500 B of fp16, and 1000 B of fp32 on rank 0"),
        ({"In msg nelems": 251, "Out msg nelems": 251}, "has 1004 B of fp32, and 1000 B of fp32 on rank 0"),
        ({"In msg nelems": 0, "Out msg nelems": 0}, "has 0 B of fp32, and 1000 B of fp32 on rank 0"),
    ],
    ids=["size", "type", "one element", "nothing"],
)
@pytest.mark.parametrize("number", [{}, {"Seq": 7}, {"Comms Id": 9}], ids=str)
def test_another_size_or_type_on_one_rank_is_a_finding_and_nothing_is_concluded(job, check, told, other, said, number):
    calls = [
        reduce(1000 * at, 1000 * at + 500, **{one: at + told for one, told in number.items()}) for at in range(1, 5)
    ]
    odd = [*calls[:-1], (*calls[-1][:3], {**calls[-1][3], **other})]
    folder = job(*(rank_of(rank, *(odd if rank == 2 else calls), size=3) for rank in range(3)))
    found = told(folder, "--json")
    finding = next(one for one in found["findings"] if one["code"] == "rank-differs")
    assert (finding["evidence"]["rank"], said in finding["message"]) == (2, True), finding
    assert (found["skew_us"], found["kind"], found["straggler"]) == (None, "inconclusive", None)
    status, judged = check(folder, "max_rank_skew=1s", "same_kernels=True")
    assert (status, judged.count("[different-collectives]")) == (3, 2), judged
    assert check(folder, "forbid=rank-differs")[0] == 1
    assert check(folder, "forbid=straggler")[0] == 3


def gather(start, until, **told):
    return start, until, "_allgather_base_", told


def test_another_order_without_numbers_is_a_finding_and_nothing_is_concluded(job, check):
    ranks = [
        rank_of(0, reduce(100, 200), gather(300, 400), reduce(500, 600)),
        rank_of(1, reduce(100, 200), reduce(300, 400), gather(500, 600)),
    ]
    status, said = check(job(*ranks), "max_rank_skew=1s", "same_kernels=True", "forbid=rank-differs")
    assert (status, said.count("[different-collectives]")) == (1, 2), said
    assert "step 1 are all_reduce, all_gather, and all_gather, all_reduce on rank 0" in said


def test_orders_of_two_groups_need_not_be_the_same(job, check):
    """Two threads of a rank may serve two groups in any order."""
    one, other = reduce(100, 200), gather(300, 400, **{"Process Group Name": "1"})
    ranks = rank_of(0, one, other), rank_of(1, gather(100, 200, **other[3]), reduce(300, 400))
    assert check(job(*ranks), "max_rank_skew=1s", "forbid=rank-differs")[0] == 0


def test_sizes_that_may_differ_are_no_difference(job, check):
    """What a rank gives to an all_to_all, and what only a root takes."""

    def call(rank, operator, at, taken, given):
        return at, at + 100, operator, {"In msg nelems": taken, "Out msg nelems": given, "Group size": 2}

    def calls(rank):
        yield call(rank, "alltoall_base_", 100, 100 + rank, 101 - rank)
        yield call(rank, "allgather_", 300, 100 + rank, 201)

    assert (
        check(job(*(rank_of(rank, *calls(rank)) for rank in (0, 1))), "forbid=rank-differs", "max_rank_skew=1s")[0] == 0
    )


# What is judged of all ranks


def late(*, more=()):
    starts = [1000, 3000, 5000, 7000]
    ends = [one + 600 for one in starts]
    return recording(0, starts, end=ends), recording(1, [one + 500 for one in starts], end=ends, more=more)


def test_findings_about_ranks_are_forbidden_by_check(job, check):
    folder = job(*late())
    status, said = check(folder, "forbid=straggler")
    (straggler,) = [finding for finding in find_in_job(load_ranks(folder)) if finding.code == "straggler"]
    assert (straggler.rank, straggler.share) == (1, 1)
    assert (status, straggler.message in said) == (1, True), said
    assert check(folder, "forbid=rank-differs")[0] == 0
    status, said = check(job(*late(more=["gemm"])), 'forbid=["hotspot", "rank-differs"]')
    assert (status, "rank 1 against rank 0: 1 more x gemm" in said, "forbid=hotspot" in said) == (1, True, True), said


def test_a_straggler_that_cannot_be_told_is_not_measured(job, check):
    few = [recording(0, [1000], end=[5000]), recording(1, [4000], end=[5000])]
    status, said = check(job(*few), "forbid=straggler")
    assert (status, "takes 3 collectives" in said) == (3, True), said
    missing = [recording(rank, [1000, 2000, 3000], size=3) for rank in (0, 1)]
    status, said = check(job(*missing), "forbid=straggler")
    assert (status, said.count(str(MissingRanks((2,)))), "forbid=straggler" in said) == (3, 1, True), said
    assert check(job(*(recording(rank, [], more=["gemm"]) for rank in (0, 1))), "forbid=straggler")[0] == 0


def test_ranks_of_which_not_all_kernels_are_known_are_not_judged(job, check):
    """A kernel of no known family may be a collective of somebody's own, in which ranks wait."""
    odd = [f"void mine::odd{number}(int)" for number in range(9)]
    ranks = [recording(rank, [1000, 2000, 3000], more=odd) for rank in (0, 1)]
    status, said = check(job(*ranks), "max_rank_skew=1ms", "same_kernels=True")
    assert (status, "[family-unknown]" in said) == (3, True), said
    assert check(job(*ranks), "forbid=straggler")[0] == 3
    declared = 'own_kernels={"mine::odd*": "pointwise"}'
    assert check(job(*ranks), "max_rank_skew=1ms", "forbid=straggler", declared)[0] == 0


def test_launches_that_wait_tell_nothing_of_the_skew(job, check):
    ranks = [recording(rank, [1000, 2000, 3000]) for rank in (0, 1)]
    for number, builder in enumerate(ranks):
        builder.own(steps=1, rank=number, world_size=2, environment={"launches_wait": "CUDA_LAUNCH_BLOCKING=1"})
    status, said = check(job(*ranks), "max_rank_skew=1s")
    assert (status, "[launches-wait]" in said) == (3, True), said


@pytest.mark.parametrize("asked", ["max_rank_skew=1s", "forbid=straggler"])
def test_clocks_that_sampling_locks_tell_nothing_of_the_skew(job, check, asked):
    ranks = [recording(rank, [1000, 2000, 3000]) for rank in (0, 1)]
    assert check(job(*ranks), asked)[0] == 0
    sample = {"ph": "C", "name": "SM Active (%)", "pid": "GPU 0 Counters", "ts": 1500, "args": {"": 40.0}}
    ranks[1].events.append(sample)
    status, said = check(job(*ranks), asked)
    assert (status, "rank 1: the GPU" in said) == (3, True), said


def test_nothing_is_the_same_on_no_rank(job, check):
    ranks = [rank_of(rank) for rank in (0, 1)]
    for builder in ranks:
        builder.memcpy("HtoD", 300, 10, builder.call("cudaMemcpyAsync", 200, 2))
    status, said = check(job(*ranks), "same_kernels=True")
    assert (status, "[nothing-ran]" in said) == (3, True), said


def test_what_is_mixed_is_named(job, told):
    assert "Mixed (waiting, transfer): 42.9% of the time in 4 collectives is waiting" in told(job(*mixed()))


def mixed():
    starts = [1000, 3000, 5000, 7000]
    ends = [one + 500 for one in starts]
    return recording(0, starts, end=ends), recording(1, [one + 300 for one in starts], end=ends)


# Many ranks


def test_what_is_kept_of_a_rank_does_not_grow_with_the_list_of_all(job):
    def kept(size):
        folder = job(*(recording(rank, [200 * at for at in range(1, 200)], size=size) for rank in range(6)))
        load_ranks(folder)
        tracemalloc.start()
        try:
            found = load_ranks(folder)
            assert len(found.collectives) == 199
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert kept(1500) < 1.5 * kept(6)


# Real ranks


@pytest.mark.skipif("not __import__('torch').distributed.is_gloo_available()", reason="needs gloo")
def test_an_asynchronous_collective_that_nobody_awaits_is_of_one_run(tmp_path, capsys):
    step = """
    x = torch.ones(1000)
    def step():
        if rank == 1:
            time.sleep(0.05)
        step.work = distributed.all_reduce(x, async_op=True)
    """
    jobs.record(tmp_path, step)
    assert main(["analyze", str(tmp_path), "--ranks", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["wait_us"] for one in found["ranks"]] == [None, None] or found["collectives"]
