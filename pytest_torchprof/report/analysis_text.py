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
from pytest_torchprof.text import WIDTH, counted, cut, drawn, printable, share, show_bytes, show_us, wrapped
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis, StepProfile
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.analysis.tables import FamilyRow, KernelRow, OpRow, RangeRow
    from pytest_torchprof.findings import Finding, Rule


Sorted = TypeVar("Sorted", "RangeRow", "OpRow")

_KERNEL_COLUMNS = ("kernel", "calls", "time", "share", "launched by")
_NUMBERED = 42
"""Leaves room for the number in a column of a table that fits."""
_FAMILY_COLUMNS = ("family", "library", "calls", "time", "share")
_RANGE_COLUMNS = ("calls", "self CPU", "CPU total", "kernels", "self GPU", "GPU total")
_Column = tuple[str, str, "Callable[[Any], str]"]
_CPU: tuple[_Column, ...] = (
    ("# of\nCalls", "calls", "{:,}".format),
    ("Self\nCPU", "self_cpu_us", show_us),
    ("CPU\ntotal", "cpu_us", show_us),
)
_CUDA: tuple[_Column, ...] = (
    ("Self\nCUDA", "self_gpu_us", show_us),
    ("CUDA\ntotal", "gpu_us", show_us),
)
_CPU_MEMORY: tuple[_Column, ...] = (
    ("CPU\nMem", "cpu_memory_bytes", show_bytes),
    ("Self\nCPU Mem", "self_cpu_memory_bytes", show_bytes),
)
_CUDA_MEMORY: tuple[_Column, ...] = (
    ("CUDA\nMem", "gpu_memory_bytes", show_bytes),
    ("Self\nCUDA Mem", "self_gpu_memory_bytes", show_bytes),
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
_WAYS = ("kernel", "family", "op", "range", "module")
_MOST_STEPS = 10
_MOST_SHARES = 5
_OF_EACH_STEP = ("cpu_time_us", "gpu_busy_us", "kernels", "launches", "syncs")


def table(analysis: Analysis, *, by: str = "kernel", sort_by: str | None = None, top: int = 20) -> str:
    """Return one table over all steps; UnknownLimit for an unknown way or column."""
    if by not in _WAYS:
        raise UnknownLimit(f"by= takes one of {', '.join(_WAYS)}; got {by!r}")
    if sort_by is not None and sort_by not in _SORT_BY and sort_by not in _PER_CALL:
        raise UnknownLimit(f"sort_by= takes one of {', '.join([*_SORT_BY, *_PER_CALL])}; got {sort_by!r}")
    return rows_of(analysis, analysis.steps, by=by, sort_by=sort_by, top=top)


def rows_of(analysis: Analysis, steps: Sequence[StepProfile], *, by: str, sort_by: str | None, top: int) -> str:
    """Return one table over these steps."""
    trace, launching, parts = analysis.trace, analysis.launching, [step.part for step in steps]
    over = f"over {len(steps)} steps" if len(steps) > 1 else "in the step"
    if by in ("kernel", "family"):
        kernels = tables.by_kernel(trace, launching, parts)
        return _kernels(kernels, sort_by, top, over) if by == "kernel" else _families(kernels, top, over)
    if by == "op":
        rows = _sorted(tables.by_op(trace, launching, parts), sort_by)
        if rows:
            return _operators(rows[:top], f"operators {over}", len(rows) - top, gpu=len(trace.gpu) > 0)
        return f"no operators {over}"
    if by == "range":
        found, what = tables.by_annotation(trace, parts), "user annotations"
    else:
        found, what = tables.by_module(trace, parts), "modules"
    if not found:
        missing = "; they are not recorded: record them with profile(with_stack=True), here with record=['modules']"
        return "\n".join(wrapped(f"no {what} {over}{missing if by == 'module' else ''}", ""))
    return _ranges(_sorted(found, sort_by), top, f"{what} {over}")


def _sorted(rows: Sequence[Sorted], sort_by: str | None) -> Sequence[Sorted]:
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


def _kernels(rows: Sequence[KernelRow], sort_by: str | None, top: int, over: str) -> str:
    if not rows:
        return f"no kernels {over}"
    if _SORT_BY.get(sort_by or "") == "calls":
        rows = sorted(rows, key=lambda row: -row.count)
    total = sum(row.time_us for row in rows)
    # What a backward pass launches tells whose backward it is, and needs more room for it.
    launched = 30 if any(row.forward_op for row in rows[:top]) else 22
    labels = _told_apart([printable(_kernel_name(row)) for row in rows[:top]])
    lines = [
        (
            label,
            row.count,
            show_us(row.time_us),
            share(row.time_us / (total or 1.0)),
            _launched_by(row, launched),
        )
        for label, row in zip(labels, rows, strict=False)
    ]
    names = counted(len(rows), "kernel name")
    return drawn(lines, _KERNEL_COLUMNS, f"{names} {over}, {show_us(total)}", len(rows) - len(lines))


def _told_apart(labels: Sequence[str]) -> list[str]:
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


def _families(rows: Sequence[KernelRow], top: int, over: str) -> str:
    found: Sequence[FamilyRow] = tables.by_family(rows)
    if not found:
        return f"no kernels {over}"
    total = sum(row.time_us for row in found)
    lines = [
        (row.family, row.library, row.count, show_us(row.time_us), share(row.time_us / (total or 1.0)))
        for row in found[:top]
    ]
    return drawn(lines, _FAMILY_COLUMNS, f"families {over}, {show_us(total)}", len(found) - len(lines))


def _ranges(rows: Sequence[RangeRow], top: int, title: str) -> str:
    lines = [
        (
            printable(row.name.removeprefix(MODULE)),
            row.calls,
            *(show_us(time) for time in (row.self_cpu_us, row.cpu_us)),
            row.kernels,
            *(show_us(time) for time in (row.self_gpu_us, row.gpu_us)),
        )
        for row in rows[:top]
    ]
    return drawn(lines, ("name", *_RANGE_COLUMNS), title, len(rows) - len(lines))


def _operators(rows: Sequence[OpRow], title: str, more: int, *, gpu: bool) -> str:
    """Return the table of these rows; operands' shapes, where recorded, stand below each."""
    memory = any(row.cpu_memory_bytes is not None for row in rows)
    columns = (*_CPU, *(_CUDA if gpu else ()), *((_CUDA_MEMORY if gpu else _CPU_MEMORY) if memory else ()))
    values = [(printable(_operator_name(row)), *(show(getattr(row, key)) for _, key, show in columns)) for row in rows]
    text = drawn(values, ("name", *(header for header, _, _ in columns)), title, more).split("\n")
    first = next(number for number, line in enumerate(text) if line.startswith("---")) + 1
    for number, row in reversed([*enumerate(rows, first)]):
        if below := _below(row):
            text.insert(number + 1, cut(printable(f"    {below}"), WIDTH))
    return "\n".join(text)


def _operator_name(row: OpRow) -> str:
    """Return the name; of autograd's nodes what they evaluate is what tells one from the other."""
    return row.name.replace("autograd::engine::evaluate_function: ", "autograd:: .. ")


def _below(row: OpRow) -> str:
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
    return "\n".join(line for one in lines for line in wrapped(printable(one), "  "))


def _findings(analysis: Analysis, found: Iterable[Finding]) -> str:
    lines = []
    for finding in found:
        lines += wrapped(f"{finding.title}: {printable(finding.message)}", "  ", first="- ")
        if finding.remedy:
            lines += wrapped(printable(finding.remedy), "    ", first="  -> ")
    if analysis.kernels_unknown is not None:
        return "\n".join(wrapped(f"what stands out cannot be told: {printable(analysis.kernels_unknown)}", "  "))
    return "\n".join(["what stands out", *lines]) if lines else "nothing stands out"
