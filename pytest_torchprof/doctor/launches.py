"""Kinds of launches that a profiler may see otherwise than plain ones: CUDA graphs, Triton, cooperative kernels."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from pytest_torchprof.doctor.answer import OK, UNKNOWN, WRONG, Answer
from pytest_torchprof.doctor.child import ask
from pytest_torchprof.doctor.measuring import measure
from pytest_torchprof.text.plural import counted, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.doctor.machine import Machine

_GRAPH_KERNELS = 3
# The driver translates it for whatever GPU there is, so that no compiler is needed.
_PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry torchprof_doctor() { ret; }
"""


def graph(device: str) -> dict[str, Any]:
    """Replay a CUDA graph of three kernels."""
    import torch

    spare = torch.zeros(8, device=device)
    spare.add_(1)
    torch.cuda.synchronize(device)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(_GRAPH_KERNELS):
            spare.add_(1)
    return measure(captured.replay, device)


def triton(device: str) -> dict[str, Any]:
    """Launch a Triton kernel."""
    import torch

    from pytest_torchprof.doctor.tritonkernel import double

    spare = torch.zeros(8, device=device)
    return measure(lambda: double[(1,)](spare), device)


def cooperative(device: str) -> dict[str, Any]:
    """Launch a kernel by the driver's call for cooperative ones."""
    import torch

    torch.ones(1, device=device)
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _succeed(driver.cuModuleLoadData(ctypes.byref(module), _PTX), "cuModuleLoadData")
    name = b"torchprof_doctor"
    _succeed(driver.cuModuleGetFunction(ctypes.byref(function), module, name), "cuModuleGetFunction")

    def launch() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        shape = [ctypes.c_uint(1)] * 6
        code = driver.cuLaunchCooperativeKernel(function, *shape, ctypes.c_uint(0), stream, None)
        _succeed(code, "cuLaunchCooperativeKernel")

    return measure(launch, device)


def _succeed(code: int, call: str) -> None:
    if code:
        raise RuntimeError(f"{call} failed with error {code} of the driver")


def of_graph(machine: Machine) -> Iterator[Answer]:
    """Say what a replay of a CUDA graph shows."""
    told = ask(graph, machine.gpu["device"]).facts
    # torch may add fills of its own to a replay.
    yield _answer("CUDA graph", told, launches=1, kernels=_GRAPH_KERNELS, exactly=False)


def of_triton(machine: Machine) -> Iterator[Answer]:
    """Say what a Triton kernel shows."""
    told = ask(triton, machine.gpu["device"]).facts
    yield _answer("Triton kernel", told, launches=1, kernels=1)


def of_cooperative(machine: Machine) -> Iterator[Answer]:
    """Say what a cooperative launch shows."""
    if not machine.gpu["cuda"]:
        yield Answer("cooperative", UNKNOWN, "looked at on CUDA only")
        return
    told = ask(cooperative, machine.gpu["device"]).facts
    yield _answer("cooperative", told, launches=1, kernels=1)


def _answer(check: str, told: Mapping[str, Any], *, launches: int, kernels: int, exactly: bool = True) -> Answer:
    if "kernels" not in told:
        return Answer(check, WRONG, f"not measured: {told['why']}", "see probe and sessions")
    numbers = (
        f"{_per_step(told['launches'], 'launch')}, {_per_step(told['kernels'], 'kernel')} in each step; "
        f"{counted(told['orphans'], 'orphan')}, {told['lost']} lost"
    )
    if told["unrecorded"]:
        numbers += f", {counted(told['unrecorded'], 'kernel')} launched by a call that the profiler does not record"
    as_meant = all(one == kernels or (one > kernels and not exactly) for one in told["kernels"]) and (
        set(told["launches"]) == {launches}
    )
    if told["why"] is None and as_meant and (told["attempts"] or 1) == 1:
        return Answer(check, OK, numbers)
    expected = f"{counted(kernels, 'kernel')} by {counted(launches, 'launch')}"
    why = told["why"] or (
        f"expected {expected} in each step" if not as_meant else f"only at attempt {told['attempts']}"
    )
    return Answer(check, WRONG, f"{numbers}: {why}", _TO_DO[check])


_TO_DO = {
    "CUDA graph": "limits on code in CUDA graphs are not to be had here: try another torch or driver, see sessions",
    "Triton kernel": "limits on compiled code are not to be had here: see probe and sessions",
    "cooperative": "limits on code with cooperative kernels (cuDNN's, NCCL's, persistent ones) are not to be had here",
}


def _per_step(numbers: list[int], noun: str) -> str:
    if len(set(numbers)) == 1:
        return counted(numbers[0], noun)
    return f"{' '.join(map(str, numbers))} {plural(noun)}"
