"""A mistake in a call of ours: pytest shows the line with the call last, and none of ours."""

from __future__ import annotations

import pytest
from builder import own_recording

pytestmark = pytest.mark.any_torch

CALLS = [
    "load(3)",
    "load(None)",
    "load(b'recording.json')",
    "load('none.json')",
    "load('recording.json', device=3)",
    "load_ranks(3)",
    "recording.save(3)",
    "recording.save('none/of/these/recording.json')",
    "recording.diff('recording.json')",
    "recording.table(by='color')",
    "recording.table(sort_by=3)",
    "recording.table(top='all')",
    "recording.table(top=-1)",
    "recording.ranges(3)",
    "recording.expect()",
    "recording.expect(max_kernels='few')",
    "recording.expect(forbid_kernels=3)",
    "recording.kernels[99]",
    "recording.kernels.matching(3)",
    "pytest_torchprof.gemm(dtype='fp7')",
    "pytest_torchprof.gemm('fp16')",
    "pytest_torchprof.family('gemms')",
    "pytest_torchprof.nothing",
    "pytest_torchprof.profile(3, device='cpu')",
    "pytest_torchprof.profile(torch.sin, device='cpu')",
    "pytest_torchprof.profile(torch.sin, x, device='gpu')",
    "torchprof(3)",
    "torchprof(torch.sin)",
    "torchprof(torch.sin, torch)",
    "torchprof.limits(max_kernels=None)",
    "torchprof.adopt(3)",
]
IN_TEST = """
import pytest_torchprof
from pytest_torchprof import load

recording = load("recording.json")

@pytest.mark.torchprof(device="cpu")
@pytest.mark.parametrize("call", {calls})
def test_it(torchprof, call):
    eval(call)
"""
LAST = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if report.when == "call":
        entries = report.longrepr.reprtraceback.reprentries
        print("\\nlast: ", entries[-1].reprfileloc.path, "of", len(report.longrepr.chain))
        print(*(f"\\nshown: {entry.reprfileloc.path}" for entry in entries))
"""


def test_the_call_is_the_last_line_that_pytest_shows(run_tests, pytester):
    own_recording({"a_kernel": 3}, steps=1).write(pytester.path / "recording.json")
    pytester.makeconftest(LAST)
    lines = run_tests(IN_TEST.format(calls=CALLS), "-s").outlines
    assert [line.split()[1] for line in lines if line.startswith("last: ")] == ["<string>"] * len(CALLS)
    assert [line for line in lines if line.startswith("shown: ") and "pytest_torchprof" in line] == []


def test_what_the_measured_function_raises_is_shown_from_the_call_to_its_own_line(run_tests, pytester):
    pytester.makeconftest(LAST)
    source = """
def function(x):
    return x + []

@pytest.mark.torchprof(device="cpu")
def test_it(torchprof):
    torchprof(function, x)
"""
    lines = run_tests(source, "-s").outlines
    assert [line.split()[1] for line in lines if line.startswith("shown: ")] == ["test_it.py", "test_it.py"]


def test_an_error_that_a_users_own_was_raised_from_shows_no_line_of_ours_either(run_tests):
    source = """
import pytest_torchprof

def test_it():
    try:
        pytest_torchprof.load("none.json")
    except pytest_torchprof.UnreadableRecording as missing:
        raise RuntimeError("the nightly job has left no recording") from missing
"""
    text = run_tests(source).stdout.str()
    assert "The above exception was the direct cause" in text
    assert "pytest_torchprof/" not in text


@pytest.mark.parametrize("asked", ["max_kernls=3", "max_kernels='few'", "max_graph_breaks=3, max_kernls=0"])
def test_what_is_asked_wrongly_is_no_skip_where_a_gpu_is_missing(run_tests, asked):
    source = f"@pytest.mark.torchprof\ndef test_it(torchprof):\n    torchprof(torch.sin, x).expect({asked})\n"
    result = run_tests(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_it - *"])
