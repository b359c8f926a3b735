"""A recording's analysis as text of at most 100 columns: the tables, and all that ``torchprof analyze`` shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import asdict
from tabulate import tabulate

from pytest_torchprof.analysis import tables
from pytest_torchprof.analysis.numbers import BY_NAME, TABLE
from pytest_torchprof.analysis.source_lines import MODULE
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.findings import RULES, find
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.report.analysis_json import chosen_steps
from pytest_torchprof.text import (
    WIDTH,
    Column,
    counted,
    cut,
    drawn,
    printable,
    show_bytes,
    show_share,
    show_us,
    wrapped,
)
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis, StepProfile
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.analysis.tables import FamilyRow, KernelRow, OpRow, RangeRow
    from pytest_torchprof.findings import Finding, Rule


Sorted = TypeVar("Sorted", "RangeRow", "OpRow")

_EVALUATED = "autograd::engine::evaluate_function: "

_NUMBERED = 42
"""Leaves room for the number in a column of a table that fits."""


def _column(title: str, attribute: str, show: Callable[[Any], str] = str) -> Column:
    """Return the column of a row's attribute."""
    return Column(title, lambda row: show(getattr(row, attribute)))


def _number_column(name: str) -> Column:
    """Return the column of a step's number."""
    number = BY_NAME[name]
    return Column(number.title, lambda step: number.show(getattr(step.numbers, name)))


_COUNT = _column("calls", "count")
_TIME = _column("time", "time_us", show_us)
_FAMILIES = (Column("family", lambda row: row.family, "left"), Column("library", lambda row: row.library, "left"))
_RANGES = (
    Column("name", lambda row: printable(row.name.removeprefix(MODULE)), "left"),
    _column("calls", "calls"),
    _column("self CPU", "self_cpu_us", show_us),
    _column("CPU total", "cpu_us", show_us),
    _column("kernels", "kernels"),
    _column("self GPU", "self_gpu_us", show_us),
    _column("GPU total", "gpu_us", show_us),
)
_OPERATORS = (
    # Of autograd's nodes what they evaluate is what tells one from the other.
    Column("name", lambda row: printable(row.name.replace(_EVALUATED, "autograd:: .. ")), "left"),
    _column("# of\nCalls", "calls", "{:,}".format),
    _column("Self\nCPU", "self_cpu_us", show_us),
    _column("CPU\ntotal", "cpu_us", show_us),
)
_CUDA = (_column("Self\nCUDA", "self_gpu_us", show_us), _column("CUDA\ntotal", "gpu_us", show_us))
_CPU_MEMORY = (
    _column("CPU\nMem", "cpu_memory_bytes", show_bytes),
    _column("Self\nCPU Mem", "self_cpu_memory_bytes", show_bytes),
)
_CUDA_MEMORY = (
    _column("CUDA\nMem", "gpu_memory_bytes", show_bytes),
    _column("Self\nCUDA Mem", "self_gpu_memory_bytes", show_bytes),
)
_STEPS = (
    Column("step", lambda step: printable(step.name or "-"), "left"),
    Column("length", lambda step: show_us(sum(place.end_ns - place.start_ns for place in step.part.ranges) / 1000)),
    *map(_number_column, ("cpu_time_us", "gpu_busy_us", "kernels", "launches", "syncs")),
)
# As key_averages().table() calls them, in torch before and after 2.3.
_DEVICES = ("cuda", "device", "xpu")
_SORT_BY: dict[str, str] = {
    "count": "calls",
    "cpu_time_total": "cpu_us",
    "self_cpu_time_total": "self_cpu_us",
    "cpu_memory_usage": "cpu_memory_bytes",
    "self_cpu_memory_usage": "self_cpu_memory_bytes",
    **{f"{device}_time_total": "gpu_us" for device in _DEVICES},
    **{f"self_{device}_time_total": "self_gpu_us" for device in _DEVICES},
    **{f"{device}_memory_usage": "gpu_memory_bytes" for device in _DEVICES},
    **{f"self_{device}_memory_usage": "self_gpu_memory_bytes" for device in _DEVICES},
    **{name: name for name in ("calls", "cpu_us", "self_cpu_us", "gpu_us", "self_gpu_us", "time_us")},
}
_PER_CALL = {"cpu_time": "cpu_us", **{f"{device}_time": "gpu_us" for device in _DEVICES}}
_NOUNS = {"op": "operators", "range": "user annotations", "module": "modules"}
_MOST_STEPS = 10
_MOST_SHARES = 5


