"""The results of a run, put into its record and made anew from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, ValidationError, convert, to_builtins
from msgspec.structs import replace

from pytest_torchprof.analysis.numbers import TABLE, Numbers
from pytest_torchprof.history.record import BadRecord
from pytest_torchprof.history.reported import ReportedCalls, ReportedKernel, ReportedResult, ReportedRun
from pytest_torchprof.reasons.records import FiguresAlone, ResultsUnreadable
from pytest_torchprof.report import Commit, RunResults
from pytest_torchprof.report.exported import as_counted, exported
from pytest_torchprof.report.result import KernelCalls, Result, summary_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.record import MeasurementRecord, RunRecord, VaryingRecord
    from pytest_torchprof.report.exported import Exported
    from pytest_torchprof.trace.metadata import Environment

_APART = ("kernels", "entry")
"""What stands in a record in a form of its own."""


def with_results(record: RunRecord, run: RunResults) -> RunRecord:
    """Return a record with all that the reports of its run tell; ``run`` has at most one result of a measurement."""
    figures = {(result.nodeid, result.label, result.rank): at for at, result in enumerate(measured_in(record))}
    of_any_rank = {(test, label): at for (test, label, _), at in reversed(figures.items())}
    kernels: dict[ReportedKernel, int] = {}
    results = tuple(
        _reported(record, at, result, kernels)
        for result in run.results
        for at in [figures.get((result.nodeid, result.label, result.rank), of_any_rank[result.nodeid, result.label])]
    )
    reported = ReportedRun(
        results=results,
        kernels=tuple(kernels),
        unused=run.unused,
        against=run.against,
        history=run.history,
        gone=run.gone,
    )
    return replace(record, reported=reported)


def results_in(record: RunRecord) -> RunResults:
    """Return the results of a run as its reports have them.

    BadRecord where it holds figures alone, what is none of a result, or nothing that this version knows.
    """
    reported = record.reported
    if reported is UNSET:
        raise BadRecord.of(record.uuid, FiguresAlone(record.version))
    try:
        results = tuple(_result(record, row, reported.kernels) for row in reported.results)
    except (ValidationError, IndexError) as error:
        raise BadRecord.of(record.uuid, ResultsUnreadable(record.version, str(error))) from None
    run = _run(record, results)
    return replace(run, unused=reported.unused, against=reported.against, history=reported.history, gone=reported.gone)


def figures_in(record: RunRecord) -> RunResults:
    """Return the measurements of a run, those of each rank, with what every record holds of them: their figures."""
    return _run(record, measured_in(record))


def measured_in(record: RunRecord) -> tuple[Result, ...]:
    """Return the measurements of a record as results that tell their figures."""
    pairs = zip(record.measurements, record.varying, strict=True)
    return tuple(_measured(measured, varying, record.environments) for measured, varying in pairs)


def _run(record: RunRecord, results: tuple[Result, ...]) -> RunResults:
    commit = record.commit
    return RunResults(
        results=results,
        run=record.uuid,
        began=record.began,
        commit=None if commit is None else Commit(sha=commit.sha, branch=commit.branch, dirty=commit.dirty),
        rootdir=None,
    )


def exported_figures(records: Iterable[RunRecord], notes: Notes) -> Iterator[Exported]:
    """Yield the measurements of records, those of each rank, under the names that their tests have now."""
    return (row for record in records for row in exported(with_names_now(figures_in(record), notes)))


def with_names_now(run: RunResults, notes: Notes) -> RunResults:
    """Return a run in which tests have their names of now; those that it measured under both keep theirs."""
    tests = {result.nodeid for result in run.results}
    now = {test: later for test in tests if (later := notes.name_now(test)) not in tests}
    named = (replace(result, nodeid=now.get(result.nodeid, result.nodeid)) for result in run.results)
    return replace(run, results=tuple(named)) if now else run


def _measured(measured: MeasurementRecord, varying: VaryingRecord, environments: Sequence[Environment]) -> Result:
    known = {**measured.counts, **varying.numbers}
    columns: dict[str, Any] = {number.name: as_counted(number, known.get(number.name)) for number in TABLE}
    numbers = Numbers(**columns)
    return Result(
        nodeid=measured.test,
        label=measured.label,
        rank=measured.rank,
        ranks=measured.ranks,
        device=measured.device,
        source=measured.source,
        outcome=measured.outcome,
        baseline_state=varying.baseline,
        summary=summary_of(numbers, numbers) if known else None,
        environment=None if measured.environment is None else environments[measured.environment],
        structure=measured.structure,
        time=varying.time,
        compile_us=varying.compile_us,
    )


def _reported(record: RunRecord, at: int, result: Result, kernels: dict[ReportedKernel, int]) -> ReportedResult:
    measured = _measured(record.measurements[at], record.varying[at], record.environments)
    return ReportedResult(
        of=at,
        calls=tuple(_calls(result.kernels, kernels)),
        differing=_differences(_plain(measured), _plain(result)),
    )


def _calls(rows: Iterable[KernelCalls], kernels: dict[ReportedKernel, int]) -> Iterable[ReportedCalls]:
    for row in rows:
        number = kernels.setdefault(ReportedKernel(row.name, row.ops), len(kernels))
        yield ReportedCalls(number, row.count, float(row.time_us), float(row.min_us), float(row.max_us))


def _result(record: RunRecord, row: ReportedResult, kernels: Sequence[ReportedKernel]) -> Result:
    figures = _measured(record.measurements[row.of], record.varying[row.of], record.environments)
    calls = tuple(
        KernelCalls(
            name=kernels[own.kernel].name,
            count=own.count,
            time_us=float(own.time_us),
            min_us=float(own.min_us),
            max_us=float(own.max_us),
            ops=kernels[own.kernel].ops,
        )
        for own in row.calls
    )
    return replace(convert(_completed(_plain(figures), row.differing), Result), kernels=calls)


def _plain(result: Result) -> dict[str, Any]:
    plain = to_builtins(result, enc_hook=str)
    return {name: _listed(value) for name, value in plain.items() if name not in _APART}


def _listed(value: Any) -> Any:
    """Return JSON values with lists, as a reader of the file has them."""
    if isinstance(value, dict):
        return {name: _listed(held) for name, held in value.items()}
    return [_listed(held) for held in value] if isinstance(value, list | tuple) else value


def _differences(base: Mapping[str, Any], full: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to put into ``base`` so that it equals ``full``, which has the same names."""
    differences = {}
    for name, value in full.items():
        if base[name] == value:
            continue
        both = isinstance(value, dict) and isinstance(before := base[name], dict) and before.keys() == value.keys()
        differences[name] = _differences(before, value) if both else value
    return differences


def _completed(base: Mapping[str, Any], differing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping from which ``_differences`` has made these."""
    return {**base, **{name: _filled(base.get(name), value) for name, value in differing.items()}}


def _filled(before: Any, value: Any) -> Any:
    both = isinstance(value, dict) and isinstance(before, dict) and value.keys() <= before.keys()
    return _completed(before, value) if both else value
