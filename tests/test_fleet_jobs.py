"""``torchprof fleet run`` over the ranks of jobs: judged together, by the rules of ``torchprof check DIR --ranks``."""

from __future__ import annotations

import json
import shutil

import pytest
from builder import own_recording
from jobs import recording

from pytest_torchprof.cli import main
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.codes import Code

pytestmark = [pytest.mark.any_torch, pytest.mark.usefixtures("forked_judges")]

SIZE = 4
EARLY, LATE = [1000, 3000, 5000, 7000], [1300, 3250, 5300, 7250]
ENDS = [1400, 3350, 5400, 7350]
SLOW = 2


def job(folder, *, size=SIZE, without=(), **more):
    """Write the recordings of a job whose rank 2 comes to each collective some 300 us after the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in set(range(size)) - {*without}:
        builder = recording(rank, LATE if rank == SLOW else EARLY, size=size, end=ENDS, **more)
        builder.write(folder / f"rank{rank}.json")
    return folder


def fleet(*words):
    return main(["fleet", "run", *map(str, words), "--jobs", "2"])


def jobs_in(folder):
    return [json.loads(line) for line in (folder / "jobs.jsonl").read_text().splitlines()]


def counted(folder):
    return json.loads((folder / "summary.json").read_text())["jobs"]


def test_the_ranks_of_a_job_are_judged_together(tmp_path, capsys):
    traces = job(tmp_path / "job")
    limits = ["--limit", "max_rank_skew=100us", "--limit", "same_kernels=True", "--limit", "max_kernels=4"]
    assert main(["check", str(traces), "--ranks", *limits, "--json"]) == 1
    checked = {row["limit"]: row["status"] for row in json.loads(capsys.readouterr().out)["limits"]}
    assert fleet(traces, "--into", tmp_path / "out", *limits) == 1
    (record,) = jobs_in(tmp_path / "out")
    verdicts = {row["limit"]: row["status"] for row in record["limits"]}
    assert verdicts == {name: status for name, status in checked.items() if name in verdicts}
    assert verdicts == {"max_rank_skew": "missed", "same_kernels": "holds"}
    assert (record["outcome"], record["files"], record["late"], record["skew_us"]) == ("failed", SIZE, SLOW, 275.0)
    assert "straggler" in [finding["finding"] for finding in record["findings"]]
    assert "missing" not in record
    shown = capsys.readouterr().out
    assert "1 job of several ranks: 0 hold, 1 missed" in shown
    assert f"rank {SLOW}" in shown
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["listed"], summary["hold"]) == (SIZE, SIZE)


@pytest.mark.parametrize("how", ["gone", "cut off"])
def test_a_missing_rank_is_named_and_no_pass(tmp_path, capsys, how):
    traces = job(tmp_path / "job", without=[3] if how == "gone" else [])
    if how == "cut off":
        (traces / "rank3.json").write_text((traces / "rank3.json").read_text()[:500])
    assert (
        fleet(traces, "--into", tmp_path / "out", "--limit", "max_rank_skew=1ms", "--max-bad", 1 * (how != "gone")) == 3
    )
    (record,) = jobs_in(tmp_path / "out")
    assert (record["outcome"], record["missing"]) == ("not measured", [3])
    assert from_plain(record["reason"]).code == Code.NO_RANK
    assert "3 of 4 ranks; rank 3 is missing" in capsys.readouterr().out
    assert counted(tmp_path / "out")["not_measured"] == 1


def test_what_is_asked_of_each_rank_alone_needs_all_of_them_too(tmp_path):
    traces = job(tmp_path / "job", without=[1])
    assert fleet(traces, "--into", tmp_path / "asked", "--limit", "max_kernels=9") == 3
    assert fleet(traces, "--into", tmp_path / "not") == 0
    assert [jobs_in(tmp_path / name)[0]["outcome"] for name in ("asked", "not")] == ["not measured", "recorded"]
    assert jobs_in(tmp_path / "not")[0]["missing"] == [1]


def test_a_number_of_ranks_that_no_job_has_is_none(tmp_path):
    traces = job(tmp_path / "job")
    for path in traces.iterdir():
        recorded = json.loads(path.read_text())
        recorded["distributedInfo"]["world_size"] = 10**12
        path.write_text(json.dumps(recorded))
    assert fleet(traces, "--into", tmp_path / "out", "--limit", "max_rank_skew=1ms") == 3
    assert counted(tmp_path / "out")["listed"] == 0


def test_one_rank_by_itself_is_a_job_only_where_all_are_asked_about(tmp_path):
    traces = job(tmp_path / "job", without=range(1, SIZE))
    assert fleet(traces, "--into", tmp_path / "each", "--limit", "max_kernels=9") == 0
    assert counted(tmp_path / "each")["listed"] == 0
    assert fleet(traces, "--into", tmp_path / "all", "--limit", "max_rank_skew=1ms") == 3
    (alone,) = jobs_in(tmp_path / "all")
    assert from_plain(alone["reason"]).code == Code.NO_RANK
    assert alone["missing"] == list(range(1, SIZE))


def test_the_same_rank_of_several_nights_is_no_job_unless_all_ranks_are_asked_about(tmp_path, capsys):
    traces = job(tmp_path / "nightly", without=range(1, SIZE))
    shutil.copy(traces / "rank0.json", traces / "tuesday.json")
    assert fleet(traces, "--into", tmp_path / "each", "--limit", "max_kernels=9") == 0
    assert counted(tmp_path / "each")["listed"] == 0
    assert fleet(traces, "--into", tmp_path / "all", "--limit", "max_rank_skew=1ms") == 3
    assert from_plain(jobs_in(tmp_path / "all")[0]["reason"]).code == Code.MIXED_JOBS
    # With another rank beside them they may be of one job, and no limit holds.
    job(traces, without=[0, 2, 3])
    assert fleet(traces, "--into", tmp_path / "two", "--limit", "max_kernels=9") == 3
    assert counted(tmp_path / "two")["not_measured"] == 1


def test_a_rank_that_a_run_has_twice_in_a_folder_is_of_a_job_where_another_folder_has_another_rank(tmp_path):
    traces = tmp_path / "traces"
    named(traces / "a", "first", [0])
    shutil.copy(traces / "a" / "rank0.json", traces / "a" / "again.json")
    named(traces / "b", "first", [1])
    assert fleet(traces, "--into", tmp_path / "out", "--limit", "max_kernels=9") == 3


def test_what_is_asked_of_ranks_is_not_measured_of_a_file_that_is_none_with_advice_that_helps(tmp_path, capsys):
    (tmp_path / "traces").mkdir()
    own_recording({"one": 1}).write(tmp_path / "traces" / "none.json")
    recording(0, EARLY, size=1, end=ENDS).write(tmp_path / "traces" / "only.json")
    job(tmp_path / "traces" / "job")
    limit = ["--limit", "max_rank_skew=1ms"]
    assert fleet(tmp_path / "traces", "--into", tmp_path / "all", *limit) == 3
    reasons = {
        record["url"].rpartition("/")[2]: from_plain(record["result"]["reason"])
        for record in map(json.loads, (tmp_path / "all" / "records.jsonl").read_text().splitlines())
        if record["result"].get("reason")
    }
    assert {name: (reason.code, reason.of_job) for name, reason in reasons.items()} == {
        "none.json": (Code.ONE_RANK, False),
        "only.json": (Code.ONE_RANK, True),
    }
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nfiles = ["job/*"]\nlimits = { max_rank_skew = "1ms" }\n')
    assert fleet(tmp_path / "traces", "--into", tmp_path / "ruled", "--rules", rules) == 0


def test_the_status_counts_jobs_and_ends_as_the_run_does(tmp_path, capsys):
    traces = job(tmp_path / "job")
    without = job(tmp_path / "without", without=[3])
    for name, source, limit, status, counts in (
        ("missed", traces, "max_rank_skew=100us", 1, {"missed": 1}),
        ("unknown", without, "max_rank_skew=1ms", 3, {"not_measured": 1}),
        ("holds", traces, "max_rank_skew=1ms", 0, {"hold": 1}),
    ):
        assert fleet(source, "--into", tmp_path / name, "--limit", limit) == status
        capsys.readouterr()
        assert main(["fleet", "status", str(tmp_path / name)]) == status
        assert "1 job of several ranks" in capsys.readouterr().out
        assert main(["fleet", "report", str(tmp_path / name)]) == status
        capsys.readouterr()
        assert main(["fleet", "status", str(tmp_path / name), "--json"]) == status
        jobs = json.loads(capsys.readouterr().out)["jobs"]
        assert {key: count for key, count in jobs.items() if count} == {"listed": 1, **counts}


def test_more_files_than_ranks_are_told_as_files(tmp_path, capsys):
    traces = job(tmp_path / "job")
    shutil.copy(traces / "rank0.json", traces / "again.json")
    fleet(traces, "--into", tmp_path / "out", "--limit", "same_kernels=True")
    assert f"{SIZE} ranks, in {SIZE + 1} files" in capsys.readouterr().out


def test_what_a_forbidden_finding_says_is_told_once(tmp_path, capsys):
    traces = job(tmp_path / "job")
    assert fleet(traces, "--into", tmp_path / "out", "--limit", "forbid=straggler") == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "straggler" in line]
    assert line.startswith(f"    straggler (forbidden): rank {SLOW} ")


def test_of_many_missing_ranks_a_few_are_named_and_the_record_has_all(tmp_path, capsys):
    traces = job(tmp_path / "job", size=64, without=range(2, 64))
    fleet(traces, "--into", tmp_path / "out", "--limit", "max_kernels=9")
    shown = capsys.readouterr().out
    assert "2 of 64 ranks; ranks 2, 3, 4, 5, 6 and 57 more are missing" in shown
    assert ", 20, " not in shown
    assert jobs_in(tmp_path / "out")[0]["missing"] == list(range(2, 64))


def test_jobs_are_told_apart_by_folders_and_by_the_names_of_runs(tmp_path):
    traces = tmp_path / "traces"
    job(traces / "a")
    job(traces / "b", size=3)
    mixed = job(traces / "mixed")
    shutil.copy(mixed / "rank1.json", mixed / "again.json")
    assert fleet(traces, "--into", tmp_path / "out", "--limit", "max_rank_skew=1ms") == 3
    records = {record["job"]["folder"].rpartition("/")[2]: record for record in jobs_in(tmp_path / "out")}
    assert {name: record["outcome"] for name, record in records.items()} == {
        "a": "passed",
        "b": "passed",
        "mixed": "not measured",
    }
    assert from_plain(records["mixed"]["reason"]).code == Code.MIXED_JOBS
    # Where nothing is asked, nothing is left unjudged.
    assert fleet(traces, "--into", tmp_path / "unasked") == 0
    assert counted(tmp_path / "unasked")["without_limits"] == 3


def named(folder, run, ranks):
    """Write recordings of our own, which name the run that they are of."""
    folder.mkdir(parents=True)
    for rank in ranks:
        builder = recording(rank, EARLY, size=2, end=ENDS)
        builder.own(steps=1, rank=rank, world_size=2, run_id=run)
        builder.write(folder / f"rank{rank}.json")


def test_a_run_that_has_a_name_may_lie_in_several_folders(tmp_path):
    for number, run in enumerate(["first", "second"]):
        for rank in range(2):
            named(tmp_path / "traces" / f"host{rank}-{number}", run, [rank])
    assert fleet(tmp_path / "traces", "--into", tmp_path / "out") == 0
    assert [(record["job"]["run"], record["files"]) for record in jobs_in(tmp_path / "out")] == [
        ("first", 2),
        ("second", 2),
    ]
    # A name that is used again is told apart by the folders.
    for night in ("monday", "tuesday"):
        named(tmp_path / "nightly" / night, "nightly", [0, 1])
    assert fleet(tmp_path / "nightly", "--into", tmp_path / "nights") == 0
    assert [record["files"] for record in jobs_in(tmp_path / "nights")] == [2, 2]


def test_shards_judge_no_job_and_the_whole_does(tmp_path):
    traces = job(tmp_path / "job")
    words = [traces, "--limit", "max_rank_skew=100us", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    for shard in ("1/2", "2/2"):
        assert fleet(*words, tmp_path / "out", "--shard", shard) == 0
    assert not (tmp_path / "out" / "jobs.jsonl").exists()
    assert fleet(*words, tmp_path / "out") == 1
    for name in ("jobs.jsonl", "summary.json", "records.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
