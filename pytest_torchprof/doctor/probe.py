"""The first session of a process: in a fresh one, with what CUPTI says to it, and in this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.capture import arm, reasons
from pytest_torchprof.capture.first_session import FreshProcess, fresh_process
from pytest_torchprof.doctor.answer import OK, SEE_THE_GPU, WRONG, Answer, first_line
from pytest_torchprof.doctor.child import LIMIT_S
from pytest_torchprof.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.doctor.machine import Machine

_OTHERWISE = "take other profiling tools away (nsys, ncu, DCGM), and look for another CUDA's CUPTI in LD_LIBRARY_PATH"
_DISARMED = "look for what starts a profiler, or another tool, whenever Python starts (sitecustomize, .pth files)"


def of_probe(machine: Machine) -> Iterator[Answer]:
    """Probe in a fresh process, quoting kineto's log, and then in this one."""
    device = machine.gpu["device"]
    fresh = fresh_process(device, limit_s=LIMIT_S)
    yield _of_fresh_process(fresh)
    if fresh.failure:
        machine.profiler_fails = "the probe failed"
        return
    yield _of_this_process(device, sees=bool(fresh.kernels))
    if not fresh.kernels:
        machine.profiler_fails = "the probe saw no kernel"


def _of_fresh_process(fresh: FreshProcess) -> Answer:
    advice = [text for one in fresh.refusals if (text := reasons.of_cupti(one.error))]
    refused = f"; CUPTI says {'; '.join(map(str, fresh.refusals))}" if fresh.refusals else ""
    if fresh.failure:
        text = f"a fresh process fails under the profiler: {first_line(fresh.failure)}{refused}"
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
    why = _why_not_here(device)
    if not sees:
        text = "sees no kernel of its own either" if why else "sees its own kernels, which a fresh one does not"
        return Answer("this process", WRONG, text, "see probe")
    if why:
        text = f"a fresh process sees its kernels, this one does not: {why}"
        return Answer("this process", WRONG, text, _DISARMED)
    return Answer("this process", OK, "sees its own kernels too")


def _why_not_here(device: str) -> str | None:
    try:
        arm(device)
    except TorchprofError as problem:
        return first_line(problem)
    return None
