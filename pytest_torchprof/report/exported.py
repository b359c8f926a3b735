"""The facts of a measurement for other tools: the one table from which every export is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.report.json_report import JUDGED, reported_value, without_point
from pytest_torchprof.trace.metadata import Environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.baseline.entry import Times
    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result

VERSIONS: Final = ("torch", "cuda", "rocm", "triton", "python")
TIME: Final = "time_us"


class Exported(Struct, frozen=True, kw_only=True):
    """One measurement of one run."""

    run: str | None = None
    """The id of the run's record, and when it began."""
    began: str | None = None
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    test: str
    label: str | None = None
    rank: int | None = None
    ranks: int | None = None
    environment: Environment
    verdict: str
    judged: bool
    """Whether it was measured on the device that was asked for."""
    baseline: str | None = None
    structure: str | None = None
    numbers: Mapping[str, float | None]
    """Each number by its name: counts and sizes of the worst step, others as the median."""
    time: Times | None = None

    @property
    def name(self) -> str:
        """The test with its label, and its rank if that is not the first."""
        label = f" ({self.label})" if self.label else ""
        return f"{self.test}{label}" + (f", rank {self.rank} of {self.ranks}" if self.rank else "")

    @property
    def device(self) -> str | None:
        """The GPU, or the CPU."""
        return self.environment.gpu or self.environment.cpu

    @property
    def time_us(self) -> float | None:
        """The untraced time in microseconds."""
        return None if self.time is None else self.time.median_us


def _field(name: str) -> Callable[[Exported], object]:
    return lambda row: getattr(row, name)


def _version(name: str) -> Callable[[Exported], object]:
    return lambda row: getattr(row.environment, name)


def _number(name: str) -> Callable[[Exported], object]:
    return lambda row: row.numbers.get(name)


FACTS: Final[Mapping[str, Callable[[Exported], object]]] = {
    **{name: _field(name) for name in ("run", "began", "commit", "branch", "dirty", "test", "label", "rank", "ranks")},
    "device": _field("device"),
    **{name: _version(name) for name in VERSIONS},
    **{name: _field(name) for name in ("verdict", "baseline", "structure")},
}
"""The columns that say what was measured, and how it ended."""
NUMBERS: Final[Mapping[str, Callable[[Exported], object]]] = {
    **{number.name: _number(number.name) for number in TABLE},
    TIME: _field(TIME),
}
"""The columns of the numbers."""


def exported(run: RunResults) -> Iterator[Exported]:
    """Yield the measurements of a run."""
    commit = run.commit
    for result in run.results:
        yield Exported(
            run=run.run,
            began=None if run.began is None else run.began.isoformat(),
            commit=None if commit is None else commit.sha,
            branch=None if commit is None else commit.branch,
            dirty=None if commit is None else commit.dirty,
            test=result.nodeid,
            label=result.label,
            rank=result.rank,
            ranks=result.ranks,
            environment=result.environment or Environment(),
            verdict=str(result.outcome),
            judged=result.outcome in JUDGED and result.summary is not None,
            baseline=None if result.baseline_state is None else str(result.baseline_state),
            structure=result.structure,
            numbers=_numbers(result),
            time=result.time,
        )


def _numbers(result: Result) -> dict[str, float | None]:
    if result.summary is None:
        return {}
    return {number.name: as_counted(number, reported_value(result, number)) for number in TABLE}


def as_counted(number: Number, value: float | None) -> float | None:
    """Return a number as it was counted: whoever reads a record has 5.0 for five kernels."""
    counted: float | None = without_point(value) if number.unit in ("count", "bytes") else value
    return counted
