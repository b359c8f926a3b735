"""What stands above the tables: what was recorded, the numbers of a step, and each step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pytest_torchprof.analysis import numbers
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text import units
from pytest_torchprof.text.escape import printable
from pytest_torchprof.text.layout import WIDTH, cut, drawn, share, wrapped
from pytest_torchprof.text.plural import counted
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.profile import Profile

_MOST_STEPS = 10
_MOST_SHARES = 5


def title(profile: Profile) -> str:
    trace = profile.trace
    found = Counter(device.name or "GPU without a name" for device in trace.devices)
    devices = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in found.items())
    device = "the CPU as device" if trace.on_cpu else devices or "no GPU"
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
        [name, show(getattr(median, key)), show(getattr(worst, key)) if several else ""]
        for name, key, show in _SHOWN
        if getattr(median, key) is not None and not (part and key in numbers.OF_WINDOW)
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


_SHOWN: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("kernels", "kernels", lambda value: f"{value:g}"),
    ("launches", "launches", lambda value: f"{value:g}"),
    ("graph launches", "graph_launches", lambda value: f"{value:g}"),
    ("copies", "memcpys", lambda value: f"{value:g}"),
    ("bytes copied", "memcpy_bytes", lambda value: units.show_bytes(round(value))),
    ("fills", "memsets", lambda value: f"{value:g}"),
    ("blocking calls", "syncs", lambda value: f"{value:g}"),
    ("CPU time", "cpu_time_us", units.show_us),
    ("GPU busy", "gpu_busy_us", units.show_us),
    ("GPU span", "gpu_span_us", units.show_us),
    ("kernel time", "kernel_time_us", units.show_us),
    ("CPU/GPU ratio", "cpu_gpu_ratio", units.show_ratio),
    ("GPU utilization", "gpu_utilization", share),
    ("SM efficiency", "sm_efficiency", share),
    ("occupancy", "achieved_occupancy", share),
    ("graph breaks", "graph_breaks", str),
    ("recompiles", "recompiles", str),
    ("peak memory", "peak_memory_bytes", units.show_bytes),
)


def each_step(steps: Sequence[StepProfile]) -> str:
    """Return a row for each of several steps."""
    if len(steps) < 2:
        return ""
    rows = [
        (
            printable(step.name or "-"),
            units.show_us(sum(place.end_ns - place.start_ns for place in step.part.ranges) / 1000),
            units.show_us(step.numbers.cpu_time_us),
            units.show_us(step.numbers.gpu_busy_us),
            "-" if step.numbers.kernels is None else step.numbers.kernels,
            "-" if step.numbers.launches is None else step.numbers.launches,
            "-" if step.numbers.syncs is None else step.numbers.syncs,
        )
        for step in steps[:_MOST_STEPS]
    ]
    columns = ("step", "length", "CPU time", "GPU busy", "kernels", "launches", "blocking calls")
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
