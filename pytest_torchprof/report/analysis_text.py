"""A recording's analysis as text, for ``torchprof analyze``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.numbers import BY_NAME, TABLE
from pytest_torchprof.analysis.rank_parts import rank_and_size
from pytest_torchprof.findings import RULES, find, standing_out
from pytest_torchprof.findings.catalogue.headlines import NotMeasuredHeadline
from pytest_torchprof.findings.headline import headline_of
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.limits import ClocksLocked
from pytest_torchprof.report.analysis_json import chosen_steps
from pytest_torchprof.report.analysis_tables import rows_of
from pytest_torchprof.report.bars import share_lines
from pytest_torchprof.report.efficiency_text import describe_efficiency
from pytest_torchprof.report.findings_text import (
    FIRST_FINDINGS,
    describe_window,
    first_findings,
    list_findings,
    next_actions,
    where_lines_come_from,
)
from pytest_torchprof.text import and_more, counted, more_text, printable
from pytest_torchprof.text.cutting import cut_inside, width_of
from pytest_torchprof.text.tables import Column, headed, lined_up
from pytest_torchprof.text.units import show_share, show_us
from pytest_torchprof.text.wrapping import WIDTH, wrapped
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.devices.kinds import DeviceKind
    from pytest_torchprof.findings import Finding, Rule
    from pytest_torchprof.report.bars import Bars


def _step_columns(device: DeviceKind, *, gpu_side: bool = True) -> list[Column]:
    """Return the columns of the table of steps; without a GPU's side those that need none."""
    leaves = {"cpu_time_us": 3, "gpu_busy_us": 4, "kernels": 0, "launches": 2, "syncs": 1}
    return [
        Column("step", lambda step: printable(step.name or "-"), "left"),
        Column("length", lambda step: show_us(sum(place.end_ns - place.start_ns for place in step.part.ranges) / 1000)),
        *(
            _number_column(BY_NAME[name], place, device)
            for name, place in leaves.items()
            if gpu_side or BY_NAME[name].needs is None
        ),
    ]


def _number_column(number: Number, leaves: int, device: DeviceKind) -> Column:
    title = number.title_on(gpu=device.has_launches)
    return Column(title, lambda step: number.show(getattr(step.numbers, number.name)), leaves=leaves)


_MOST_STEPS = 10
_MOST_SHARES = 5
_WITH_STACKS = "recorded with Python functions, which inflates CPU times"


def text(  # noqa: PLR0913 - the options of the command
    analysis: Analysis,
    rules: Iterable[Rule] = RULES,
    *,
    by: str = "kernel",
    step: int | None = None,
    top: int = 20,
    findings: bool = True,
    width: int = WIDTH,
    bars: Bars | None = None,
) -> str:
    """Return the whole analysis, ending in a line break; with ``step`` N only of ProfilerStep#N."""
    steps = chosen_steps(analysis, step)
    standing = standing_out(analysis, find(analysis, rules)) if findings else ()
    parts = [
        _summary(analysis, standing, width) if findings and step is None else "",
        _describe_recording(analysis, width, says_why_not=not findings or step is not None),
        _draw_numbers(analysis, steps, width),
        _draw_steps(analysis, steps, width),
    ]
    if by != "kernel" or not _lacks_gpu_side(analysis):
        parts.append(rows_of(analysis, steps, by=by, sort_by=None, top=top, width=width))
    if by == "kernel":
        parts.append(_by_family_and_operator(analysis, steps, width, bars))
        if analysis.communication.collectives:
            parts.append(rows_of(analysis, steps, by="collective", sort_by=None, top=top, width=width))
    if findings:
        looked_at = [
            describe_efficiency(analysis, width, bars),
            list_findings(analysis, standing, width),
            next_actions(analysis, standing, width),
        ]
        if len(steps) < len(analysis.steps):
            parts.append(f"of the whole recording, all its {len(analysis.steps)} steps:")
        parts += looked_at
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(analysis: Analysis, findings: Sequence[Finding], width: int) -> str:
    """Return the headline and what stands out; only the reason if the numbers cannot be believed."""
    headline = headline_of(analysis)
    if isinstance(headline, NotMeasuredHeadline):
        return "\n".join(wrapped(printable(headline.message), "", width=width))
    first = [finding for finding in findings if finding.severity != "information"][:FIRST_FINDINGS]
    lines = wrapped(printable(headline.message), "", width=width)
    if first:
        lines += [*first_findings(first, len(findings), width), *where_lines_come_from(analysis, first, width)]
    return "\n".join(lines)


def _describe_recording(analysis: Analysis, width: int, *, says_why_not: bool) -> str:
    trace = analysis.trace
    counts = Counter(device.name or "GPU without a name" for device in trace.devices)
    devices = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
    device = trace.device_kind.title or devices or "no GPU events"
    steps = counted(len(trace.steps), "step") if trace.has_step_ranges else "no step ranges: it is looked at as a whole"
    rank, ranks = rank_and_size(trace) or (0, 1)
    facts = [f"rank {rank} of {ranks}"] if ranks > 1 else []
    facts = [printable(device), *facts, counted(trace.events, "event"), steps]
    lines = [cut_inside(printable(trace.path or "a trace"), width), *wrapped(" | ".join(facts), "  ", width=width)]
    if says_why_not and analysis.why_not is not None:
        lines += wrapped(f"NOT MEASURED: {printable(analysis.why_not)}", "", width=width)
    if trace.samples_hardware:
        lines += wrapped(printable(ClocksLocked().text), "  ", width=width)
    if len(trace.frames):
        lines += wrapped(_WITH_STACKS, "  ", width=width)
    if trace.attribution == "time":
        lines += wrapped(
            "launches and kernels are not linked in this file: kernels count where they ran", "", width=width
        )
    uncounted = "in no step" if trace.has_step_ranges else "not counted"
    for gpu_ops, words in (
        (trace.links.orphans, f"launched before the recording began, or by a call that was lost: {uncounted}"),
        (trace.links.unrecorded, "launched by calls that the profiler does not record"),
    ):
        if gpu_ops:
            kernels = sum(trace.gpu.kind[i] == KERNEL for i in gpu_ops)
            of_them = "" if kernels == len(gpu_ops) else f" ({counted(kernels, 'kernel')})"
            lines += wrapped(f"{counted(len(gpu_ops), 'GPU operation')}{of_them} {words}", "  ", width=width)
    return "\n".join(lines)


