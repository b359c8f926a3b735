"""A recording's analysis as text of at most 100 columns: what ``torchprof analyze`` shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import asdict
from tabulate import tabulate

from pytest_torchprof.analysis.numbers import BY_NAME, TABLE
from pytest_torchprof.findings import RULES, find
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.report.analysis_json import chosen_steps
from pytest_torchprof.report.tables import rows_of
from pytest_torchprof.text import WIDTH, counted, cut, drawn, printable, share, show_us, wrapped
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis, StepProfile
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.findings import Finding, Rule

_MOST_STEPS = 10
_MOST_SHARES = 5
_OF_EACH_STEP = ("cpu_time_us", "gpu_busy_us", "kernels", "launches", "syncs")


def text(  # noqa: PLR0913 - the options of the command
    analysis: Analysis,
    rules: Iterable[Rule] = RULES,
    *,
    by: str = "kernel",
    step: int | None = None,
    top: int = 20,
    findings: bool = True,
) -> str:
    """Return the whole analysis, ending in a line break; ``step`` N is ProfilerStep#N alone."""
    steps = chosen_steps(analysis, step)
    parts = [_title(analysis), _step_numbers(analysis, steps), _each_step(steps)]
    parts.append(rows_of(analysis, steps, by=by, sort_by=None, top=top))
    if by == "kernel":
        parts.append(_by_family_and_operator(analysis, steps))
    if findings:
        looked_at = [_efficiency(analysis), _findings(analysis, find(analysis, rules))]
        if len(steps) < len(analysis.steps):
            parts.append(f"of the whole recording, all its {len(analysis.steps)} steps:")
        parts += looked_at
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(analysis: Analysis) -> str:
    trace = analysis.trace
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
    if analysis.why_not is not None:
        lines += wrapped(f"NOT MEASURED: {printable(analysis.why_not)}", "")
    if trace.attribution == "time":
        lines += wrapped("launches and kernels are not linked in this file: kernels count where they ran", "")
    for count, words in (
        (trace.orphans, "launched before the recording began: in no step"),
        (trace.unrecorded_launches, "launched by calls that the profiler does not record"),
    ):
        if count:
            lines.append(f"{counted(count, 'GPU operation')} {words}")
    return "\n".join(lines)


def _step_numbers(analysis: Analysis, steps: Sequence[StepProfile]) -> str:
    """Return the numbers: the median over steps and the worst beside it, or those of the one step.

    What is one number of the whole recording is no number of one of its steps.
    """
    part = len(steps) < len(analysis.steps)
    median, worst = analysis.median_of(steps), analysis.worst_of(steps)
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


def _each_step(steps: Sequence[StepProfile]) -> str:
    """Return a row for each of several steps."""
    if len(steps) < 2:
        return ""
    rows = [
        (
            printable(step.name or "-"),
            show_us(sum(place.end_ns - place.start_ns for place in step.part.ranges) / 1000),
            *(BY_NAME[name].show(getattr(step.numbers, name)) for name in _OF_EACH_STEP),
        )
        for step in steps[:_MOST_STEPS]
    ]
    columns = ("step", "length", *(BY_NAME[name].title for name in _OF_EACH_STEP))
    more = len(steps) - len(rows)
    return drawn(rows, columns, "steps", 0) + (f"\n... and {more} more (--step N)" if more else "")


def _by_family_and_operator(analysis: Analysis, steps: Sequence[StepProfile]) -> str:
    """Return in two lines which families and which launching operators take the kernels' time."""
    trace, gpu, op_of = analysis.trace, analysis.trace.gpu, analysis.launching.op_of
    families: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for step in steps:
        for i in step.part.gpu_ops:
            if gpu.kind[i] == KERNEL:
                families[decode(trace.names[gpu.name[i]]).family] += gpu.end[i] - gpu.start[i]
                operators[analysis.launching.op_name(op_of[i]) or "no operator"] += gpu.end[i] - gpu.start[i]
    return "\n".join(_shares("by family", families) + _shares("launched by", operators))


def _shares(what: str, spent: Counter[str]) -> list[str]:
    whole = spent.total()
    if not whole:
        return []
    most = [f"{printable(name)} {share(ns / whole)}" for name, ns in spent.most_common(_MOST_SHARES)]
    return wrapped(f"{what}: {', '.join(most)}{', ..' if len(spent) > _MOST_SHARES else ''}", "  ")


def _efficiency(analysis: Analysis) -> str:
    """Return where the time of a step goes, by kineto's priority, and how fast products and copies are."""
    if not analysis.trace.device_kind.has_launches or not len(analysis.trace.gpu):
        return ""
    found = analysis.efficiency
    total = found.step_time.total
    spent = [(name.replace("_", " "), us) for name, us in asdict(found.step_time).items() if us > 0.0005 * total]
    lines = []
    if spent:
        shares = ", ".join(f"{name} {share(us / total)}" for name, us in spent)
        lines.append(f"time of a step, to its last GPU operation, {show_us(total)}: {shares}")
    if found.tensor_core_share is not None:
        lines.append(f"on tensor cores: {share(found.tensor_core_share)} of the time of products and convolutions")
    if found.throughput.mfu is not None:
        speed = found.throughput
        lines.append(f"{speed.tflops:.3g} TFLOP/s, {share(speed.mfu or 0.0)} of the peak in {speed.dtype}")
    known = [f"{row.direction} {row.gb_per_s:.3g} GB/s" for row in found.copies if row.gb_per_s is not None]
    if known:
        lines.append(f"copies: {', '.join(known)}")
    return "\n".join(line for one in lines for line in wrapped(one, "  "))


def _findings(analysis: Analysis, found: Iterable[Finding]) -> str:
    lines = []
    for finding in found:
        lines += wrapped(f"{finding.title}: {printable(finding.message)}", "  ", first="- ")
        if finding.remedy:
            lines += wrapped(printable(finding.remedy), "    ", first="  -> ")
    if analysis.kernels_unknown is not None:
        return "\n".join(wrapped(f"what stands out cannot be told: {printable(analysis.kernels_unknown)}", "  "))
    return "\n".join(["what stands out", *lines]) if lines else "nothing stands out"
