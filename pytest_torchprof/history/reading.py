"""Reading many runs: what a run has in common with the one before is the same object, and is read once.

Of a measurement the bytes tell whether it is the one of the run before, as most are. What varies is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Raw

from pytest_torchprof.history.record import (
    MOST_MEASUREMENTS,
    BadRecord,
    MeasurementRecord,
    RunHead,
    StructureRecord,
    refuse_unknown_places,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.history.record import KernelCount
    from pytest_torchprof.trace.metadata import Environment


class StoredRun(RunHead, frozen=True, kw_only=True):
    """A run whose measurements are still bytes."""

    measurements: Annotated[tuple[Raw, ...], Meta(max_length=MOST_MEASUREMENTS)] = ()
    structures: tuple[Raw, ...] = ()


class HistoryRun(RunHead, frozen=True, kw_only=True):
    """A run with what the code decides of it; what is the same in another run is the same object there."""

    measurements: tuple[MeasurementRecord, ...]


class RunReader:
    """Reads runs, and keeps what it has read for those that follow."""

    def __init__(self) -> None:
        """Begin without anything read."""
        self.kernels: dict[str, tuple[KernelCount, ...]] = {}
        """The kernels of each structure."""
        self._measurements: dict[bytes, MeasurementRecord] = {}
        self._structures: dict[bytes, str] = {}
        self._environments: dict[tuple[Environment, ...], tuple[Environment, ...]] = {}

    def read(self, packed: Iterable[tuple[str, bytes] | BadRecord]) -> Iterator[HistoryRun | BadRecord]:
        """Yield the runs in records, given as name and content, and what is wrong with those not to be believed."""
        for record in packed:
            if isinstance(record, BadRecord):
                yield record
                continue
            name, content = record
            try:
                yield self._run(content, name)
            except BadRecord as problem:
                yield problem

    def _run(self, data: bytes, name: str) -> HistoryRun:
        try:
            stored = _DECODER.decode(unpacked(data, name))
            structures = {self._structure(bytes(raw)) for raw in stored.structures}
            measurements = tuple(self._measurement(bytes(raw)) for raw in stored.measurements)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRecord(f"{name}: no record of a run: {error}") from None
        for measured in measurements:
            refuse_unknown_places(measured, len(stored.environments), structures, name)
        head = {field: getattr(stored, field) for field in RunHead.__struct_fields__}
        head["environments"] = self._environments.setdefault(stored.environments, stored.environments)
        return HistoryRun(**head, measurements=measurements)

    def _measurement(self, raw: bytes) -> MeasurementRecord:
        if (measured := self._measurements.get(raw)) is None:
            measured = self._measurements[raw] = msgspec.json.decode(raw, type=MeasurementRecord)
        return measured

    def _structure(self, raw: bytes) -> str:
        if (name := self._structures.get(raw)) is None:
            structure = msgspec.json.decode(raw, type=StructureRecord)
            name = self._structures[raw] = structure.name
            self.kernels.setdefault(name, structure.kernels)
        return name


_DECODER: Final = msgspec.json.Decoder(StoredRun)
