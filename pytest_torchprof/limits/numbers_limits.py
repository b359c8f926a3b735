"""Limits on numbers: at most so many kernels, at least such a utilization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_torchprof.limits.limit import Limit, positive_number, share, whole_number
from pytest_torchprof.limits.rows import kernel_rows, moved_rows, waiting_rows
from pytest_torchprof.limits.verdict import HOLDS, MISSED, NOT_MEASURED, Row, Verdict
from pytest_torchprof.text import units
from pytest_torchprof.text.plural import counted
from pytest_torchprof.trace.columns import MEMCPY, MEMSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.profile import Profile, StepProfile

    Rows = Callable[[Profile, StepProfile], tuple[Row, ...]]


def _noun(noun: str) -> Callable[[int], str]:
    return lambda value: counted(value, noun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit on one number: the number's attribute, the direction, and how what was seen is said."""

    limit: str
    number: str
    at_most: bool
    say: Callable[[Any], str]
    window: bool = False
    """The number belongs to the whole window, not to a step."""
    rows: Rows | None = None
    """The work to list when it is missed."""
    formula: Callable[[StepProfile], str] | None = None
    """What a ratio was computed from."""

    def holds(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound

    def __call__(self, profile: Profile, bound: float) -> Verdict:
        values = self._values(profile)
        known = [(step, value) for step, value in values if value is not None]
        if len(known) < len(values) or not values:
            return Verdict(
                limit=self.limit, expected="", measured=_why_unknown(profile, self.number), status=NOT_MEASURED
            )
        worst_step, worst = (max if self.at_most else min)(known, key=lambda pair: pair[1])
        if self.holds(worst, bound):
            return Verdict(limit=self.limit, expected="", measured=self.say(worst), number=worst, status=HOLDS)
        measured = self.say(worst)
        if measured == self.say(bound):
            measured += f" (beyond it by {100 * abs(worst / bound - 1):.2g} %)"
        if worst_step is not None:
            measured += f" = {self.formula(worst_step)}" if self.formula else ""
            measured += f" in {step_name(profile, worst_step)}" if len(profile.steps) > 1 else ""
        return Verdict(
            limit=self.limit,
            expected="",
            number=worst,
            measured=measured,
            status=MISSED,
            details=self.rows(profile, worst_step) if self.rows and worst_step else (),
            step=worst_step.name if worst_step else None,
        )

    def _values(self, profile: Profile) -> list[tuple[StepProfile | None, Any]]:
        if self.window:
            return [(None, getattr(profile, self.number))]
        return [(step, getattr(step.numbers, self.number)) for step in profile.steps]


def step_name(profile: Profile, step: StepProfile) -> str:
    """Return "step 3 of 5" counted from one, with the recording's own name where it says something else."""
    place = next(i for i, other in enumerate(profile.steps, 1) if other is step)
    own = step.name in (None, f"ProfilerStep#{place - 1}")
    return f"step {place} of {len(profile.steps)}" + ("" if own else f" ({step.name})")


def _kernels(_profile: Profile, step: StepProfile) -> tuple[Row, ...]:
    return kernel_rows(step)


def _longest(_profile: Profile, step: StepProfile) -> tuple[Row, ...]:
    return tuple(sorted(kernel_rows(step), key=lambda row: -(row.time_us or 0)))


def _copies(profile: Profile, step: StepProfile) -> tuple[Row, ...]:
    return moved_rows(profile, step, MEMCPY)


def _fills(profile: Profile, step: StepProfile) -> tuple[Row, ...]:
    return moved_rows(profile, step, MEMSET)


def _cpu_and_gpu(step: StepProfile) -> str:
    return f"{units.show_us(step.cpu_time_us)} CPU / {units.show_us(step.gpu_busy_us)} GPU busy"


def _why_unknown(profile: Profile, number: str) -> str:
    if profile.trace.on_cpu:
        return f"the cpu as device has no {number}: this limit needs a GPU"
    metadata = profile.trace.metadata
    reasons = {
        "peak_memory_bytes": (metadata and metadata.peak_memory_why_not)
        or "the recording does not hold the allocator's peak memory",
        "sm_efficiency": "the recording's kernels carry no `blocks per SM` (ROCm and old recordings do not)",
        "cpu_gpu_ratio": "a step has no GPU operations",
        "gpu_utilization": "the recording has no kernels",
    }
    return reasons.get(number, f"the recording does not hold {number}")


BOUNDS = (
    Bound(limit="max_kernels", number="kernels", at_most=True, say=_noun("kernel"), rows=_kernels),
    Bound(limit="min_kernels", number="kernels", at_most=False, say=_noun("kernel"), rows=_kernels),
    Bound(limit="max_launches", number="launches", at_most=True, say=_noun("launch"), rows=_kernels),
    Bound(limit="max_memcpys", number="memcpys", at_most=True, say=_noun("memory copy"), rows=_copies),
    Bound(limit="max_memsets", number="memsets", at_most=True, say=_noun("memory set"), rows=_fills),
    Bound(limit="max_syncs", number="syncs", at_most=True, say=_noun("blocking call"), rows=waiting_rows),
    Bound(limit="max_cpu_gpu_ratio", number="cpu_gpu_ratio", at_most=True, say=units.show_ratio, formula=_cpu_and_gpu),
    Bound(limit="min_gpu_utilization", number="gpu_utilization", at_most=False, say=units.show_ratio, window=True),
    Bound(limit="min_sm_efficiency", number="sm_efficiency", at_most=False, say=units.show_ratio, window=True),
    Bound(
        limit="max_gpu_time",
        number="gpu_busy_us",
        at_most=True,
        say=lambda us: f"{units.show_us(us)} GPU busy",
        rows=_longest,
    ),
    Bound(
        limit="max_peak_memory",
        number="peak_memory_bytes",
        at_most=True,
        say=units.show_bytes,
        window=True,
    ),
)

_READERS: dict[str, Callable[[object], Any]] = {
    "max_cpu_gpu_ratio": positive_number,
    "min_gpu_utilization": share,
    "min_sm_efficiency": share,
    "max_gpu_time": units.duration_us,
    "max_peak_memory": units.size_bytes,
}
_ON_TIME = {"max_cpu_gpu_ratio", "min_gpu_utilization", "min_sm_efficiency", "max_gpu_time"}


def _mfu(profile: Profile, bound: float) -> Verdict:
    found = profile.efficiency.throughput
    if found.mfu is None:
        on_cpu = profile.trace.on_cpu
        reason = _why_unknown(profile, "mfu") if on_cpu else found.why_not or "the share of the peak is not known"
        return Verdict(limit="min_mfu", expected="", measured=reason, status=NOT_MEASURED)
    return Verdict(
        limit="min_mfu",
        expected="",
        number=found.mfu,
        measured=f"{units.show_ratio(found.mfu)} of {found.peak_tflops:.4g} TFLOP/s ({found.dtype})",
        status=HOLDS if found.mfu >= bound else MISSED,
    )


NUMBER_LIMITS = (
    *(
        Limit(
            name=bound.limit,
            read=_READERS.get(bound.limit, whole_number),
            check=bound,
            # Allocated memory is no GPU work: a step may hold memory and launch nothing.
            on_gpu_work=bound.limit not in ("max_peak_memory", "min_kernels"),
            on_time=bound.limit in _ON_TIME,
            located=bound.limit != "max_peak_memory",
        )
        for bound in BOUNDS
    ),
    Limit(name="min_mfu", read=share, check=_mfu, on_time=True),
)
