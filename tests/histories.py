"""Histories made by hand: records of runs with what was launched at each commit."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.history.folder import HistoryFolder
from pytest_torchprof.history.record import (
    CommitRecord,
    Event,
    KernelCount,
    MachineRecord,
    MeasurementRecord,
    RunRecord,
    StructureRecord,
    VaryingRecord,
)
from pytest_torchprof.report.result import Outcome
from pytest_torchprof.trace.metadata import Environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

H100 = Environment(gpu="NVIDIA H100 80GB HBM3", torch="2.14.0", cuda="13.0", python="3.12.4")
UPGRADED = replace(H100, torch="2.15.0")
DAY = datetime(2026, 1, 1, tzinfo=UTC)


@cache
def sha(number: int | str) -> str:
    """Return the hash of the commit of this number."""
    return hashlib.sha1(str(number).encode()).hexdigest()


def launched(test: str, kernels: Mapping[str, int] | None, **facts: object) -> tuple[MeasurementRecord, dict]:
    """Return the measurement of a test that launched these kernels, with its structure; None: it was not measured."""
    if kernels is None:
        lost = MeasurementRecord(test=test, outcome=Outcome.NOT_MEASURED, code="lost-kernels")
        return replace(lost, **facts), {}
    structure = hashlib.sha1(repr(sorted(kernels.items())).encode()).hexdigest()[:16]
    measured = MeasurementRecord(
        test=test,
        outcome=Outcome.PASSED,
        source="same",
        environment=0,
        structure=structure,
        counts={"kernels": sum(kernels.values()), "launches": sum(kernels.values())},
    )
    rows = tuple(KernelCount(name, count) for name, count in sorted(kernels.items()))
    return replace(measured, **facts), {structure: rows}


def run_of(commit: int, *measured: tuple[MeasurementRecord, dict], **facts: object) -> RunRecord:
    """Return the record of a run at the commit of this number of a branch without merges.

    ``facts`` of the commit and of the run by their names.
    """
    own = {name: facts.pop(name) for name in list(facts) if name in CommitRecord.__struct_fields__}
    environment = facts.pop("environment", H100)
    line = tuple(sha(number) for number in range(commit - 1, max(commit - 201, -1), -1))
    at = replace(
        CommitRecord(
            project="example.org/team/model",
            folder="",
            sha=sha(commit),
            parents=own.get("ancestors", line)[:1],
            date=DAY + timedelta(days=commit),
            ancestors=line,
            shallow=False,
            branch="main",
            dirty=False,
        ),
        **own,
    )
    began = DAY + timedelta(days=commit, hours=len(measured))
    run = RunRecord(
        uuid=hashlib.md5(repr((commit, measured, own, facts, environment)).encode()).hexdigest(),
        version="1.0",
        began=began,
        ended=began,
        complete=True,
        event=Event.PUSH,
        commit=at,
        machine=MachineRecord(digest="0" * 16, gpu=environment.gpu),
        environments=(environment,),
        measurements=tuple(measurement for measurement, _ in measured),
        structures=tuple(
            StructureRecord(name, rows)
            for name, rows in {name: rows for _, own in measured for name, rows in own.items()}.items()
        ),
        varying=tuple(VaryingRecord(numbers={"gpu_busy_us": 10.0 + commit}) for _ in measured),
    )
    return replace(run, **{"ended": facts.get("began", run.ended), **facts})


def write(folder: Path, runs: Sequence[RunRecord]) -> Path:
    """Keep records in a folder, and return it."""
    for run in runs:
        HistoryFolder(folder).add(run)
    return folder
