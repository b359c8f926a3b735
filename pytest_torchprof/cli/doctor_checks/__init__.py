"""Checks of this machine, piece by piece, as a measurement would use it, with the problem of each piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.cli.doctor_checks import machine, measurements, profiler
from pytest_torchprof.cli.doctor_checks.inquiry import OK, SEE_THE_GPU, UNKNOWN, WRONG, Answer, ChildFailed, public_line
from pytest_torchprof.cli.doctor_checks.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["CHECKS", "OK", "UNKNOWN", "WRONG", "Answer", "Check", "answers"]

NOTHING: Final = "nothing"
TORCH: Final = "torch"
GPU: Final = "a GPU"
PROFILER: Final = "a GPU that can be profiled"


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name, its function, and the device or software that it needs."""

    name: str
    look: Callable[[Machine], Iterator[Answer]]
    needs: Literal["nothing", "torch", "a GPU", "a GPU that can be profiled"]


CHECKS = (
    Check("torch", machine.of_torch, NOTHING),
    Check("GPU", machine.of_gpu, TORCH),
    Check("kineto", machine.of_kineto, TORCH),
    Check("CUPTI", profiler.of_cupti, TORCH),
    Check("NVML", machine.of_nvml, GPU),
    Check("environment", machine.of_variables, NOTHING),
    Check("GPU lock", profiler.of_lock, GPU),
    Check("probe", profiler.of_probe, PROFILER),
    Check("sessions", profiler.of_sessions, PROFILER),
    Check("CUDA graph", measurements.of_graph, PROFILER),
    Check("Triton kernel", measurements.of_triton, PROFILER),
    Check("cooperative", measurements.of_cooperative, PROFILER),
    Check("clock", measurements.of_clock, PROFILER),
    Check("CPU as device", measurements.of_cpu, TORCH),
    Check("torch.compile", measurements.of_compiler, TORCH),
)


def answers(checks: Iterable[Check] = CHECKS, begin: Callable[[str], None] = lambda _: None) -> Iterator[Answer]:
    """Yield the answers of each check; ``begin`` is called with its name first. A check never raises."""
    machine = Machine()
    for check in checks:
        begin(check.name)
        yield from _asked(check, machine)


def _asked(check: Check, machine: Machine) -> Iterator[Answer]:
    try:
        if why := _why_not(check, machine):
            yield Answer(check.name, UNKNOWN, why)
        elif check.needs in (NOTHING, TORCH) or machine.gpu_works:
            yield from check.look(machine)
    except ChildFailed as failed:
        yield Answer(check.name, WRONG, str(failed), SEE_THE_GPU)
    except Exception as problem:  # noqa: BLE001 - a check that raises is an answer like any other
        yield Answer(check.name, UNKNOWN, f"the check itself failed: {public_line(problem)}")


def _why_not(check: Check, machine: Machine) -> str | None:
    """Return why a check is not made although it would have an answer; None if it is made."""
    if check.needs == NOTHING:
        return None
    if machine.no_torch is not None:
        return "not looked at without torch"
    if check.needs == TORCH or machine.has_no_gpu:
        return None
    if not machine.gpu_works:
        return "not looked at: torch cannot use the GPU"
    stopped = check.needs == PROFILER and machine.profiler_fails
    return f"not looked at: {stopped}" if stopped else None