def table(analysis: Analysis, *, by: str = "kernel", sort_by: str | None = None, top: int = 20) -> str:
    """Return one table over all steps; UnknownLimit for an unknown way or column."""
    if by not in tables.WAYS:
        raise UnknownLimit(f"by= takes one of {', '.join(tables.WAYS)}; got {by!r}")
    if sort_by is not None and sort_by not in _SORT_BY and sort_by not in _PER_CALL:
        raise UnknownLimit(f"sort_by= takes one of {', '.join([*_SORT_BY, *_PER_CALL])}; got {sort_by!r}")
    return rows_of(analysis, analysis.steps, by=by, sort_by=sort_by, top=top)


def rows_of(analysis: Analysis, steps: Sequence[StepProfile], *, by: str, sort_by: str | None, top: int) -> str:
    """Return one table over these steps."""
    over = f"over {len(steps)} steps" if len(steps) > 1 else "in the step"
    rows = tables.rows_by(by, analysis.trace, analysis.launching, [step.part for step in steps])
    if by == "kernel":
        return _draw_kernels(rows, sort_by, top, over)
    if by == "family":
        return _draw_families(rows, top, over)
    heading, rows = f"{_NOUNS[by]} {over}", _sort_rows(rows, sort_by)
    if by == "op" and rows:
        return _draw_operators(rows[:top], heading, len(rows) - top, gpu=len(analysis.trace.gpu) > 0)
    if rows:
        return drawn(rows[:top], _RANGES, heading, len(rows) - top)
    missing = "; they are not recorded: record them with profile(with_stack=True), here with record=['modules']"
    return "\n".join(wrapped(f"no {heading}{missing if by == 'module' else ''}", ""))


def _sort_rows(rows: Sequence[Sorted], sort_by: str | None) -> Sequence[Sorted]:
    """Return the rows by a column, the largest first; UnknownLimit for a column that they do not have."""
    if sort_by is None:
        return rows
    column = _PER_CALL.get(sort_by) or {"time_us": "gpu_us"}.get(sort_by) or _SORT_BY[sort_by]
    if rows and not hasattr(rows[0], column):
        raise UnknownLimit(f"sort_by={sort_by!r} is a column of operators: by='op'")
    per_call = sort_by in _PER_CALL

    def value(row: Sorted) -> float:
        found: float = getattr(row, column) or 0
        return found / row.calls if per_call else found

    return sorted(rows, key=value, reverse=True)


def _draw_kernels(rows: Sequence[KernelRow], sort_by: str | None, top: int, over: str) -> str:
    if not rows:
        return f"no kernels {over}"
    if _SORT_BY.get(sort_by or "") == "calls":
        rows = sorted(rows, key=lambda row: -row.count)
    total = sum(row.time_us for row in rows)
    # What a backward pass launches tells whose backward it is, and needs more room for it.
    launched = 30 if any(row.forward_op for row in rows[:top]) else 22
    labels = _number_alike([printable(_kernel_name(row)) for row in rows[:top]])
    names = {row.name: label for row, label in zip(rows, labels, strict=False)}
    columns = (
        Column("kernel", lambda row: names[row.name], "left"),
        *(_COUNT, _TIME, _share_column(total)),
        Column("launched by", lambda row: _launched_by(row, launched), "left"),
    )
    heading = f"{counted(len(rows), 'kernel name')} {over}, {show_us(total)}"
    return drawn(rows[:top], columns, heading, len(rows) - top)


