"""What is said when the device, its driver or its profiler fails: a reason, and no other test suffers.

Each needs a device that fails on demand, so the simulated one (tests/fakegpu), and a process of its own.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib.util import find_spec
from textwrap import dedent

import fresh
import pytest
import torch
from facts import reasons_in, says
from torch.profiler import _utils

import pytest_torchprof
from pytest_torchprof import capture
from pytest_torchprof.reasons.composed import CuptiUser
from pytest_torchprof.reasons.gpu_trouble import DeviceTrouble, DeviceUnusable, FabricNotReady, NoKernelsRecorded

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
    pytest.mark.skipif(
        not hasattr(ctypes.CDLL(None), "fakegpu_set_sticky"), reason="breaks the device: needs the simulated one"
    ),
]

ORDINARY = """
import torch, pytest

@pytest.mark.torchprof(min_kernels=2, max_kernels=2)
def test_marked():
    x = torch.empty(100, device="cuda")
    return x.exp(), x.sqrt()

def test_plain():
    pass

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_on_the_cpu():
    return torch.ones(3)
"""
INIT = "from torch.profiler import _utils\n_utils._init_for_cuda_graphs()"
FULL = "import torch; torch.cuda.set_per_process_memory_fraction(0.0)"
BREAKS = "\nimport ctypes\nctypes.CDLL(None).fakegpu_set_sticky({code})\n"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run tests in a process of their own, with the given environment and conftest; other files lie beside them."""

    def run(source, *args, conftest="", **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        pytester.makeconftest(conftest)
        pytester.makepyfile(test_it=source)
        result = fresh.run_pytest("-p", "no:cacheprovider", "-W", "ignore", *args)
        assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
        return result

    return run


# ----------------------------------------------------------------------------------------------------------------------
# Records that are lost at the head of a session


@pytest.mark.parametrize("lost", [3, 8, 12, 20, 40])
def test_kernels_lost_at_the_head_of_each_session_cost_a_retry_at_most(run, lost):
    result = run(ORDINARY, FAKEGPU_CUPTI_DROP=str(lost))
    result.assert_outcomes(passed=3)


def test_between_the_start_and_the_steps_everything_on_the_gpu_is_the_sentinels(tmp_path):
    plan = capture.Plan(device="cuda:0", warmup=1, steps=1, record=frozenset(), nodeid="t.py::t", label=None)
    x = torch.empty(4, device="cuda")
    for _ in capture.iterations(plan, tmp_path / "t.json", lambda path: pytest_torchprof.load(path).doubt):
        x.exp()
    trace = pytest_torchprof.load(tmp_path / "t.json").trace
    (sentinel,) = trace.spans("torchprof::sentinel")
    (step,) = trace.steps
    before = [trace.calls.start[i] for i in trace.links.call_of if trace.calls.start[i] < step.start_ns]
    assert before
    assert all(sentinel.start_ns <= start < sentinel.end_ns for start in before)


# ----------------------------------------------------------------------------------------------------------------------
# A device that cannot be used from the start


@pytest.mark.parametrize(
    ("conftest", "kind", "facts"),
    [
        (FULL, DeviceUnusable, {"device": "cuda:0", "cause": DeviceTrouble.MEMORY_FULL}),
        (BREAKS.format(code=46), DeviceUnusable, {"device": "the GPU", "cause": DeviceTrouble.TAKEN}),
        (BREAKS.format(code=214), DeviceUnusable, {"device": "the GPU", "cause": DeviceTrouble.MEMORY_DAMAGED}),
        (BREAKS.format(code=802), FabricNotReady, {}),
    ],
    ids=["full", "exclusive", "damaged", "no fabric manager"],
)
def test_a_device_that_cannot_be_used_is_a_reason_and_the_other_tests_run(run, pytester, conftest, kind, facts):
    result = run(ORDINARY, "--torchprof-report=told.json", conftest=conftest)
    result.assert_outcomes(failed=1, passed=2)
    (reason,) = reasons_in(pytester.path / "told.json")
    assert says(reason, kind, **facts)
    assert kind is FabricNotReady or reason.error.startswith(("CUDA out of memory", "CUDA error: "))
    result.stdout.fnmatch_lines(["*not measured: *[[]gpu-unusable]"])
    result.stdout.no_fnmatch_line("*not measured: not measured*")


def test_the_first_session_too_waits_for_the_lock_of_the_gpu(run, tmp_path):
    """A folder in the place of the lock, so that it cannot be had."""
    source = """
        import tempfile, pytest
        from pathlib import Path
        from pytest_torchprof import NotMeasured, capture
        from pytest_torchprof.capture import gpu_lock
        from pytest_torchprof.capture.devices.cuda import gpu_uuid
        from pytest_torchprof.reasons.gpu_trouble import LockUnopened

        def test_it(monkeypatch):
            monkeypatch.setattr(gpu_lock, "_EVERYBODYS", Path(tempfile.gettempdir(), "nowhere"))
            gpu_lock.lock_file(gpu_uuid("cuda:0")).mkdir()
            with pytest.raises(NotMeasured) as refused:
                capture.arm("cuda:0")
            assert isinstance(refused.value.reason, LockUnopened)
    """
    run(source, TMPDIR=str(tmp_path)).assert_outcomes(passed=1)


def test_the_heading_names_no_device_where_nothing_was_measured(run):
    result = run(ORDINARY, "-k", "marked", conftest=FULL)
    result.stdout.re_match_lines(["-+ torchprof -+"])


# ----------------------------------------------------------------------------------------------------------------------
# A profiler that records no kernels


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("35", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        ("39", "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
        ("14", "CUPTI_ERROR_NOT_COMPATIBLE"),
    ],
)
def test_what_cupti_says_in_a_fresh_process_is_quoted(run, pytester, code, error):
    result = run(ORDINARY, "--torchprof-report=told.json", FAKEGPU_CUPTI_ERROR=code)
    result.assert_outcomes(failed=1, passed=2)
    (why,) = reasons_in(pytester.path / "told.json")
    assert {refusal.error for refusal in why.refusals} == {error}
    text = " ".join(result.stdout.str().split())
    for refusal in why.refusals:
        assert f"{refusal}" in text
        assert refusal.advice in text


def test_where_a_fresh_process_records_kernels_it_is_this_one(run, pytester):
    # What is set so does not reach the processes that Python starts.
    set_here = "import ctypes, os\nos.putenv('FAKEGPU_CUPTI_ERROR', '35')\nctypes.CDLL(None).fakegpu_reload()\n"
    result = run(ORDINARY, "--torchprof-report=told.json", conftest=set_here)
    result.assert_outcomes(failed=1, passed=2)
    assert fresh_kernels(pytester)
    result.stdout.fnmatch_lines(["*[[]no-kernels-recorded]"])


def fresh_kernels(pytester):
    """Return how many kernels a fresh process has recorded where this one records none."""
    (why,) = reasons_in(pytester.path / "told.json")
    assert isinstance(why, NoKernelsRecorded)
    return why.fresh_kernels


@pytest.mark.skipif(not hasattr(_utils, "_init_for_cuda_graphs"), reason="this torch has no _init_for_cuda_graphs")
def test_an_empty_session_that_torch_opens_for_cuda_graphs_is_what_is_blamed(run, pytester):
    """torch itself: after it kineto records no GPU in this process, and does in a fresh one."""
    result = run(ORDINARY, "--torchprof-report=told.json", conftest=INIT)
    result.assert_outcomes(failed=1, passed=2)
    assert fresh_kernels(pytester)
    text = result.stdout.str()
    assert "_init_for_cuda_graphs" in text
    assert "[no-kernels-recorded]" in text


@pytest.mark.skipif(not hasattr(_utils, "_init_for_cuda_graphs"), reason="this torch has no _init_for_cuda_graphs")
def test_in_a_test_it_comes_after_our_own_first_session_and_does_no_harm(run):
    begins = INIT.replace("\n", "\n    ")
    run(f"def test_begins():\n    {begins}\n{ORDINARY}").assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("module", "user"),
    [
        ("jaxlib", CuptiUser.JAX),
        ("triton.profiler", CuptiUser.PROTON),
        ("torch.profiler._cuspy.core", CuptiUser.CUSPY),
        ("torch.profiler._cupti_monitor", CuptiUser.CUPTI_MONITOR),
        ("tensorflow", CuptiUser.TENSORFLOW),
        ("cupti", CuptiUser.CUPTI_PYTHON),
    ],
)
def test_who_else_may_hold_cupti_in_this_process_is_named(run, module, user):
    """A module of that name stands for what is not installed everywhere."""
    imported = f"import sys, types\nsys.modules[{module!r}] = types.ModuleType({module!r})\n"
    result = run(ORDINARY, conftest=imported, FAKEGPU_CUPTI_ERROR="39", KINETO_USE_DAEMON="1")
    result.assert_outcomes(failed=1, passed=2)
    text = " ".join(result.stdout.str().split())
    assert f" {user} or {CuptiUser.DAEMON} " in text


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_protons_own_import_is_enough(run):
    result = run(ORDINARY, conftest="import triton.profiler", FAKEGPU_CUPTI_ERROR="39")
    result.assert_outcomes(failed=1, passed=2)
    assert f" {CuptiUser.PROTON} " in " ".join(result.stdout.str().split())


