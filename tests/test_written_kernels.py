"""Kernels that somebody else wrote: which ways to cheat the limits close, and which they cannot, as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import fresh
import pytest
import torch
from builder import TraceBuilder

from pytest_torchprof import Verdicts, judge, load, triton
from pytest_torchprof.limits import HOLDS, MISSED, NOT_MEASURED, check_limits, read_limits

pytestmark = pytest.mark.any_torch

PAGE = (Path(__file__).parents[1] / "docs" / "written-kernels.md").read_text()
OWN, LIBRARY = "my_softmax", "ampere_sgemm_128x64_tn"
LIMITS = {"kernels": {triton("user"): 1}, "only_kernels": triton("user"), "max_memcpys": 0}
X = torch.arange(64.0)


def status(tmp_path, *kernels, compiled=(OWN,), copies=0):
    """Return what the limits of the page come to where a candidate launches these kernels on a GPU."""
    builder = TraceBuilder()
    builder.own(steps=1, triton_kernels=list(compiled))
    builder.step(0, 0, 900)
    for place, name in enumerate(kernels):
        call = builder.call("cuLaunchKernelEx" if name == OWN else "launch", 10 + 30 * place, 3)
        builder.kernel(name, 20 + 30 * place, 5, call)
    for place in range(copies):
        builder.memcpy(("DtoH", "HtoD")[place], 500 + 30 * place, 5, builder.call("copy", 490 + 30 * place, 20))
    verdicts = check_limits(load(builder.write(tmp_path / "t.json")), read_limits(LIMITS))
    return {verdict.limit: verdict.status for verdict in verdicts}


def test_a_kernel_that_does_the_work_alone_is_accepted(tmp_path):
    assert set(status(tmp_path, OWN).values()) == {HOLDS}


def test_a_library_in_its_place_is_seen(tmp_path):
    found = status(tmp_path, LIBRARY)
    assert (found["kernels"], found["only_kernels"]) == (MISSED, MISSED)


def test_a_library_beside_it_is_seen(tmp_path):
    found = status(tmp_path, OWN, LIBRARY)
    assert (found["kernels"], found["only_kernels"]) == (HOLDS, MISSED)


def test_a_name_alone_is_no_triton_kernel(tmp_path):
    assert status(tmp_path, OWN, compiled=())["only_kernels"] == NOT_MEASURED


def test_work_on_the_cpu_needs_copies(tmp_path):
    assert status(tmp_path, OWN, copies=2)["max_memcpys"] == MISSED


def test_a_result_that_was_kept_is_no_work():
    @cache
    def candidate(x):
        return x.sin()

    verdicts = judge(candidate, X, limits={"only_kernels": "aten::sin"}, device="cpu")
    assert not verdicts
    assert verdicts.status == NOT_MEASURED


def test_another_threads_work_is_not_left_out():
    def candidate(x):
        thread = threading.Thread(target=lambda: x @ x)
        thread.start()
        thread.join()
        return x.sin()

    verdicts = judge(candidate, X, limits={"only_kernels": "aten::sin"}, device="cpu")
    assert not verdicts
    assert "[other-thread]" in str(verdicts)


def test_recording_that_is_switched_off_meanwhile_is_noticed():
    def candidate(x):
        torch.autograd._enable_record_function(False)
        y = x.cos()
        torch.autograd._enable_record_function(True)
        return y.sin()

    verdicts = judge(candidate, X, limits={"only_kernels": "aten::sin"}, device="cpu")
    assert verdicts.status == NOT_MEASURED
    assert "test_written_kernels.py:" in str(verdicts)


def test_what_raises_is_not_accepted():
    def candidate(x):
        x.sin()
        raise ValueError("no result")

    with pytest.raises(ValueError, match="no result"):
        judge(candidate, X, limits={"only_kernels": "aten::sin"}, device="cpu")


def holds(candidate):
    return bool(judge(candidate, X, limits={"only_kernels": "aten::sin", "kernels": {"aten::sin": 1}}, device="cpu"))


def test_a_wrong_result_is_no_matter_of_kernels():
    assert holds(lambda x: x.sin())
    assert holds(lambda x: x[:1].sin())


def test_another_process_is_not_seen():
    def candidate(x):
        subprocess.run([sys.executable, "-c", "import math; math.sin(1)"], check=True)
        return x.sin()

    assert holds(candidate)


def test_who_knows_of_the_profiler_may_behave():
    def candidate(x):
        return x.sin() if torch.autograd._profiler_enabled() else x @ x

    assert holds(candidate)


def test_a_switch_of_torchs_that_was_kept_from_before_is_not_noticed():
    switch = torch.autograd._enable_record_function

    def candidate(x):
        switch(False)
        y = x.cos()
        switch(True)
        return y.sin()

    assert holds(candidate)


def test_what_is_in_the_same_process_can_change_anything(monkeypatch):
    def candidate(x):
        monkeypatch.setattr(Verdicts, "__bool__", lambda _: True)
        return x.cos()

    assert holds(candidate)


EDITING = """
import json

import torch
from torch.autograd import profiler

written = profiler.profile.export_chrome_trace


def edited(self, path, *options):
    written(self, path, *options)
    with open(path) as file:
        trace = json.load(file)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("name") not in ("aten::mm", "aten::matmul")]
    with open(path, "w") as file:
        json.dump(trace, file)


profiler.profile.export_chrome_trace = edited
x = torch.arange(64.0).view(8, 8)
(x @ x).sin()
"""


@pytest.mark.parametrize(("program", "status"), [(EDITING, 0), (EDITING.replace("= edited\n", "= written\n"), 1)])
def test_what_runs_under_torchprof_run_can_change_its_recording(tmp_path, program, status):
    (tmp_path / "candidate.py").write_text(program)
    command = "import sys; from pytest_torchprof.cli import main; sys.argv[1:1] = ['run']; sys.exit(main())"
    done = fresh.run_code(command, "--device=cpu", "--limit=forbid_ops='aten::mm'", str(tmp_path / "candidate.py"))
    assert done.returncode == status, done.stdout + done.stderr


def test_each_way_on_the_page_has_its_test():
    assert set(re.findall(r"`(test_\w+)`", PAGE)) == {name for name in globals() if name.startswith("test_")} - {
        "test_each_way_on_the_page_has_its_test",
        "test_a_kernel_that_does_the_work_alone_is_accepted",
    }
