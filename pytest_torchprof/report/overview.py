"""What stands above the tables: what was recorded, the numbers of a step, and each step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tabulate import tabulate

from pytest_torchprof.analysis.numbers import BY_NAME, TABLE
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text import units
from pytest_torchprof.text.escape import printable
from pytest_torchprof.text.layout import WIDTH, cut, drawn, share, wrapped
from pytest_torchprof.text.plural import counted
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.profile import Profile

_MOST_STEPS = 10
_MOST_SHARES = 5
_OF_EACH_STEP = ("cpu_time_us", "gpu_busy_us", "kernels", "launches", "syncs")


def title(profile: Profile) -> str:
    trace = profile.trace
    found = Counter(device.name or "GPU without a name" for device in trace.devices)
    devices = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in found.items())
    device = trace.device_kind.title or devices or "no GPU"
    steps = (
        counted(len(trace.steps), "step") if trace.has_step_ranges else "no step ranges: the whole trace is one step"
    )
    lines = [
        cut(printable(trace.path or "a trace"), WIDTH),
        f"{printable(device)} | {counted(trace.events, 'event')} | {steps}",
    ]
    if profile.why_not is not None:
        lines += wrapped(f"NOT MEASURED: {printable(profile.why_not)}", "")
    if trace.attribution == "time":
        lines += wrapped("launches and kernels are not linked in this file: kernels count where they ran", "")
    for count, words in (
        (trace.orphans, "launched before the recording began: in no step"),
        (trace.unrecorded_launches, "launched by calls that the profiler does not record"),
    ):
        if count:
            lines.append(f"{counted(count, 'GPU operation')} {words}")
    return "\n".join(lines)


def step_numbers(profile: Profile, steps: Sequence[StepProfile]) -> str:
    """Return the numbers: the median over steps and the worst beside it, or those of the one step.

    What is one number of the whole recording is no number of one of its steps.
    """
    part = len(steps) < len(profile.steps)
    median, worst = profile.median_of(steps), profile.worst_of(steps)
    several = len(steps) > 1
    lines = [
        [number.title, _shown(number, value), _shown(number, getattr(worst, number.name)) if several else ""]
        for number in TABLE
        if not number.detail and not (part and number.scope == "window")
        if (value := getattr(median, number.name)) is not None
    ]
    half = (len(lines) + 1) // 2
    left, right = lines[:half], [*lines[half:], ["", "", ""]][:half]
    headers = ["", "median", "worst"] if several else ["", "", ""]
    width = 3 if several else 2
    rows = [[*a[:width], "  ", *b[:width]] for a, b in zip(left, right, strict=True)]
    return tabulate(
        rows,
        headers=[*headers[:width], "", *headers[:width]] if several else (),
        tablefmt="plain",
        disable_numparse=True,
        colalign=("left", *["right"] * (width - 1), "left", "left", *["right"] * (width - 1)),
    )


def _shown(number: Number, value: float) -> str:
    return share(value) if number.unit == "share" else number.show(value)


def each_step(steps: Sequence[StepProfile]) -> str:
    """Return a row for each of several steps."""
    if len(steps) < 2:
        return ""
    rows = [
        (
            printable(step.name or "-"),
            units.show_us(sum(place.end_ns - place.start_ns for place in step.part.ranges) / 1000),
            *(BY_NAME[name].show(getattr(step.numbers, name)) for name in _OF_EACH_STEP),
        )
        for step in steps[:_MOST_STEPS]
    ]
    columns = ("step", "length", *(BY_NAME[name].title for name in _OF_EACH_STEP))
    more = len(steps) - len(rows)
    return drawn(rows, columns, "steps", 0) + (f"\n... and {more} more (--step N)" if more else "")


def by_family_and_operator(profile: Profile, steps: Sequence[StepProfile]) -> str:
    """Return in two lines which families and which launching operators take the kernels' time."""
    trace, gpu, op_of = profile.trace, profile.trace.gpu, profile.launching.op_of
    families: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for step in steps:
        for i in step.part.gpu_ops:
            if gpu.kind[i] == KERNEL:
                families[decode(trace.names[gpu.name[i]]).family] += gpu.end[i] - gpu.start[i]
                operators[profile.launching.op_name(op_of[i]) or "no operator"] += gpu.end[i] - gpu.start[i]
    return "\n".join(_shares("by family", families) + _shares("launched by", operators))


def _shares(what: str, spent: Counter[str]) -> list[str]:
    whole = spent.total()
    if not whole:
        return []
    most = [f"{printable(name)} {share(ns / whole)}" for name, ns in spent.most_common(_MOST_SHARES)]
    return wrapped(f"{what}: {', '.join(most)}{', ..' if len(spent) > _MOST_SHARES else ''}", "  ")