def test_who_is_there_and_does_no_harm_is_not_named(run):
    result = run(ORDINARY, conftest="import sys, types\nsys.modules['jaxlib'] = types.ModuleType('jaxlib')\n")
    result.assert_outcomes(passed=3)
    assert "JAX" not in result.stdout.str()


# ----------------------------------------------------------------------------------------------------------------------
# An error of the GPU in the middle

STICKY = """
import ctypes, sys, torch, pytest

def theirs(*_):
    pass

@pytest.mark.torchprof(record="stacks")
def test_breaks(torchprof):
    x, calls = torch.empty(3, device="cuda"), []
    def code():
        calls.append(1)
        if len(calls) == {call}:
            {breaks}
        return x.exp()
    sys.setprofile(theirs)
    try:
        torchprof(code)
    finally:
        kept = sys.getprofile() is theirs
        sys.setprofile(None)
        print("the profile function is back:", kept)
"""
AT_ONCE = "ctypes.CDLL(None).fakegpu_set_sticky(700)"
LATER = "x.sqrt()"


@pytest.mark.parametrize("call", [2, 8], ids=["warm-up", "step"])
@pytest.mark.parametrize("breaks", [AT_ONCE, LATER], ids=["at once", "later"])
def test_an_error_of_the_gpu_is_the_tests_own_and_the_next_ones_say_what_became_of_the_device(run, call, breaks):
    result = run(STICKY.format(call=call, breaks=breaks) + ORDINARY, FAKEGPU_FAIL_KERNEL="sqrt_kernel")
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(
        [
            "E * torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
            "the profile function is back: True",
            "*not measured: * (CUDA error: an illegal memory access*[[]gpu-failed]",
            "*test_breaks * error",
            "*test_marked * not measured",
            "*test_on_the_cpu * passed",
        ]
    )
    result.stdout.no_fnmatch_line("*GeneratorExit*")
    result.stdout.no_fnmatch_line("*During handling of the above exception*")


