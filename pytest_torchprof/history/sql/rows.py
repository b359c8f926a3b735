"""The rows of a record."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_torchprof.history.digest import digest_of
from pytest_torchprof.history.sql.schema import (
    COMMIT,
    ENVIRONMENT,
    MACHINE,
    MEASUREMENT,
    NUMBERS,
    RUN,
    STRUCTURE,
    TEST,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Table

    from pytest_torchprof.history.record import MeasurementRecord, RunRecord, VaryingRecord
    from pytest_torchprof.trace.metadata import Environment

Row = dict[str, Any]


def rows_of(record: RunRecord) -> dict[Table, list[Row]]:
    """Return the rows of each table, those with ids of their content by these: the same order whoever writes."""
    commit, machine = _commit(record), _with_id(_data(record.machine))
    environments = [_environment(_data(environment)) for environment in record.environments]
    structures = {
        structure.name: _with_id({"name": structure.name, "kernels": _data(structure.kernels)})
        for structure in record.structures
    }
    tests = {measured.test: _with_id({"nodeid": _text(measured.test)}) for measured in record.measurements}
    ids: dict[tuple[str, object], str] = {("environment", at): row["id"] for at, row in enumerate(environments)}
    ids |= {("structure", name): row["id"] for name, row in structures.items()}
    ids |= {("test", name): row["id"] for name, row in tests.items()}
    return {
        COMMIT: [] if commit is None else [commit],
        MACHINE: [machine],
        ENVIRONMENT: _by_id(environments),
        TEST: _by_id(tests.values()),
        STRUCTURE: _by_id(structures.values()),
        RUN: [_run(record, commit, machine)],
        MEASUREMENT: [
            _measurement(record.uuid, at, measured, varying, ids)
            for at, (measured, varying) in enumerate(zip(record.measurements, record.varying, strict=True))
        ],
    }


def environment_id(environment: Environment) -> str:
    """Return the id of an environment's row."""
    row: str = _environment(_data(environment))["id"]
    return row


def _commit(record: RunRecord) -> Row | None:
    if record.commit is None:
        return None
    row = _data(record.commit)
    return {**_with_id({name: row[name] for name in _COMMIT}), "date": record.commit.date.astimezone(UTC)}


_COMMIT = tuple(column.name for column in COMMIT.columns if column.name != "id")


def _environment(known: Row) -> Row:
    others = {name: value for name, value in known.items() if name not in _ENVIRONMENT and value is not None}
    return _with_id({**{name: known.get(name) for name in _ENVIRONMENT}, "others": others})


_ENVIRONMENT = tuple(column.name for column in ENVIRONMENT.columns if column.name not in ("id", "others"))


def _run(record: RunRecord, commit: Row | None, machine: Row) -> Row:
    job = {} if record.ci is None else _data(record.ci)
    return {
        "uuid": record.uuid,
        "version": _text(record.version),
        "began": record.began.astimezone(UTC),
        "ended": record.ended.astimezone(UTC),
        "complete": record.complete,
        "event": record.event.value,
        **{f"ci_{name}": job.get(name) for name in ("provider", "run", "attempt", "job")},
        "commit": None if commit is None else commit["id"],
        "branch": None if record.commit is None else _data(record.commit.branch),
        "dirty": None if record.commit is None else record.commit.dirty,
        "machine": machine["id"],
    }


def _measurement(
    run: str, at: int, measured: MeasurementRecord, varying: VaryingRecord, ids: Mapping[tuple[str, object], str]
) -> Row:
    compile_us = {f"compile_{phase}_us": us for phase, us in varying.compile_us.items()}
    numbers = {**measured.counts, **varying.numbers, **compile_us}
    return {
        "run": run,
        "position": at,
        "test": ids["test", measured.test],
        **{name: _data(getattr(measured, name)) for name in _AS_MEASURED},
        "environment": None if measured.environment is None else ids["environment", measured.environment],
        "structure": None if measured.structure is None else ids["structure", measured.structure],
        "baseline": None if varying.baseline is None else varying.baseline.value,
        "findings": _data(varying.findings),
        "time_median_us": None if varying.time is None else varying.time.median_us,
        "time": _data(varying.time),
        **{name: numbers.pop(name, None) for name in NUMBERS},
        "others": _data(numbers),
    }


_AS_MEASURED = ("label", "rank", "ranks", "device", "outcome", "code", "source")


def _with_id(row: Row) -> Row:
    return {"id": digest_of(row), **row}


def _by_id(rows: Any) -> list[Row]:
    return [row for _, row in sorted({row["id"]: row for row in rows}.items())]


def _data(value: object) -> Any:
    """Return a value as JSON; a character that no text in PostgreSQL may hold is written as a picture of it."""
    return _clean(msgspec.to_builtins(value, enc_hook=str, str_keys=True))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {_text(name): _clean(held) for name, held in value.items()}
    return [_clean(held) for held in value] if isinstance(value, list | tuple) else value


def _text(text: str) -> str:
    return text.replace("\0", "\N{SYMBOL FOR NULL}")
