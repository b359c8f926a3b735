"""The gate under each fault: nothing that went wrong ends in a pass, and every other test is judged as if nothing had."""

from __future__ import annotations

import json
import re

import pytest

from pytest_torchprof.report.account import NotJudgedOnCpu

pytestmark = pytest.mark.simulated_gpu

PASSED, MISSED, UNMEASURED, SKIPPED = "passed", "failed", "not measured", "skipped"

# Ten kernels: one test allows them, one allows one less, and two have nothing to do with the GPU.
GATE = """
gpu = "cuda" if torch.cuda.is_available() else "cpu"

def ten():
    x = torch.empty(256, device=gpu)
    for _ in range(10):
        x.add_(1)

@pytest.mark.torchprof(max_kernels=10, min_kernels=10)
def test_allowed():
    ten()

@pytest.mark.torchprof(max_kernels=9)
def test_one_too_many():
    ten()

def test_plain():
    assert True

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_of_the_cpu():
    torch.sin(x)
"""


@pytest.fixture
def gate(run_tests, pytester, monkeypatch):
    """Return a function that runs tests under a fault and returns what each came to, what it said, and the run."""

    def run(source, *args, **fault):
        for name, value in fault.items():
            monkeypatch.setenv(f"FAKEGPU_{name}", str(value))
        result = run_tests(source, "-v", "--torchprof-report=report.json", *args, in_process=False)
        text = result.stdout.str()
        assert "INTERNALERROR" not in text + result.stderr.str()
        entries = json.loads((pytester.path / "report.json").read_text())["results"]
        came_to = {entry["nodeid"].rpartition("::")[2]: entry["outcome"] for entry in entries}
        said = {entry["nodeid"].rpartition("::")[2]: entry.get("message") or "" for entry in entries}
        plain = dict(re.findall(r"::(test_\w+) (PASSED|FAILED|ERROR|SKIPPED)", text))
        return came_to, said, plain

    return run


def judged(allowed, one_too_many):
    return {"test_allowed": allowed, "test_one_too_many": one_too_many, "test_of_the_cpu": PASSED}


HARMLESS = {
    "nothing wrong": {},
    "a record lost at the head of each session": {"CUPTI_DROP": 1},
    "more lost at the head than a sentinel has, by and by": {"CUPTI_HEAD": 0},
    "a second GPU": {"COUNT": 2},
    "a slice of a GPU": {"MIG": 1},
    "no NVML": {"NVML": "absent"},
    "an old NVML": {"NVML": "old"},
    "a new NVML": {"NVML": "new"},
    "NVML without permission": {"NVML_ERROR": 4},
    "NVML that knows nothing": {"NVML_ERROR": 3},
    "another process": {"NVML_PROCESSES": 1},
    "an A100": {"DEVICE": "a100"},
}


@pytest.mark.parametrize("fault", HARMLESS.values(), ids=HARMLESS)
def test_what_does_not_touch_the_measured_kernels_changes_no_verdict(gate, fault):
    came_to, _, plain = gate(GATE, **fault)
    assert came_to == judged(PASSED, MISSED)
    assert plain["test_plain"] == "PASSED"


LOSSES = {
    "every third record": ({"CUPTI_DROP_EVERY": 3}, "[lost-kernels]"),
    "all but the first records": ({"CUPTI_DROP": "30:9999"}, "[lost-kernels]"),
    "records of one name": ({"CUPTI_DROP_NAME": "CUDAFunctorOnSelf_add:9999"}, "record"),
    "full buffers": ({"CUPTI_BUFFER": 1}, "buffers"),
    "no privileges": ({"CUPTI_ERROR": 35}, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    "another subscriber": ({"CUPTI_ERROR": 39}, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
    "a CUPTI that does not fit": ({"CUPTI_ERROR": 14}, "CUPTI_ERROR_NOT_COMPATIBLE"),
}


@pytest.mark.parametrize(("fault", "reason"), LOSSES.values(), ids=LOSSES)
def test_what_the_profiler_loses_is_not_measured(gate, fault, reason):
    came_to, said, plain = gate(GATE, **fault)
    assert came_to == judged(UNMEASURED, UNMEASURED)
    assert reason in said["test_allowed"]
    assert "torchprof doctor" in said["test_allowed"]
    assert plain["test_plain"] == "PASSED"


REFUSALS = {
    "busy or exclusive": (46, "busy or unavailable"),
    "out of memory": (2, "out of memory"),
    "an uncorrectable memory error": (214, "ECC"),
}


@pytest.mark.parametrize(("code", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_a_device_that_refuses_a_context_is_not_measured(gate, code, reason):
    came_to, said, plain = gate(GATE, INIT_ERROR=code)
    assert came_to == judged(UNMEASURED, UNMEASURED)
    assert reason in said["test_allowed"]
    assert plain["test_plain"] == "PASSED"


ABSENCES = {"no device": {"COUNT": 0}, "an old driver": {"INIT_ERROR": 35}, "no fabric manager": {"INIT_ERROR": 802}}


@pytest.mark.parametrize("fault", ABSENCES.values(), ids=ABSENCES)
def test_without_a_device_nothing_about_a_gpu_is_judged(gate, fault):
    came_to, said, plain = gate(GATE, **fault)
    assert came_to == judged(SKIPPED, SKIPPED)
    assert str(NotJudgedOnCpu(("max_kernels",))) in said["test_one_too_many"]
    assert plain["test_plain"] == "PASSED"


BROKEN = """
@pytest.mark.torchprof(max_kernels=11)
def test_before():
    torch.ones(256, device="cuda").sin()

@pytest.mark.torchprof(max_kernels=11)
def test_breaks():
    torch.ones(256, device="cuda").cos()

@pytest.mark.torchprof(max_kernels=11)
def test_after():
    torch.ones(256, device="cuda").sin()

def test_plain():
    assert True

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_of_the_cpu():
    torch.sin(x)
"""


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"FAIL_KERNEL": "cos_kernel:5"}, "illegal memory access"),
        ({"FAIL_KERNEL": "cos_kernel:2", "FAIL_CODE": 719}, "unspecified launch failure"),
    ],
    ids=["in a measured step", "in the warm-up"],
)
def test_an_error_that_lasts_is_the_tests_own_and_later_ones_are_not_measured(gate, pytester, fault, error):
    came_to, said, plain = gate(BROKEN, **fault)
    assert plain == {
        "test_before": "PASSED",
        "test_breaks": "FAILED",
        "test_after": "FAILED",
        "test_plain": "PASSED",
        "test_of_the_cpu": "PASSED",
    }
    assert came_to["test_after"] == UNMEASURED
    assert error in said["test_after"]
    assert came_to["test_of_the_cpu"] == PASSED


