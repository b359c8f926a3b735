"""Several ranks run the same tests: which one a process is, and what each of them leaves behind."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from facts import reasons_in, says

from pytest_torchprof.capture.rank import Rank, rank_in, this_rank
from pytest_torchprof.reasons.adopting import NothingToReplay
from pytest_torchprof.reasons.unreadable import Expected, WrongEntry

pytest.importorskip("torch")


def kept(pytester, folder="kept"):
    """Return the own key of each recording by the rank in its file's name."""
    files = (pytester.path / folder).glob("*.json.gz")
    return {
        rank_in(path.name): json.loads(gzip.decompress(path.read_bytes()))["torchprof"]
        for path in files
        if ".stacks." not in path.name
    }


def baseline_of(pytester):
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    return json.loads(path.read_text())["entries"]


# Which rank this is


def test_a_process_by_itself_has_no_rank(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert this_rank() == Rank(0, 1)
    assert this_rank().suffix == ""


@pytest.mark.parametrize(
    ("told", "rank"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, Rank(1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, Rank(2, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Rank(1, 2)),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"}, Rank(0, 2)),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0"}, Rank(3, 4)),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8"}, Rank(0, 2)),
        # One pytest in a batch script, or at the prompt, of an allocation for four tasks.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Rank(0, 1)),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "4294967290"}, Rank(0, 1)),
        # Not what a launcher says.
        ({"RANK": "1"}, Rank(0, 1)),
        ({"RANK": "first", "WORLD_SIZE": "2"}, Rank(0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "2"}, Rank(0, 1)),
    ],
)
def test_a_launcher_tells_the_rank(monkeypatch, told, rank):
    for name in ("RANK", "WORLD_SIZE", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert this_rank() == rank


@pytest.mark.parametrize(
    ("told", "local", "run_id"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "a1"}, 1, "a1"),
        ({"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}, None, "29500"),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "j7"}, None, "j7"),
        (
            {
                "SLURM_PROCID": "3",
                "SLURM_STEP_NUM_TASKS": "4",
                "SLURM_LOCALID": "0",
                "SLURM_JOB_ID": "42",
                "SLURM_STEP_ID": "1",
            },
            0,
            "42:1",
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, None, None),
    ],
)
def test_a_launcher_tells_the_place_on_the_host_and_the_run(monkeypatch, told, local, run_id):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    rank = this_rank()
    assert (rank.local, rank.run_id, rank.host) == (local, run_id, socket.gethostname())


@pytest.mark.parametrize(
    "name", ["test_a.test_it.0123abcd.rank1of16.json.gz", "a.rank1of16.stacks.json.gz", "a.rank1of16.json"]
)
def test_the_name_of_a_recording_tells_whose_it_is(name):
    assert rank_in(name) == Rank(1, 16)


@pytest.mark.parametrize("name", ["a.json.gz", "a.rank1of2.0123abcd.json.gz", "rank1of2.json.gz"])
def test_a_test_that_is_named_like_a_rank_is_none(name):
    assert rank_in(name) == Rank()


# What each of them leaves behind

ALONE = """
import os

@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_it():
    torch.sin(x)
    if os.environ.get("RANK") == "1":
        torch.cos(x)
"""


@pytest.fixture
def as_rank(run_tests, monkeypatch):
    """Return a function that runs a test as one rank, as a launcher would tell it, or as none."""

    def run(rank, *args, source=ALONE):
        for name, value in (("RANK", rank.number), ("WORLD_SIZE", rank.world)):
            if rank.alone:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, str(value))
        return run_tests(source, *args)

    return run


def test_rank_0_writes_the_baseline_and_the_reports_and_the_others_say_so(as_rank, pytester, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "page"))
    files = ("--torchprof-report=out/r.json", "--junitxml=junit.xml")
    result = as_rank(Rank(1, 2), "--torchprof-baseline=update", *files)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["torchprof: rank 1 of 2: rank 0 writes the baselines and reports", "*left to rank 0*"])
    assert not list(pytester.path.rglob("__torchprof__"))
    assert not (pytester.path / "out").exists()
    assert not (pytester.path / "page").exists()
    assert "torchprof.kernels" not in (pytester.path / "junit.xml").read_text()

    result = as_rank(Rank(0, 2), "--torchprof-baseline=update", *files)
    assert "rank 0 writes" not in result.stdout.str()
    (entry,) = baseline_of(pytester).values()
    assert [kernel["name"] for kernel in entry["steps"][0][:-1]] == ["aten::sin"]
    assert json.loads((pytester.path / "out" / "r.json").read_text())["results"][0]["summary"]["kernels"] == 1
    assert (pytester.path / "page").is_file()
    assert "torchprof.kernels" in (pytester.path / "junit.xml").read_text()


