"""CUPTI before 13.1 Update 1 numbers graphs wrongly in each session after the first: said, with what to do, and never judged."""

from __future__ import annotations

import forking
import pytest
import torch
from fakegpu.recording import captured, kernels, launches

from pytest_torchprof.cli import doctor_checks as doctor

pytestmark = pytest.mark.simulated_gpu

NUMBERINGS = ("previous", "next", "shared")
AFFECTED, UNAFFECTED = 130000, 130101
"""Versions of CUPTI, by its own numbers: that of CUDA 13.0, that of 13.1 Update 1."""
NEWER = "nvidia-cuda-cupti>=13.1.115"

# Two replays, so that a number too many does not look like a number too few; a test of other kernels is judged.
REPLAYS = """
y = torch.zeros(256, device="cuda")

@pytest.fixture(scope="module")
def replay():
    def body():
        for _ in range(3):
            y.add_(1)
    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph.replay

@pytest.mark.torchprof(max_kernels=7, min_kernels=7)
def test_allowed(replay):
    replay()
    y.add_(1)
    replay()

@pytest.mark.torchprof(max_kernels=6)
def test_one_too_many(replay):
    replay()
    y.add_(1)
    replay()

@pytest.mark.torchprof(max_kernels=2, min_kernels=2)
def test_without_a_graph():
    y.add_(1).mul_(2)
"""


def numbers(recorded, graph, x):
    events = recorded(lambda: (graph.replay(), x.mul_(2), graph.replay()), "kernel", "cuda_runtime")
    calls = {call["args"]["correlation"]: call["name"] for call in launches(events)}
    nodes = [one["args"] for one in kernels(events) if one["args"].get("graph node id")]
    return [call["args"]["correlation"] for call in launches(events)], [one["correlation"] for one in nodes], calls


@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_torchs_recording_has_the_wrong_numbers(recorded, fault, numbering):
    x = torch.ones(8, device="cuda")
    graph = captured(lambda: x.add_(1).sin_())
    recorded(lambda: x.add_(1), "kernel")
    (one, _, other), found, _ = numbers(recorded, graph, x)
    assert found == [one, one, other, other]
    fault(CUPTI_GRAPH_NUMBERS=numbering)
    (one, between, other), found, _ = numbers(recorded, graph, x)
    if numbering == "shared":
        assert (one, found) == (other, [one] * 4)
    elif numbering == "next":
        assert one < between < other
        assert found == [one + 1] * 2 + [other + 1] * 2
    else:
        assert found[0] == found[1] < one
        assert found[2:] == [one] * 2


@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_limits_on_graphs_are_not_measured_and_the_newer_cupti_is_named(run_tests, monkeypatch, numbering):
    monkeypatch.setenv("FAKEGPU_CUPTI_GRAPH_NUMBERS", numbering)
    monkeypatch.setenv("FAKEGPU_CUPTI_VERSION", str(AFFECTED))
    text = outcome_of_replays(run_tests)
    assert text.count(f"CUPTI of CUDA 13.0 (API {AFFECTED})") >= 2
    assert text.count(NEWER) >= 2


def test_a_cupti_that_is_not_known_for_it_is_named_and_no_newer_one(run_tests, monkeypatch):
    monkeypatch.setenv("FAKEGPU_CUPTI_GRAPH_NUMBERS", "next")
    monkeypatch.setenv("FAKEGPU_CUPTI_VERSION", str(UNAFFECTED))
    text = outcome_of_replays(run_tests)
    assert text.count(f"CUPTI of CUDA 13.1 (API {UNAFFECTED})") >= 2
    assert text.count("[wrong-graph-numbers]") >= 2
    assert NEWER not in text


def outcome_of_replays(run_tests):
    """Return what the run of the replays says, of which those on graphs alone are not measured."""
    # On a line each.
    result = run_tests(REPLAYS, "-v", "-rN", in_process=False)
    assert result.parseoutcomes() | {"warnings": 0} == {"passed": 1, "failed": 2, "warnings": 0}
    result.stdout.fnmatch_lines(["*::test_without_a_graph PASSED*"])
    text = " ".join(result.stdout.str().split())
    assert "[wrong-graph-numbers]" in text
    assert "lost events" not in text
    return text


@pytest.mark.parametrize(("version", "named"), [(AFFECTED, True), (UNAFFECTED, False)])
@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_the_doctor_names_the_cupti_and_a_newer_one_where_that_helps(monkeypatch, tmp_path, numbering, version, named):
    monkeypatch.setattr("subprocess.Popen", forking.Popen)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FAKEGPU_CUPTI_GRAPH_NUMBERS", numbering)
    monkeypatch.setenv("FAKEGPU_CUPTI_VERSION", str(version))
    (answer,) = doctor.answers([check for check in doctor.CHECKS if check.name == "CUDA graph"])
    assert answer.status == "wrong"
    assert f"(API {version})" in answer.text
    assert (NEWER in answer.do) == named