def test_a_device_that_vanishes_is_not_measured_any_more(gate):
    came_to, _, plain = gate(BROKEN, LOST_AFTER=60)
    assert plain["test_before"] == "PASSED"
    assert plain["test_after"] == "FAILED"
    assert came_to["test_after"] == UNMEASURED
    assert (plain["test_plain"], came_to["test_of_the_cpu"]) == ("PASSED", PASSED)


MEMORY = """
@pytest.mark.torchprof(max_kernels=1)
def test_too_large():
    torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
""" + GATE.replace("gpu =", "gpu = 'cuda' #")


def test_memory_that_runs_out_fails_its_test_alone(gate):
    came_to, _, plain = gate(MEMORY, MEM_GB=0.25)
    assert plain["test_too_large"] == "FAILED"
    assert {name: came_to[name] for name in judged(0, 0)} == judged(PASSED, MISSED)


REPLAYS = """
y = torch.zeros(256, device="cuda")
graph = torch.cuda.CUDAGraph()
def body():
    for _ in range(3):
        y.add_(1)

@pytest.fixture(scope="module")
def captured():
    body()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        body()

@pytest.mark.torchprof(max_kernels=3, cuda_graph=True)
def test_replayed(captured):
    graph.replay()

@pytest.mark.torchprof(max_kernels=2)
def test_one_too_many(captured):
    graph.replay()
"""


def test_replays_of_a_graph_are_counted(gate):
    came_to, _, _ = gate(REPLAYS)
    assert came_to == {"test_replayed": PASSED, "test_one_too_many": MISSED}


@pytest.mark.parametrize("lost", ["all", "2:3"], ids=["all kernels of graphs", "one kernel of one replay"])
def test_a_graph_whose_kernels_are_lost_is_not_measured(gate, lost):
    came_to, _, _ = gate(REPLAYS, CUPTI_DROP_GRAPH=lost)
    assert came_to == {"test_replayed": UNMEASURED, "test_one_too_many": UNMEASURED}


LAUNCHES = GATE.replace("max_kernels=9", "max_launches=9").replace("min_kernels=10", "max_launches=10")


@pytest.mark.parametrize("calls", ["cudaLaunchKernel"])
def test_launches_that_are_not_recorded_are_never_fewer_launches(gate, calls):
    came_to, _, _ = gate(LAUNCHES, CUPTI_DROP_CALLS=calls)
    assert came_to["test_one_too_many"] != PASSED
    assert came_to["test_of_the_cpu"] == PASSED


LATE = (
    """
def test_leaves_work_behind():
    torch.ones(256, device="cuda").cos()
"""
    + GATE
)


def test_work_in_flight_from_before_is_waited_for(gate):
    came_to, _, _ = gate(LATE, SLOW="cos_kernel=200000000")
    assert came_to == judged(PASSED, MISSED)


OF_THE_GPU = """
@pytest.mark.torchprof(max_kernels=1)
def test_of_the_gpu():
    torch.ones(8, device="cuda")
"""


def test_a_run_that_asks_for_a_gpu_says_why_there_is_none(run_tests, monkeypatch):
    monkeypatch.setenv("FAKEGPU_INIT_ERROR", "802")
    result = run_tests(OF_THE_GPU, "--torchprof-require-gpu", in_process=False)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "passed" not in result.parseoutcomes()
    assert "fabric manager" in (result.stdout.str() + result.stderr.str()).lower()
