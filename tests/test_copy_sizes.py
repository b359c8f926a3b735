"""A copy whose size the recording does not tell: how many bytes were copied is not known, and never 0."""

from __future__ import annotations

import json

import pytest
from builder import TraceBuilder

from pytest_torchprof import load
from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch

UNTOLD = ["0x400", "12abc", "", "nan", -5, None, True, [1024], float("nan")]


def recording(path, *sizes, steps=1):
    """Write a recording whose first step has copies of these sizes, and return its path."""
    builder = TraceBuilder()
    for i in range(steps):
        builder.step(i, 1000 * i, 900)
    for i, size in enumerate(sizes):
        correlation = builder.call("cudaMemcpyAsync", 100 + 100 * i, 10)
        builder.memcpy("HtoD", 120 + 100 * i, 10, correlation, size=size)
    builder.sync(800, 50)
    return builder.write(path)


def without_sizes(path):
    content = json.loads(path.read_text())
    for event in content["traceEvents"]:
        if event.get("cat") == "gpu_memcpy":
            del event["args"]["bytes"]
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("size", UNTOLD, ids=repr)
def test_bytes_that_a_copy_does_not_tell_are_not_known(tmp_path, size):
    profile = load(recording(tmp_path / "t.json", 1024, size))
    assert (profile.memcpys, profile.memcpys_h2d, profile.memcpy_bytes) == (2, 2, None)


def test_a_copy_without_bytes_is_shown_without_them(tmp_path, capsys):
    file = without_sizes(recording(tmp_path / "t.json", 1024))
    assert main(["analyze", "--json", str(file)]) == 0
    read = json.loads(capsys.readouterr().out)
    assert [read["summary"]["memcpy_bytes"], read["steps"][0]["memcpy_bytes"]] == [None, None]
    assert [row["size"] for row in read["efficiency"]["copies"]] == [None]
    assert main(["analyze", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "copies          1" in shown
    assert "bytes copied" not in shown


def test_a_step_that_does_not_tell_leaves_the_steps_together_unknown(tmp_path, capsys):
    file = recording(tmp_path / "t.json", None, steps=2)
    assert main(["analyze", "--json", str(file)]) == 0
    read = json.loads(capsys.readouterr().out)
    assert [step["memcpy_bytes"] for step in read["steps"]] == [None, 0]
    assert [read["summary"]["memcpy_bytes"], read["summary"]["worst"]["memcpy_bytes"]] == [None, None]


@pytest.mark.parametrize(("sizes", "copied"), [([0], 0), ([1024, "1024"], 2048), ([], 0)])
def test_bytes_that_are_told_are_added_up(tmp_path, sizes, copied):
    assert load(recording(tmp_path / "t.json", *sizes)).memcpy_bytes == copied
