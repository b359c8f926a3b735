"""The work that a missed limit is about, as rows: what, how often, how long, launched by what, from where."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.devices.base import BLOCKING
from pytest_torchprof.limits.limit import WorkRow
from pytest_torchprof.text import printable, show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import Places, StepProfile
    from pytest_torchprof.kernels.kernel import Kernel


def kernel_rows(
    step: StepProfile, kernels: Iterable[Kernel] | None = None, *, raw: bool = False
) -> tuple[WorkRow, ...]:
    """Return one row per name of the step's kernels, or of these: most calls first, then most time.

    ``raw``: by the names that patterns match, instead of what they say.
    """
    found: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in step.kernels if kernels is None else kernels:
        found[kernel.name].append(kernel)
    rows = [_row(step.places, name, members, raw=raw) for name, members in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.count, -(row.time_us or 0))))


def _row(places: Places, name: str, kernels: list[Kernel], *, raw: bool) -> WorkRow:
    shown = name if raw else kernels[0].short or name
    ops = dict.fromkeys(kernel.op or "?" for kernel in kernels)
    return WorkRow(
        count=len(kernels),
        name=printable(shown),
        full=printable(name),
        time_us=sum(kernel.dur_ns for kernel in kernels) / 1000,
        ops=tuple(map(printable, ops)),
        places=_places(places, {(name, kernel.op) for kernel in kernels}),
    )


def moved_rows(analysis: Analysis, step: StepProfile, kind: int) -> tuple[WorkRow, ...]:
    """Return one row per name (direction and memories) of the step's copies or fills, most calls first."""
    gpu, launching = analysis.trace.gpu, analysis.launching
    found: dict[str, list[int]] = defaultdict(list)
    for i in step.part.gpu_ops:
        if gpu.kind[i] == kind:
            found[analysis.trace.names[gpu.name[i]]].append(i)
    rows = []
    for name, members in found.items():
        ops = [launching.op_name(launching.op_of[i]) for i in members]
        size = sum(max(gpu.size[i], 0) for i in members)
        spent = sum(gpu.end[i] - gpu.start[i] for i in members) / 1000
        rows.append(_other_row(step.places, name, ops, spent, show_bytes(size) if size else ""))
    return tuple(sorted(rows, key=lambda row: (-row.count, -(row.time_us or 0))))


def waiting_rows(analysis: Analysis, step: StepProfile) -> tuple[WorkRow, ...]:
    """Return one row per blocking call and the operator that made it, with the time waited, most calls first."""
    trace = analysis.trace
    calls, blocking = trace.calls, trace.call_names(BLOCKING)
    waits = [i for i in step.part.calls if calls.name[i] in blocking and i != trace.flush]
    found: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for call, op in trace.nesting.around_each(calls, waits).items():
        found[trace.names[calls.name[call]], analysis.launching.op_name(op)].append(call)
    rows = [
        _other_row(
            step.places, name, [op] * len(members), sum(calls.end[i] - calls.start[i] for i in members) / 1000, ""
        )
        for (name, op), members in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.count, -(row.time_us or 0))))


def _other_row(places: Places, name: str, ops: list[str | None], time_us: float, note: str) -> WorkRow:
    return WorkRow(
        count=len(ops),
        name=printable(name),
        full=printable(name),
        time_us=time_us,
        note=note,
        ops=tuple(printable(op) for op in dict.fromkeys(ops) if op),
        places=_places(places, {(name, op) for op in ops}),
    )


def operator_rows(step: StepProfile, calls: Mapping[str, int]) -> tuple[WorkRow, ...]:
    """Return one row per operator with its number of calls, in the order given."""
    return tuple(
        WorkRow(
            count=count,
            name=printable(name),
            full=printable(name),
            places=tuple((times, printable(str(origin))) for times, origin in step.places.of_operator(name)),
        )
        for name, count in calls.items()
    )


def _places(places: Places, work: set[tuple[str, str | None]]) -> tuple[tuple[int, str], ...]:
    return tuple((count, printable(str(origin))) for count, origin in places.of(work))
