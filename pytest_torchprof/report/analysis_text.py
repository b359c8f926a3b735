"""A recording's analysis as text, for ``torchprof analyze``."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from pytest_torchprof.analysis.numbers import BY_NAME, TABLE
from pytest_torchprof.analysis.rank_parts import rank_and_size
from pytest_torchprof.findings import RULES, find, standing_out
from pytest_torchprof.findings.catalogue.headlines import NotMeasuredHeadline
from pytest_torchprof.findings.finding import ACTION_WIDTH
from pytest_torchprof.findings.headline import headline_of
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.limits import ClocksLocked
from pytest_torchprof.report.analysis_json import chosen_steps
from pytest_torchprof.report.analysis_tables import rows_of
from pytest_torchprof.report.bars import share_lines
from pytest_torchprof.text import (
    WIDTH,
    and_more,
    counted,
    cut_inside,
    path_from_here,
    printable,
    printable_line,
    show_rate,
    show_share,
    show_us,
    width_of,
    wrapped,
)
from pytest_torchprof.text.tables import Column, headed, lined_up
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.analysis.step_time import SilentTime
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


_ROLES = {"cpu": "operators, annotations and Python", "runtime": "runtime calls"}
"""The names of the parts of a step's time."""
_MOST_GAPS = 5
_WORTH = 0.01
"""The share of a step's time below which a part is not listed: there is nothing to gain."""
_MOST_STEPS = 10
_MOST_SHARES = 5
_FIRST_FINDINGS = 3
_WITH_STACKS = "recorded with Python functions, which inflates CPU times"
_LONGEST = 80
"""Columns of what is to be taken in at a glance, however wide the screen is."""
_TO_DO: Final = {False: "What to do: ", True: "What to do first: "}
"""By whether there is more than one finding."""


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
            _describe_efficiency(analysis, width, bars),
            _list_findings(analysis, standing, width),
            _what_to_do(analysis, standing, width),
        ]
        if len(steps) < len(analysis.steps):
            parts.append(f"of the whole recording, all its {len(analysis.steps)} steps:")
        parts += looked_at
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(analysis: Analysis, findings: Sequence[Finding], width: int) -> str:
    """Return what it comes to, and what stands out; of numbers that cannot be believed only why."""
    headline = headline_of(analysis)
    if isinstance(headline, NotMeasuredHeadline):
        return "\n".join(wrapped(printable(headline.message), "", width=width))
    first = [finding for finding in findings if finding.severity != "information"][:_FIRST_FINDINGS]
    lines = wrapped(printable(headline.message), "", width=width)
    if first:
        lines += [*first_findings(first, len(findings), width), *_where_lines_come_from(analysis, first, width)]
    return "\n".join(lines)


def first_findings(findings: Sequence[Finding], count: int, width: int) -> list[str]:
    """Return the first of so many findings below a headline, and what to do about the very first; no line for none."""
    first = findings[:_FIRST_FINDINGS]
    if not first:
        return []
    listed = [*map(_in_the_list, first), _and_below(count - len(first))]
    entries = (wrapped(printable(entry), "    ", first="  ", width=width) for entry in listed if entry)
    return ["What stands out:", *chain.from_iterable(entries), *_first_remedy(first, width)]


def _in_the_list(finding: Finding) -> str:
    """Return what a finding is called, what it may cost, and where it is: the rest stands behind all the tables."""
    costs = f", up to {show_us(finding.saves_us)}" if finding.severity == "warning" and finding.saves_us > 0 else ""
    return f"{finding.title}{costs}{finding.at}"


def _where_lines_come_from(analysis: Analysis, first: Sequence[Finding], width: int) -> list[str]:
    """Return how to get the lines of the user's code, where the recording has none and none of these asks for them."""
    if len(analysis.trace.frames) or any(finding.source or finding.asks_for_stacks for finding in first):
        return []
    if analysis.trace.metadata is not None:
        way = 'record=["stacks"]'
    elif len(analysis.trace.ops):
        way = "profile(with_stack=True)"
    else:
        # Without the CPU's activities torch takes no stacks.
        way = "profile(with_stack=True) with ProfilerActivity.CPU among its activities"
    return wrapped(f"Lines of your code are not recorded: {way} records them.", "", width=width)


