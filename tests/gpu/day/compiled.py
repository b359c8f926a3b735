"""Questions about compiled code: its CUDA graphs while they come to be, and its backward pass."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch
from events import end, name_of, number, spans, start
from sessions import record_asked
from torch.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from questions import Said

_TELLING = ("Launch", "BeginCapture", "EndCapture")


@torch.no_grad()
def graph_modes(_: str, *, quick: bool) -> Said:
    """Record the first four calls, each alone in its session: warm-up, capture and replays."""
    for mode in ("reduce-overhead",) if quick else ("reduce-overhead", "max-autotune"):
        torch.compiler.reset()
        code = torch.compile(_three_kernels, mode=mode)
        x, y = (torch.ones(256, 256, device="cuda") for _ in range(2))
        for which in ("first", "second", "third", "fourth"):
            recording = record_asked(lambda code=code, x=x, y=y: code(x, y))
            calls = Counter(map(name_of, recording.calls))
            figures = recording.links() | {"calls": calls, "work": [name_of(one) for one in recording.gpu]}
            made = [call for call in calls if any(word in call for word in _TELLING)]
            said = ", ".join(f"{calls[call]} {call}" for call in made) or "no launch"
            lost = len(figures["launches without work"])
            yield (
                f"{mode}, {which} call: {said}; {len(recording.gpu)} on the GPU, {lost} launches without work",
                figures,
            )


def _three_kernels(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x @ y).relu() + 1).sum(-1)


def compiled_backward(_: str, *, quick: bool) -> Said:
    """Train three steps that nobody waits for, eager and compiled, and tell which kernels each has called."""
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(3))).cuda()
    x = torch.ones(64, 256, device="cuda")
    for name, code in (("eager", model), ("compiled", torch.compile(model))):
        yield _trained(name, lambda code=code: code(x).pow(2).sum().backward())


def _trained(name: str, step: Callable[[], object]) -> tuple[str, object]:
    for _ in range(3):
        step()

    def code() -> None:
        for place in range(3):
            with record_function(f"step {place}"):
                step()

    recording = record_asked(code)
    ranges = [one for one in spans(recording.file) if one["name"].startswith("step ")]
    own = [one for one in ranges if one.get("cat") == "user_annotation"]
    called = [{number(call) for call in recording.calls if start(one) <= start(call) <= end(one)} for one in own]
    counts = [sum(number(one) in numbers for one in recording.gpu) for numbers in called]
    threads = len({call["tid"] for call in recording.launches()})
    outside = len(recording.gpu) - sum(counts)
    return f"{name}: {counts} operations in 3 steps, {outside} outside of them; {threads} threads launch", counts
