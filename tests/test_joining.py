"""Which collectives of several ranks are the same one, by which clock they started, and which ranks are compared."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from facts import says, why_refused
from jobs import SEND_RECV, rank_of, recording, reduce

from pytest_torchprof import UnreadableRecording, load, load_ranks
from pytest_torchprof.cli import main
from pytest_torchprof.limits.seen import RankDifferences, SameOnRanks
from pytest_torchprof.reasons.collectives import Gap
from pytest_torchprof.reasons.job_limits import NoGroupOfTwo
from pytest_torchprof.reasons.mixed_jobs import RankOfOtherRun

pytestmark = pytest.mark.any_torch


@pytest.fixture
def job(tmp_path):
    """Return a function that writes recordings and reads them together."""

    def read(*builders):
        for number, builder in enumerate(builders):
            builder.write(tmp_path / f"{number}.json")
        return load_ranks(tmp_path)

    return read


def waits(job):
    return [[one.wait_us(rank) for rank in one.of_rank] for one in job.collectives]


# Which are the same


def test_by_the_id_that_is_the_same_on_all_ranks(job):
    first = rank_of(0, reduce(100, 200, **{"Comms Id": 7}), reduce(300, 400, **{"Comms Id": 8}))
    second = rank_of(1, reduce(310, 400, **{"Comms Id": 8}), reduce(500, 600, **{"Comms Id": 9}))
    found = job(first, second)
    assert [(one.comms_id, one.wait_us) for one in found[0].collectives] == [(7, None), (8, 10)]
    assert [(one.comms_id, one.wait_us) for one in found[1].collectives] == [(8, 0), (9, None)]
    assert found.alone == {0: {"all_reduce": 1}, 1: {"all_reduce": 1}}


def test_by_the_number_in_the_group_where_there_is_no_id(job):
    first = rank_of(
        0, reduce(100, 200, Seq=4), reduce(300, 400, Seq=5), reduce(500, 600, Seq=5, **{"Process Group Name": "1"})
    )
    second = rank_of(1, reduce(320, 400, Seq=5), reduce(530, 600, Seq=5, **{"Process Group Name": "1"}))
    found = job(first, second)
    assert waits(found) == [[20, 0], [30, 0]]
    assert found.alone == {0: {"all_reduce": 1}}


def test_by_the_place_in_the_step_where_there_is_no_number(job):
    first = rank_of(0, reduce(100, 200), reduce(10_300, 10_400), steps=2)
    second = rank_of(1, reduce(110, 200), reduce(150, 200), reduce(10_320, 10_400), steps=2)
    assert waits(job(first, second)) == [[10, 0], [20, 0]]


def test_groups_that_are_not_recorded_are_not_taken_for_one(job):
    nameless = {"Process Group Name": None, "Process Group Ranks": None, "Group size": None}
    of_two = {**nameless, "Group size": 2}
    ranks = [rank_of(rank, reduce(100, 200, **of_two), reduce(300, 400), size=4) for rank in range(4)]
    found = job(*ranks)
    assert found.not_joined == {Gap.NO_GROUP: 4}
    assert [len(one.of_rank) for one in found.collectives] == [4]


def test_a_group_without_a_name_that_is_as_large_as_the_job_is_that_of_all_ranks(job):
    nameless = {"Process Group Name": None, "Process Group Ranks": None}
    found = job(*(rank_of(rank, reduce(100, 200, **nameless)) for rank in range(2)))
    assert (found.not_joined, len(found.collectives)) == ({}, 1)


def test_a_rank_whose_group_is_not_recorded_makes_no_other_rank_differ(job):
    nameless = {"Process Group Name": None, "Process Group Ranks": None, "Group size": None}
    found = job(rank_of(0, reduce(100, 200)), rank_of(1, reduce(100, 200, **nameless)))
    assert (found.alone, sum(found.not_joined.values()), found.collectives) == ({}, 1, ())


# Sends and receives


def send(start, until, to, **told):
    return start, until, "send", {"Dst Rank": to, **told}


def receive(start, until, source, **told):
    return start, until, "recv_", {"Src Rank": source, **told}


def test_a_send_meets_its_receive_by_pair_and_order(job):
    first = rank_of(0, send(100, 400, 1), send(500, 600, 1), receive(700, 800, 1))
    second = rank_of(1, receive(300, 400, 0), receive(450, 600, 0), send(790, 800, 0))
    found = job(first, second)
    assert waits(found) == [[200, 0], [0, 50], [90, 0]]
    assert [one.transfer_us for one in found.collectives] == [100, 100, 10]
    assert [one.bus_gb_per_s for one in found.collectives] == [
        pytest.approx(0.01),
        pytest.approx(0.01),
        pytest.approx(0.1),
    ]
    assert [one.is_send for one in found.collectives[0].of_rank.values()] == [True, False]
    assert (found.not_joined, found.alone) == ({}, {})


def test_whom_the_operator_names_is_a_place_in_the_group(job):
    group = {"Process Group Name": "5", "Process Group Ranks": "[2, 3]", "Group size": 2}
    ranks = [rank_of(rank, size=4) for rank in range(2)]
    ranks += [rank_of(2, (100, 200, "send", {**group, "place": 1}), size=4)]
    ranks += [rank_of(3, (150, 200, "recv_", {**group, "place": 0}), size=4)]
    found = job(*ranks)
    assert [one.peer for one in (*found[2].collectives, *found[3].collectives)] == [3, 2]
    assert waits(found) == [[50, 0]]


@pytest.mark.parametrize(
    ("first", "second", "why", "count"),
    [
        ([send(100, 200, 1), send(300, 400, 1)], [receive(100, 200, 0)], Gap.PEER_HAS_OTHERS, 3),
        ([send(100, 200, 2)], [receive(100, 200, 2)], Gap.PEER_NOT_THERE, 2),
        ([send(100, 200, None)], [receive(100, 200, 0)], Gap.NO_PEER, 1),
        ([send(100, None, 1)], [receive(100, 200, 0)], Gap.NO_TIME, 2),
    ],
)
def test_what_meets_nothing_is_counted_with_why(job, first, second, why, count, capsys, tmp_path):
    found = job(rank_of(0, *first, size=3), rank_of(1, *second, size=3))
    assert found.not_joined[why] == count
    assert (found.collectives, found.alone) == ((), {})
    assert main(["analyze", str(tmp_path), "--ranks"]) == 0
    assert why.text in " ".join(capsys.readouterr().out.split())


def test_several_sends_of_one_kernel_are_not_held_against_anything(job):
    ranks = []
    for rank in (0, 1):
        builder = rank_of(rank, send(100, None, 1 - rank), receive(200, None, 1 - rank))
        builder.kernel(SEND_RECV, 300, 100, builder.launch(250), stream=20)
        ranks.append(builder)
    found = job(*ranks)
    assert (found.not_joined, found.collectives) == ({Gap.BATCHED: 4}, ())
    assert [one.bus_gb_per_s for one in found[0].collectives] == [None, None]


# Clocks


def test_clocks_are_aligned_from_host_to_host(job):
    """Ranks 0 and 2 have nothing together: rank 1, on a third host, is between them."""
    pairs = {"Group size": 2, "Seq": 1}
    left = {**pairs, "Process Group Name": "1", "Process Group Ranks": "[0, 1]"}
    right = {**pairs, "Process Group Name": "2", "Process Group Ranks": "[1, 2]"}
    both = {"Process Group Name": "3", "Process Group Ranks": "[0, 2]", **pairs}
    first = rank_of(0, reduce(100, 200, **left), (500, 700, "broadcast_", both), size=3, host="a")
    second = rank_of(1, reduce(150, 200, **left), reduce(300, 400, **right), size=3, host="b", base=2 * 10**10)
    third = rank_of(2, reduce(390, 400, **right), (600, 700, "broadcast_", both), size=3, host="c", base=-2 * 10**10)
    found = job(first, second, third)
    assert sorted(map(sorted, waits(found))) == [[0, 50], [0, 90], [0, 100]]
    assert (found.one_clock, found.residue_us, found.not_joined) == (False, 0, {})


def test_ranks_of_one_host_share_its_clock(job):
    """The second rank of each host shifts nothing: the last that ends tells when all were done."""
    ranks = [
        rank_of(rank, *(reduce(at + 10 * rank, at + 100) for at in (100, 300, 500)), size=4, host=f"host{rank // 2}")
        for rank in range(4)
    ]
    found = job(*ranks)
    assert waits(found) == [[30, 20, 10, 0]] * 3
    assert found.residue_us == 0


def test_our_own_recordings_tell_a_clock_in_place_of_a_host(job):
    """The ends of collectives would shift the second rank by 30 us."""

    def ranks(*clocks, runs=(None, None)):
        first, second = rank_of(0, reduce(100, 200), host=None), rank_of(1, reduce(160, 230), host=None)
        for number, builder in enumerate((first, second)):
            builder.own(steps=1, rank=number, world_size=2, clock=clocks[number], run_id=runs[number])
        return first, second

    found = job(*ranks("a", "a"))
    assert (waits(found), found.one_clock) == ([[60, 0]], True)
    found = job(*ranks("a", "b"))
    assert (waits(found), found.one_clock) == ([[30, 0]], False)
    assert says(why_refused(lambda: job(*ranks("a", "a", runs=("1", "2")))), RankOfOtherRun)


def test_hosts_that_no_collective_connects_are_not_compared(job):
    group = {"Process Group Ranks": "[0, 1]"}
    first = rank_of(0, (100, 200, "broadcast_", group), host="a")
    second = rank_of(1, (190, 200, "broadcast_", group), host="b")
    found = job(first, second)
    assert found.not_joined == {Gap.NO_CLOCK: 2}
    assert (found.collectives, found.skew_us, found.straggler) == ((), None, None)


# Which ranks are compared

STAGES = [{"pg_name": "7", "pg_desc": "tp", "ranks": [0, 1]}, {"pg_name": "8", "pg_desc": "tp", "ranks": [2, 3]}]


@pytest.fixture
def pipeline(tmp_path):
    """Return a function that writes two stages of two ranks each, of which the second runs other kernels."""

    def write(*, more=(), folder="job"):
        (tmp_path / folder).mkdir()
        for rank in range(4):
            extra = (*(["softmax"] if rank > 1 else []), *(more if rank == 3 else []))
            builder = recording(rank, [1000], size=4, more=extra, pg_config=[STAGES[rank // 2]])
            builder.write(tmp_path / folder / f"{rank}.json")
        return tmp_path / folder

    return write


@pytest.mark.parametrize(
    ("more", "value", "status", "said"),
    [
        ((), "True", 1, str(RankDifferences(2))),
        ((), "tp", 0, str(SameOnRanks(4, 2))),
        ((), "8", 0, str(SameOnRanks(2, 1))),
        (["gemm"], "7", 0, str(SameOnRanks(2))),
        (["gemm"], "tp", 1, "rank 3 against rank 2: 1 more x gemm gemm in step 1"),
        ((), "dp", 3, str(NoGroupOfTwo("dp", "7 tp, 8 tp"))),
        ((), "[1]", 2, "[bad-value]"),
    ],
)
def test_ranks_are_compared_within_the_groups_that_are_asked_for(pipeline, capsys, more, value, status, said):
    folder = pipeline(more=more)
    value = f'"{value}"' if value.isdecimal() else value
    assert main(["check", str(folder), "--ranks", "--limit", f"same_kernels={value}"]) == status
    found = capsys.readouterr()
    assert said in " ".join((found.out + found.err).split())


# Reading


def test_a_folder_of_ranks_is_read(tmp_path, job):
    found = job(recording(0, [1000]), recording(1, [1100]))
    assert [(one.rank, one.world_size) for one in found] == [(0, 2), (1, 2)]
    assert repr(found[1].collectives[0].name) == "'all_reduce'"
    with pytest.raises(UnreadableRecording, match="is no folder"):
        load_ranks(tmp_path / "0.json")


def test_the_repeat_beside_a_recording_is_not_of_another_rank(tmp_path):
    for rank in (0, 1):
        recording(rank, [1000]).write(tmp_path / f"test.rank{rank}of2.json")
    (tmp_path / "test.rank0of2.stacks.json.gz").write_bytes(
        gzip.compress((tmp_path / "test.rank0of2.json").read_bytes())
    )
    assert [one.rank for one in load_ranks(tmp_path)] == [0, 1]
    assert main(["check", str(tmp_path), "--ranks", "--limit", "same_kernels=True"]) == 0


def test_memory_is_that_of_one_rank_at_a_time(tmp_path):
    """Of recordings of much else than collectives, six take hardly more at once than two."""

    def peak(count):
        folder = tmp_path / str(count)
        folder.mkdir()
        for rank in range(count):
            builder = recording(rank, [1000, 2000], size=count)
            for at in range(3000):
                builder.event("cpu_op", f"aten::op{at % 50}", 3000 + at, 1)
            builder.write(folder / f"{rank}.json")
        load_ranks(folder)
        tracemalloc.start()
        try:
            load_ranks(folder)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(6) < 1.3 * peak(2)


def test_a_recording_of_torch_without_a_launcher_is_of_the_rank_that_torch_says(tmp_path):
    """Where processes are started by hand our own metadata know of one process, and torch of all."""
    for rank in (0, 1):
        builder = recording(rank, [1000])
        builder.own(steps=1, rank=0, world_size=1)
        builder.write(tmp_path / f"{rank}.json")
    assert json.loads((tmp_path / "1.json").read_text())["torchprof"]["rank"] == 0
    assert [one.rank for one in load_ranks(tmp_path)] == [0, 1]
    assert load(tmp_path / "1.json").collectives


def test_collectives_that_are_not_held_against_any_other_are_told_with_why(tmp_path, capsys):
    """As of gloo, which does not say in which of several groups it works."""
    unknown = {"Process Group Name": None, "Process Group Ranks": None, "Group size": None}
    for rank in (0, 1):
        rank_of(rank, reduce(1000, 1100, **unknown)).write(tmp_path / f"{rank}.json")
    assert main(["check", str(tmp_path), "--ranks", "--limit", "max_rank_skew=1s"]) == 3
    output = " ".join(capsys.readouterr().out.split())
    assert f"2 collectives: {Gap.NO_GROUP} [not-recorded]" in output
