"""The GPU's time as the profiler tells it, against CUDA events around the same kernel."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_torchprof.doctor.answer import OK, UNKNOWN, WRONG, Answer
from pytest_torchprof.doctor.child import ask
from pytest_torchprof.doctor.measuring import STEPS, measure
from pytest_torchprof.text.units import show_us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.doctor.machine import Machine

_LEAST_MS = 1.0
_LARGEST = 16384
# Clocks change between launches, and events take the launch itself with them; a wrong clock is off by factors.
_BAND = 0.25


def work(device: str) -> dict[str, Any]:
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

    return {**measure(body, device), "events_us": median(times[-STEPS:]) * 1000 if times else None}


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
    told = ask(work, machine.gpu["device"]).facts
    if told["why"] is not None:
        yield Answer("clock", UNKNOWN, f"not measured: {told['why']}", "see probe and sessions")
        return
    events, profiler = told["events_us"], told["busy_us"]
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
