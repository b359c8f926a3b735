"""Reading many runs: what a run shares with the one before is the same object, and is read once.

Of a measurement the bytes tell whether it is the one of the run before, as most are. Of what varies the times are read,
into arrays: the numbers of millions of measurements would else be as many objects.
"""

from __future__ import annotations

from array import array
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from pytest_torchprof.history.contradictions import (
    Contradiction,
    refuse_measured_and_not,
    refuse_measured_twice,
    refuse_measurement,
    refuse_other_count,
    refuse_structure,
    refuse_times,
)
from pytest_torchprof.history.record import (
    MOST_MEASUREMENTS,
    BadRecord,
    MeasurementRecord,
    RunHead,
    StructureRecord,
    other_number_of_times,
    parsed,
    refuse_unknown_parts,
    structure_twice,
    unpacked_figures,
)
from pytest_torchprof.reasons.records import NoRecordOfRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.history.record import KernelCount
    from pytest_torchprof.trace.metadata import Environment


Conditions = tuple[tuple[str, str | int], ...]
"""Under which conditions an untraced time was taken, by their names; empty where it is none."""
Packed = tuple[str, bytes] | BadRecord
"""Name and content of a record, or what is wrong with it."""


class StoredTime(Struct, frozen=True, gc=False):
    """The fields of an untraced time that are read."""

    conditions: dict[str, str | int]
    samples: Annotated[int, Meta(ge=1)]
    median_us: float
    quantiles_us: Annotated[tuple[float, ...], Meta(min_length=1)]


class StoredNumbers(Struct, frozen=True, gc=False):
    """The varying numbers that are read."""

    gpu_busy_us: float | None = None


class StoredVarying(Struct, frozen=True, gc=False):
    """The varying figures that are read."""

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
    """The conditions of all runs; the first are none."""


class HistoryRun(RunHead, frozen=True, kw_only=True):
    """A run with its measurements as the code decides them, by their numbers: runs that agree share them."""

    rows: array[int]
    """The number of each of its measurements among all of them."""
    measurements: Sequence[MeasurementRecord]
    """The measurements of all runs."""
    times: RunTimes

    def alone(self) -> HistoryRun:
        """Return it without what it has in common with others."""
        return replace(self, measurements=(), times=replace(self.times, conditions=()))


class ReadPart(Struct, frozen=True, kw_only=True):
    """The content that one process has read, with the numbers that it has given."""

    runs: Sequence[HistoryRun | BadRecord]
    measurements: Sequence[bytes]
    """By their numbers, each as the record has it."""
    structures: Sequence[bytes]
    conditions: Sequence[Conditions]
    """By their numbers."""


class _Claims(dict[tuple["str | None", "float | None"], int]):
    """A number for each structure with a count of kernels: what measurements claim, and what structures list."""

    def __missing__(self, claim: tuple[str | None, float | None]) -> int:
        self[claim] = len(self)
        return self[claim]


class _Measurements(dict[bytes, int]):
    """The numbers of measurements by their bytes, each decoded when it is asked for first."""

    def __init__(self, claims: _Claims) -> None:
        super().__init__()
        self.all: list[MeasurementRecord] = []
        self.claims: list[int] = []
        """Which structure each of them names, and how many kernels it has."""
        self._claims = claims
        self.environments: set[int | None] = {None}
        """All that one of them names."""
        self.key_numbers: list[int] = []
        """For each of them the number of its test, label, rank and device."""
        self._numbers: dict[tuple[str, str | None, int | None, str], int] = {}

    def __missing__(self, raw: bytes) -> int:
        measured = msgspec.json.decode(raw, type=MeasurementRecord)
        refuse_measurement(measured)
        number = self[raw] = len(self.all)
        self.all.append(measured)
        kernels = None if measured.structure is None else measured.counts.get("kernels")
        self.claims.append(self._claims[measured.structure, kernels])
        self.environments.add(measured.environment)
        self.key_numbers.append(self._numbers.setdefault(measured.key, len(self._numbers)))
        return number


class _Listed(NamedTuple):
    """The kernels that a structure lists."""

    claim: int
    """The claim of a measurement with as many kernels."""
    kernels: tuple[KernelCount, ...]


class _Structures(dict[bytes, tuple[str, _Listed]]):
    """The names of structures and what they list by the structures' bytes, each decoded when it is asked for first."""

    def __init__(self, claims: _Claims) -> None:
        super().__init__()
        self.kernels: dict[str, tuple[KernelCount, ...]] = {}
        self._claims = claims

    def __missing__(self, raw: bytes) -> tuple[str, _Listed]:
        structure = msgspec.json.decode(raw, type=StructureRecord)
        refuse_structure(structure.name, structure.kernels)
        self.kernels.setdefault(structure.name, structure.kernels)
        count = sum(kernel.count for kernel in structure.kernels)
        self[raw] = structure.name, _Listed(self._claims[structure.name, count], structure.kernels)
        return self[raw]


