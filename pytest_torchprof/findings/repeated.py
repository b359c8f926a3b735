"""Findings about results that are computed again although they are known.

Only results that are surely the same count. Recordings hold neither addresses of operands nor their values: whether two
copies, casts or operators with the same shapes at the same line do the same twice, nobody can say, and most often they
belong to two layers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.findings.catalogue.costs import RepeatedConstant
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import CPU_SIDE, Finding, Need, Rule, Threshold
from pytest_torchprof.kernels.operands import DTYPES
from pytest_torchprof.reasons.findings import SettingsNotRecorded
from pytest_torchprof.text.cutting import cut
from pytest_torchprof.trace.columns import CONSTANTS, where

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis

OFTEN = Threshold("calls", 20, "per step; a constant made once in each of a model's layers is made some twenty times")

_Constant = tuple[str, tuple[str, ...], bool]
"""An operator, what it was given, and whether it launched something."""


def _calls(analysis: Analysis) -> list[int]:
    """Return the calls of operators that make constants, without those that such a call makes itself."""
    trace = analysis.trace
    named, parent = trace.ops.name, trace.nesting.parent
    known = {i for i, name in enumerate(trace.names) if name in CONSTANTS}
    called = (i for i in where(named, known) if trace.ops.thread[i] != trace.captured.lane)
    return [i for i in called if parent[i] < 0 or named[parent[i]] not in known]


def _given(analysis: Analysis, op: int) -> tuple[str, ...] | None:
    """Return the operator's arguments, None if they are not recorded or include a tensor, whose values nobody knows."""
    inputs = analysis.trace.ops.inputs[op]
    types, settings = analysis.launching.operands(inputs)[0], analysis.launching.settings(inputs)
    if settings is None or types is None or any(word in DTYPES for word in types):
        return None
    return tuple(map(str, settings))


def _working(analysis: Analysis, calls: Sequence[int]) -> set[int]:
    """Return the operators in which something was launched, as far as they are among the calls or inside of them."""
    nesting, op_of = analysis.trace.nesting, analysis.launching.op_of
    # From the calls inwards, which are a few beside all that launched something.
    inside, level = set(calls), set(calls)
    while level:
        level = set(nesting.children(level))
        inside |= level
    return nesting.around_all(inside.intersection([op_of[i] for i in analysis.gpu_work.gpu_ops]))


def _repeated_constants(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find constants that are made again and again in a step."""
    trace, launching = analysis.trace, analysis.launching
    calls = [op for op in _calls(analysis) if trace.step_at(trace.ops.start[op]) >= 0]
    if not calls:
        return
    working = _working(analysis, calls)
    made: dict[_Constant, list[int]] = defaultdict(list)
    for op in calls:
        # A compiler runs such operators to see what they return.
        compiling = trace.compiling.cover(trace.ops.thread[op], trace.ops.start[op])
        if not compiling and (given := _given(analysis, op)) is not None:
            made[trace.names[trace.ops.name[op]], given, op in working].append(op)
    # How often each constant is made in the step that makes it most often.
    most = {
        constant: max(Counter(trace.step_at(trace.ops.start[op]) for op in ops).values())
        for constant, ops in made.items()
    }
    often = sorted((constant for constant in made if most[constant] >= at[OFTEN]), key=lambda constant: -most[constant])
    if not often:
        return
    again = [op for constant in often for op in made[constant][1:]]
    spent = sum(trace.ops.end[op] - trace.ops.start[op] for op in again) / 1000
    first = made[often[0]][0]
    origin = launching.origins.of_operator(first)
    yield RepeatedConstant(
        has_steps=analysis.trace.has_step_ranges,
        time_us=spent,
        share=analysis.gpu_work.share_of_window(spent),
        count=len(again) + len(often),
        different=len(often),
        constants=tuple(_written(constant) for constant in often[:5]),
        ops=tuple(dict.fromkeys(op for op, *_ in often[:5])),
        calls_per_step=tuple(most[constant] for constant in often[:5]),
        source=origin.source if origin else None,
        events=Events(ops=tuple(op for constant in often for op in made[constant])),
        saves_us=spent,
    )


def _written(constant: _Constant) -> str:
    """Return ``aten::arange(0, 14)``: the operator with its arguments, without None and False."""
    op, given, _ = constant
    return cut(f"{op}({', '.join(word for word in given if word not in ('', 'False'))})", 60)


def _settings_recorded(analysis: Analysis) -> bool:
    calls, launching = _calls(analysis), analysis.launching
    given = {analysis.trace.ops.inputs[op] for op in calls}
    return not calls or any(
        launching.settings(inputs) is not None and launching.operands(inputs)[0] is not None for inputs in given
    )


RULES = (
    Rule(
        code="repeated-constant",
        find=_repeated_constants,
        needs=(
            CPU_SIDE,
            Need(
                missing=SettingsNotRecorded(),
                there=_settings_recorded,
            ),
        ),
        thresholds=(OFTEN,),
        explains=("max_kernels", "max_launches", "max_memcpys", "max_cpu_gpu_ratio"),
    ),
)