def test_an_error_that_comes_up_in_the_plugins_own_wait_says_whose_it_is(run):
    result = run(ORDINARY, FAKEGPU_FAIL_KERNEL="sqrt_kernel")
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(
        ["E * torch.AcceleratorError: CUDA error: an illegal *", "*while the plugin waited for what the measured code*"]
    )


EXPECTED_TO_FAIL = """
import pytest, torch

@pytest.mark.torchprof(max_kernels=2)
def test_before():
    torch.ones(8, device="cuda").sin()

@pytest.mark.xfail(reason="one kernel too many")
@pytest.mark.torchprof(max_kernels=1)
def test_expected():
    torch.ones(8, device="cuda").sin()
"""


@pytest.mark.parametrize(
    "fault",
    [{"FAKEGPU_FAIL_KERNEL": "CUDAFunctorOnSelf_add:25"}, {"FAKEGPU_LOST_AFTER": "45"}],
    ids=["in the sentinel", "the device is lost"],
)
def test_a_device_that_fails_while_nothing_of_the_tests_runs_is_not_hidden_by_an_expected_failure(run, fault):
    result = run(EXPECTED_TO_FAIL, **fault)
    assert result.parseoutcomes().get("xfailed", 0) == 0
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*not measured: *CUDA error*"])
    result.stdout.no_fnmatch_line("*_launch_sentinel*")


def test_a_device_that_fails_while_it_gets_ready_to_be_timed_is_not_measured(run):
    source = """
        import pytest, torch

        @pytest.mark.torchprof(tolerance={"time": 0.10})
        def test_timed(torchprof):
            x = torch.empty(1 << 20, device="cuda")
            torchprof(lambda: x.sin().cos())
    """
    result = run(source, FAKEGPU_FAIL_KERNEL="spin_kernel")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: *CUDA error*"])
    result.stdout.no_fnmatch_line("*clocks.py*")


