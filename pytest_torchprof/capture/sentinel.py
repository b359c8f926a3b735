"""The sentinel: kernels at the head of a recording that may be lost; their losses decide the next one's length."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.capture.this_process import this_process
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.recording.reader import read
from pytest_torchprof.trace import SENTINEL

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from pytest_torchprof.capture.devices import LiveDevice
    from pytest_torchprof.trace import Trace


def launch_sentinel(spare: torch.Tensor, beside: type[LiveDevice]) -> None:
    """Launch tiny kernels at the head of the window, where some may be lost, and wait until they are done.

    ``beside``: the kind of device that torch has here.
    """
    from torch.profiler import record_function

    device = str(spare.device)
    with record_function(SENTINEL):
        if kind_of(device).has_launches:
            for _ in range(this_process().next_sentinel()):
                spare.add_(1)
        else:
            # Work that runs where it is called is never lost. A number would be cast first, by four more operators.
            spare.add_(spare)
        beside.settle(device)


class Losses(NamedTuple):
    """The kernels that a recording of ours has lost, in the sentinel and after it."""

    sentinel: int
    """How many kernels of the sentinel were launched."""
    of_sentinel: int
    launched: int
    """How many kernels were launched after it."""
    behind: int


def losses_of(trace: Trace) -> Losses:
    """Return how many kernels of the sentinel were lost, and how many of the later ones."""
    head = max((span.end_ns for span in trace.spans(SENTINEL)), default=0)
    calls, links = trace.calls, trace.links
    launched = sum(calls.start[i] >= head for i in links.launches)
    lost = sum(calls.start[i] >= head for i in links.lost)
    return Losses(len(links.launches) - launched, len(links.lost) - lost, launched, lost)


def look_for_losses(recording: Path) -> bool:
    """Return whether a recording has any GPU work; the next sentinel gets more kernels than this one has lost."""
    trace = read(recording)
    process = this_process()
    process.sentinel_lost(losses_of(trace).of_sentinel if len(trace.gpu) else process.sentinel)
    return bool(trace.devices)
