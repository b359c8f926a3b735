"""The profiler: the GPU's lock, the loaded CUPTI, a process's first session, ten sessions with pauses."""

from __future__ import annotations

import ctypes
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.capture import arm
from pytest_torchprof.capture.gpu_lock import holding, lock_file
from pytest_torchprof.capture.reasons import FreshProcess, fresh_process
from pytest_torchprof.capture.sentinel import losses_of
from pytest_torchprof.capture.session import Session
from pytest_torchprof.cli.doctor_checks.inquiry import (
    LIMIT_S,
    OK,
    SEE_THE_GPU,
    UNKNOWN,
    WRONG,
    Answer,
    ask,
    public,
    public_line,
)
from pytest_torchprof.reasons import cupti_versions
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.gpu_trouble import GpuInUse
from pytest_torchprof.recording.reader import read
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.cli.doctor_checks.machine import Machine
    from pytest_torchprof.trace import Trace


# A test run releases it after each measurement.
_WAIT_S = 5.0


def of_lock(machine: Machine) -> Iterator[Answer]:
    """Say whether the GPU's lock is free."""
    uuid = machine.gpu.uuid
    shown = public(str(lock_file(uuid)))
    waits: list[str] = []
    try:
        with holding(uuid, waits.append, wait_s=_WAIT_S, doing="(torchprof doctor)"):
            yield Answer("GPU lock", OK, f"free, {shown}")
    except NotMeasured as problem:
        machine.give_up_profiling("the GPU's lock is not to be had")
        if waits:
            holders = f"{problem.reason.held_by}, " if isinstance(problem.reason, GpuInUse) else ""
            text = f"held: {holders}{shown}"
            yield Answer("GPU lock", WRONG, text, "end it, or run this again when it is done: nothing else is measured")
        else:
            do = "make it a file that everybody may read, or remove it while nobody measures"
            yield Answer("GPU lock", WRONG, public_line(problem), do)


LOSING = "known to lose the first kernels of a session after idle time (CUDA 12.6.2 to 13.0, pytorch#192021)"
NUMBERING = "may give CUDA graphs wrong correlation ids (before CUDA 13.1 Update 1)"


class LoadedCupti(Struct, frozen=True):
    """The CUPTI that torch has loaded."""

    paths: list[str]
    version: int | None


def ask_cupti() -> LoadedCupti:
    """Ask the CUPTI that torch loads for its version.

    It is called in a process of its own: without a driver it crashes.
    """
    import_module("torch")
    paths = loaded_paths()
    return LoadedCupti(paths, _version(paths[0]) if paths else None)


def of_cupti(machine: Machine) -> Iterator[Answer]:
    """Say which CUPTI is loaded, from where, and whether it is known to lose kernels."""
    torch = import_module("torch")
    if torch.version.cuda:
        yield _loaded(machine)
    elif torch.version.hip:
        yield Answer("CUPTI", OK, "not needed: on ROCm roctracer or rocprofiler records")


def _loaded(machine: Machine) -> Answer:
    if not machine.gpu_works:
        shown = " and ".join(map(public, loaded_paths()))
        why = "there is no GPU" if machine.has_no_gpu else "torch cannot use the GPU"
        return Answer("CUPTI", OK, f"{shown or 'none loaded'}: not asked for its version, {why}")
    loaded = ask(ask_cupti)
    paths, number = loaded.paths, loaded.version
    if not paths:
        return Answer("CUPTI", UNKNOWN, "none is loaded as a library of its own; some builds of torch hold it inside")
    if len(paths) > 1:
        return Answer(
            "CUPTI", WRONG, f"{len(paths)} are loaded at once: {', '.join(map(public, paths))}", _REMOVE_THE_OTHER
        )
    version = "an unknown version" if number is None else cupti_versions.name_of(number)
    text = f"of {version}, {public(paths[0])}"
    if installed := shadowed(paths[0]):
        return Answer(
            "CUPTI", WRONG, f"{text}: not the one that was installed with torch, {installed}", _REMOVE_THE_OTHER
        )
    losing = f"; {LOSING}: see sessions below" if number in cupti_versions.LOSES_FIRST_KERNELS else ""
    numbering = f"; {NUMBERING}: see CUDA graph below" if number in cupti_versions.NUMBERS_GRAPHS_WRONGLY else ""
    return Answer("CUPTI", OK, f"{text}{losing}{numbering}")


_REMOVE_THE_OTHER = (
    "let torch find its own: take the folder of the other one out of LD_LIBRARY_PATH, or out of LD_PRELOAD"
)


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
    # Torch's own calls resolve the function in this way: a preloaded library is called instead of the installed one.
    function = getattr(ctypes.CDLL(None), "cuptiGetVersion", None) or ctypes.CDLL(path).cuptiGetVersion
    return None if function(ctypes.byref(number)) else number.value


def shadowed(loaded: str) -> str | None:
    """Return the CUPTI that was installed with torch if another one is loaded; else None."""
    torch = import_module("torch")
    packages = Path(str(torch.__file__)).parents[1]
    patterns = ("nvidia/*/lib/libcupti.so*", "torch/lib/libcupti*.so*")
    installed = [path.resolve() for pattern in patterns for path in packages.glob(pattern)]
    if not installed or Path(loaded).resolve() in installed:
        return None
    return public(str(installed[0]))


_OTHERWISE = "take other profiling tools away (nsys, ncu, DCGM), and look for another CUDA's CUPTI in LD_LIBRARY_PATH"
_DISARMED = "look for what starts a profiler, or another tool, whenever Python starts (sitecustomize, .pth files)"


