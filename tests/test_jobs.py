"""The recordings of a job's ranks together: who waits for whom, what differs, and what is refused."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import weakref
from statistics import median

import jobs
import pytest
from facts import says, why_command_refused, why_refused
from jobs import ELEMENTS, recording

from pytest_torchprof import load, load_ranks
from pytest_torchprof.analysis.joining import joined
from pytest_torchprof.analysis.rank_parts import part_of
from pytest_torchprof.cli import main
from pytest_torchprof.cli.ranks import job_in
from pytest_torchprof.findings import find
from pytest_torchprof.findings.catalogue.ranks import OtherWorkOnRank
from pytest_torchprof.findings.ranks import find_in_job
from pytest_torchprof.limits.seen import RankSkew
from pytest_torchprof.reasons.files_asked import RanksOfNoFolder
from pytest_torchprof.reasons.job_limits import MissingRanks
from pytest_torchprof.reasons.mixed_jobs import JobOfOtherSize, OtherProcessGroups, RecordedAtOtherTime, SameRankTwice

torch = pytest.importorskip("torch")
needs_gloo = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo")

TIMES = [(1000, 1300), (3000, 3200), (5000, 5400), (7000, 7250)]
"""When each of four collectives starts on rank 0 and on rank 1, which is always late."""
ENDS = [late + 100 for _, late in TIMES]


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes recordings into a folder."""

    def write(*builders, name="job"):
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        for number, builder in enumerate(builders):
            builder.write(place / f"{number}.json")
        return place

    return write


@pytest.fixture
def late(folder):
    """Return the folder of a job in which rank 1 is late."""
    return folder(*(recording(rank, [pair[rank] for pair in TIMES], end=ENDS) for rank in (0, 1)))


@pytest.fixture
def run(capsys):
    """Return a function that runs a command and gives its status and what it said."""

    def command(*words):
        status = main([str(word) for word in words])
        said = capsys.readouterr()
        return status, " ".join((said.out + said.err).split())

    return command


def job_of(place, device=None):
    return job_in(str(place), device)


# Who waits for whom


def test_a_collective_is_waiting_for_the_last_rank_and_then_transfer(late):
    job = job_of(late)
    assert [one.wait_us(0) for one in job.collectives] == [300, 200, 400, 250]
    assert {one.wait_us(1) for one in job.collectives} == {0}
    assert {one.transfer_us for one in job.collectives} == {100}
    assert [one.bus_gb_per_s for one in job.collectives] == [pytest.approx(4 * ELEMENTS / 100e3)] * 4
    assert (job.skew_us, job.straggler, job.kind, job.one_clock) == (275, 1, "mixed", True)
    assert job.wait_share == pytest.approx(1150 / (1150 + 8 * 100))


def test_the_ranks_of_a_job_begin_with_the_headline_and_end_with_what_to_do(late, run):
    status, text = run("analyze", late, "--ranks")
    headline, recorded = text.split(" a job of 2 ranks, ")
    assert status == 0
    straggler, *_ = find_in_job(job_of(late))
    assert (straggler.rank, straggler.caused_us, straggler.share) == (1, 1150, 1)
    assert headline.startswith("Rank 1 keeps ")
    assert f"{straggler.headline} Mixed (waiting, transfer): 59.0% of the time in 4 collectives is waiting " in headline
    assert "What stands out: Rank 1 keeps " in headline
    assert f"What to do first: {straggler.action}" in headline
    assert "rank 1" in straggler.action
    after = recorded.split(" next ")[1]
    assert after.startswith(f"{straggler.title}: {straggler.remedy}")
    assert f"torchprof report {late} -o page.html" in after
    command = after.partition("coming back: torchprof ")[2].replace("NEW-FOLDER", str(late)).split()
    assert run(*command)[0] == 1, "the command finds what stands out"


def test_the_rank_that_is_late_is_told_with_its_files_and_with_what_its_own_recording_shows(folder, run):
    first, second = late_ranks()
    for number in range(40):
        second.launched("ampere_sgemm_128x64_tn", 20_000 + 100 * number, op="aten::mm", dur=95)
    place = folder(first, second)
    text = run("analyze", place, "--ranks")[1]
    own = find(load(place / "1.json"))[0]
    assert text.partition(" What stands out: ")[2].partition("Rank 1 by itself: ")[2].startswith(own.title)
    files = (place / "0.json", place / "1.json")
    # The path of a temporary folder may be longer than a line, and is broken between its folders.
    command = "".join(text.partition(" compare them: torchprof ")[2].split())
    assert command.startswith(f"diff{files[0]}{files[1]}")
    assert run("diff", *files)[0] == 1