def _share_column(total_us: float) -> Column:
    return Column("share", lambda row: show_share(row.time_us / (total_us or 1.0)))


def _number_alike(labels: Sequence[str]) -> list[str]:
    """Return the labels; those of kernels that only their raw names tell apart are numbered: ``pointwise add [2]``."""
    several = {label for label, count in Counter(labels).items() if count > 1}
    seen: Counter[str] = Counter()
    numbered = []
    for label in labels:
        seen[label] += 1
        numbered.append(f"{cut(label, _NUMBERED)} [{seen[label]}]" if label in several else label)
    return numbered


def _launched_by(row: KernelRow, width: int) -> str:
    """Return the operator and, of a backward pass, ``< conv2d``: the one whose backward it is."""
    op = printable(row.op or "-")
    if row.forward_op is None:
        return cut(op, width)
    forward = cut(printable(row.forward_op.removeprefix("aten::")), width - 12)
    return f"{cut(op.removeprefix('aten::'), width - len(forward) - 3)} < {forward}"


def _kernel_name(row: KernelRow) -> str:
    """Return what it computes, on what, and then how it is called."""
    decoded = row.decoded
    if decoded.family == "other":
        return decoded.short or row.name
    rest = decoded.short.removeprefix(decoded.family).strip()
    facts = [fact for fact in (decoded.dtype, decoded.layout) if fact and fact not in rest.split()]
    return " ".join([decoded.family, *facts, rest])


def _draw_families(rows: Sequence[FamilyRow], top: int, over: str) -> str:
    if not rows:
        return f"no kernels {over}"
    total = sum(row.time_us for row in rows)
    columns = (*_FAMILIES, _COUNT, _TIME, _share_column(total))
    return drawn(rows[:top], columns, f"families {over}, {show_us(total)}", len(rows) - top)


def _draw_operators(rows: Sequence[OpRow], title: str, more: int, *, gpu: bool) -> str:
    """Return the table of these rows; operands' shapes, where recorded, stand below each."""
    memory = any(row.cpu_memory_bytes is not None for row in rows)
    columns = (*_OPERATORS, *(_CUDA if gpu else ()), *((_CUDA_MEMORY if gpu else _CPU_MEMORY) if memory else ()))
    text = drawn(rows, columns, title, more).split("\n")
    first = next(number for number, line in enumerate(text) if line.startswith("---")) + 1
    for number, row in reversed([*enumerate(rows, first)]):
        if below := _details_below(row):
            text.insert(number + 1, cut(printable(f"    {below}"), WIDTH))
    return "\n".join(text)


def _details_below(row: OpRow) -> str:
    """Return what the profiler has no room for in a row either: whose backward it is, and the operands' shapes."""
    shapes = [*(row.shapes or ())]
    while shapes and not shapes[-1]:
        shapes.pop()
    told = [f"backward of {row.forward_op}"] if row.forward_op else []
    return "; ".join([*told, *([", ".join(map(str, shapes))] if shapes else [])])


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
    parts = [_describe_recording(analysis), _draw_numbers(analysis, steps), _draw_steps(steps)]
    parts.append(rows_of(analysis, steps, by=by, sort_by=None, top=top))
    if by == "kernel":
        parts.append(_by_family_and_operator(analysis, steps))
    if findings:
        looked_at = [_describe_efficiency(analysis), _list_findings(analysis, find(analysis, rules))]
        if len(steps) < len(analysis.steps):
            parts.append(f"of the whole recording, all its {len(analysis.steps)} steps:")
        parts += looked_at
    return "\n\n".join(part for part in parts if part) + "\n"


def _describe_recording(analysis: Analysis) -> str:
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
        (trace.orphans, "launched before the recording began, or by a call that was lost: in no step"),
        (trace.unrecorded_launches, "launched by calls that the profiler does not record"),
    ):
        if count:
            lines.append(f"{counted(count, 'GPU operation')} {words}")
    return "\n".join(lines)


