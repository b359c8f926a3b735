"""The day on a GPU (tests/gpu/day), rehearsed: every part of it runs, and its files hold what was asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import fresh
import pytest

pytestmark = pytest.mark.simulated_gpu

DAY = Path(__file__).parents[1] / "gpu" / "day"
# Of the tests, which run beside this one anyway, a few.
PARTS = ("machine", "questions", "doctor", "tests/script", "models", "examples")
# A preloaded library that is empty is passed over, so that the device's own CUPTI answers.
CUPTI = {
    "nvidia/cu13/lib/libcupti.so.13": "",
    "nvidia_cuda_cupti-99.dist-info/METADATA": "Metadata-Version: 2.1\nName: nvidia-cuda-cupti\nVersion: 99\n",
    "nvidia_cuda_cupti-99.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "nvidia_cuda_cupti-99.dist-info/RECORD": "",
}


@pytest.fixture
def found(tmp_path):
    """Return the folder in which a quick day has left its files."""
    wheels, out = tmp_path / "wheels", tmp_path / "found"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "nvidia_cuda_cupti-99-py3-none-any.whl", "w") as wheel:
        for name, text in CUPTI.items():
            wheel.writestr(name, text)
    words = [sys.executable, DAY, "--quick", "--at-once", "2", "--out", out, "--wheels", wheels, *PARTS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_whole_day_can_be_rehearsed(found, monkeypatch):
    """All at once: other workers of the same run would each rehearse it again."""
    monkeypatch.syspath_prepend(DAY)
    from questions import QUESTIONS

    results = {one["step"]: one for one in map(json.loads, (found / "steps.jsonl").read_text().splitlines())}
    every_step_ended_well_and_has_said_something(results)
    asked = sum(name.startswith("questions/") for name in results)
    assert asked == sum(len(question.variants) for question in QUESTIONS.values())
    answers_tell_what_the_device_does(results)
    the_page_names_what_was_asked_found_and_settled(found, results)
    the_files_are_few_and_hold_the_recordings(found)


def every_step_ended_well_and_has_said_something(results):
    assert {name.partition("/")[0] for name in results} == {part.partition("/")[0] for part in PARTS}
    # The doctor's limit is the rehearsal's: a step that has to be ended is part of it.
    ended = {name: one["outcome"] for name, one in results.items() if name != "doctor"}
    assert ended == dict.fromkeys(ended, "done")
    assert [name for name, one in results.items() if not one["said"]] == []


def answers_tell_what_the_device_does(results):
    def said(step):
        return " | ".join(one["says"] for one in results[f"questions/{step}"]["said"])

    assert "NVIDIA H100" in said("versions")
    assert "right, 3 kernels under each of 3 launches" in said("graph_numbers")
    assert "wrong" not in said("graph_numbers") + said("graph_numbers/newer-CUPTI")
    assert "sees 0 of 20 kernels" in said("first_session/cpu")
    assert "sees 20 of 20 kernels" in said("first_session/gpu")
    assert "[0, 0, 0, 0, 0] of 50 kernels lost" in said("head")
    assert "cuLaunchCooperativeKernel: code [0], calls none, work ['nothing']" in said("driver_calls")
    item = "item(): 1 cudaLaunchKernel, 1 cudaMemcpyAsync, 1 cudaStreamSynchronize"
    asked = "(cudaMemcpyAsync in aten::_local_scalar_dense, cudaStreamSynchronize in aten::_local_scalar_dense)"
    assert f"{item} {asked}; 2 on the GPU" in said("common_calls")
    assert "reduce-overhead, fourth call: 1 cudaLaunchKernel, 1 cudaGraphLaunch; 3 on the GPU" in said("graph_modes")
    assert "compiled: [23, 23, 23] operations in 3 steps, 0 outside of them" in said("compiled_backward")
    assert "with launch_pdl: 10 kernels of " in said("pdl")
    assert "cudaFree" in said("frees")
    assert " kernels in 1 s 0 begin before their launch" in said("clocks")
    assert "cuMemMap" in said("allocators/expandable-segments")
    assert "cudaMallocAsync" in said("allocators/cudaMallocAsync")
    assert "200 launched: 200 operations of the GPU recorded" in said("many")
    assert "nvjet" in said("names")


def the_page_names_what_was_asked_found_and_settled(found, results):
    page = (found / "summary.md").read_text()
    assert all(f"| {name} | {one['outcome']} |" in page for name, one in results.items())
    assert "## questions/head: Which kernels does a session lose, by idle time before it?" in page
    assert "> settles: 60 sessions of 50 kernels" in page
    assert "passed" in page.partition("## tests/script")[2]
    assert "| tests/gpu/test_gpu_script.py | 4 | 0 | 0 |  | 0 |" in page
    assert "could not import 'transformers'" in page or find_spec("transformers")
    counted = [
        one["says"] for name in ("models", "examples") for one in results[name]["said"] if " by hand: " in one["says"]
    ]
    assert ["the plugin counts the same in all of them" in one for one in counted] == [True, True]


def the_files_are_few_and_hold_the_recordings(found):
    assert sorted(path.name for path in found.iterdir()) == [
        "examples.html",
        "logs.tar.gz",
        "recordings.tar.gz",
        "steps.jsonl",
        "summary.md",
    ]
    with tarfile.open(found / "recordings.tar.gz") as archive:
        kept = archive.getnames()
    assert "recordings/names.json.gz" in kept
    assert "recordings/graph_numbers_1.json" in kept
    assert any("test_cuda_graph" in name for name in kept)
    assert any("test_a_product_of_fp8" in name for name in kept)
    with tarfile.open(found / "logs.tar.gz") as archive:
        assert "logs/tests-script.told.jsonl" in archive.getnames()


@pytest.fixture
def asked():
    """Return a function that asks one question in a fresh process of a device with faults, and returns what it says."""

    def ask(question, **fault):
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import questions; questions.main(sys.argv[2], '', '--quick')"
        )
        done = fresh.run_code(code, str(DAY), question, **{f"FAKEGPU_CUPTI_{name}": one for name, one in fault.items()})
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["says"] for line in done.stdout.splitlines() if line.startswith("{")]

    return ask


@pytest.mark.parametrize("numbering", ["previous", "next", "shared"])
def test_wrong_numbers_of_graphs_are_told_session_by_session(asked, numbering):
    first, *later = asked("graph_numbers", GRAPH_NUMBERS=numbering)
    assert first.startswith("session 1, a graph captured before the first session: right")
    assert len(later) == 3
    assert all(": wrong, [" in said for said in later)


def test_kernels_lost_at_the_head_are_counted_and_their_place_is_told(asked):
    said = asked("head", HEAD="0")
    assert said[0].endswith("[0, 1, 2, 3, 4] of 50 kernels lost, the first ones each")
    assert asked("head", DROP="7:1")[0].endswith("[1, 1, 1, 1, 1] of 50 kernels lost, not only the first ones")


TOOL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""


def test_a_test_under_a_tool_that_has_cupti_is_not_measured(tmp_path):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    words = [sys.executable, DAY / "questions.py", "tools", "compute-sanitizer"]
    held = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "FAKEGPU_CUPTI_ERROR": "39"}
    environment = os.environ | held
    done = subprocess.run(
        words, env=environment, cwd=DAY.parents[2], capture_output=True, text=True, timeout=300, check=True
    )
    said = json.loads(done.stdout)["says"]
    assert said.startswith("under compute-sanitizer: not measured: ")
    assert "[no-kernels-recorded]" in said
