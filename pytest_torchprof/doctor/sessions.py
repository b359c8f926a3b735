"""Ten profiler sessions with idle time between them: the kernels that each launched, and those that it saw."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import arm
from pytest_torchprof.capture.session import Session
from pytest_torchprof.doctor.answer import OK, WRONG, Answer
from pytest_torchprof.doctor.child import ask
from pytest_torchprof.doctor.cupti import LOSING
from pytest_torchprof.recording.reader import read
from pytest_torchprof.text.plural import counted
from pytest_torchprof.trace import SENTINEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.doctor.machine import Machine
    from pytest_torchprof.trace import Trace

_SESSIONS = 10
_KERNELS = 50
# The losses of pytorch#192021 grow with the time for which the GPU did nothing.
_IDLE_S = 2.0
_LIMIT_S = 150.0


def work(device: str, idle_s: float) -> dict[str, Any]:
    """Open the sessions one after the other; kernels launched and seen, the sentinel's and those after it."""
    import torch

    arm(device)
    spare = torch.zeros(1, device=device)
    found = []
    for number in range(_SESSIONS):
        time.sleep(idle_s if number else 0)
        with TemporaryDirectory() as folder, Session(device) as session:
            with session.step(0):
                for _ in range(_KERNELS):
                    spare.add_(1)
            session.finish()
            path = Path(folder, "session.json")
            session.export(path)
            found.append(_seen(read(path)))
    return {"sessions": found}


def _seen(trace: Trace) -> dict[str, int]:
    # What tests launch begins where the sentinel's range, which is there to be lost, is over.
    head = max((span.end_ns for span in trace.spans(SENTINEL)), default=0)
    calls, links = trace.calls, trace.links
    launched = sum(calls.start[i] >= head for i in links.launches)
    lost = sum(calls.start[i] >= head for i in links.lost)
    return {
        "seen": launched - lost,
        "sentinel": len(links.launches) - launched,
        "sentinel_lost": len(links.lost) - lost,
        "orphans": trace.orphans,
    }


def of_sessions(machine: Machine) -> Iterator[Answer]:
    """Say how many kernels each session launched and saw."""
    sessions = ask(work, machine.gpu["device"], _IDLE_S, limit_s=_LIMIT_S).facts["sessions"]
    seen = [one["seen"] for one in sessions]
    head = [one["sentinel_lost"] for one in sessions]
    orphans = sum(one["orphans"] for one in sessions)
    found = "all were seen" if min(seen) == _KERNELS else f"{_numbers(seen)} were seen"
    text = f"{_SESSIONS} sessions, {_IDLE_S:g} s apart, launched {_KERNELS} kernels each: {found}"
    if any(head):
        text += f"; of the extra ones at the head of each, which nobody counts, {_numbers(head)} were lost"
    if orphans:
        text += f"; {counted(orphans, 'kernel')} without a launch"
    if min(seen) < _KERNELS or orphans or any(one["sentinel_lost"] >= one["sentinel"] for one in sessions):
        yield Answer("sessions", WRONG, f"the profiler loses kernels: {text}", _to_do(heads=any(head)))
    else:
        yield Answer("sessions", OK, text)


def _to_do(*, heads: bool) -> str:
    if heads:
        return f"install a torch with CUDA 13.1 or newer (torch 2.15 has one) if CUPTI, see above, is {LOSING}"
    return "end other profiling tools (nsys, ncu, DCGM); if none runs, measure shorter steps"


def _numbers(numbers: list[int]) -> str:
    """Return what each session had: "5 each", "none", "0 1 2 3"."""
    if len(set(numbers)) > 1:
        return " ".join(map(str, numbers))
    return f"{numbers[0]} each" if numbers[0] else "none"
