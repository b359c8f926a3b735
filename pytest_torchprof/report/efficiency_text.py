"""How a step's time is spent, and how fast products and copies are, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from pytest_torchprof.report.bars import share_lines
from pytest_torchprof.text import counted, printable
from pytest_torchprof.text.cutting import cut_inside
from pytest_torchprof.text.tables import Column, headed
from pytest_torchprof.text.units import show_rate, show_share, show_us
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.step_time import SilentTime
    from pytest_torchprof.report.bars import Bars


_ROLES = {"cpu": "operators, annotations and Python", "runtime": "runtime calls"}
"""The names of the parts of a step's time."""
_MOST_GAPS = 5
_WORTH = 0.01
"""The share of a step's time below which a part is not listed: there is nothing to gain."""


def describe_efficiency(analysis: Analysis, width: int, bars: Bars | None) -> str:
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
        time = "a step's time" if analysis.trace.has_step_ranges else "the time"
        what = f"of {time} ({show_us(total)} until CPU and GPU are done{steps})"
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
    whole = "step" if analysis.trace.has_step_ranges else "recording"
    columns = (
        Column("after", lambda row: printable(_name_beginning(row, whole)), "left"),
        Column(
            "before",
            lambda row: cut_inside(printable(row.before or f"the {whole}'s end"), max((width - 30) // 2, 12)),
            "left",
        ),
        Column(f"of {whole}", lambda row: show_share(row.time_us / total_us)),
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


def _name_beginning(row: SilentTime, whole: str) -> str:
    after = row.after or f"the {whole}'s beginning"
    return after if row.profiler is None else f"{row.profiler} (the profiler), {after}"