def _draw_numbers(analysis: Analysis, steps: Sequence[StepProfile]) -> str:
    """Return the numbers: the median over steps and the worst beside it, or those of the one step.

    What is one number of the whole recording is no number of one of its steps.
    """
    part = len(steps) < len(analysis.steps)
    median, worst = analysis.median_of(steps), analysis.worst_of(steps)
    columns = {"median": median, "worst": worst} if len(steps) > 1 else {"median": median}
    lines = [
        [number.title, *(_show_number(number, getattr(found, number.name)) for found in columns.values())]
        for number in TABLE
        if not number.detail and not (part and number.scope == "window") and getattr(median, number.name) is not None
    ]
    half = (len(lines) + 1) // 2
    left, right = lines[:half], [*lines[half:], [""] * (1 + len(columns))][:half]
    align, headers = ["left", *["right"] * len(columns)], ["", *columns]
    return tabulate(
        [[*a, "  ", *b] for a, b in zip(left, right, strict=True)],
        headers=[*headers, "", *headers] if len(columns) > 1 else (),
        tablefmt="plain",
        disable_numparse=True,
        colalign=(*align, "left", *align),
    )


def _show_number(number: Number, value: float) -> str:
    return show_share(value) if number.unit == "share" else number.show(value)


def _draw_steps(steps: Sequence[StepProfile]) -> str:
    """Return a row for each of several steps."""
    if len(steps) < 2:
        return ""
    more = len(steps) - _MOST_STEPS
    return drawn(steps[:_MOST_STEPS], _STEPS, "steps", 0) + (f"\n... and {more} more (--step N)" if more > 0 else "")


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
    return "\n".join(_list_shares("by family", families) + _list_shares("launched by", operators))


def _list_shares(what: str, spent: Counter[str]) -> list[str]:
    whole = spent.total()
    if not whole:
        return []
    most = [f"{printable(name)} {show_share(ns / whole)}" for name, ns in spent.most_common(_MOST_SHARES)]
    return wrapped(f"{what}: {', '.join(most)}{', ..' if len(spent) > _MOST_SHARES else ''}", "  ")


def _describe_efficiency(analysis: Analysis) -> str:
    """Return where the time of a step goes, by kineto's priority, and how fast products and copies are."""
    if not analysis.trace.device_kind.has_launches or not len(analysis.trace.gpu):
        return ""
    found = analysis.efficiency
    total = found.step_time.total
    spent = [(name.replace("_", " "), us) for name, us in asdict(found.step_time).items() if us > 0.0005 * total]
    lines = []
    if spent:
        shares = ", ".join(f"{name} {show_share(us / total)}" for name, us in spent)
        lines.append(f"time of a step, to its last GPU operation, {show_us(total)}: {shares}")
    if found.tensor_core_share is not None:
        lines.append(f"on tensor cores: {show_share(found.tensor_core_share)} of the time of products and convolutions")
    if found.throughput.mfu is not None:
        speed = found.throughput
        lines.append(f"{speed.tflops:.3g} TFLOP/s, {show_share(speed.mfu or 0.0)} of the peak in {speed.dtype}")
    known = [f"{row.direction} {row.gb_per_s:.3g} GB/s" for row in found.copies if row.gb_per_s is not None]
    if known:
        lines.append(f"copies: {', '.join(known)}")
    return "\n".join(line for one in lines for line in wrapped(printable(one), "  "))


def _list_findings(analysis: Analysis, found: Iterable[Finding]) -> str:
    lines = []
    for finding in found:
        lines += wrapped(f"{finding.title}: {printable(finding.message)}", "  ", first="- ")
        if finding.remedy:
            lines += wrapped(printable(finding.remedy), "    ", first="  -> ")
    if analysis.kernels_unknown is not None:
        return "\n".join(wrapped(f"what stands out cannot be told: {printable(analysis.kernels_unknown)}", "  "))
    return "\n".join(["what stands out", *lines]) if lines else "nothing stands out"
