"""The one file that reaches into torch's private names, each behind a function that says what it is for.

Run with torch 2.13; names that older versions (from 2.6) may lack are looked up with a default.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from torch.profiler import ProfilerActivity
    from torch.profiler.profiler import _KinetoProfile

# ----------------------------------------------------------------------------------------------------------------------
# Profiler


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerStart:
    """Someone started a profiler: on which thread, and from which line ("test_x.py:12") outside torch."""

    thread: int
    where: str


def profiler(
    activities: Sequence[ProfilerActivity],
    *,
    with_stack: bool = False,
    with_modules: bool = False,
    profile_memory: bool = False,
) -> _KinetoProfile:
    """Return torch's low-level profiler: it knows no schedule and leaves no step counter behind."""
    from torch.profiler.profiler import _KinetoProfile

    return _KinetoProfile(
        activities=activities,
        record_shapes=True,
        with_stack=with_stack,
        with_modules=with_modules,
        profile_memory=profile_memory,
    )


def _autograd_profiler() -> Any:
    return import_module("torch.autograd.profiler")


def running_profiler() -> str | None:
    """Return where a profiler is running, "on this thread" or "on another thread"; None where none is."""
    import torch

    if torch._C._autograd._profiler_enabled():
        return "on this thread"
    return "on another thread" if _some_profiler_runs() else None


def _some_profiler_runs() -> bool:
    # One flag for the process; every profiler that is started from Python sets it, and clears it when it stops.
    return bool(getattr(_autograd_profiler(), "_is_profiler_enabled", False))


@contextmanager
def profiler_starts() -> Iterator[list[ProfilerStart]]:
    """Note every profiler that is started meanwhile, on any thread.

    torch has no hook for it, and its flags do not tell a session that was taken over from one that still runs; but to
    stop a session that lost its place, or to export it, ends the process (torch 2.13).
    """
    module = _autograd_profiler()
    starts: list[ProfilerStart] = []
    enable = module._enable_profiler

    def noting(*args: Any, **kwargs: Any) -> None:
        enable(*args, **kwargs)
        starts.append(ProfilerStart(thread=threading.get_ident(), where=_line_outside_torch()))

    module._enable_profiler = noting
    try:
        yield starts
    finally:
        module._enable_profiler = enable


def _line_outside_torch() -> str:
    import torch

    inside = (__file__, str(Path(torch.__file__).parent) + os.sep)
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def was_emptied(profiler: _KinetoProfile) -> bool:
    """Whether a stopped profiler holds nothing because another one took its events; exporting it would crash."""
    results = profiler.profiler.kineto_results if profiler.profiler else None
    return results is None or results.trace_start_ns() == 0


def stopped_early() -> bool:
    """Whether kineto itself gave up collecting from the GPU, as it does when its buffers are full."""
    import torch

    stopped = getattr(torch._C._autograd, "_is_kineto_stopped", None)
    return bool(stopped and stopped())


def has_context(index: int) -> bool:  # pragma: needs gpu
    """Whether this process holds a context on that GPU; True where torch does not tell."""
    import torch

    tell = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return bool(tell(index)) if tell else True


def abandon(profiler: _KinetoProfile) -> bool:
    """Give up a session that a profiler on another thread took over; whether this thread is free for the next one.

    Just to stop it would end the process (torch 2.13: no session is active), so a helper thread begins one for it to
    stop. While the other profiler still runs nothing is done: to stop ours would take its session away.
    """
    if _some_profiler_runs():
        return False
    helper = threading.Thread(target=_begin_session)
    helper.start()
    helper.join()
    profiler.stop_trace()
    return True


def _begin_session() -> None:
    from torch.profiler import ProfilerActivity

    begun = profiler([ProfilerActivity.CPU])
    begun.prepare_trace()
    begun.start_trace()


def gpu_events(profiler: _KinetoProfile) -> int:  # pragma: needs gpu
    """Count what a stopped profiler recorded on a GPU."""
    from torch.profiler import DeviceType

    results = profiler.profiler.kineto_results if profiler.profiler else None
    return sum(event.device_type() != DeviceType.CPU for event in results.events()) if results else 0


def precision_flags() -> dict[str, object]:
    """Return `tf32_matmul`, `tf32_cudnn` and `matmul_precision` as torch has them set; None where it will not say.

    Since 2.9 torch has two sets of these flags, and asking by the older one raises once the newer one was used.
    """
    import torch

    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    if precision:
        matmul, convolution = precision("cuda", "matmul") == "tf32", precision("cuda", "conv") == "tf32"
    else:
        matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        overall: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:
        overall = None
    return {"tf32_matmul": matmul, "tf32_cudnn": convolution, "matmul_precision": overall}