def _and_below(count: int) -> str:
    return f"{and_more(count, 'finding').lstrip()} below" if count else ""


def _first_remedy(findings: Sequence[Finding], width: int) -> list[str]:
    """Return what to do about what most stands out, in so many words as a line holds: the others stand at the end."""
    first, to_do = findings[0], _TO_DO[len(findings) > 1]
    if not first.remedy:
        return []
    room = min(width, _LONGEST) - len(to_do)
    remedy = printable_line(first.remedy)
    # A plugin's remedy has no other words for a line.
    action = remedy if width_of(remedy) <= room else printable_line(first.action, ACTION_WIDTH)
    return wrapped(printable(f"{to_do}{action}"), "", width=width)


def _what_to_do(analysis: Analysis, findings: Sequence[Finding], width: int) -> str:
    """Return what to do next: about the first finding, to see it, and to keep it from coming back.

    Of a recording that is not measured: about that. What is for information alone is first where nothing else is found.
    """
    if not analysis.trace.path:
        return ""
    path = printable(shlex.quote(path_from_here(analysis.trace.path)))
    matters = [finding for finding in findings if finding.severity != "information"]
    first = next(iter(matters or [finding for finding in findings if finding.remedy]), None)
    costly = next((finding for finding in findings if finding.severity == "warning"), None)
    lines = [] if first is None else [f"{first.title}: {first.remedy}" if first.remedy else first.title]
    if (reason := analysis.doubt or analysis.kernels_unknown) is not None:
        lines = [reason.action] if reason.action else lines
        lines.append(f"torchprof explain {reason.code or Code.NOT_MEASURED} says more")
        costly = None
    lines.append(f"see it: torchprof report {path} -o page.html")
    if costly is not None:
        lines.append(f"keep it from coming back: torchprof check {path} --limit forbid={costly.code}")
    return next_text(lines, width)


def next_text(lines: Sequence[str], width: int) -> str:
    """Return what to do next, a thing each, as the last lines of a text."""
    parts = [part for line in lines for part in wrapped(printable(line), "    ", first="  ", width=width)]
    return "\n".join(["next", *parts])


