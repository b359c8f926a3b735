"""Measurements as tests make them: of CUDA graphs, Triton, cooperative kernels, the clock, the CPU, the compiler."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.capture import Plan, iterations
from pytest_torchprof.cli.doctor_checks.inquiry import OK, UNKNOWN, WRONG, Answer, ChildFailed, ask, public_line
from pytest_torchprof.profiles import Profile
from pytest_torchprof.reasons import decoding
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.recording.reader import read
from pytest_torchprof.text import counted, plural
from pytest_torchprof.text.units import show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.cli.doctor_checks.machine import Machine
    from pytest_torchprof.reasons.reason import Reason


STEPS = 3


class Figures(Struct, frozen=True, kw_only=True):
    """The figures of a recording; lists have an item for each step."""

    launches: list[int]
    kernels: list[int]
    names: list[str]
    """The names of the kernels, each once."""
    orphans: int
    lost: int
    unrecorded: int
    """The kernels whose launch the profiler does not record."""
    attempts: int | None
    busy_us: float | None


class Trial(Struct, frozen=True):
    """The outcome of a measurement."""

    why: decoding.AnyReason | None
    """Why it cannot be trusted; None if it can."""
    figures: Figures | None
    """None without a recording."""


def measure(body: Callable[[], object], device: str) -> Trial:
    """Measure a function as a test does."""
    plan = Plan(
        device=device, asked=device, warmup=2, steps=STEPS, record=frozenset(), nodeid="torchprof doctor", label=None
    )
    with TemporaryDirectory() as folder:
        path = Path(folder, "doctor.json")
        why: Reason | None = None
        try:
            with closing(iterations(plan, path, lambda recording: Profile.from_trace(read(recording)).doubt)) as calls:
                for _ in calls:
                    body()
        except NotMeasured as problem:
            why = decoding.portable(problem.reason)
        return Trial(why, _figures(Profile.from_trace(read(path))) if path.is_file() else None)


def _figures(profile: Profile) -> Figures:
    trace, steps = profile.trace, profile.steps
    return Figures(
        launches=[int(step.launches or 0) for step in steps],
        kernels=[len(step.kernels) for step in steps],
        names=list(dict.fromkeys(kernel.name for step in steps for kernel in step.kernels)),
        orphans=trace.orphans,
        lost=trace.lost_kernels,
        unrecorded=trace.unrecorded_launches,
        attempts=None if trace.metadata is None else trace.metadata.attempts,
        busy_us=profile.median.gpu_busy_us,
    )


_GRAPH_KERNELS = 3
# The driver translates it for any GPU, so no compiler is needed.
_PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry torchprof_doctor() { ret; }
"""


def graph(device: str) -> Trial:
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


def triton(device: str) -> Trial:
    """Launch a Triton kernel."""
    import torch

    from pytest_torchprof.cli.doctor_checks.triton_kernel import double

    spare = torch.zeros(8, device=device)
    return measure(lambda: double[(1,)](spare), device)


def cooperative(device: str) -> Trial:
    """Launch a kernel by the driver's call for cooperative kernels."""
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
    # torch may add fills of its own to a replay.
    yield _answer("CUDA graph", ask(graph, machine.gpu.device), launches=1, kernels=_GRAPH_KERNELS, exactly=False)


def of_triton(machine: Machine) -> Iterator[Answer]:
    """Say what a Triton kernel shows."""
    yield _answer("Triton kernel", ask(triton, machine.gpu.device), launches=1, kernels=1)


def of_cooperative(machine: Machine) -> Iterator[Answer]:
    """Say what a cooperative launch shows."""
    if not machine.gpu.cuda:
        yield Answer("cooperative", UNKNOWN, "looked at on CUDA only")
        return
    yield _answer("cooperative", ask(cooperative, machine.gpu.device), launches=1, kernels=1)


def _answer(check: str, trial: Trial, *, launches: int, kernels: int, exactly: bool = True) -> Answer:
    figures, reason = trial.figures, trial.why
    if figures is None:
        return Answer(check, WRONG, unmeasured_text(reason), "see probe and sessions")
    numbers = (
        f"{_per_step(figures.launches, 'launch')}, {_per_step(figures.kernels, 'kernel')} in each step; "
        f"{counted(figures.orphans, 'orphan')}, {figures.lost} lost"
    )
    if figures.unrecorded:
        numbers += f", {counted(figures.unrecorded, 'kernel')} launched by a call that the profiler does not record"
    as_meant = all(number == kernels or (number > kernels and not exactly) for number in figures.kernels) and (
        set(figures.launches) == {launches}
    )
    if reason is None and as_meant and (figures.attempts or 1) == 1:
        return Answer(check, OK, numbers)
    expected = f"{counted(kernels, 'kernel')} by {counted(launches, 'launch')}"
    if reason is not None and reason.remedy:
        return Answer(check, WRONG, f"{numbers}: {reason.sentence} [{reason.code}]", reason.remedy)
    why = reason or (f"expected {expected} in each step" if not as_meant else f"only at attempt {figures.attempts}")
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


