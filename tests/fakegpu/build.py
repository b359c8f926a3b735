"""Build the simulated CUDA device for the torch of the Python that runs this: `python tests/fakegpu/build.py`.

Exit code 77 where there is nothing to build it with or for, with one line that says what is missing.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import generate

HERE = Path(__file__).resolve().parent
SOURCES, BUILD = HERE / "src", HERE / "build"
LIB = BUILD / "lib"
CANNOT = 77  # what test harnesses take for "skipped"

# The second group of the device's UUID: processes that use the devices of two checkouts do not wait for each other.
CHECKOUT = hashlib.sha256(str(HERE).encode()).hexdigest()[:4]
FLAGS = ["-std=c++17", "-O2", "-g", "-fPIC", "-Wall", "-Wno-deprecated-declarations", f"-DCHECKOUT=0x{CHECKOUT}"]
STATIC = ["-static-libstdc++", "-static-libgcc"]
# The ages of NVML, by the folder that FAKEGPU_NVML names: what the source is told.
NVML = {"": [], "nvml-old": ["-DNVML_OLD"], "nvml-new": ["-DNVML_NEW"]}


class CannotBuild(Exception):
    """What is missing, in one sentence."""


def find_compiler() -> str:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if not compiler:
        raise CannotBuild("no C++ compiler: install g++, or name one in CXX")
    if not shutil.which("nm"):
        raise CannotBuild("no nm: install binutils")
    return compiler


def find_cuda(packages: Path) -> Path:
    """Return the folder `nvidia` of these packages, where torch's own wheels put headers and libraries."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise CannotBuild(f"not for {sys.platform} on {platform.machine()}: the device is for Linux on x86-64")
    nvidia = packages / "nvidia"
    if not (nvidia / "cu13" / "lib" / "libcudart.so.13").exists():
        raise CannotBuild(f"no torch built with CUDA 13 in {packages}: `pip install torch` brings it")
    for header in ("cu13/include/crt/host_defines.h", "cu13/include/cccl/nv/target"):
        if not (nvidia / header).exists():
            raise CannotBuild(f"{header} is missing: `pip install -e '.[fakegpu]'` brings it")
    return nvidia


def make(target: Path, command: list[str | Path], inputs: list[Path]) -> None:
    """Run the command that writes the target, unless it was run before with the same words and inputs.

    The result takes the target's place at once, so that a running process keeps what it has.
    """
    digest = hashlib.sha256(repr(command).encode())
    for one in inputs:
        digest.update(one.read_bytes())
    note = target.with_name(f"{target.name}.made-of")
    if target.exists() and note.exists() and note.read_text() == digest.hexdigest():
        return
    unfinished = target.with_name(f"{target.name}.new")
    subprocess.run([*command, "-o", unfinished], check=True)
    unfinished.replace(target)
    note.write_text(digest.hexdigest())


def build() -> None:
    compiler, nvidia = find_compiler(), find_cuda(Path(sysconfig.get_path("platlib")))
    include = nvidia / "cu13" / "include"
    LIB.mkdir(parents=True, exist_ok=True)
    generate.tables(include, BUILD)
    theirs = [include, include / "cccl", nvidia / "cudnn" / "include"]
    flags = [*FLAGS, "-I", BUILD, "-I", SOURCES, *(word for folder in theirs for word in ("-isystem", folder))]
    headers = [*sorted(SOURCES.glob("*.h")), *sorted(BUILD.glob("*.inc")), include / "cupti_version.h"]

    def compiled(source: Path) -> Path:
        target = BUILD / f"{source.stem}.o"
        make(target, [compiler, *flags, "-c", source], [source, *headers])
        return target

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        objects = list(workers.map(compiled, sorted({*SOURCES.glob("*.cpp")} - {SOURCES / "nvml.cpp"})))
    stubs = BUILD / "gen_stubs.cpp"
    count = generate.stubs(include, nvidia / "cu13" / "lib", compiler, objects, stubs)
    objects.append(compiled(stubs))
    # Everything is in one library with the driver's name, so that whoever opens libcuda.so.1 gets it.
    command = [compiler, "-shared", *objects, "-Wl,-soname,libcuda.so.1", "-ldl", "-lpthread", *STATIC]
    make(LIB / "libcuda.so.1", command, objects)
    for folder, words in NVML.items():
        (LIB / folder).mkdir(exist_ok=True)
        source = SOURCES / "nvml.cpp"
        command = [compiler, *FLAGS, *words, "-shared", source, "-Wl,-soname,libnvidia-ml.so.1", "-ldl", *STATIC]
        make(LIB / folder / "libnvidia-ml.so.1", command, [source])
    sys.stdout.write(f"{LIB}: built; {count} functions of CUDA's are stubs\n")


if __name__ == "__main__":
    try:
        build()
    except CannotBuild as missing:
        sys.exit(sys.stderr.write(f"simulated CUDA device: {missing}\n") and CANNOT)
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
