"""What a record holds of a run so that its reports can be made again: all that they tell besides the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, defstruct

from pytest_torchprof.report import Reference, UnusedEntries  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.report.result import Result

Place = Annotated[int, Meta(ge=0)]

APART: Final = ("kernels", "entry")
"""The fields of a result that stand in a record in a form of their own."""


class _OfResult(Struct, frozen=True):
    """The fields of a result in which it differs from what the figures of its measurement tell, as JSON values."""

    @property
    def given(self) -> dict[str, Any]:
        """Those in which it differs, by name; of a nested value only what differs."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not UNSET}


if TYPE_CHECKING:

    class DifferingFields(_OfResult, frozen=True):
        def __init__(self, **fields: object) -> None: ...
else:
    # A result has these fields: whoever adds one there has it here, too.
    DifferingFields = defstruct(
        "DifferingFields",
        [(name, Any, UNSET) for name in Result.__struct_fields__ if name not in APART],
        bases=(_OfResult,),
        frozen=True,
        kw_only=True,
        module=__name__,
    )

SAME: Final = DifferingFields()


class ReportedKernel(Struct, frozen=True, array_like=True):
    """A kernel as reports name it."""

    name: str
    ops: tuple[str, ...]
    """The operators that launched it."""


class ReportedCalls(Struct, frozen=True, array_like=True):
    """The calls of a kernel in a measurement; times in microseconds."""

    kernel: Place
    """Which of the run's kernels."""
    count: int
    time_us: float
    min_us: float
    max_us: float


class ReportedResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A result as reports have it, beside the figures of its measurement."""

    of: Place
    """Which of the run's measurements has its figures."""
    calls: tuple[ReportedCalls, ...] = ()
    differing: DifferingFields = SAME


class ReportedRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as its reports have it."""

    results: tuple[ReportedResult, ...] = ()
    kernels: tuple[ReportedKernel, ...] = ()
    unused: tuple[UnusedEntries, ...] = ()
    against: Reference | None = None
    history: str | None = None
    gone: tuple[str, ...] = ()
