"""A run of a fleet as records of a history: each file is what a test is there."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.fleet.names import names_of
from pytest_torchprof.fleet.run_files import LIST
from pytest_torchprof.history.machines import machine_of
from pytest_torchprof.history.record import MOST_MEASUREMENTS, MachineRecord, RunRecord, as_written
from pytest_torchprof.history.run_record import environments_of, measurements_of, structures_of, varying_of
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.fleet_folders import FilesWithoutRecord, ListWithoutOrigin, TooManyForHistory
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.fleet.folder import FleetFolder
    from pytest_torchprof.fleet.judging import FileRecord
    from pytest_torchprof.fleet.origin import ListOrigin


def run_records_of(folder: FleetFolder, note: Callable[[str], None]) -> list[RunRecord]:
    """Return the records of a run, one for each machine that its files were recorded on: the same each time.

    ``note`` gets a sentence about each part that cannot be read. TorchprofError where files have no record yet, where
    there are more than a record holds, or where the list does not say when it was made.
    """
    frozen, records = folder.frozen(), folder.known(note)
    if frozen.origin is None:
        raise TorchprofError.because(ListWithoutOrigin(folder.shown))
    if len(frozen.files) > MOST_MEASUREMENTS:
        raise TorchprofError.because(TooManyForHistory(folder.shown, len(frozen.files), MOST_MEASUREMENTS))
    keys = [task.key for task in frozen.tasks()]
    if missing := sum(key not in records.spans for key in keys):
        raise TorchprofError.because(FilesWithoutRecord(folder.shown, missing, len(keys)))
    names = names_of(frozen.files, frozen.sources)
    by_machine: dict[MachineRecord, list[Result]] = {}
    nowhere, unknown = machine_of([]), list[Result]()
    for record in records.each(keys, lambda _: None):
        result = _result(record, names[record.url, record.member])
        machine = machine_of(environments_of([result]))
        (unknown if machine == nowhere else by_machine.setdefault(machine, [])).append(result)
    # What was not measured may be of any machine, and is a gap once.
    first = max(by_machine, key=lambda machine: len(by_machine[machine]), default=nowhere)
    by_machine.setdefault(first, []).extend(unknown)
    whole = (folder.path / LIST).read_bytes()
    version, origin = frozen.version, frozen.origin
    return [
        _run_record(results, machine, _uuid(whole, machine), version, origin) for machine, results in by_machine.items()
    ]


def _uuid(whole: bytes, machine: MachineRecord) -> str:
    return hashlib.sha256(whole + machine.digest.encode()).hexdigest()[:32]


def _run_record(
    results: Sequence[Result], machine: MachineRecord, uuid: str, version: str, origin: ListOrigin
) -> RunRecord:
    environments = environments_of(results)
    varying, launched = varying_of(results)
    record = RunRecord(
        uuid=uuid,
        version=version,
        began=origin.began,
        # When the last file was judged says nothing of the code, and would be another time after each retry.
        ended=origin.began,
        complete=True,
        event=origin.event,
        ci=origin.ci,
        commit=origin.commit,
        machine=machine,
        environments=environments,
        measurements=measurements_of(results, environments),
        structures=structures_of(results),
        varying=varying,
        launched=launched,
    )
    return as_written(record)


def _result(record: FileRecord, name: str) -> Result:
    """Return the result of a file under its name; a quarantined file counts as not measured."""
    if record.result is None:
        return Result(nodeid=name, outcome=Outcome.NOT_MEASURED, reason=record.quarantined)
    # A test of which nothing but a measurement is asked has passed.
    outcome = Outcome.PASSED if record.result.outcome is Outcome.RECORDED else record.result.outcome
    return replace(record.result, nodeid=name, outcome=outcome)
