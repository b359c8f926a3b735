"""The record of a run, made from its results."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.history.launched import also_varying, launched_of
from pytest_torchprof.history.record import (
    KernelCount,
    MeasurementRecord,
    StructureRecord,
    VaryingRecord,
)
from pytest_torchprof.report.json_report import JUDGED, reported_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.baseline import EntryFields
    from pytest_torchprof.history.launched import LaunchRecord
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.trace.metadata import Environment


def environments_of(results: Iterable[Result]) -> tuple[Environment, ...]:
    """Return the environments of a run's measurements, each once: versions and settings, without the clocks."""
    known = (result.environment for result in results)
    return tuple(dict.fromkeys(_lasting(environment) for environment in known if environment is not None))


def measurements_of(results: Iterable[Result], environments: Sequence[Environment]) -> tuple[MeasurementRecord, ...]:
    """Return the facts that the code decides, of results whose environments these are."""
    return tuple(_measurement(result, environments) for result in results)


def varying_of(results: Sequence[Result]) -> tuple[tuple[VaryingRecord, ...], LaunchRecord]:
    """Return the figures that vary from run to run, one for each result, and the launch orders that they name."""
    entries = tuple(_entry(result) for result in results)
    launched, orders = launched_of(entries)
    return tuple(map(_varying, results, entries, orders)), launched


def _varying(result: Result, entry: EntryFields | None, launched: int | None) -> VaryingRecord:
    numbers = _numbers(result, exact=False)
    return VaryingRecord(
        numbers=numbers,
        time=result.time if result.outcome in JUDGED else None,
        compile_us=result.compile_us,
        baseline=result.baseline_state,
        findings=tuple(dict.fromkeys(finding.code for finding in result.findings)),
        launched=launched,
        also={} if entry is None else also_varying(entry, numbers),
        samples_hardware=entry is not None and entry.samples_hardware,
    )


def _entry(result: Result) -> EntryFields | None:
    return None if result.entry is UNSET or result.outcome not in JUDGED else result.entry


def structures_of(results: Iterable[Result]) -> tuple[StructureRecord, ...]:
    """Return the structures that the judged results launched, each once."""
    judged = (result for result in results if result.outcome in JUDGED)
    kernels = {result.structure: _kernels(result) for result in judged if result.structure is not None}
    return tuple(StructureRecord(name, own) for name, own in sorted(kernels.items()))


def _kernels(result: Result) -> tuple[KernelCount, ...]:
    counts: Counter[str] = Counter()
    for row in result.kernels:
        counts[row.name] += row.count
    return tuple(KernelCount(name, count) for name, count in sorted(counts.items(), key=lambda row: (-row[1], row[0])))


def _measurement(result: Result, environments: Sequence[Environment]) -> MeasurementRecord:
    reason, environment = result.reason, result.environment
    return MeasurementRecord(
        test=result.nodeid,
        label=result.label,
        rank=result.rank,
        ranks=result.ranks,
        device=result.device,
        outcome=result.outcome,
        code=None if reason is None or reason.code is None else str(reason.code),
        source=result.source,
        environment=None if environment is None else environments.index(_lasting(environment)),
        structure=result.structure if result.outcome in JUDGED else None,
        counts=_numbers(result, exact=True),
    )


def _numbers(result: Result, *, exact: bool) -> dict[str, float]:
    """Return the numbers as far as they are known; what was not measured in full is a gap, and has none."""
    if result.outcome not in JUDGED:
        return {}
    values = {number.name: reported_value(result, number) for number in TABLE if number.exact is exact}
    return {name: value for name, value in values.items() if value is not None}


def _lasting(environment: Environment) -> Environment:
    return replace(environment, clocks_mhz=None)