def test_ranks_that_are_not_measured_are_what_a_job_begins_with(folder, run):
    first, second = late_ranks()
    second.launch(90_000)
    status, text = run("analyze", folder(first, second), "--ranks")
    assert status == 0
    assert text.startswith("Not measured: rank 1: ")
    assert "torchprof explain " in text.split(" next ")[1]


@pytest.mark.parametrize(
    ("late_us", "dur", "kind", "straggler"),
    [(1, 100, "transfer-bound", None), (300, 100, "mixed", 1), (3000, 100, "skew-bound", 1)],
)
def test_the_kind_goes_by_the_share_of_waiting(folder, late_us, dur, kind, straggler):
    starts = [10_000 * number + 1000 for number in range(4)]
    ends = [one + late_us + dur for one in starts]
    place = folder(recording(0, starts, end=ends), recording(1, [one + late_us for one in starts], end=ends))
    job = job_of(place)
    assert (job.kind, job.straggler) == (kind, straggler)


def test_of_four_ranks_three_wait(folder):
    starts = [10_000 * number + 1000 for number in range(4)]
    ends = [one + 3100 for one in starts]
    ranks = [recording(rank, starts, size=4, end=ends) for rank in range(3)]
    job = job_of(folder(*ranks, recording(3, [one + 3000 for one in starts], size=4, end=ends)))
    assert (job.kind, job.straggler) == ("skew-bound", 3)
    assert job.wait_share == pytest.approx(3 * 3000 / (3 * 3100 + 100))


def test_with_ranks_missing_waiting_is_at_least_that_long_and_transfer_at_most(folder, run):
    starts = [10_000 * number + 1000 for number in range(4)]
    ends = [one + 3100 for one in starts]
    later = [one + 1000 for one in starts]
    place = folder(recording(0, starts, size=4, end=ends), recording(1, later, size=4, end=ends))
    assert (job_of(place).kind, job_of(place).straggler) == ("inconclusive", 1)
    said = run("analyze", place, "--ranks")[1]
    known, unsure, *_ = re.split(r"(?<=collectives) (?=At least)|(?= What stands out)", said)
    assert known.startswith("Rank 1 keeps ")
    assert unsure.startswith("At least 19.2% of ")
    _, exposed = find_in_job(job_of(place))
    assert exposed.waits_at_least == pytest.approx(0.192, abs=0.001)
    # What is known of the waiting is not called unknown above it.
    assert "inconclusive" not in said.partition(" ranks rank ")[0]
    assert exposed.message in said
    assert "inconclusive" not in exposed.message
    assert re.search(r"<=8.40 ms +>=19.2%", said)
    assert "send less" not in said


def test_a_few_collectives_conclude_nothing(folder):
    place = folder(recording(0, [1000], end=[5000]), recording(1, [4000], end=[5000]))
    assert (job_of(place).kind, job_of(place).straggler) == ("inconclusive", None)


@pytest.mark.parametrize("hosts", [("one", "two"), (None, None)])
def test_clocks_of_two_hosts_are_aligned_by_the_ends_of_collectives(folder, hosts, run):
    ahead = 5_000_000
    ranks = [recording(rank, [pair[rank] for pair in TIMES], end=ENDS, host=hosts[rank]) for rank in (0, 1)]
    ranks[1].metadata["baseTimeNanoseconds"] = ahead
    place = folder(*ranks)
    job = job_of(place)
    assert not job.one_clock
    assert [one.wait_us(0) for one in job.collectives] == [300, 200, 400, 250]
    assert job.residue_us == 0
    assert "clocks are aligned by the ends of collectives, to 0" in run("analyze", place, "--ranks")[1]


def test_clocks_that_do_not_fit_conclude_nothing(folder, run):
    ends = [[one + shift for one, shift in zip(ENDS, (0, 90, 0, 90), strict=True)], ENDS]
    ranks = [recording(rank, [pair[rank] for pair in TIMES], end=ends[rank], host=None) for rank in (0, 1)]
    place = folder(*ranks)
    assert job_of(place).residue_us > 40
    assert job_of(place).kind == "inconclusive"
    status, said = run("check", place, "--ranks", "--limit", "max_rank_skew=290us")
    assert (status, "[not-recorded]" in said) == (3, True)