def test_a_rank_that_is_worse_than_the_baseline_of_rank_0_fails_and_annotates_nothing(as_rank, monkeypatch):
    as_rank(Rank(0, 2), "--torchprof-baseline=update").assert_outcomes(passed=1)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = as_rank(Rank(1, 2))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*+ pointwise cos*"])
    assert "::error" not in result.stdout.str()


def test_each_rank_replaces_its_own_failures_and_a_run_without_ranks_all(as_rank, pytester):
    fails = ALONE.replace("max_kernels=2", "max_kernels=0")
    for number in (0, 1, 0):
        as_rank(Rank(number, 2), source=fails).assert_outcomes(failed=1)
        assert Rank(number, 2) in kept(pytester, ".torchprof")
    assert set(kept(pytester, ".torchprof")) == {Rank(0, 2), Rank(1, 2)}
    as_rank(Rank(0, 2)).assert_outcomes(passed=1)
    assert set(kept(pytester, ".torchprof")) == {Rank(1, 2)}
    as_rank(Rank()).assert_outcomes(passed=1)
    assert not kept(pytester, ".torchprof")


def test_a_rank_replays_what_it_recorded(as_rank, pytester):
    for number in range(2):
        as_rank(Rank(number, 2), "--torchprof-save=kept").assert_outcomes(passed=1)
    assert len(list((pytester.path / "kept").iterdir())) == 2
    result = as_rank(Rank(1, 2), "--torchprof-replay=kept")
    result.assert_outcomes(passed=1)
    assert "recordings that no test judged" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*torchprof: *, rank 1 of 2*"])


def test_recordings_of_ranks_that_are_not_of_one_job_are_not_judged_together_and_the_text_says_why(
    as_rank, monkeypatch
):
    for number in range(2):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"run{number}")
        as_rank(Rank(number, 2), "--torchprof-save=kept")
    together = ALONE.replace("max_kernels=2", "same_kernels=True")
    result = as_rank(Rank(1, 2), "--torchprof-replay=kept", source=together)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*same_kernels=True*not measured: *", "*[[]mixed-jobs[]]"])


def test_a_replay_without_ranks_says_how_those_of_ranks_are_judged(as_rank):
    for number in range(2):
        as_rank(Rank(number, 2), "--torchprof-save=kept")
    result = as_rank(Rank(), "--torchprof-replay=kept", "--torchprof-report=out.json")
    result.assert_outcomes(failed=1)
    assert result.ret != 0
    (reason,) = reasons_in(Path("out.json"))
    assert says(reason, NothingToReplay, test="test_it.py::test_it", ranks=((0, 2), (1, 2)))
    result.stdout.fnmatch_lines(["*RANK=0 WORLD_SIZE=2 pytest*"])


def test_a_test_that_fails_on_one_rank_leaves_the_recordings_of_the_others(as_rank, pytester):
    for number in range(2):
        as_rank(Rank(number, 2), "--torchprof-save=kept")
    fails = ALONE.replace("torch.sin(x)", "raise ValueError")
    as_rank(Rank(1, 2), "--torchprof-save=kept", source=fails).assert_outcomes(failed=1)
    assert set(kept(pytester)) == {Rank(0, 2)}


def test_a_rank_in_the_recording_that_is_no_number_is_refused(as_rank, pytester):
    as_rank(Rank(), "--torchprof-save=kept")
    (path,) = (pytester.path / "kept").iterdir()
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["torchprof"]["rank"] = "first"
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    result = as_rank(Rank(), "--torchprof-replay=kept")
    result.stdout.fnmatch_lines([f"*{WrongEntry('rank', Expected.INT)}*"])


def test_the_module_is_imported_where_torch_is_not():
    code = "import sys; from pytest_torchprof.capture.rank import this_rank; this_rank(); print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"
