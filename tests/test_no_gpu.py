"""Why there is no GPU: each cause its own sentence, and where it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import bare
import fresh
import pytest
import torch
from repository import WITHOUT_COMPILER

from pytest_torchprof.reasons.no_gpu import (
    BuiltForCpu,
    CannotInitialize,
    DriverSeesNone,
    DriverTooOld,
    FabricMissing,
    GpuDriver,
    GpusHidden,
    NoGpuOfThese,
)
from pytest_torchprof.reasons.skips import LacksGpu

REPOSITORY = Path(__file__).parents[1]
cuda_build = pytest.mark.skipif(torch.version.cuda is None, reason="needs a CUDA build of torch")
cpu_build = pytest.mark.skipif(torch.version.cuda is not None, reason="needs a CPU build of torch")

# A CUDA runtime, loaded ahead of torch's own, that finds no device, for the reason it is told.
NO_DEVICE = """
#include <stdlib.h>
int cudaGetDeviceCount(int *count) { *count = 0; return atoi(getenv("FAILS_WITH")); }
int cudaDriverGetVersion(int *version) { *version = 12040; return 0; }
"""
ASKS = """
import warnings
import torch
from pytest_torchprof import TorchprofError, capture

warnings.simplefilter("error")
assert capture.pick_device("auto") == "cpu"
try:
    capture.pick_device("cuda")
except TorchprofError as error:
    print(error)
"""
# One run of pytest without the plugin asks in a fork for each cause.
ASKS_OF_ALL = """
import os, sys
import torch

def test_asks():
    for cause in CAUSES:
        code, visible = cause.split("/")
        os.environ["FAILS_WITH"] = code
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if visible != "all":
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
        print("cause", cause, flush=True)
        if os.fork() == 0:
            exec(ASKS, {})
            sys.stdout.flush()
            os._exit(0)  # What torch does at an end takes longer than all else.
        assert os.wait()[1] == 0
    print("cause none")
"""


def library(folder, name, source):
    compiler = shutil.which("gcc") or pytest.skip("needs gcc")
    (folder / "library.c").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", folder / "library.c", "-o", folder / name], check=True)
    return str(folder / name)


def said(**environment):
    without = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES")}
    done = subprocess.run(
        [sys.executable, "-c", ASKS],
        env={**without, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


WHY_NONE = {
    "35/all": DriverTooOld(torch.__version__, 12040, torch.version.cuda),
    "802/all": FabricMissing(),
    "46/all": CannotInitialize("Error 46: "),
    "100/all": DriverSeesNone(),
    "100/": GpusHidden((("CUDA_VISIBLE_DEVICES", ""),)),
    "100/-1": GpusHidden((("CUDA_VISIBLE_DEVICES", "-1"),)),
    "100/7": NoGpuOfThese((("CUDA_VISIBLE_DEVICES", "7"),)),
}
"""With which status CUDA fails, which devices are visible, and what is told of it."""


@cpu_build
def test_a_cpu_build_on_a_machine_with_a_gpu_is_told(tmp_path):
    library(tmp_path, "libcuda.so.1", "int cuInit(unsigned flags) { return 0; }")
    text = said(LD_LIBRARY_PATH=str(tmp_path))
    assert BuiltForCpu(torch.__version__, GpuDriver.NVIDIA).text in text


@cpu_build
def test_a_cpu_build_on_a_machine_without_one_is_told():
    assert BuiltForCpu(torch.__version__).text in said()


HIDDEN = GpusHidden((("CUDA_VISIBLE_DEVICES", ""),))
MARKED = """
import torch, pytest

@pytest.mark.torchprof(max_kernels=1)
def test_it():
    return torch.ones(3)
"""


@pytest.fixture(scope="module")
def where_none(tmp_path_factory):
    """Runs of a test, as it is and where a GPU is required, where `CUDA_VISIBLE_DEVICES` hides the GPU; and one for all causes."""
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "test_it.py").write_text(MARKED)
    (folder / "conftest.py").write_text(WITHOUT_COMPILER)
    (folder / "asks.py").write_text(f"CAUSES = {list(WHY_NONE)}\nASKS = {ASKS!r}\n{ASKS_OF_ALL}")
    none = library(folder, "none.so", NO_DEVICE)
    runs = [["-rs"], ["--torchprof-require-gpu"], ["-s", "-p", "no:torchprof", "asks.py"]]
    there = [(folder, words) for words in runs]
    return bare.run_pytests(*there, LD_PRELOAD=none, FAILS_WITH="100", CUDA_VISIBLE_DEVICES="")


@cuda_build
def test_what_keeps_a_cuda_build_from_its_gpu_is_told(where_none):
    *_, asked = where_none
    asked.assert_outcomes(passed=1)
    _, *told, _ = "\n".join(asked.outlines).split("cause ")
    texts = dict(text.split("\n", 1) for text in told)
    assert texts.keys() == WHY_NONE.keys()
    for cause, why in WHY_NONE.items():
        assert texts[cause].startswith("device 'cuda' was asked for")
        assert why.text in texts[cause]


@cuda_build
def test_a_test_that_is_not_judged_for_want_of_a_gpu_says_what_hides_it(where_none):
    skips, *_ = where_none
    skips.assert_outcomes(skipped=1)
    skips.stdout.fnmatch_lines([f"*{LacksGpu(('max_kernels',), HIDDEN)}*"])


@cuda_build
def test_a_run_that_requires_a_gpu_is_refused_with_what_hides_it(where_none):
    _, refused, _ = where_none
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"*{HIDDEN.text})*[[]no-gpu]*"])


@cuda_build
def test_a_build_of_torch_that_misses_a_driver_does_not_write_about_it_into_the_tests_output(pytester, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.makepyfile(test_it=MARKED)
    result = fresh.run_pytest("-p", "no:cacheprovider", "-s", "--torchprof-device=cpu")
    result.assert_outcomes(passed=1)
    assert "gpuGetDeviceCount" not in result.stdout.str() + result.stderr.str()
