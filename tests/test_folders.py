"""Folders as TensorBoard's trace handler writes them, made here by running it."""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from pytest_torchprof import load
from pytest_torchprof.cli import main

# Raised as an error inside of torch's profiler, it would crash the process.
pytestmark = pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end of each cycle")


def written(folder, worker, *, steps=2, repeat=1, **options):
    """Record so many active steps in each of ``repeat`` cycles, as the tutorials do."""
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=steps, repeat=repeat),
        on_trace_ready=tensorboard_trace_handler(str(folder), worker_name=worker, **options),
    ) as prof:
        for _ in range(repeat * (steps + 2)):
            torch.ones(8).sin()
            prof.step()


@pytest.mark.parametrize("use_gzip", [False, True])
def test_each_rank_and_each_cycle_is_a_profile(tmp_path, use_gzip):
    for rank in range(2):
        written(tmp_path / "log", f"rank{rank}", repeat=2, use_gzip=use_gzip)
    ending = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
    assert all(path.name.endswith(ending) for path in (tmp_path / "log").iterdir())
    found = load(tmp_path / "log")
    assert [[step.name for step in one.steps] for one in found] == [
        ["ProfilerStep#2", "ProfilerStep#3"],
        ["ProfilerStep#6", "ProfilerStep#7"],
    ] * 2
    workers = [one.trace.path.rpartition("/")[2].partition(".")[0] for one in found]
    assert workers == ["rank0", "rank0", "rank1", "rank1"]


def test_the_handlers_own_worker_name_and_runs_in_folders_of_their_own(tmp_path):
    # Without a name the handler takes host and process; TensorBoard shows each folder below the log as a run.
    for run in ("before", "after"):
        written(tmp_path / "log" / run, None)
    found = load(tmp_path / "log")
    assert [one.trace.path.split("/")[-2] for one in found] == ["after", "before"]


def test_analyze_shows_them_one_after_the_other(tmp_path, capsys):
    for rank in range(2):
        written(tmp_path, f"rank{rank}", use_gzip=True)
    assert main(["analyze", str(tmp_path), "--by", "op"]) == 0
    out = capsys.readouterr().out
    # Paths may be longer than a line; their beginning is shown.
    assert out.count("events | 2 steps") == 2
    assert sum(line.startswith("aten::sin") for line in out.splitlines()) == 2
    assert main(["analyze", str(tmp_path), "--json", "--step", "3"]) == 0
    objects = json.loads(capsys.readouterr().out)
    assert [[step["name"] for step in one["steps"]] for one in objects] == [["ProfilerStep#3"]] * 2
    assert [one["trace"]["path"].rpartition("/")[2].partition(".")[0] for one in objects] == ["rank0", "rank1"]