def _describe_recording(analysis: Analysis, width: int, *, says_why_not: bool) -> str:
    trace = analysis.trace
    counts = Counter(device.name or "GPU without a name" for device in trace.devices)
    devices = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
    device = trace.device_kind.title or devices or "no GPU events"
    steps = (
        counted(len(trace.steps), "step") if trace.has_step_ranges else "no step ranges: the whole trace is one step"
    )
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
    for gpu_ops, words in (
        (trace.links.orphans, "launched before the recording began, or by a call that was lost: in no step"),
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
        line = f"{which} of {_describe_window(analysis)}; copies and fills do not count"
        if count := _kernels_of_no_step(analysis):
            does = "does" if count == 1 else "do"
            line += f"; {counted(count, 'kernel')} of no step that ran meanwhile {does} count, unlike in GPU busy"
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
    gpu = analysis.trace.gpu
    families: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for step in steps:
        for i in step.part.gpu_ops:
            if gpu.kind[i] == KERNEL:
                families[analysis.launching.decoded(i).family_shown] += gpu.end[i] - gpu.start[i]
                operators[analysis.launching.launcher(i) or "no operator"] += gpu.end[i] - gpu.start[i]
    return "\n".join(
        _list_shares("of the kernel time, by family", families, width, bars)
        + _list_shares("of the kernel time, launched by", operators, width, bars)
    )


def _list_shares(what: str, spent: Counter[str], width: int, bars: Bars | None) -> list[str]:
    whole = spent.total()
    if not whole:
        return []
    ordered = [(name, ns / whole) for name, ns in spent.most_common()]
    if len(ordered) > _MOST_SHARES + 1:
        rest = ordered[_MOST_SHARES:]
        ordered[_MOST_SHARES:] = [(and_more(len(rest)).lstrip(), sum(share for _, share in rest))]
    return share_lines(what, ordered, bars, width)


def _describe_efficiency(analysis: Analysis, width: int, bars: Bars | None) -> str:
    """Return how the time of a step is spent, by kineto's priority, and how fast products and copies are."""
    if not analysis.trace.device_kind.has_launches or not len(analysis.trace.gpu):
        return ""
    efficiency = analysis.efficiency
    total = efficiency.step_time.total
    lines: list[str] = []
    shared: list[str] = []
    if spent := [(name, us) for name, us in asdict(efficiency.step_time).items() if us > 0.0005 * total]:
        shares = [(_ROLES.get(name, name.replace("_", " ")), us / total) for name, us in spent]
        steps = f"; the mean of {len(analysis.steps)}" if len(analysis.steps) > 1 else ""
        what = f"of a step's time ({show_us(total)} until CPU and GPU are done{steps})"
        shared = share_lines(what, shares, bars, width)
    if efficiency.tensor_core_share is not None:
        lines.append(
            f"on tensor cores: {show_share(efficiency.tensor_core_share)} of the time of products and convolutions"
        )
    if efficiency.throughput.mfu is not None:
        speed = efficiency.throughput
        lines.append(f"{show_rate(speed.tflops)} TFLOP/s, {show_share(speed.mfu or 0.0)} of the peak in {speed.dtype}")
    known = [f"{row.direction} {show_rate(row.gb_per_s)} GB/s" for row in efficiency.copies if row.gb_per_s is not None]
    if known:
        lines.append(f"copies: {', '.join(known)}")
    return "\n".join(
        [
            *shared,
            *(part for line in lines for part in wrapped(printable(line), "  ", width=width)),
            *(
                [_draw_other(analysis, efficiency.other, total, width)]
                if efficiency.other and efficiency.step_time.other >= _WORTH * total
                else []
            ),
        ]
    )


def _draw_other(analysis: Analysis, other: Sequence[SilentTime], total_us: float, width: int) -> str:
    """Return the ranges of the CPU between which neither CPU nor GPU has an event."""
    columns = (
        Column("after", lambda row: printable(_name_beginning(row)), "left"),
        Column(
            "before",
            lambda row: cut_inside(printable(row.before or "the step's end"), max((width - 30) // 2, 12)),
            "left",
        ),
        Column("of step", lambda row: show_share(row.time_us / total_us)),
        Column("gaps", lambda row: f"{row.count:,}", leaves=2),
        Column("longest", lambda row: show_us(row.longest_us), leaves=1),
    )
    # A Python function is an event only where stacks were recorded.
    python = "" if len(analysis.trace.frames) else ", such as Python, which is recorded with stacks only"
    rest = sum(row.time_us for row in other[_MOST_GAPS:]) / total_us
    left = f"... and {show_share(rest)} at {counted(len(other) - _MOST_GAPS, 'other place')} (--json)"
    more = wrapped(left, "  ", width=width) if rest else []
    heading = f"other: between these ranges on the CPU, with no event on CPU or GPU{python}"
    return "\n".join([headed(other[:_MOST_GAPS], columns, heading, width=width), *more])


def _name_beginning(row: SilentTime) -> str:
    after = row.after or "the step's beginning"
    return after if row.profiler is None else f"{row.profiler} (the profiler), {after}"


def _describe_window(analysis: Analysis) -> str:
    return f"{show_us(analysis.gpu_work.window_us)} from the first step's start until CPU and GPU are done"


def _list_findings(analysis: Analysis, findings: Iterable[Finding], width: int) -> str:
    lines = []
    for finding in findings:
        place = "" if finding.source is None else f"; see {printable(finding.source)}"
        lines += wrapped(f"{finding.title}: {printable(finding.message)}{place}", "  ", first="- ", width=width)
        if finding.remedy:
            lines += wrapped(printable(finding.remedy), "    ", first="  -> ", width=width)
    if analysis.kernels_unknown is not None:
        return "\n".join(
            wrapped(f"what stands out is not known: {printable(str(analysis.kernels_unknown))}", "  ", width=width)
        )
    if not lines:
        return "nothing stands out"
    has_gpu_work = analysis.trace.device_kind.has_launches and len(analysis.trace.gpu)
    window = f' ("of the time": of {_describe_window(analysis)})' if has_gpu_work else ""
    return "\n".join([*wrapped(f"what stands out{window}", "  ", width=width), *lines])