_LEAST_MS = 1.0
_LARGEST = 16384
# Clock rates change between launches, and events include the launch itself; a wrong clock is off by factors.
_BAND = 0.25


class TimedTrial(Struct, frozen=True):
    """A kernel that was timed twice."""

    trial: Trial
    events_us: float | None
    """By the GPU's events."""


def time_kernel(device: str) -> TimedTrial:
    """Time a product that takes a millisecond or a few by events, under the profiler."""
    import torch

    size, times = 512, []
    while True:
        square = torch.zeros(size, size, device=device)
        out = torch.empty_like(square)
        _timed(square, out)
        if _timed(square, out) >= _LEAST_MS or size >= _LARGEST:
            break
        size = int(size * 1.5) // 64 * 64

    def body() -> None:
        times.append(_timed(square, out))

    return TimedTrial(measure(body, device), median(times[-STEPS:]) * 1000 if times else None)


def _timed(square: Any, out: Any) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    torch.mm(square, square, out=out)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def of_clock(machine: Machine) -> Iterator[Answer]:
    """Say how the two times compare."""
    timed = ask(time_kernel, machine.gpu.device)
    if (figures := timed.trial.figures) is None or timed.trial.why is not None:
        yield Answer("clock", UNKNOWN, unmeasured_text(timed.trial.why), "see probe and sessions")
        return
    events, profiler = timed.events_us, figures.busy_us
    text = f"a product takes {show_us(events)} by CUDA events, {show_us(profiler)} by the profiler"
    if not events or not profiler:
        yield Answer("clock", WRONG, text, "times are not to be measured here: a clock of the GPU stands still")
        return
    ratio = profiler / events
    text += f" (ratio {ratio:.2f})"
    if abs(ratio - 1) <= _BAND:
        yield Answer("clock", OK, text)
    else:
        do = "compare no times here; see NVML for other processes and slow-downs, and update the driver"
        yield Answer("clock", WRONG, text, do)


_OPERATORS = ("aten::mul", "aten::add")
_ONLY_OF_A_GPU = "only a GPU has launches, copies, waits and memory of its own"
_COMPILER = re.compile(r"C\+\+ compiler|cl is not found|\bg\+\+|\bclang", re.IGNORECASE)


def eager() -> Trial:
    """Measure two operators with the CPU as the device."""
    import torch

    x = torch.ones(8)
    return measure(lambda: x * 2 + 1, "cpu")


def compiled(cache: str) -> bool:
    """Compile a function for the CPU without using a cache, and return whether it computes what it should."""
    # It is read when Inductor is imported.
    os.environ.update(TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    import torch

    x = torch.ones(8)
    computed = torch.compile(lambda a: a * 2 + 1)(x)
    return bool((computed == 3).all())


def of_cpu(_: Machine) -> Iterator[Answer]:
    """Say what the CPU as the device shows of two operators."""
    try:
        trial = ask(eager)
    except ChildFailed as failed:
        yield Answer("CPU as device", WRONG, str(failed), "no GPU is asked for it: this line belongs into a bug report")
        return
    if (figures := trial.figures) is None or trial.why is not None:
        yield Answer("CPU as device", WRONG, unmeasured_text(trial.why), "see kineto")
        return
    names = ", ".join(figures.names)
    seen = counted(figures.kernels[0], "kernel")
    text = f"{seen} seen of {len(_OPERATORS)} operators ({names}); {_ONLY_OF_A_GPU}"
    if tuple(figures.names) == _OPERATORS:
        yield Answer("CPU as device", OK, text)
    else:
        yield Answer(
            "CPU as device", WRONG, text, "kernels on the CPU are not counted right with this torch: report it"
        )


def of_compiler(_: Machine) -> Iterator[Answer]:
    """Say whether torch.compile works for the CPU."""
    check = "torch.compile"
    with TemporaryDirectory(prefix="torchprof-doctor-") as cache:
        try:
            right = ask(compiled, cache)
        except ChildFailed as failed:
            missing = _COMPILER.search(str(failed))
            do = (
                "tests that compile for the CPU need a C++ compiler: install g++ or clang++, or set CXX"
                if missing
                else "tests that compile for the CPU fail here: try it by itself, torch.compile(lambda a: a * 2 + 1)"
            )
            yield Answer(check, WRONG, f"Inductor compiles nothing for the CPU: {public_line(failed)}", do)
            return
    if right:
        yield Answer(check, OK, "Inductor compiles for the CPU")
    else:
        yield Answer(
            check, WRONG, "what Inductor compiled for the CPU computes wrong numbers", "check the C++ compiler"
        )
