"""Reading many runs: what a run shares with the one before is the same object, and is read once.

Of a measurement the bytes tell whether it is the one of the run before, as most are. Of what varies the times are read,
into arrays: the numbers of millions of measurements would else be as many objects.
"""

from __future__ import annotations

from array import array
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from pytest_torchprof.history.record import (
    MOST_MEASUREMENTS,
    BadRecord,
    MeasurementRecord,
    RunHead,
    StructureRecord,
    other_number_of_times,
    parsed,
    refuse_unknown_places,
    unpacked_figures,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.history.record import KernelCount
    from pytest_torchprof.trace.metadata import Environment


Conditions = tuple[tuple[str, str | int], ...]
"""Under which conditions an untraced time was taken, by their names; empty where it is none."""
_AHEAD: Final = 4
"""How many records are unpacked while another is read."""


class StoredTime(Struct, frozen=True, gc=False):
    """What is read of an untraced time."""

    conditions: dict[str, str | int]
    median_us: float


class StoredNumbers(Struct, frozen=True, gc=False):
    """What is read of the numbers that vary."""

    gpu_busy_us: float | None = None


class StoredVarying(Struct, frozen=True, gc=False):
    """What is read of what varies."""

    numbers: StoredNumbers = StoredNumbers()
    time: StoredTime | None = None


class StoredRun(RunHead, frozen=True, kw_only=True):
    """A run whose measurements are not decoded yet."""

    measurements: Annotated[tuple[Raw, ...], Meta(max_length=MOST_MEASUREMENTS)] = ()
    structures: tuple[Raw, ...] = ()
    varying: tuple[StoredVarying, ...] = ()


class RunTimes(Struct, frozen=True, kw_only=True):
    """A time of each of a run's measurements: the untraced one, or else the one that the GPU was busy."""

    us: array[float]
    """In microseconds; 0 where none is known."""
    under: array[int]
    """Which of the conditions each was taken under."""
    conditions: Sequence[Conditions]
    """Those of all runs; the first are none."""


class HistoryRun(RunHead, frozen=True, kw_only=True):
    """A run with its measurements as the code decides them; runs that agree share the same objects."""

    measurements: tuple[MeasurementRecord, ...]
    times: RunTimes


class RunReader:
    """Reads runs, and keeps what it has read for those that follow."""

    def __init__(self) -> None:
        """Begin without anything read."""
        self.kernels: dict[str, tuple[KernelCount, ...]] = {}
        """The kernels of each structure."""
        self._measurements: dict[bytes, MeasurementRecord] = {}
        self._structures: dict[bytes, str] = {}
        self._conditions: dict[Conditions, int] = {(): 0}
        self._all_conditions: list[Conditions] = [()]
        self._environments: dict[tuple[Environment, ...], tuple[Environment, ...]] = {}

    def read(self, packed: Iterable[tuple[str, bytes] | BadRecord]) -> Iterator[HistoryRun | BadRecord]:
        """Yield the runs in records, given as name and content, and what is wrong with those not to be believed."""
        for record in _unpacked_ahead(packed):
            if isinstance(record, BadRecord):
                yield record
                continue
            name, content = record
            try:
                yield self._run(content.result(), name)
            except BadRecord as problem:
                yield problem

    def _run(self, content: bytes, name: str) -> HistoryRun:
        stored = parsed(_DECODER, content, name)
        if len(stored.varying) != len(stored.measurements):
            raise other_number_of_times(len(stored.measurements), len(stored.varying), name)
        try:
            structures = {self._structure(bytes(raw)) for raw in stored.structures}
            measurements = tuple(self._measurement(bytes(raw)) for raw in stored.measurements)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRecord(f"{name}: no record of a run: {error}") from None
        for measured in measurements:
            refuse_unknown_places(measured, len(stored.environments), structures, name)
        head = {field: getattr(stored, field) for field in RunHead.__struct_fields__}
        head["environments"] = self._environments.setdefault(stored.environments, stored.environments)
        return HistoryRun(**head, measurements=measurements, times=self._times(stored.varying))

    def _times(self, varying: tuple[StoredVarying, ...]) -> RunTimes:
        us = array("d", [row.numbers.gpu_busy_us or 0.0 for row in varying])
        under = array("I", bytes(len(varying) * array("I").itemsize))
        for at, row in enumerate(varying):
            if row.time is not None:
                us[at], under[at] = row.time.median_us, self._number_of(row.time.conditions)
        return RunTimes(us=us, under=under, conditions=self._all_conditions)

    def _number_of(self, conditions: dict[str, str | int]) -> int:
        known = tuple(sorted(conditions.items()))
        if (number := self._conditions.get(known)) is None:
            number = self._conditions[known] = len(self._all_conditions)
            self._all_conditions.append(known)
        return number

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


def _unpacked_ahead(
    packed: Iterable[tuple[str, bytes] | BadRecord],
) -> Iterator[tuple[str, Future[bytes]] | BadRecord]:
    """Yield records whose content is unpacked beside, on another core."""
    waiting: deque[tuple[str, Future[bytes]] | BadRecord] = deque()
    with ThreadPoolExecutor(max_workers=1) as pool:
        for record in packed:
            if isinstance(record, BadRecord):
                waiting.append(record)
            else:
                name, content = record
                waiting.append((name, pool.submit(unpacked_figures, content, name)))
            if len(waiting) > _AHEAD:
                yield waiting.popleft()
        yield from waiting


_DECODER: Final = msgspec.json.Decoder(StoredRun)
