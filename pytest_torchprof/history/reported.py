"""The part of a record from which a run's reports can be made again: all that they tell besides the figures."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from pytest_torchprof.report import Reference, UnusedEntries  # noqa: TC001 - msgspec reads the annotations

Index = Annotated[int, Meta(ge=0)]


class ReportedKernel(Struct, frozen=True, array_like=True):
    """A kernel as reports name it."""

    name: str
    ops: tuple[str, ...]
    """The operators that launched it."""


class ReportedCalls(Struct, frozen=True, array_like=True):
    """The calls of a kernel in a measurement; times in microseconds."""

    kernel: Index
    """Which of the run's kernels."""
    count: int
    time_us: float
    min_us: float
    max_us: float


class ReportedResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A result as reports have it, beside the figures of its measurement."""

    of: Index
    """Which of the run's measurements has its figures."""
    calls: tuple[ReportedCalls, ...] = ()
    differing: dict[str, Any] = {}
    """The fields of the result in which it differs from what the figures tell, as JSON values."""


class ReportedRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as its reports have it."""

    results: tuple[ReportedResult, ...] = ()
    kernels: tuple[ReportedKernel, ...] = ()
    unused: tuple[UnusedEntries, ...] = ()
    against: Reference | None = None
    history: str | None = None
    gone: tuple[str, ...] = ()
