"""Questions about sessions: the first one, what they lose, what they cost, how far they agree."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

import torch
from events import number, start
from sessions import CPU, GPU, adds, record
from torch.profiler import profile

if TYPE_CHECKING:
    from questions import Said


def first_session(kind: str, *, quick: bool) -> Said:
    """Open a session of this kind before all others, and two ordinary ones behind it."""
    x = torch.ones(8, device="cuda")
    torch.cuda.synchronize()
    _open(kind, x)
    for session in ("the next", "the one behind it"):
        links = record(adds(20, x)).links()
        yield f"{session} sees {links['operations']} of 20 kernels, and {links['launches']} launches", links


def _open(kind: str, x: torch.Tensor) -> None:
    if kind == "cpu":
        record(adds(3, x), activities=(CPU,))
    elif kind == "gpu":
        record(adds(3, x), activities=(GPU,))
    elif kind == "legacy":
        with torch.autograd.profiler.profile():
            x.add_(1)
    elif kind == "empty":
        with profile():
            pass
    else:
        # What torch does itself before it captures graphs of compiled code.
        from torch.profiler._utils import _init_for_cuda_graphs

        _init_for_cuda_graphs()


def head(_: str, *, quick: bool) -> Said:
    """Open sessions of fifty kernels without idle time between them, then with some."""
    x = torch.ones(8, device="cuda")
    for idle_s, sessions in ((0, 5), (0.05, 2)) if quick else ((0, 8), (2, 8), (10, 2)):
        lost = []
        for _session in range(sessions):
            time.sleep(idle_s)
            recording = record(adds(50, x))
            ran = {number(one) for one in recording.gpu}
            launches = recording.launches("LaunchKernel")
            lost.append([place for place, call in enumerate(launches) if number(call) not in ran])
        counts = [len(one) for one in lost]
        at_head = all(one == list(range(len(one))) for one in lost)
        where = "none" if not any(counts) else "the first ones each" if at_head else "not only the first ones"
        yield f"{sessions} sessions, {idle_s:g} s idle before each: {counts} of 50 kernels lost, {where}", lost


def attached(teardown: str, *, quick: bool) -> Said:
    """Time launches before any session, in one, and after it; kineto may take CUPTI down at its end."""
    os.environ["TEARDOWN_CUPTI"] = "1" if teardown else "0"
    count = 200 if quick else 20_000
    x = torch.ones(8, device="cuda")
    run = adds(count, x)

    def each_us() -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / count * 1e6

    each_us()
    before = min(each_us() for _ in range(5))
    with profile(activities=[GPU]):
        inside = each_us()
    after = min(each_us() for _ in range(5))
    figures = {"before": before, "inside": inside, "after": after}
    yield f"a launch takes {before:.2f} us before, {inside:.2f} us in and {after:.2f} us after a session", figures


def spread(_: str, *, quick: bool) -> Said:
    """Record kernels of three lengths in eight sessions each, and compare the medians."""
    for shift in (18,) if quick else (18, 25, 29):
        x = torch.ones(1 << shift, device="cuda")
        adds(20, x)()
        medians = []
        for _session in range(2 if quick else 8):
            times_us = [float(one["dur"]) for one in record(adds(20, x)).gpu]
            if times_us:
                medians.append(round(statistics.median(times_us), 2))
        if not medians:
            yield f"{4 << shift} bytes: no kernel was recorded", medians
            continue
        width = (max(medians) - min(medians)) / min(medians)
        yield f"a kernel of {min(medians):g} us: its median differs by {width:.1%} between sessions", medians


def clocks(_: str, *, quick: bool) -> Said:
    """Launch a few kernels fifty times a second, then many at once, and tell how far behind its call each began."""
    x, seconds = torch.ones(8, device="cuda"), 1 if quick else 60

    def code() -> None:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            adds(5, x)()
            torch.cuda.synchronize()
            time.sleep(0.02)
        adds(100 if quick else 5000, x)()

    recording = record(code)
    calls = {number(call): start(call) for call in recording.launches("LaunchKernel")}
    first = min(calls.values(), default=0.0)
    behind_us: dict[int, list[float]] = {}
    for one in recording.gpu:
        if (called := calls.get(number(one))) is not None:
            behind_us.setdefault(int((called - first) // 10e6), []).append(start(one) - called)
    delays = [delay for own in behind_us.values() for delay in own]
    least = {part: round(min(own), 2) for part, own in sorted(behind_us.items())}
    said = f"of {len(delays)} kernels in {seconds} s {sum(delay < 0 for delay in delays)} begin before their launch"
    medians = {part: statistics.median(own) for part, own in sorted(behind_us.items())}
    shown = ", ".join(f"{delay:g}" for delay in least.values())
    yield f"{said}; the least delay of each ten seconds is {shown} us", {"least": least, "medians": medians}
