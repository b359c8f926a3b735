"""A measurement as tests make them: what our capture records of a call, and what our reader makes of it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import Plan, iterations
from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.profile import Profile
from pytest_torchprof.recording.reader import read

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 3


def measure(body: Callable[[], object], device: str) -> dict[str, Any]:
    """Return why the measurement is not to be believed (None: it is), and its numbers where there is a recording."""
    plan = Plan(
        device=device, asked=device, warmup=2, steps=STEPS, record=frozenset(), nodeid="torchprof doctor", label=None
    )
    with TemporaryDirectory() as folder:
        path = Path(folder, "doctor.json")
        why: str | None = None
        try:
            with closing(iterations(plan, path, lambda one: Profile.from_trace(read(one)).why_not)) as calls:
                for _ in calls:
                    body()
        except NotMeasured as problem:
            why = str(problem)
        return {"why": why, **(_numbers(Profile.from_trace(read(path))) if path.is_file() else {})}


def _numbers(profile: Profile) -> dict[str, Any]:
    trace, steps = profile.trace, profile.steps
    return {
        "launches": [int(step.launches or 0) for step in steps],
        "kernels": [len(step.kernels) for step in steps],
        "names": list(dict.fromkeys(kernel.name for step in steps for kernel in step.kernels)),
        "orphans": trace.orphans,
        "lost": trace.lost_kernels,
        "unrecorded": trace.unrecorded_launches,
        "attempts": trace.metadata and trace.metadata.attempts,
        "busy_us": profile.median.gpu_busy_us,
    }