class RunReader:
    """Reads runs, and keeps what it has read for those that follow."""

    def __init__(self) -> None:
        """Begin without anything read."""
        self._claims = _Claims()
        self._measurements = _Measurements(self._claims)
        self._structures = _Structures(self._claims)
        self._conditions: dict[Conditions, int] = {(): 0}
        self._all_conditions: list[Conditions] = [()]
        self._environments: dict[tuple[Environment, ...], tuple[Environment, ...]] = {}

    @property
    def kernels(self) -> Mapping[str, tuple[KernelCount, ...]]:
        """The kernels of each structure that was read."""
        return self._structures.kernels

    def read(self, packed: Iterable[Packed]) -> Iterator[HistoryRun | BadRecord]:
        """Yield the runs in records, given as name and content, and the faults of those not to be believed."""
        yield from map(self._read, packed)

    def read_part(self, packed: Iterable[Packed]) -> ReadPart:
        """Return the content of some records, numbered by this reader alone; it must have read nothing before."""
        runs = [*map(self._read, packed)]
        return ReadPart(
            runs=[run if isinstance(run, BadRecord) else run.alone() for run in runs],
            measurements=[*self._measurements],
            structures=[*self._structures],
            conditions=self._all_conditions,
        )

    def take(self, part: ReadPart) -> Iterator[HistoryRun | BadRecord]:
        """Yield the runs of a part, with the numbers that its measurements have here."""
        numbers = [self._measurements[raw] for raw in part.measurements]
        conditions = array("I", map(self._number_of, part.conditions))
        self._structures.update(zip(part.structures, map(self._structures.__getitem__, part.structures), strict=True))
        for run in part.runs:
            if isinstance(run, BadRecord):
                yield run
                continue
            rows = array("I", list(map(numbers.__getitem__, run.rows)))
            under = array("I", list(map(conditions.__getitem__, run.times.under)))
            environments = self._environments.setdefault(run.environments, run.environments)
            times = RunTimes(us=run.times.us, under=under, conditions=self._all_conditions)
            yield replace(run, environments=environments, rows=rows, measurements=self._measurements.all, times=times)

    def _read(self, record: Packed) -> HistoryRun | BadRecord:
        if isinstance(record, BadRecord):
            return record
        name, content = record
        try:
            return self._run(unpacked_figures(content, name), name)
        except BadRecord as problem:
            return problem

    def _run(self, content: bytes, name: str) -> HistoryRun:
        stored = parsed(_DECODER, content, name)
        try:
            return self._of(stored, name)
        except Contradiction as problem:
            raise BadRecord.of(name, problem.why) from None

    def _of(self, stored: StoredRun, name: str) -> HistoryRun:
        if len(stored.varying) != len(stored.measurements):
            raise other_number_of_times(len(stored.measurements), len(stored.varying), name)
        try:
            structures = dict(map(self._structures.__getitem__, map(bytes, stored.structures)))
            if len(structures) < len(stored.structures):
                raise structure_twice(name)
            rows = array("I", list(map(self._measurements.__getitem__, map(bytes, stored.measurements))))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRecord.of(name, NoRecordOfRun(str(error))) from None
        self._refuse_unknown_parts(rows, stored, structures, name)
        if len(set(map(self._measurements.key_numbers.__getitem__, rows))) < len(rows):
            refuse_measured_twice(map(self._measurements.all.__getitem__, rows))
        if stored.all_tests is not None and stored.all_tests.unmeasured:
            tests = {measured.test for measured in map(self._measurements.all.__getitem__, rows)}
            refuse_measured_and_not(tests, stored.all_tests.unmeasured)
        head = {field: getattr(stored, field) for field in RunHead.__struct_fields__}
        head["environments"] = self._environments.setdefault(stored.environments, stored.environments)
        return HistoryRun(**head, rows=rows, measurements=self._measurements.all, times=self._times(stored.varying))

    def _refuse_unknown_parts(
        self, rows: Sequence[int], stored: StoredRun, structures: Mapping[str, _Listed], name: str
    ) -> None:
        environments = len(stored.environments)
        known = {self._claims[None, None], *(listed.claim for listed in structures.values())}
        if known.issuperset(map(self._measurements.claims.__getitem__, rows)) and (
            self._measurements.environments <= {None, *range(environments)}
        ):
            return
        for measured in map(self._measurements.all.__getitem__, rows):
            refuse_unknown_parts(measured, environments, structures, name)
            refuse_other_count(measured, () if measured.structure is None else structures[measured.structure].kernels)

    def _times(self, varying: Sequence[StoredVarying]) -> RunTimes:
        us = array("d", [row.numbers.gpu_busy_us or 0.0 for row in varying])
        under = array("I", bytes(len(varying) * array("I").itemsize))
        for at, time in enumerate(map(_TIME, varying)):
            if time is not None:
                refuse_times(time.median_us, time.quantiles_us)
                us[at], under[at] = time.median_us, self._number_of(tuple(sorted(time.conditions.items())))
        return RunTimes(us=us, under=under, conditions=self._all_conditions)

    def _number_of(self, conditions: Conditions) -> int:
        if (number := self._conditions.get(conditions)) is None:
            number = self._conditions[conditions] = len(self._all_conditions)
            self._all_conditions.append(conditions)
        return number


_DECODER: Final = msgspec.json.Decoder(StoredRun)
_TIME: Final = attrgetter("time")