def of_probe(machine: Machine) -> Iterator[Answer]:
    """Probe in a fresh process, quoting kineto's log, and then in this process."""
    device = machine.gpu.device
    fresh = fresh_process(device, limit_s=LIMIT_S)
    at_the_start = fresh.silent and fresh_process(device, limit_s=LIMIT_S, bare=True).kernels
    yield _of_start(fresh, at_the_start) if at_the_start else _of_fresh_process(fresh)
    if fresh.failure:
        machine.give_up_profiling("the probe failed")
        return
    yield _of_this_process(device, sees=bool(fresh.kernels))
    if not fresh.kernels:
        machine.give_up_profiling("the probe saw no kernel")


def _of_start(fresh: FreshProcess, bare: int) -> Answer:
    text = (
        f"a fresh process sees {fresh.kernels} of its {fresh.launched} kernels, and one that leaves out what runs "
        f"whenever Python starts sees {bare}: something there opens a session of the profiler before all others, which "
        "may be an empty one"
    )
    return Answer("probe", WRONG, text, _DISARMED)


def _of_fresh_process(fresh: FreshProcess) -> Answer:
    advice = [refusal.advice for refusal in fresh.refusals if refusal.advice]
    refused = f"; CUPTI says {'; '.join(map(str, fresh.refusals))}" if fresh.refusals else ""
    if fresh.failure:
        text = f"a fresh process fails under the profiler: {public_line(str(fresh.failure))}{refused}"
        return Answer("probe", WRONG, text, "; ".join(advice) or (SEE_THE_GPU if fresh.device_failed else _OTHERWISE))
    versions = f" ({fresh.versions})" if fresh.versions else ""
    seen = f"a fresh process sees {fresh.kernels} of its {fresh.launched} kernels{versions}"
    if refused:
        return Answer("probe", WRONG, f"{seen}{refused}", "; ".join(advice) or _OTHERWISE)
    if not fresh.kernels:
        return Answer("probe", WRONG, f"{seen}; CUPTI says nothing", _OTHERWISE)
    if fresh.kernels < fresh.launched:
        return Answer("probe", WRONG, f"{seen}; CUPTI says nothing", "see sessions")
    return Answer("probe", OK, f"{seen}; CUPTI complains of nothing")


def _of_this_process(device: str, *, sees: bool) -> Answer:
    why: str | None = None
    try:
        arm(device)
    except TorchprofError as problem:
        why = public_line(problem)
    if not sees:
        text = "sees no kernel of its own either" if why else "sees its own kernels, which a fresh one does not"
        return Answer("this process", WRONG, text, "see probe")
    if why:
        text = f"a fresh process sees its kernels, this one does not: {why}"
        return Answer("this process", WRONG, text, _DISARMED)
    return Answer("this process", OK, "sees its own kernels too")


_SESSIONS = 10
_KERNELS = 50
# The losses of pytorch#192021 grow with the time that the GPU is idle.
_IDLE_S = 2.0
_LIMIT_S = 150.0


class SeenKernels(Struct, frozen=True, kw_only=True):
    """The kernels that a session has recorded."""

    seen: int
    """Of those that were launched behind the sentinel's."""
    sentinel: int
    """The sentinel's, at the head of each session, and how many of them were lost."""
    sentinel_lost: int
    orphans: int


def open_sessions(device: str, idle_s: float) -> list[SeenKernels]:
    """Open sessions in turn; return what each has recorded."""
    import torch

    arm(device)
    spare = torch.zeros(1, device=device)
    sessions = []
    for number in range(_SESSIONS):
        time.sleep(idle_s if number else 0)
        with TemporaryDirectory() as folder, Session(device) as session:
            with session.step(0):
                for _ in range(_KERNELS):
                    spare.add_(1)
            session.finish()
            path = Path(folder, "session.json")
            session.export(path)
            sessions.append(_seen(read(path)))
    return sessions


def _seen(trace: Trace) -> SeenKernels:
    losses = losses_of(trace)
    return SeenKernels(
        seen=losses.launched - losses.behind,
        sentinel=losses.sentinel,
        sentinel_lost=losses.of_sentinel,
        orphans=trace.orphans,
    )


def of_sessions(machine: Machine) -> Iterator[Answer]:
    """Say how many kernels each session launched and recorded."""
    sessions = ask(open_sessions, machine.gpu.device, _IDLE_S, limit_s=_LIMIT_S)
    seen = [session.seen for session in sessions]
    head = [session.sentinel_lost for session in sessions]
    orphans = sum(session.orphans for session in sessions)
    result = "all were seen" if min(seen) == _KERNELS else f"{_numbers(seen)} were seen"
    text = f"{_SESSIONS} sessions, {_IDLE_S:g} s apart, launched {_KERNELS} kernels each: {result}"
    if any(head):
        text += f"; of the extra ones at the head of each, which nobody counts, {_numbers(head)} were lost"
    if orphans:
        text += f"; {counted(orphans, 'kernel')} without a launch"
    if min(seen) < _KERNELS or orphans or any(session.sentinel_lost >= session.sentinel for session in sessions):
        yield Answer("sessions", WRONG, f"the profiler loses kernels: {text}", _to_do(heads=any(head)))
    else:
        yield Answer("sessions", OK, text)


def _to_do(*, heads: bool) -> str:
    if heads:
        return f"install a torch with CUDA 13.1 or newer (torch 2.15 has one) if CUPTI, see above, is {LOSING}"
    return "end other profiling tools (nsys, ncu, DCGM); if none runs, measure shorter steps"


def _numbers(numbers: list[int]) -> str:
    """Return the sessions' numbers as text: "5 each", "none", "0 1 2 3"."""
    if len(set(numbers)) > 1:
        return " ".join(map(str, numbers))
    return f"{numbers[0]} each" if numbers[0] else "none"
