"""The measurements of a record, for other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.report.exported import Exported
from pytest_torchprof.report.json_report import JUDGED
from pytest_torchprof.trace.metadata import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.record import RunRecord


def exported_record(record: RunRecord, notes: Notes) -> Iterator[Exported]:
    """Yield the measurements of a record, under the names that their tests have now."""
    commit = record.commit
    tests = {measured.test for measured in record.measurements}
    for measured, varying in zip(record.measurements, record.varying, strict=True):
        now = notes.name_now(measured.test)
        test = measured.test if now in tests else now
        known = measured.environment
        numbers = _as_counted({**measured.counts, **varying.numbers})
        yield Exported(
            run=record.uuid,
            began=record.began.isoformat(),
            commit=None if commit is None else commit.sha,
            branch=None if commit is None else commit.branch,
            dirty=None if commit is None else commit.dirty,
            test=test,
            label=measured.label,
            rank=measured.rank,
            ranks=measured.ranks,
            environment=Environment() if known is None else record.environments[known],
            verdict=str(measured.outcome),
            judged=measured.outcome in JUDGED and bool(numbers),
            baseline=None if varying.baseline is None else str(varying.baseline),
            structure=measured.structure,
            numbers=numbers,
            time=varying.time,
        )


def _as_counted(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers as they were counted: JSON has read a whole one as 5.0."""
    whole = {number.name for number in TABLE if number.unit in ("count", "bytes")}
    return {name: int(value) if name in whole and value == int(value) else value for name, value in numbers.items()}
