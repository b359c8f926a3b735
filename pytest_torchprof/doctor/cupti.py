"""The CUPTI that this process has loaded: NVIDIA's library by which torch.profiler hears of kernels."""

from __future__ import annotations

import ctypes
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_torchprof.doctor.answer import OK, UNKNOWN, WRONG, Answer, public
from pytest_torchprof.doctor.child import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.doctor.machine import Machine

# cuptiGetVersion's numbers before CUDA 13, as cupti_version.h lists them; from there on 130100 is 13.1.
_CUDA = {
    18: "11.8",
    19: "12.0",
    20: "12.2",
    21: "12.3",
    22: "12.4",
    23: "12.5",
    24: "12.6",
    26: "12.8",
    27: "12.9",
    28: "12.9.1",
}
# From CUDA 12.6 Update 2 on, until NVIDIA mended it in 13.1 (pytorch#192021). 24 is every 12.6.
_LOSING = range(24, 130100)
LOSING = "known to lose the first kernels of a session after idle time (CUDA 12.6.2 to 13.0, pytorch#192021)"


def work() -> dict[str, Any]:
    """Ask the CUPTI that torch loads for its version. Called in a process of its own: without a driver it crashes."""
    import_module("torch")
    paths = loaded_paths()
    return {"paths": paths, "version": _version(paths[0]) if paths else None}


def of_cupti(machine: Machine) -> Iterator[Answer]:
    """Say which CUPTI is loaded, from where, and whether it is known for losing kernels."""
    torch = import_module("torch")
    if torch.version.cuda:
        yield _loaded(machine)
    elif torch.version.hip:
        yield Answer("CUPTI", OK, "not needed: on ROCm roctracer or rocprofiler records")


def _loaded(machine: Machine) -> Answer:
    if not machine.gpu_works:
        shown = " and ".join(map(public, loaded_paths()))
        why = "there is no GPU" if machine.has_none else "torch cannot use the GPU"
        return Answer("CUPTI", OK, f"{shown or 'none loaded'}: not asked for its version, {why}")
    found = ask(work).facts
    paths, number = found["paths"], found["version"]
    if not paths:
        return Answer("CUPTI", UNKNOWN, "none is loaded as a library of its own; some builds of torch hold it inside")
    if len(paths) > 1:
        return Answer("CUPTI", WRONG, f"{len(paths)} are loaded at once: {', '.join(map(public, paths))}", _ONE)
    text = f"{_cuda_of(number)}, {public(paths[0])}"
    if installed := shadowed(paths[0]):
        return Answer("CUPTI", WRONG, f"{text}: not the one that was installed with torch, {installed}", _ONE)
    return Answer("CUPTI", OK, f"{text}; {LOSING}: see sessions below" if number in _LOSING else text)


_ONE = "let torch find its own: take the folder of the other one out of LD_LIBRARY_PATH, or out of LD_PRELOAD"


def loaded_paths() -> list[str]:
    """Return the files of CUPTI that this process has mapped."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = (line.split(maxsplit=5)[5] for line in lines if "/libcupti" in line)
    return list(dict.fromkeys(paths))


def _version(path: str) -> int | None:
    number = ctypes.c_uint32()
    # As torch's own calls find it: what is put before all libraries is called in the library's place.
    function = getattr(ctypes.CDLL(None), "cuptiGetVersion", None) or ctypes.CDLL(path).cuptiGetVersion
    return None if function(ctypes.byref(number)) else number.value


def _cuda_of(number: int | None) -> str:
    if number is None:
        return "of a version that it does not tell"
    release = f"{number // 10000}.{number // 100 % 100}" if number >= 130000 else _CUDA.get(number)
    return f"of CUDA {release} (API {number})" if release else f"API {number}"


def shadowed(loaded: str) -> str | None:
    """Return the CUPTI that was installed with torch, where the loaded one is another one."""
    torch = import_module("torch")
    packages = Path(str(torch.__file__)).parents[1]
    patterns = ("nvidia/*/lib/libcupti.so*", "torch/lib/libcupti*.so*")
    installed = [path.resolve() for pattern in patterns for path in packages.glob(pattern)]
    if not installed or Path(loaded).resolve() in installed:
        return None
    return public(str(installed[0]))