def test_a_device_that_is_lost_before_the_first_test_stops_no_other(run):
    conftest = """
        import torch

        def pytest_collection_finish(session):
            try:
                for _ in range(4):
                    torch.ones(8, device="cuda")
                torch.cuda.synchronize()
            except Exception:
                pass
    """
    result = run(ORDINARY, conftest=dedent(conftest), FAKEGPU_LOST_AFTER="2")
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(["*not measured: *CUDA error*"])


# ----------------------------------------------------------------------------------------------------------------------
# Forks

FORKS = """
import os, torch, pytest

def in_a_fork(function):
    reading, writing = os.pipe()
    if not os.fork():
        try:
            said = str(function())
        except BaseException as error:
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        return pipe.read()
"""


def test_in_a_fork_of_a_process_that_has_used_cuda_nothing_is_measured_on_the_gpu_and_the_cpu_is(run):
    source = """
        def test_gpu(torchprof):
            said = in_a_fork(lambda: torchprof(lambda: torch.empty(3, device="cuda").exp()))
            assert said.startswith("not measured: "), said
            assert "[forks]" in said

        @pytest.mark.torchprof(device="cpu")
        def test_cpu(torchprof):
            assert in_a_fork(lambda: torchprof(lambda: torch.ones(3) + 1).kernels.count) == "2"
            torchprof(lambda: torch.ones(3))
    """
    run(FORKS + dedent(source)).assert_outcomes(passed=2)


FORKED = """
import os
import _pytest.runner

def pytest_addoption(parser):
    parser.addoption("--forked", action="store_true")

def pytest_runtest_protocol(item, nextitem):
    process = os.fork()
    if not process:
        reports = _pytest.runner.runtestprotocol(item, nextitem=nextitem)
        os._exit(any(report.failed for report in reports))
    failed = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    item.ihook.pytest_runtest_logreport(
        report=_pytest.reports.TestReport(
            item.nodeid, item.location, {}, "failed" if failed else "passed", None, "call"
        )
    )
    return True
"""


def test_where_each_test_runs_in_a_fork_cuda_does_not_begin_before_it(run):
    run(ORDINARY, "--forked", conftest=FORKED).assert_outcomes(passed=3)


# ----------------------------------------------------------------------------------------------------------------------
# Memory

PEAK = """
import torch, pytest

@pytest.mark.torchprof(max_kernels=1, max_peak_memory="1GiB")
def test_marked():
    return torch.empty(100, device="cuda").exp()
"""
NOT_KNOWN = [
    "*max_kernels=1*",
    "*max_peak_memory=*not measured: *",
    "*PYTORCH_NO_CUDA_MEMORY_CACHING is set [[]no-peak-memory]",
]
ALLOCATOR = """
#include <stddef.h>
#include <sys/types.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
void *give(ssize_t size, int device, void *stream) { void *p = 0; cudaMalloc(&p, size); return p; }
void take(void *p, ssize_t size, int device, void *stream) { cudaFree(p); }
"""


def test_the_peak_of_memory_that_nobody_counts_is_not_known(run):
    result = run(PEAK, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(NOT_KNOWN[1:])


def test_the_peak_of_a_pluggable_allocator_is_not_known(run, tmp_path):
    compiler = shutil.which("gcc") or pytest.skip("needs gcc")
    source, library = tmp_path / "allocator.c", tmp_path / "allocator.so"
    source.write_text(ALLOCATOR)
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    allocator = f"torch.cuda.memory.CUDAPluggableAllocator({str(library)!r}, 'give', 'take')"
    result = run(PEAK, conftest=f"import torch\ntorch.cuda.memory.change_current_allocator({allocator})")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(NOT_KNOWN[1:])


def test_the_peak_of_the_caching_allocator_is_judged(run):
    run(PEAK).assert_outcomes(passed=1)


def test_a_cold_cache_for_which_there_is_no_memory_is_not_measured(run):
    source = """
        import torch, pytest

        @pytest.mark.torchprof(tolerance={"time": 0.5, "cache": "cold"})
        def test_marked():
            return torch.empty(100, device="cuda").exp()
    """
    result = run(source, FAKEGPU_MEM_GB="0.3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: the cache *: CUDA out of*"])
