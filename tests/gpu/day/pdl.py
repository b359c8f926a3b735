"""The question about programmatic dependent launch: kernels that begin before the one ahead of them is done."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from events import end, start
from sessions import record_asked

if TYPE_CHECKING:
    from questions import Said

_BLOCKS = 16
"""Few, so that the next kernel finds room beside this one."""
_LONG_US = 50.0
"""A launch takes up to ten: what is shorter is over before the next one is launched."""


@triton.jit
def _plain(out, rounds):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    value = at.to(tl.float32)
    for _ in range(rounds):
        value = value * 0.999 + 1.0
    tl.store(out + at, value)


@triton.jit
def _dependent(out, rounds):
    tl.extra.cuda.gdc_launch_dependents()
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    value = at.to(tl.float32)
    for _ in range(rounds):
        value = value * 0.999 + 1.0
    tl.extra.cuda.gdc_wait()
    tl.store(out + at, value)


def pdl(_: str, *, quick: bool) -> Said:
    """Launch ten kernels in a row, as any other kernel and as dependent ones; what is before their wait may overlap."""
    out = torch.zeros(_BLOCKS * 1024, device="cuda")
    rounds = 1024 if quick else _long(out)
    for name, kernel, options in (("as others", _plain, {}), ("with launch_pdl", _dependent, {"launch_pdl": True})):

        def run(kernel=kernel, options=options) -> None:
            for _ in range(10):
                kernel[(_BLOCKS,)](out, rounds, **options)

        try:
            run()
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 - that this GPU or this Triton has no such launch is an answer too
            yield f"{name}: {type(error).__name__}: {error!s:.200}", None
            continue
        recording = record_asked(run)
        kernels = sorted(recording.gpu, key=start)
        gaps_us = [round(start(after) - end(before), 2) for before, after in pairwise(kernels)]
        times_us = [float(one["dur"]) for one in kernels]
        early, most = sum(gap < 0 for gap in gaps_us), max([0.0, *(-gap for gap in gaps_us)])
        said = f"{name}: {len(kernels)} kernels of {max(times_us, default=0):.1f} us at most, of which {early} begin"
        figures = {"gaps": gaps_us, "times": times_us} | recording.links()
        yield f"{said} before the one ahead is done, by {most:.1f} us at most", figures


def _long(out: torch.Tensor) -> int:
    """Return how many rounds take long enough."""
    rounds = 1024
    while rounds < 1 << 22:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):
            began.record()
            _plain[(_BLOCKS,)](out, rounds)
            ended.record()
            torch.cuda.synchronize()
        if began.elapsed_time(ended) * 1e3 >= 2 * _LONG_US:  # with what lies between events and kernel
            break
        rounds *= 2
    return rounds
