"""Calls the measured code once more with stacks on, beside a measurement that stands already."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_torchprof.capture.environment import environment
from pytest_torchprof.capture.gpulock import only_measurement
from pytest_torchprof.capture.ranks import this_rank
from pytest_torchprof.capture.session import SENTINEL, Session
from pytest_torchprof.capture.writing import write_recording
from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_torchprof.capture.plan import Plan


def once_more(plan: Plan, path: Path) -> Generator[None, None, None]:
    """Yield once; then a recording of that call with stacks, modules and lines lies at ``path``.

    NotMeasured says why there is none. The warm-up is over: the measurement was just made. Stacks cost time and memory
    for every Python call, so there is one step and no further attempt.
    """
    if not (rank := this_rank()).alone:
        # They may have kept their limits: a collective of this rank alone would wait for them for ever.
        raise NotMeasured(f"the code runs on {rank.world} ranks, and the others would not take part in one more call")
    with only_measurement(plan.device), Session(plan.device, frozenset({"stacks", "modules"})) as session:
        with session.step(0):
            yield
        session.finish()
        if session.problem or not session.exportable:
            raise NotMeasured(session.problem or "the profiler holds no recording")
        write_recording(session, path, _metadata(replace(plan, warmup=0, steps=1), session))


def _metadata(plan: Plan, session: Session) -> dict[str, object]:
    return {
        "schema": 1,
        "nodeid": plan.nodeid,
        "label": plan.label,
        **this_rank().told,
        "device": plan.device,
        "device_asked": plan.asked,
        "devices_used": list(session.devices),
        "environment": environment(plan.device),
        "warmup": plan.warmup,
        "steps": plan.steps,
        "calls": 1,
        "attempts": 1,
        "sentinel": SENTINEL,
        "problems": [],
        "compile": None,
        **session.told,
    }
