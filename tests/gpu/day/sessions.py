"""A session of torch.profiler, and what its file holds of the GPU."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from events import CALLS, WORK, number, read, spans, start
from torch.profiler import ProfilerActivity, profile, record_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from events import Event

CPU, GPU = ProfilerActivity.CPU, ProfilerActivity.CUDA
PADDING, ASKED = "padding", "asked"
# CUPTI 12.6.2 to 13.0 lose kernels at the head of a session (pytorch#192021), which must not be those that are asked about.
_PADDING_KERNELS = 64
_PAUSE_S = 0.002


@dataclass(frozen=True)
class Recording:
    """The calls and the GPU's operations, each in the order of their starts, and the file's other entries."""

    calls: list[Event]
    gpu: list[Event]
    file: dict[str, Any]

    def of(self, call: Event) -> list[Event]:
        """Return what ran under the number of this call."""
        return [one for one in self.gpu if number(one) == number(call)]

    def launches(self, name: str = "Launch") -> list[Event]:
        """Return the calls that launch, by a part of their names."""
        return [call for call in self.calls if name in call["name"]]

    def links(self) -> dict[str, Any]:
        """Return how many launches and operations there are, which lack the other side, and by which call each ran."""
        ran, called = {number(one) for one in self.gpu}, {number(call): call["name"] for call in self.calls}
        return {
            "launches": len(self.launches()),
            "operations": len(self.gpu),
            "launches without work": [number(call) for call in self.launches() if number(call) not in ran],
            "work without a call": sum(number(one) not in called for one in self.gpu),
            "work by call": Counter(f"{called.get(number(one), 'none')}: {one['cat']}" for one in self.gpu),
        }


def adds(count: int, x: torch.Tensor) -> Callable[[], None]:
    """Return code that launches so many kernels."""

    def run() -> None:
        for _ in range(count):
            x.add_(1)

    return run


def record(
    code: Callable[[], object], *, activities: tuple[Any, ...] = (CPU, GPU), keep: Path | None = None
) -> Recording:
    """Record the code in a session of its own, with all that the session holds."""
    with profile(activities=list(activities)) as session:
        code()
        torch.cuda.synchronize()
    return _read(session, keep)


def record_asked(code: Callable[[], object], *, keep: Path | None = None) -> Recording:
    """Record the code behind kernels that may get lost; return what belongs to the code alone."""
    spare = torch.ones(8, device="cuda")

    def padded() -> None:
        with record_function(PADDING):
            adds(_PADDING_KERNELS, spare)()
            torch.cuda.synchronize()
        time.sleep(_PAUSE_S)
        with record_function(ASKED):
            code()

    return within(record(padded, keep=keep), ASKED)


def within(recording: Recording, name: str) -> Recording:
    """Return what was called in the one range of this name, and what ran from its start until that of the next one.

    By time, not by number: whether the numbers are right may be what is asked.
    """
    ranges = [one for one in recording.file["traceEvents"] if one.get("cat") == "user_annotation"]
    (own,) = [one for one in ranges if one["name"] == name]
    began, ended = start(own), start(own) + float(own["dur"])
    follows = min((start(one) for one in ranges if start(one) > ended), default=float("inf"))
    slack = _PAUSE_S * 1e6 / 4  # clocks of CPU and GPU differ
    return Recording(
        [call for call in recording.calls if began <= start(call) <= ended],
        [one for one in recording.gpu if began - slack <= start(one) < follows - slack],
        recording.file,
    )


def _read(session: profile, keep: Path | None) -> Recording:
    with tempfile.TemporaryDirectory() as folder:
        path = keep or Path(folder, "session.json")
        session.export_chrome_trace(str(path))
        file = read(path)
    events = spans(file)
    return Recording(
        [one for one in events if one.get("cat") in CALLS], [one for one in events if one.get("cat") in WORK], file
    )
