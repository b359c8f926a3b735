"""The build of the simulated device: where it cannot build it says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CANNOT = 77


def run(*command, **variables):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | variables, cwd=HERE, timeout=500
    )


def test_without_a_compiler_it_cannot_be_built_and_says_so():
    done = run(sys.executable, "build.py", CXX="no-such-compiler")
    assert done.returncode == CANNOT
    assert done.stderr == "simulated CUDA device: no C++ compiler: install g++, or name one in CXX\n"


@pytest.mark.skipif(sys.platform != "linux", reason="for Linux only")
@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ([], "no torch built with CUDA 13"),
        (["lib/libcudart.so.13"], "cu13/include/crt/host_defines.h is missing"),
        (["lib/libcudart.so.13", "include/crt/host_defines.h"], "cu13/include/cccl/nv/target is missing"),
    ],
)
def test_what_is_missing_of_cuda_is_named(there, missing, tmp_path):
    for name in there:
        path = tmp_path / "nvidia" / "cu13" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    program = "import build, sys; from pathlib import Path; build.find_cuda(Path(sys.argv[1]))"
    done = run(sys.executable, "-c", program, str(tmp_path))
    assert f"CannotBuild: {missing}" in done.stderr


@pytest.mark.simulated_gpu
def test_what_was_built_is_not_built_again():
    library = HERE / "build" / "lib" / "libcuda.so.1"
    before = library.stat().st_mtime_ns
    done = run(sys.executable, "build.py", LD_PRELOAD="")
    assert done.returncode == 0, done.stderr
    assert library.stat().st_mtime_ns == before


def test_what_was_not_built_cannot_be_run(tmp_path):
    launcher = tmp_path / "fakegpu"
    launcher.write_bytes((HERE / "fakegpu").read_bytes())
    done = run("bash", str(launcher), "true", LD_PRELOAD="")
    assert done.returncode == CANNOT
    assert "not built; run: python tests/fakegpu/build.py" in done.stderr
