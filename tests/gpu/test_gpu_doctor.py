"""``torchprof doctor`` on a GPU: it finds nothing wrong with a sound one, and names each fault of a simulated one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from simulated import gpu_is_simulated

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]
simulated = pytest.mark.skipif(not gpu_is_simulated(), reason="a fault on demand needs the simulated device")

ASK = """
import json, sys
from pytest_torchprof import doctor
chosen = [check for check in doctor.CHECKS if check.name in sys.argv[1:]]
print(json.dumps([[one.check, one.status, one.text, one.do] for one in doctor.answers(chosen)]))
"""


@pytest.fixture
def ask(tmp_path):
    """Return a function that makes some of the checks in a process with the given environment."""

    def ask(*checks, **environ):
        # A temporary folder of its own: locks of other tests are not this one's.
        given = {**os.environ, "TMPDIR": str(tmp_path), **environ}
        command = [sys.executable, "-c", ASK, *checks]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=500, check=True)
        found = defaultdict(list)
        for check, *answer in json.loads(done.stdout):
            found[check].append(answer)
        return found

    return ask


def test_a_sound_gpu_is_well(tmp_path):
    run = [sys.executable, "-c", "from pytest_torchprof.cli import main; main()", "doctor", "--json"]
    done = subprocess.run(
        run, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=500, check=False
    )
    answers = {one["check"]: one for one in json.loads(done.stdout)["answers"]}
    # What others do on this GPU meanwhile, and its temperature, are not this test's to say.
    wrong = {check for check, one in answers.items() if one["status"] == "wrong"}
    assert wrong <= {"NVML processes", "NVML slow-downs"}
    assert done.returncode == bool(wrong)
    assert torch.cuda.get_device_name() in answers["GPU"]["text"]
    assert "50 each seen" in answers["sessions"]["text"]
    assert answers["CUDA graph"]["text"].startswith("1 launch, ")
    assert answers["Triton kernel"]["text"].startswith("1 launch, 1 kernel in each step; 0 orphans, 0 lost")
    assert "1 kernel in each step; 0 orphans, 0 lost" in answers["cooperative"]["text"]
    assert "by CUDA events" in answers["clock"]["text"]


@simulated
@pytest.mark.parametrize(
    ("fault", "check", "status", "named"),
    [
        ({"FAKEGPU_COUNT": "0"}, "GPU", "wrong", "the driver sees no GPU"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "GPU", "wrong", "CUDA_VISIBLE_DEVICES='' leaves this process no GPU"),
        ({"FAKEGPU_INIT_ERROR": "802"}, "GPU", "wrong", "fabric manager"),
        ({"FAKEGPU_FAIL_KERNEL": "elementwise"}, "GPU", "wrong", "illegal memory access"),
        ({"FAKEGPU_CUPTI_ERROR": "35"}, "probe", "wrong", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        ({"FAKEGPU_CUPTI_ERROR": "39"}, "probe", "wrong", "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
        ({"FAKEGPU_CUPTI_ERROR": "14"}, "probe", "wrong", "CUPTI_ERROR_NOT_COMPATIBLE"),
        ({"FAKEGPU_CUPTI_DROP": "5"}, "sessions", "ok", "lost at the head, where only our own are: 5 each"),
        ({"FAKEGPU_CUPTI_DROP_EVERY": "7"}, "sessions", "wrong", "the profiler loses kernels"),
        ({"FAKEGPU_CUPTI_BUFFER": "2"}, "sessions", "wrong", "the profiler loses kernels"),
        ({"FAKEGPU_LOST_AFTER": "150"}, "sessions", "wrong", "CUDA error"),
        ({"FAKEGPU_CUPTI_DROP_GRAPH": "all"}, "CUDA graph", "wrong", "0 kernels in each step"),
        (
            {"FAKEGPU_CUPTI_DROP_CALLS": "cuLaunchKernelEx"},
            "Triton kernel",
            "wrong",
            "that the profiler does not record",
        ),
        ({"FAKEGPU_SLOW": "gemm=900000000"}, "clock", "ok", "by CUDA events"),
        ({"FAKEGPU_NVML_THROTTLE": "0x20"}, "NVML slow-downs", "wrong", "slowed down by its temperature"),
        ({"FAKEGPU_NVML_PROCESSES": "2"}, "NVML processes", "wrong", "other processes on it"),
        ({"FAKEGPU_NVML_COMPUTE_MODE": "3"}, "NVML compute mode", "ok", "exclusive process"),
        ({"FAKEGPU_NVML": "absent"}, "NVML library", "not known", "cannot be loaded"),
        ({"FAKEGPU_NVML_ERROR": "nvmlDeviceGetClockInfo:4"}, "NVML clocks", "not known", "no permission"),
        ({"FAKEGPU_NVML_ERROR": "nvmlInit_v2:18"}, "NVML library", "wrong", "library and kernel module differ"),
        ({"FAKEGPU_NVML": "old"}, "NVML driver", "ok", ""),
        ({"FAKEGPU_MIG": "1"}, "NVML MIG", "ok", "a slice of a GPU"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "environment", "wrong", "every launch waits"),
        ({"CUDA_INJECTION64_PATH": "/x/libtool.so"}, "environment", "wrong", "CUDA_INJECTION64_PATH=/x/libtool.so"),
    ],
    ids=lambda value: " ".join(f"{name}={one}" for name, one in value.items()) if isinstance(value, dict) else None,
)
def test_a_fault_is_named(ask, fault, check, status, named):
    found = ask("GPU", check.partition(" ")[0] if check.startswith("NVML") else check, **fault)
    matching = [answer for answer in found[check] if answer[0] == status and named in answer[1]]
    assert matching, found
    assert status != "wrong" or matching[0][2], "what is wrong comes with what to do"


@simulated
def test_what_cannot_be_profiled_is_not_profiled_further(ask):
    found = ask("probe", "sessions", "clock", FAKEGPU_CUPTI_ERROR="35")
    assert found["this process"] == [["wrong", "sees no kernel of its own either", "see probe"]]
    assert found["sessions"] == found["clock"] == [["not known", "not looked at: the probe saw no kernel", ""]]


@simulated
def test_a_test_that_the_profiler_fails_names_the_command(tmp_path):
    Path(tmp_path, "test_it.py").write_text(
        "import pytest, torch\n"
        "@pytest.mark.torchprof(max_kernels=5)\n"
        "def test_body(): torch.ones(8, device='cuda').add_(1)\n"
        "def test_call(torchprof): torchprof(lambda: torch.ones(8, device='cuda'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path), "FAKEGPU_CUPTI_ERROR": "35"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert "2 not measured" in done.stdout
    assert done.stdout.count("do: run `torchprof doctor` to see what is wrong with the profiler or the device") == 2