def _draw_numbers(analysis: Analysis, steps: Sequence[StepProfile], width: int) -> str:
    """Return the numbers: the median over steps with the worst step beside it, or those of a single step.

    A number of the whole recording is left out for a single step.
    """
    part = len(steps) < len(analysis.steps)
    median, worst = analysis.median_of(steps), analysis.worst_of(steps)
    columns = {"median": median, "worst": worst} if len(steps) > 1 else {"median": median}
    lines = [
        [
            number.title_on(gpu=analysis.trace.device_kind.has_launches),
            *(_show_number(number, getattr(side, number.name)) for side in columns.values()),
        ]
        for number in TABLE
        if not number.detail and not (part and number.scope == "window") and getattr(median, number.name) is not None
        if number.needs is None or not _lacks_gpu_side(analysis)
    ]
    if not lines:
        return ""
    head, sides = [["", *columns]] if len(columns) > 1 else [], ["left", *["right"] * len(columns)]
    half = (len(lines) + 1) // 2
    left, right = [*head, *lines[:half]], [*head, *lines[half:], *[[""] * (1 + len(columns))] * (len(lines) % 2)]
    table = lined_up([[*a, "", *b] for a, b in zip(left, right, strict=True)], [*sides, "left", *sides])
    if len(lines) < 2 or max(map(width_of, table)) > width:
        table = lined_up([*head, *lines], sides)
    if not part and median.gpu_utilization is not None:
        which = "GPU utilization is" if median.sm_efficiency is None else "GPU utilization and SM efficiency are"
        line = f"{which} of {describe_window(analysis)}; copies and fills do not count"
        if count := _kernels_of_no_step(analysis):
            does = "does" if count == 1 else "do"
            of = "of no step" if analysis.trace.has_step_ranges else "without a launch"
            line += f"; {counted(count, 'kernel')} {of} that ran meanwhile {does} count, unlike in GPU busy"
        table += wrapped(line, "  ", width=width)
    return "\n".join(table)


def _kernels_of_no_step(analysis: Analysis) -> int:
    """Return how many kernels ran in the window though no step launched them."""
    trace = analysis.trace
    gpu, begin = trace.gpu, trace.steps[0].start_ns
    return sum(
        step < 0 and kind == KERNEL and end > begin
        for step, kind, end in zip(trace.step_of_gpu_op, gpu.kind, gpu.end, strict=True)
    )


def _lacks_gpu_side(analysis: Analysis) -> bool:
    """Return whether a GPU's numbers are not 0 but not measured: the recording was made without it."""
    return analysis.doubt is not None and analysis.doubt.code == Code.NO_GPU_SIDE


def _show_number(number: Number, value: float) -> str:
    return show_share(value) if number.unit == "share" else number.show(value)


def _draw_steps(analysis: Analysis, steps: Sequence[StepProfile], width: int) -> str:
    """Return a row for each of several steps."""
    if len(steps) < 2:
        return ""
    more = len(steps) - _MOST_STEPS
    columns = _step_columns(analysis.trace.device_kind, gpu_side=not _lacks_gpu_side(analysis))
    return headed(steps[:_MOST_STEPS], columns, "steps", width=width) + (
        f"\n...{and_more(more)} (--step N)" if more > 0 else ""
    )


def _by_family_and_operator(analysis: Analysis, steps: Sequence[StepProfile], width: int, bars: Bars | None) -> str:
    """Return the families, and the operators and graphs that launch them, that take the kernels' time."""
    families, operators = _kernel_times_ns(analysis, steps)
    return "\n".join(
        _list_shares("of the kernel time, by family", families, width, bars)
        + _list_shares("of the kernel time, launched by", operators, width, bars)
    )


def _kernel_times_ns(analysis: Analysis, steps: Sequence[StepProfile]) -> tuple[Counter[str], Counter[str]]:
    """Return the time of the steps' kernels by family and by what launches them."""
    gpu = analysis.trace.gpu
    families: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for step in steps:
        for i in step.part.gpu_ops:
            if gpu.kind[i] == KERNEL:
                families[analysis.launching.decoded(i).family_shown] += gpu.end[i] - gpu.start[i]
                operators[analysis.launching.launcher(i) or "no operator"] += gpu.end[i] - gpu.start[i]
    return families, operators


def _list_shares(what: str, spent: Counter[str], width: int, bars: Bars | None) -> list[str]:
    whole = spent.total()
    if not whole:
        return []
    ordered = [(name, ns / whole) for name, ns in spent.most_common()]
    if len(ordered) > _MOST_SHARES + 1:
        rest = ordered[_MOST_SHARES:]
        ordered[_MOST_SHARES:] = [(more_text(len(rest)), sum(share for _, share in rest))]
    return share_lines(what, ordered, bars, width)