@needs_gloo
def test_a_rank_that_sleeps_before_a_collective_keeps_the_other_waiting(tmp_path, run):
    step = """
    x = torch.ones(100)
    def step():
        distributed.barrier()
        if rank == 1:
            time.sleep(0.5)
        distributed.all_reduce(x)
    """
    jobs.record(tmp_path, step, steps=3)
    job = job_of(tmp_path, "cpu")
    reduces = [one for one in job.collectives if one.name == "all_reduce"]
    assert (len(reduces), len(job.collectives), job.straggler) == (3, 6, 1)
    assert median(one.wait_us(0) for one in reduces) == pytest.approx(500_000, rel=0.2)
    assert "rank 1 comes last" in run("analyze", tmp_path, "--ranks", "--device", "cpu")[1]


# The recorded pair


def durations(path):
    """Return start, duration and size of each NCCL kernel by its number: by External id and correlation, from the raw file."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    launches = sorted(
        (event["ts"], event["args"]["correlation"])
        for event in events
        if event.get("cat") == "cuda_runtime" and "correlation" in event.get("args", {})
    )
    kernels = {event["args"]["correlation"]: event for event in events if event["name"].startswith("ncclDevKernel")}
    asked = sorted(
        (event["ts"], event["ts"] + event["dur"], event["args"])
        for event in events
        if event["name"] == "record_param_comms" and "TensorList" in event["args"]["Input type"]
    )
    found = {}
    for begin, end, args in asked:
        numbers = [one for ts, one in launches if begin <= ts <= end and one in kernels]
        for one in numbers:
            (dims,) = args["Input Dims"][0]
            size = dims[0] if len(dims) == 1 else dims[0] * dims[1] * (dims[2] if len(dims) > 2 else 1)
            width = 2 if "f16" in kernels[one]["name"] else 4
            found[int(args["Concrete Inputs"][1])] = (kernels[one]["ts"], kernels[one]["dur"], size * width)
    return found


def test_waits_transfers_and_bandwidths_of_a_recorded_pair_are_those_of_another_computation(shared_trace):
    paths = [shared_trace(f"a100_megatron_tp8_rank{rank}") for rank in (0, 1)]
    first, second = map(durations, paths)
    job = joined(part_of(load(path)) for path in paths)
    assert first.keys() == second.keys()
    assert len(job.collectives) == len(first) == 84
    ahead = median(second[one][0] + second[one][1] - first[one][0] - first[one][1] for one in first)
    for number, one in zip(sorted(first), job.collectives, strict=True):
        (start, dur, size), (other, took, _) = first[number], second[number]
        other -= ahead
        assert [us / 1000 for us in one.durations_ns.values()] == [dur, took]
        assert [one.wait_us(rank) for rank in (0, 1)] == [
            pytest.approx(max(start, other) - mine, abs=0.01) for mine in (start, other)
        ]
        assert one.transfer_us == min(dur, took)
        assert one.message_bytes == size
        assert one.bus_gb_per_s == pytest.approx(2 * 7 / 8 * size / min(dur, took) / 1000)
    assert job.missing == (2, 3, 4, 5, 6, 7)
    assert job.straggler == 0


def test_one_recording_is_in_memory_at_a_time(late):
    seen = []

    def look(profile, _):
        assert [one() for one in seen] == [None] * len(seen)
        seen.append(weakref.ref(profile.launching))

    job_in(str(late), None, look)
    assert len(seen) == 2


# What is refused, and what differs


def changed(builder, **header):
    builder.metadata["distributedInfo"].update(header)
    return builder


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (lambda: recording(0, [1000]), SameRankTwice),
        (lambda: recording(1, [1000], size=4), JobOfOtherSize),
        (lambda: recording(1, [1000], base=10**15), RecordedAtOtherTime),
        (
            lambda: recording(1, [1000], pg_config=[{"pg_name": "0", "ranks": [0, 1, 2]}]),
            OtherProcessGroups,
        ),
    ],
)
def test_recordings_of_several_jobs_are_refused(folder, run, second, kind):
    first = recording(0, [1000], pg_config=[{"pg_name": "0", "ranks": [0, 1]}])
    for command in (["analyze"], ["check", "--limit", "max_kernels=9"]):
        status, text = run(command[0], place := folder(first, second()), "--ranks", *command[1:])
        assert (status, "[mixed-jobs]" in text) == (2, True)
    assert says(why_refused(lambda: load_ranks(place)), kind)


def test_a_recording_that_does_not_say_its_rank_and_one_alone_are_refused(folder, run):
    nameless = recording(0, [1000])
    del nameless.metadata["distributedInfo"]
    status, text = run("analyze", folder(nameless), "--ranks")
    assert (status, "[no-rank]" in text) == (2, True)
    status, text = run("analyze", folder(recording(0, [1000]), name="alone"), "--ranks")
    assert (status, "[no-rank]" in text) == (2, True)
    file = str(folder(recording(0, [1000]), name="alone") / "0.json")
    assert says(why_command_refused("analyze", file, "--ranks"), RanksOfNoFolder, path=file)


def test_a_rank_without_a_recording_leaves_a_check_not_measured(folder, run):
    place = folder(*(recording(rank, [1000, 2000, 3000], size=3) for rank in (0, 1)))
    assert "of rank 2" in run("analyze", place, "--ranks")[1]
    status, said = run("check", place, "--ranks", "--limit", "max_kernels=9")
    assert (status, "rank 2" in said) == (3, True)
    assert run("check", place, "--ranks", "--limit", "max_kernels=2")[0] == 1


def test_that_ranks_are_missing_is_said_once(folder, run):
    place = folder(*(recording(rank, [1000, 2000, 3000], size=3) for rank in (0, 1)))
    limits = ("--limit", "max_kernels=9", "--limit", "max_rank_skew=1ms")
    status, said = run("check", place, "--ranks", *limits)
    assert (status, said.count(str(MissingRanks((2,))))) == (3, 1)
    verdicts = json.loads(run("check", place, "--ranks", *limits, "--json")[1])["limits"]
    assert [(one["name"], one["status"]) for one in verdicts] == [
        ("max_kernels", "holds"),
        ("max_rank_skew", "not measured"),
    ]


@pytest.mark.parametrize(
    ("limit", "more", "kernels"),
    [
        ("max_kernels=1", (0, 3), 6),
        ("min_kernels=9", (3, 0), 3),
        ("max_kernels=9", (0, 3), 6),
        ("min_kernels=2", (3, 0), 3),
    ],
)
def test_the_rank_that_is_shown_is_the_one_furthest_past_its_bound_or_nearest_to_it(folder, run, limit, more, kernels):
    place = folder(*(recording(rank, [1000, 2000, 3000], more=["k"] * count) for rank, count in enumerate(more)))
    (verdict,) = json.loads(run("check", place, "--ranks", "--limit", limit, "--json")[1])["limits"]
    assert (verdict["measured"], verdict["on_ranks"]["first"]) == (kernels, 1)


def test_a_kernel_more_on_one_rank_is_told_and_missed(folder, run):
    place = folder(recording(0, [1000, 2000]), recording(1, [1000, 2000], more=["squared", "squared"]))
    assert "rank 1 against rank 0: 2 more x squared in step 1" in run("analyze", place, "--ranks")[1]
    status, said = run("check", place, "--ranks", "--limit", "same_kernels=True")
    assert (status, "rank 1 against rank 0: 2 more x squared in step 1" in said) == (1, True)


def test_another_type_on_one_rank_is_told_and_missed(folder, run):
    ranks = [recording(rank, [1000, 2000]) for rank in (0, 1, 2)]
    for builder, dtype in zip(ranks, ("float", "c10::BFloat16", None), strict=True):
        inputs = None if dtype is None else [([8, 8], [8, 1], dtype)]
        builder.launched("triton_red_fused_sum_0", 49_000, op="mine::sum", inputs=inputs)
    status, said = run("check", folder(*ranks[:2]), "--ranks", "--limit", "same_kernels=True")
    assert (status, "1 more x triton_red_fused_sum on bf16 in step 1" in said) == (1, True)
    ranks[2].metadata["distributedInfo"]["rank"] = 1
    # Where a rank does not tell its types, names are compared.
    assert run("check", folder(ranks[0], ranks[2], name="untold"), "--ranks", "--limit", "same_kernels=True")[0] == 0


def test_a_collective_more_on_one_rank_is_told(folder, run):
    place = folder(recording(0, [1000, 2000]), recording(1, [1000, 2000, 3000]))
    said = run("analyze", place, "--ranks")[1]
    alone = OtherWorkOnRank(rank=1, collectives={"all_reduce": 1})
    assert alone.message in said


# Limits


@pytest.mark.parametrize(
    ("limits", "status", "said"),
    [
        (["max_rank_skew=1ms", "same_kernels=True", "max_kernels=4"], 0, str(RankSkew(275, 4))),
        (["max_rank_skew=274us"], 1, "all_reduce in step 1: rank 1 400 us late"),
        (["max_exposed_communication=1ms"], 1, "1.55 ms exposed"),
        (["max_exposed_communication=1ms", "max_rank_skew=1ms"], 1, "(rank 0 of 2)"),
        (["max_kernels=3"], 1, "(rank 0 of 2, and 1 other rank too)"),
        (["max_peak_memory=1GB"], 3, "[not-recorded] (rank 0 of 2"),
        (["max_rank_skew=soon"], 2, "expected a duration"),
        (["same_kernels=False"], 2, "expected True"),
    ],
)
def test_limits_hold_on_every_rank_and_on_all_together(late, run, limits, status, said):
    found = run("check", late, "--ranks", *(word for one in limits for word in ("--limit", one)))
    assert (found[0], said in found[1]) == (status, True), found


def test_collectives_for_which_there_is_no_room_are_counted(folder, run):
    starts = [1000 * at for at in range(1, 31)]
    late = folder(*(recording(rank, [one + 500 * rank for one in starts]) for rank in (0, 1)), name="many")
    status, said = run("check", late, "--ranks", "--limit", "max_rank_skew=1us", "--top", "3")
    assert (status, said.count("us late"), "and 27 more: --top N" in said) == (1, 3, True), said


def test_of_a_job_whose_ranks_are_not_all_there_both_numbers_are_named(folder, run):
    two = folder(*(recording(rank, [1000], size=8) for rank in (0, 1)), name="two")
    status, said = run("check", two, "--ranks", "--limit", "max_kernels=0")
    assert (status, "(rank 0 of 8, of which 2 are recorded, and 1 other rank too)" in said) == (1, True), said


def test_one_recording_alone_tells_nothing_of_the_others(late, run):
    status, said = run("check", late / "0.json", "--limit", "max_rank_skew=1s", "--limit", "same_kernels=True")
    assert (status, said.count("[one-rank]")) == (3, 2)


def test_jobs_are_compared_rank_by_rank(folder, late, run):
    again = folder(*late_ranks(more=["gemm"]), name="again")
    assert run("diff", late, late, "--ranks")[0] == 0
    status, said = run("diff", late, again, "--ranks")
    assert (status, "rank 1:" in said) == (1, True)
    assert (
        "all ranks: skew: 275 us -> 275 us wait share: 59.0% -> 59.0% kind: mixed (waiting, transfer) -> mixed (waiting, transfer) straggler: rank 1 -> rank 1"
        in said
    )
    assert json.loads(run("diff", late, again, "--ranks", "--json")[1])["ranks"].keys() == {"0", "1"}
    shutil.rmtree(again)
    assert run("diff", late, folder(*late_ranks(size=3), recording(2, [1000], size=3), name="again"), "--ranks")[0] == 2


def late_ranks(*, size=2, more=()):
    return [
        recording(0, [pair[0] for pair in TIMES], end=ENDS, size=size),
        recording(1, [pair[1] for pair in TIMES], end=ENDS, size=size, more=more),
    ]


# As data, and on narrow terminals


def test_all_of_it_is_there_as_data(late, run):
    found = json.loads(run("analyze", late, "--ranks", "--json")[1])
    assert (found["schema"], found["world_size"], found["missing"], found["straggler"]) == (1, 2, [], 1)
    assert [one["wait_us"] for one in found["collectives"][0]["ranks"]] == [300, 0]
    assert [one["code"] for one in found["findings"]] == ["straggler", "exposed-communication"]


@pytest.mark.parametrize("width", [40, 80, 132])
def test_the_tables_fit_the_terminal(late, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["analyze", str(late), "--ranks"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert "keeps waiting" in text
