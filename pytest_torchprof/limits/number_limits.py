"""Limits on numbers: at most this many kernels, at least this utilization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.kernels.names.kernelname import PRODUCTS
from pytest_torchprof.limits.allowed import OF_MEMCPYS, OF_SYNCS, judge_memcpys, judge_syncs
from pytest_torchprof.limits.items import moves_of, rows_of_moves, rows_of_waits, waits_of
from pytest_torchprof.limits.limit import (
    HOLDS,
    MISSED,
    Limit,
    Setting,
    Verdict,
    fraction,
    group_kernels,
    group_others,
    longest_first,
    positive_number,
    title_among,
    unmeasured,
    whole_number,
)
from pytest_torchprof.limits.quantities import duration_us, size_bytes
from pytest_torchprof.limits.seen import NumberSeen, PeakShare
from pytest_torchprof.reasons.throughput import FlopsNotRecorded
from pytest_torchprof.trace.columns import MEMCPY, MEMSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.limits.evidence import WorkRow

    Rows = Callable[[Analysis, StepProfile], tuple[WorkRow, ...]]


class Bound(Struct, frozen=True):
    """A limit on one number: ``max_`` or ``min_``, and the number's name without its unit."""

    limit: str
    number: Number
    rows: Rows | None = None
    """The work to list when it is missed."""
    parts_us: Callable[[StepProfile], tuple[float, float]] | None = None
    """Returns the times from which a ratio was computed."""
    settings: tuple[Setting, ...] = ()
    judge: Callable[..., Verdict] | None = None
    """Judges the limit when settings leave out a part of the number."""
    judged_with: frozenset[CallKind] = frozenset()
    """Calls that ``judge`` counts and the number does not."""

    @property
    def at_most(self) -> bool:
        return self.limit.startswith("max_")

    @property
    def of_held_memory(self) -> bool:
        """Whether the limit is on memory and not on GPU work: a step may hold memory and launch nothing."""
        return self.number.unit == "bytes" and self.number.scope == "window"

    def holds(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound

    def __call__(self, analysis: Analysis, bound: float, **settings: Any) -> Verdict:
        values = self._values(analysis)
        known = [(step, value) for step, value in values if value is not None]
        if len(known) < len(values) or not values:
            hidden = analysis.kernels_unknown if self.number.needs == "kernels" else None
            reason = hidden or self.number.why_absent(analysis.trace)
            return unmeasured(reason)
        if self.judge is not None and (settings or analysis.trace.call_names(self.judged_with)):
            return self.judge(analysis, bound, **settings)
        worst_step, worst = (max if self.at_most else min)(known, key=lambda pair: pair[1])
        if self.holds(worst, bound):
            return Verdict(seen=(self._seen(analysis, worst),), number=worst, status=HOLDS)
        parts_us = self.parts_us(worst_step) if self.parts_us and worst_step else None
        return Verdict(
            number=worst,
            seen=(self._seen(analysis, worst, beyond=bound, parts_us=parts_us),),
            status=MISSED,
            evidence=self.rows(analysis, worst_step) if self.rows and worst_step else (),
            step=worst_step.name if worst_step else None,
            in_step=title_among(analysis, worst_step) if worst_step else None,
        )

    def _seen(
        self,
        analysis: Analysis,
        value: float,
        *,
        beyond: float | None = None,
        parts_us: tuple[float, float] | None = None,
    ) -> NumberSeen:
        on_gpu = analysis.trace.device_kind.has_launches
        return NumberSeen(self.number.name, value, beyond=beyond, parts_us=parts_us, on_gpu=on_gpu)

    def _values(self, analysis: Analysis) -> list[tuple[StepProfile | None, Any]]:
        if self.number.scope == "window":
            return [(None, getattr(analysis, self.number.name))]
        return [(step, getattr(step.numbers, self.number.name)) for step in analysis.steps]


def _kernels(_profile: Analysis, step: StepProfile) -> tuple[WorkRow, ...]:
    return group_kernels(step)


def _too_few(_profile: Analysis, step: StepProfile) -> tuple[WorkRow, ...]:
    return group_others(step, ())


def _longest(_profile: Analysis, step: StepProfile) -> tuple[WorkRow, ...]:
    return longest_first(group_kernels(step))


def _copies(analysis: Analysis, step: StepProfile) -> tuple[WorkRow, ...]:
    return rows_of_moves(moves_of(analysis, step, MEMCPY))


def _fills(analysis: Analysis, step: StepProfile) -> tuple[WorkRow, ...]:
    return rows_of_moves(moves_of(analysis, step, MEMSET))


def _waits(analysis: Analysis, step: StepProfile) -> tuple[WorkRow, ...]:
    return rows_of_waits(waits_of(analysis, step))


def _cpu_and_gpu(step: StepProfile) -> tuple[float, float]:
    return step.cpu_time_us, step.gpu_busy_us


BEYOND_SYNCS = frozenset({CallKind.FREE, CallKind.QUERY})
BOUNDS = (
    Bound("max_kernels", BY_NAME["kernels"], _kernels),
    Bound("min_kernels", BY_NAME["kernels"], _too_few),
    Bound("max_launches", BY_NAME["launches"], _kernels),
    Bound("max_memcpys", BY_NAME["memcpys"], _copies, settings=OF_MEMCPYS, judge=judge_memcpys),
    Bound("max_memsets", BY_NAME["memsets"], _fills),
    Bound("max_syncs", BY_NAME["syncs"], _waits, settings=OF_SYNCS, judge=judge_syncs, judged_with=BEYOND_SYNCS),
    Bound("max_cpu_gpu_ratio", BY_NAME["cpu_gpu_ratio"], parts_us=_cpu_and_gpu),
    Bound("min_gpu_utilization", BY_NAME["gpu_utilization"]),
    Bound("min_sm_efficiency", BY_NAME["sm_efficiency"]),
    Bound("max_gpu_time", BY_NAME["gpu_busy_us"], _longest),
    Bound("max_peak_memory", BY_NAME["peak_memory_bytes"]),
)

_OF_GPU_WORK = frozenset({"kernels", "memcpys", "memsets", "gpu_busy_us"})
"""Numbers that would be larger if more ran on the GPU than is recorded; launches and waits are the CPU's."""
_READERS: dict[str, Callable[[object], Any]] = {
    "count": whole_number,
    "us": duration_us,
    "bytes": size_bytes,
    "share": fraction,
    "ratio": positive_number,
}


def _mfu(analysis: Analysis, bound: float) -> Verdict:
    throughput = analysis.efficiency.throughput
    if throughput.mfu is None or throughput.peak_tflops is None:
        return unmeasured(analysis.trace.device_kind.why_no("mfu") or throughput.why_not or FlopsNotRecorded())
    return Verdict(
        number=throughput.mfu,
        seen=(PeakShare(throughput.mfu, throughput.peak_tflops, str(throughput.dtype)),),
        status=HOLDS if throughput.mfu >= bound else MISSED,
    )


NUMBER_LIMITS = (
    *(
        Limit(
            name=bound.limit,
            read=_READERS[bound.number.unit],
            check=bound,
            settings=bound.settings,
            on_gpu_work=not bound.of_held_memory and bound.limit != "min_kernels",
            on_time=bound.number.on_time,
            located=not bound.of_held_memory,
            unit=bound.number.unit,
            missed_by_more=bound.at_most and bound.number.name in _OF_GPU_WORK,
            per_step=bound.number.scope == "step",
            families=(),
            of_events_alone=True,
        )
        for bound in BOUNDS
    ),
    Limit(
        name="min_mfu",
        read=fraction,
        check=_mfu,
        on_time=True,
        unit="share",
        families=PRODUCTS,
        missed_by_more=False,
    ),
)
